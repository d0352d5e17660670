//! `s3mount doctor` finds what is wrong with stores, credentials, folders and disks. The faults of machines are
//! planted in the unit tests of the command.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{
    Builder, Fault, FaultKind, Operation, TestS3, WatchdogGuard, run_with_timeout, watchdog,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{BUCKET, World, wait_for};

/// What the doctor said: its exit code, and the checks by name.
struct Report {
    code: Option<i32>,
    checks: Vec<Value>,
    _watchdog: WatchdogGuard,
}

impl Report {
    /// Runs the doctor on `args`, by a command that `change` has changed.
    fn new(args: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let watchdog = watchdog(Duration::from_secs(120));
        let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
        command.arg("doctor").args(args).arg("--json");
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/no/such");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
        change(&mut command);
        let output = run_with_timeout(&mut command, Duration::from_secs(100)).expect("a report");
        let said = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {said}"));
        let checks = report["checks"].as_array().expect("checks").clone();
        Self { code: output.status.code(), checks, _watchdog: watchdog }
    }

    /// Of a server's bucket.
    fn of(server: &TestS3, args: &[&str]) -> Self {
        Self::new(&[&[BUCKET, "--endpoint-url", &server.endpoint()], args].concat(), |_| {})
    }

    fn check(&self, name: &str) -> &Value {
        let check = self.checks.iter().find(|check| check["name"] == name);
        check.unwrap_or_else(|| panic!("no {name} in {:#?}", self.checks))
    }

    /// Whether the check has this state, and says this or has it as remedy. The exit code goes by the state.
    fn finds(&self, name: &str, state: &str, said: &str) {
        let check = self.check(name);
        let text = format!(
            "{}; {}",
            check["found"].as_str().expect("text"),
            check["remedy"].as_str().expect("text")
        );
        assert!(check["state"] == state && text.contains(said), "{check:#}");
        if state == "fail" {
            assert_eq!(self.code, Some(1));
        }
    }
}

fn server(builder: Builder) -> TestS3 {
    builder.object(BUCKET, "d/f", "text").start().expect("a server")
}

#[test]
fn a_mount_that_would_work_passes_all_checks() {
    let server = server(TestS3::builder().region("eu-west-1"));
    let report = Report::of(&server, &["--foreground"]);
    for (name, said) in [
        ("region", "eu-west-1"),
        ("clock", "it agrees"),
        ("endpoint", "answers a LIST"),
        ("LIST", ""),
        ("HEAD", "d/f"),
        ("GET", "d/f"),
        ("credentials", "the environment: keys"),
        ("settings", ""),
    ] {
        report.finds(name, "ok", said);
    }
    report.finds("PUT", "skip", "s3:PutObject on arn:aws:s3:::data/*, and --try-write tries it");
    assert_eq!(report.code, Some(0), "{:#?}", report.checks);
    assert_eq!(server.keys(BUCKET), ["d/f"]);
    assert_eq!(server.stats().put_object.requests, 0);
}

#[test]
fn writing_is_tried_when_it_is_asked_for() {
    let server = server(TestS3::builder());
    let report = Report::of(&server, &["--try-write"]);
    report.finds("PUT", "ok", ".s3mount-doctor-");
    report.finds("DELETE", "ok", "");
    assert_eq!(server.keys(BUCKET), ["d/f"]);
    let denied = FaultKind::Status(403, "AccessDenied".to_owned());
    server.fault(Fault::new(denied).on(Operation::PutObject));
    Report::of(&server, &["--try-write"]).finds("PUT", "fail", "grant s3:PutObject on arn:aws:s3:::data/*");
}

#[test]
fn each_missing_permission_is_named() {
    let server = server(TestS3::builder());
    for (operation, name, permission) in [
        (Operation::ListObjects, "LIST", "grant s3:ListBucket on arn:aws:s3:::data"),
        (Operation::HeadObject, "HEAD", "grant s3:GetObject on arn:aws:s3:::data/*"),
        (
            Operation::GetObject,
            "GET",
            "grant s3:GetObject on arn:aws:s3:::data/* (and kms:Decrypt for its key)",
        ),
    ] {
        server.fault(Fault::new(FaultKind::Status(403, "AccessDenied".to_owned())).on(operation));
        let report = Report::of(&server, &[]);
        report.finds(name, "fail", permission);
        let others = report.checks.iter().filter(|check| check["name"] != name && check["state"] == "fail");
        assert_eq!(others.count(), 0, "{:#?}", report.checks);
        server.clear_faults();
    }
}

#[test]
fn a_ca_bundle_of_the_environment_that_is_not_there_is_named() {
    let report = Report::new(&[], |command| {
        command.env("AWS_CA_BUNDLE", "/no/such.pem");
    });
    report.finds("CA bundle", "fail", "give a readable PEM file with --ca-bundle or $AWS_CA_BUNDLE");
}

