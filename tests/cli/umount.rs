//! `s3mount umount` of folders that are no mounts of s3mount.

use tempfile::TempDir;

use crate::run::check_fails;

#[test]
fn what_is_not_mounted() {
    let folder = TempDir::new().expect("a folder");
    let dir = folder.path().canonicalize().expect("its path").display().to_string();
    let hint = "`findmnt -t fuse.s3mount` lists what is";
    check_fails(&["umount", &dir], &format!("nothing is mounted at {dir}; {hint}"));
    check_fails(&["umount", "/no/such"], &format!("nothing is mounted at /no/such; {hint}"));
}

#[test]
fn what_another_has_mounted() {
    check_fails(&["umount", "/proc"], "proc at /proc is not s3mount's but proc; use umount for it");
}
