//! Where the bucket's name is in the requests.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::net::if_::if_nameindex;
use s3mount_testkit::{MountGuard, TestS3, run_with_timeout, watchdog};
use tempfile::TempDir;

use crate::credentials::where_all_names_are_here;
use crate::world::{BUCKET, s3mount};

#[test]
fn the_bucket_is_before_the_name_of_the_host() {
    where_all_names_are_here(|names| {
        let _watchdog = watchdog(Duration::from_secs(60));
        let server = TestS3::builder().object(BUCKET, "d/f", "text").start().expect("a server");
        let folder = TempDir::new().expect("a folder");
        let dir = folder.path().join("mnt");
        fs::create_dir(&dir).expect("a mount point");
        let endpoint = server.endpoint().replace("127.0.0.1", "localhost");
        let flags = ["--foreground", "--allow=write", "--addressing", "virtual"];
        let mount = MountGuard::new(&mut s3mount(&endpoint, BUCKET, &dir, &flags), &dir).expect("a mount");
        assert_eq!(fs::read(mount.path().join("d/f")).expect("a file"), b"text");
        fs::write(mount.path().join("d/g"), "more").expect("a new file");
        assert_eq!(server.keys(BUCKET), ["d/f", "d/g"]);
        let names = names.lock().expect("a lock");
        assert!(!names.is_empty() && names.iter().all(|name| name == "data.localhost"), "{names:?}");
    });
}

#[test]
fn connections_take_the_interface_that_is_named() {
    let _watchdog = watchdog(Duration::from_secs(60));
    let server = TestS3::builder().object(BUCKET, "f", "text").start().expect("a server");
    let folder = TempDir::new().expect("a folder");
    let flags = ["--foreground", "--bind", "lo", "--bind", "lo"];
    let mount =
        MountGuard::new(&mut s3mount(&server.endpoint(), BUCKET, folder.path(), &flags), folder.path());
    assert_eq!(fs::read(mount.expect("a mount").path().join("f")).expect("a file"), b"text");
    // The server listens on the loopback. No other interface leads there.
    let interfaces = if_nameindex().expect("the interfaces");
    let mut names = interfaces.iter().map(|interface| interface.name().to_str().expect("a name"));
    let other = names.find(|name| *name != "lo").expect("another interface than lo");
    let before = server.stats().requests();
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    doctor.args(["doctor", BUCKET, "--no-sign-request", "--region", "us-east-1", "--bind", other]);
    doctor.args(["--endpoint-url", &server.endpoint()]);
    let output = run_with_timeout(&mut doctor, Duration::from_secs(50)).expect("an end");
    assert_eq!((output.status.code(), server.stats().requests()), (Some(1), before), "{output:?}");
}

#[test]
fn what_no_store_has_is_refused_before_it_is_asked() {
    let folder = TempDir::new().expect("a folder");
    for (bucket, flags, expected) in [
        (
            BUCKET,
            &["--dual-stack"][..],
            "--dual-stack chooses among AWS's endpoints, and --endpoint-url names",
        ),
        (BUCKET, &["--addressing", "virtual"], "--addressing virtual puts the bucket before the host's name"),
        (BUCKET, &["--addressing", "both"], "[possible values: auto, path, virtual]"),
        ("arn:aws:s3::111122223333:accesspoint/a.mrap", &[], "is a multi-region access point"),
        ("data-abc--ol-s3/p", &[], "S3 Object Lambda"),
    ] {
        let mut command = s3mount("http://127.0.0.1:1", bucket, folder.path(), flags);
        let output = run_with_timeout(&mut command, Duration::from_secs(45)).expect("s3mount");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(!output.status.success() && said.contains(expected), "{said:?}, not {expected:?}");
    }
}
