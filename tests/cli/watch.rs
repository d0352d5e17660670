//! Commands that look at a mount, where there is none.

use std::os::unix::net::UnixListener;

use tempfile::TempDir;

use crate::run::{check_fails, check_usage};

#[test]
fn what_is_no_mount() {
    let folder = TempDir::new().expect("a folder");
    let dir = folder.path().canonicalize().expect("its path").display().to_string();
    let hint = "`findmnt -t fuse.s3mount` lists what is";
    for name in ["stats", "trace"] {
        check_fails(&[name, &dir], &format!("nothing is mounted at {dir}; {hint}"));
        check_fails(
            &[name, "/no/such"],
            "/no/such does not exist; name the folder of a mount, or its control socket",
        );
        let other = "proc at /proc is not s3mount's but proc; name a folder that s3mount has mounted";
        check_fails(&[name, "/proc"], other);
        // A socket that nobody listens at any more.
        let socket = format!("{dir}/{name}");
        drop(UnixListener::bind(&socket).expect("a socket"));
        check_fails(&[name, &socket], &format!("no daemon listens at {socket} any more; mount again"));
    }
}

#[test]
fn values_that_cannot_be_read() {
    check_usage(
        &["stats", "/mnt", "--interval", "0"],
        "error: invalid value '0' for '--interval <SECONDS>': not a time from 0.1 to 3600 seconds; write it like 1 \
         or 30s",
    );
    check_usage(
        &["stats", "/mnt", "--price-get", "cheap"],
        "error: invalid value 'cheap' for '--price-get <DOLLARS>': not a price; write dollars, such as 0.0004",
    );
}
