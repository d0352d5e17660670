//! Programs that jobs run write to mounts of three S3 servers. boto3 compares what the buckets hold with what was
//! meant: see `programs.py`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use s3mount_testkit::{MountGuard, OtherServer, TestS3, watchdog};
use tempfile::TempDir;

use crate::world::{BUCKET, run_command, s3mount};

const VENV: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/venv");
const VERSITYGW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/bin/versitygw");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/programs.py");

/// All tests here together take some minutes on a busy machine.
const LIMIT: Duration = Duration::from_secs(290);

/// Mounts the bucket of a server, and runs all programs on the mount.
fn run_programs(endpoint: &str, folder: &Path) {
    let [dir, work, spool] = ["mnt", "work", "spool"].map(|name| folder.join(name));
    for folder in [&dir, &work, &spool] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let spool = spool.to_str().expect("a plain path");
    let flags = [
        "--foreground",
        "--region",
        "us-east-1",
        "--allow=overwrite",
        "--allow=delete",
        "--allow=rename",
        "--write-spool",
        spool,
        "--memory-limit",
        "256MiB",
        "--write-part-size",
        "5MiB",
    ];
    let mount = MountGuard::new(&mut s3mount(endpoint, BUCKET, &dir, &flags), &dir).expect("a mount");
    let mut python = Command::new(format!("{VENV}/bin/python"));
    python.args([SCRIPT, endpoint, BUCKET]).arg(&dir).arg(&work);
    python.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
    let said = run_command(&mut python);
    assert!(said.lines().count() > 15, "{said}");
    let log = mount.stderr();
    assert!(!log.contains(" ERROR "), "{log}");
}

#[test]
fn programs_write_to_the_test_server() {
    let _watchdog = watchdog(LIMIT);
    let folder = TempDir::new().expect("a folder");
    let server = TestS3::builder().bucket(BUCKET).start().expect("a server");
    run_programs(&server.endpoint(), folder.path());
    assert_eq!(server.open_uploads(BUCKET), []);
}

#[test]
fn programs_write_to_moto() {
    let _watchdog = watchdog(LIMIT);
    let folder = TempDir::new().expect("a folder");
    let moto = OtherServer::moto(Path::new(VENV), u32::MAX, &folder.path().join("log"));
    let moto = moto.expect("moto in target/venv; `make test` installs it");
    let mut stream = TcpStream::connect(moto.endpoint().trim_start_matches("http://")).expect("a connection");
    write!(stream, "PUT /{BUCKET} HTTP/1.1\r\nHost: moto\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    run_programs(moto.endpoint(), folder.path());
}

#[test]
fn programs_write_to_versitygw() {
    let _watchdog = watchdog(LIMIT);
    let folder = TempDir::new().expect("a folder");
    let server = folder.path().join("server");
    std::fs::create_dir(&server).expect("a folder");
    let keys = ("test", "secret");
    let gateway = OtherServer::versitygw(Path::new(VERSITYGW), &server, Ipv4Addr::LOCALHOST.into(), keys);
    let gateway = gateway.expect("versitygw in target/tools; `make test` installs it");
    // To versitygw, a folder is a bucket.
    std::fs::create_dir(server.join("buckets").join(BUCKET)).expect("a bucket");
    run_programs(gateway.endpoint(), folder.path());
}
