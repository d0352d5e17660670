//! The audit log: who opens and changes what.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use s3mount_testkit::{TestS3, run_with_timeout};
use serde_json::Value;
use tempfile::TempDir;

use crate::takeover::take_over;
use crate::world::{BUCKET, NOBODY, World, s3mount, wait_for};

/// The lines of a log.
fn lines(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// What a line says of a call, without its caller.
fn call(line: &Value) -> String {
    let members = ["call", "access", "key", "to", "result"].map(|name| line[name].as_str());
    members.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_call_has_its_caller_and_its_result() {
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    let server = TestS3::builder().object(BUCKET, "data/there", "bytes").object(BUCKET, "data/d/in", "bytes");
    let (uid, gid) = (format!("--uid={NOBODY}"), format!("--gid={NOBODY}"));
    let flags = ["--prefix=data/", "--allow=write,delete,rename", "--allow-other", "--audit-log", &log];
    let world = World::new(server, &[&flags[..], &[&uid, &gid]].concat());
    let script = "cat there >/dev/null; cat none; echo text >new; mkdir e; mv new e/moved; chmod 600 there; \
        ln -s there link; truncate -s 1 there; rm e/moved; rmdir e; rmdir d; rm there; cat .s3mount/stats >/dev/null";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(world.mount.path());
    let shell = shell.uid(NOBODY).gid(NOBODY).output().expect("a shell");
    let expected = [
        "open read data/there ok",
        "create write data/new ok",
        // The shell has the file under two descriptors, and closes both.
        "close data/new ok",
        "close data/new ok",
        "mkdir data/e ok",
        "rename data/new data/e/moved ok",
        "setattr data/there ok",
        "symlink data/link EPERM",
        "open write data/there EPERM",
        "unlink data/e/moved ok",
        "rmdir data/e ok",
        "rmdir data/d ENOTEMPTY",
        "unlink data/there ok",
    ];
    wait_for("the last line", || lines(&log).len() >= expected.len());
    let lines = lines(&log);
    assert_eq!(lines.iter().map(call).collect::<Vec<_>>(), expected, "{shell:?}");
    let programs =
        ["cat", "sh", "sh", "sh", "mkdir", "mv", "chmod", "ln", "truncate", "rm", "rmdir", "rmdir", "rm"];
    for (line, program) in lines.iter().zip(programs) {
        assert_eq!((&line["uid"], &line["gid"]), (&NOBODY.into(), &NOBODY.into()), "{line}");
        assert!(line["pid"].as_u64().is_some_and(|pid| pid > 1), "{line}");
        let found = std::fs::canonicalize(line["program"].as_str().expect("a path")).expect("a program");
        let which = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().expect("sh");
        let meant = String::from_utf8_lossy(&which.stdout).trim().to_owned();
        assert_eq!(found, std::fs::canonicalize(meant).expect("a program"), "{line}");
        assert!(line["time"].as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')));
    }
}

/// Each of two mounts would move the lines of the other away.
#[test]
fn a_second_mount_with_the_same_log_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    let world = World::new(TestS3::builder().object(BUCKET, "there", "bytes"), &["--audit-log", &log]);
    let dir = folder.path().join("mnt");
    std::fs::create_dir(&dir).expect("a mount point");
    let mut second = s3mount(&world.server.endpoint(), BUCKET, &dir, &["--foreground", "--audit-log", &log]);
    let output = run_with_timeout(&mut second, Duration::from_secs(60)).expect("s3mount");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = format!(
        "cannot write to the file --audit-log {log}: another mount writes to it; name a file of its own"
    );
    assert!(said.contains(&expected), "{said}");
    std::fs::read(world.path("there")).expect("bytes");
    wait_for("the call", || lines(&log).len() == 1);
    drop(world);
    let world = World::new(TestS3::builder().object(BUCKET, "there", "bytes"), &["--audit-log", &log]);
    std::fs::read(world.path("there")).expect("bytes");
    wait_for("the call", || lines(&log).len() == 2);
}

/// The next daemon has the lock of the one that was killed.
#[test]
fn the_log_goes_on_with_the_next_daemon() {
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    let server = TestS3::builder().object(BUCKET, "there", "bytes");
    let world = World::new(server, &["--keep-alive", "--audit-log", &log]);
    std::fs::read(world.path("there")).expect("bytes");
    wait_for("the call", || lines(&log).len() == 1);
    take_over(&world, Signal::SIGKILL);
    std::fs::read(world.path("there")).expect("bytes");
    wait_for("the next call", || lines(&log).len() == 2);
    assert!(lines(&log).iter().all(|line| call(line) == "open read there ok"));
}

/// A process that runs another program closes files meanwhile, and nobody can look at it until they are closed.
#[test]
fn a_program_that_becomes_another_one_closes_its_files() {
    const SCRIPT: &str = "import os; file = open('own', 'w'); file.write('text'); file.flush()\n\
        if os.fork() == 0: os.execv('/bin/true', ['true'])\n\
        os.wait(); os.execv('/bin/true', ['true'])";
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    let world = World::new(TestS3::builder().bucket(BUCKET), &["--allow=write", "--audit-log", &log]);
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).current_dir(world.mount.path());
    let ended = run_with_timeout(&mut python, Duration::from_secs(30)).expect("an end");
    assert!(ended.status.success(), "{ended:?}");
    let closes = || lines(&log).into_iter().filter(|line| line["call"] == "close").collect::<Vec<_>>();
    wait_for("the lines", || closes().len() == 2);
    assert!(
        closes().iter().all(|line| line["result"] == "ok" && line["program"].is_string()),
        "{:?}",
        closes()
    );
}
