//! A mount of moto, another S3 server, which checks signatures.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use s3mount_testkit::{MountGuard, OtherServer, content, watchdog};
use tempfile::TempDir;

use crate::world::{run_command, s3mount};

const VENV: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/venv");
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/venv/bin/python");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/moto_bucket.py");

#[test]
fn signed_reads_of_moto() {
    let _watchdog = watchdog(Duration::from_secs(180));
    let folder = TempDir::new().expect("a folder");
    // moto checks signatures and policies from the first request after the set-up on.
    let moto = OtherServer::moto(Path::new(VENV), 1000, &folder.path().join("log"));
    let moto = moto.expect("moto in target/venv; `make test` installs it");
    let endpoint = moto.endpoint();
    // The set-up fills the bucket with boto3, makes a user that may read the bucket, and turns the checks on.
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("a/b c")).expect("a folder");
    let names =
        [("big.bin", 40_000_000), ("a/small", 1000), ("a/b c/naïve+café 100%.bin", 70_000), ("a/empty", 0)];
    for (name, len) in names {
        std::fs::write(source.join(name), content(name, 0, len)).expect("a file");
    }
    let keys = run_command(Command::new(PYTHON).args([SCRIPT, endpoint]).arg(&source));
    let (access_key, secret) = keys.trim().split_once(' ').expect("a key and its secret");

    let dir = folder.path().join("mnt");
    std::fs::create_dir(&dir).expect("a mount point");
    let command = |access_key: &str, secret: &str| {
        let mut command = s3mount(endpoint, "bucket", &dir, &["--foreground", "--region", "us-east-1"]);
        command.env("AWS_ACCESS_KEY_ID", access_key).env("AWS_SECRET_ACCESS_KEY", secret);
        command
    };
    // moto refuses a wrong secret, which shows that it checks signatures.
    let error =
        MountGuard::new(&mut command(access_key, "wrong"), &dir).expect_err("a wrong signature").to_string();
    assert!(error.contains("SignatureDoesNotMatch"), "{error}");

    let mount = MountGuard::new(&mut command(access_key, secret), &dir).expect("a mount");
    run_command(Command::new("diff").arg("-r").arg(&source).arg(mount.path()));
    let listed = run_command(Command::new("find").arg(mount.path()).args(["-type", "f"]));
    assert_eq!(listed.lines().count(), names.len());
}