#[test]
fn a_clock_that_is_wrong_is_found() {
    let server = server(TestS3::builder());
    server.fault(Fault::new(FaultKind::Clock(-120)));
    let report = Report::of(&server, &[]);
    report.finds("clock", "warn", "ahead of the store's; set it");
    assert_eq!(report.code, Some(0));
    server.clear_faults();
    server.fault(Fault::new(FaultKind::Clock(1200)));
    let report = Report::of(&server, &[]);
    report.finds("clock", "fail", "behind the store's, and S3 refuses");
    report.finds("LIST", "fail", "the clock is wrong; set it");
}

#[test]
fn a_bucket_that_is_elsewhere_or_nowhere_is_found() {
    let server = server(TestS3::builder().region("eu-west-1"));
    Report::of(&server, &["--region", "us-west-2"]).finds("region", "fail", "pass --region eu-west-1");
    let endpoint = server.endpoint();
    let report = Report::new(&["nowhere", "--endpoint-url", &endpoint], |_| {});
    report.finds("bucket", "fail", "bucket \"nowhere\" does not exist");
    let report = Report::new(&["data/empty/", "--endpoint-url", &endpoint], |_| {});
    report.finds("prefix", "warn", "no key is below \"empty/\"; check the prefix");
    report.finds("HEAD", "ok", "a key that is not there");
    report.finds("GET", "skip", "");
    assert_eq!(report.code, Some(0));
}

#[test]
fn stores_that_do_not_answer_are_found() {
    let nobody = Report::new(&[BUCKET, "--endpoint-url", "http://127.0.0.1:1"], |_| {});
    nobody.finds("endpoint", "fail", "cannot reach http://127.0.0.1:1");
    let server = server(TestS3::builder());
    server.freeze(true);
    Report::of(&server, &[]).finds("endpoint", "fail", "gave no answer within 10s");
    server.thaw();
    let tls = TestS3::builder().tls().bucket(BUCKET).start().expect("a server");
    Report::of(&tls, &[]).finds("endpoint", "fail", "--ca-bundle FILE");
}

#[test]
fn a_store_that_is_far_is_warned_of() {
    let server = server(TestS3::builder());
    server.fault(Fault::new(FaultKind::Stall(300)).on(Operation::ListObjects));
    Report::of(&server, &[]).finds("endpoint", "warn", "the store is far or busy");
}

#[test]
fn credentials_that_are_refused_or_over_are_told_apart() {
    let server = server(TestS3::builder().credentials("another"));
    let report = Report::of(&server, &[]);
    report.finds("access", "fail", "InvalidAccessKeyId");
    let expired = |command: &mut Command| {
        command.env("AWS_SESSION_TOKEN", "t").env("AWS_CREDENTIAL_EXPIRATION", "2020-01-01T00:00:00Z");
    };
    let report = Report::new(&[BUCKET, "--endpoint-url", &server.endpoint()], expired);
    report.finds("credentials", "fail", "which ended at 2020-01-01T00:00:00Z");
    let report = Report::new(&[BUCKET, "--endpoint-url", &server.endpoint(), "--profile", "typo"], |_| {});
    report.finds("credentials", "fail", "the profile \"typo\" is neither in /no/such/.aws/config");
}

#[test]
fn folders_and_flags_that_cannot_be_used_are_named() {
    let server = server(TestS3::builder());
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("f"), "").expect("a file");
    let at =
        |dir: &Path, flags: &[&str]| Report::of(&server, &[&[dir.to_str().expect("UTF-8")], flags].concat());
    at(folder.path(), &[]).finds("folder", "fail", "is not empty; give an empty one");
    at(&folder.path().join("none"), &[]).finds("folder", "fail", "mkdir -p");
    let report = at(folder.path(), &["--nonempty", "--memory-limit", "1MiB"]);
    report.finds("settings", "fail", "--memory-limit 1MiB is too small");
    report.finds("folder", "ok", "can be mounted at");
    let cache = folder.path().join("no/such/cache");
    let flags = ["--nonempty", "--cache", cache.to_str().expect("UTF-8")];
    at(folder.path(), &flags).finds("cache", "fail", "is missing, or can't be written to");
}

#[test]
fn a_mount_that_lives_is_told_from_one_whose_daemon_was_killed() {
    let world = World::new(TestS3::builder().object(BUCKET, "f", "text"), &[]);
    let dir = world.mount.path().to_owned();
    let look = |world: &World| Report::of(&world.server, &[dir.to_str().expect("UTF-8")]);
    look(&world).finds("folder", "ok", "s3://data/ is mounted at");
    kill(Pid::from_raw(world.mount.pid().cast_signed()), Signal::SIGKILL).expect("a daemon");
    wait_for("the end of the daemon", || std::fs::read_dir(&dir).is_err());
    look(&world).finds("folder", "fail", "is gone; s3mount umount");
}
