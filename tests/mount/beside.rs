//! Commands that people type, on a mount and in a local folder side by side: see `beside.py`.

use std::process::Command;

use s3mount_testkit::TestS3;
use tempfile::TempDir;

use crate::world::{BUCKET, World, run_command};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/beside.py");

#[test]
fn commands_do_what_they_do_in_a_local_folder() {
    let (spool, local) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let flags = [
        "--allow=delete",
        "--allow=overwrite",
        "--allow=rename",
        "--write-spool",
        spool.path().to_str().expect("a plain path"),
    ];
    let world = World::new(TestS3::builder().bucket(BUCKET), &flags);
    let mut python = Command::new("/usr/bin/python3");
    run_command(python.arg(SCRIPT).arg(world.path("")).arg(local.path()));
    let log = world.mount.stderr();
    assert!(!log.contains(" ERROR ") && !log.contains("Not Implemented"), "{log}");
}
