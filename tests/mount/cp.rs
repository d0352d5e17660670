//! `s3mount cp` and `s3mount bench --copy` on a real server, by the real binary.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{Fault, FaultKind, Operation, Shape, TestS3, run_with_timeout};

use crate::world::{MIB, wait_for};

/// A command that ends by itself.
fn command(server: &TestS3, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    command.args(args).args(["--endpoint-url", &server.endpoint(), "--no-sign-request"]);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Runs the command. Returns whether it succeeded, and what it printed.
fn run(server: &TestS3, args: &[&str]) -> (bool, String) {
    let output = run_with_timeout(&mut command(server, args), Duration::from_secs(120)).expect("an end");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

/// Runs `cp`, which must succeed and print this, up to the seconds that it took.
fn copies(server: &TestS3, args: &[&str], line: &str) {
    let (is_good, said) = run(server, &[&["cp"], args].concat());
    assert!(is_good && said.starts_with(line), "{args:?}: {said}");
}

/// Runs `cp`, which must fail and say this first.
fn fails(server: &TestS3, args: &[&str], line: &str) {
    let (is_good, said) = run(server, &[&["cp"], args].concat());
    assert!(!is_good && said.contains(&format!("s3mount: {line}")), "{args:?}: {said}");
}

#[test]
fn one_object_is_copied_to_a_key_or_into_a_folder() {
    let server = TestS3::builder().synthetic("a", "d/k", 200 * MIB).object("a", "small", "text");
    let server = server.bucket("b").start().expect("a server");
    copies(&server, &["s3://a/d/k", "s3://b/x"], "1 objects with 200.00 MiB copied, in ");
    assert!(server.stats().upload_part_copy.requests >= 4);
    copies(&server, &["s3://a/small", "s3://b"], "1 objects with 4 B copied");
    copies(&server, &["s3://a/d/k", "s3://b/into/"], "1 objects");
    copies(&server, &["s3://a/d/k", "s3://a/d/k2", "--part-size", "1GiB"], "1 objects");
    assert_eq!(
        (server.keys("b"), server.stats().copy_object.requests),
        (vec!["into/k".into(), "small".into(), "x".into()], 2)
    );
    let dry = "s3://a/small -> s3://b/dry\n1 objects with 4 B would be copied\n";
    copies(&server, &["s3://a/small", "s3://b/dry", "--dry-run"], dry);
    copies(
        &server,
        &["s3://a/d/k", "s3://b/small", "--no-overwrite"],
        "0 objects with 0 B copied, 1 are there already",
    );
    assert_eq!((server.keys("b").len(), server.open_uploads("b").len()), (3, 0));

    fails(
        &server,
        &["s3://a/no", "s3://b"],
        "there is no object s3://a/no; check its key, or add --recursive",
    );
    fails(&server, &["s3://a/k", "s3://none/k"], "bucket \"none\" does not exist");
    fails(&server, &["s3://a/none/", "s3://b", "-r"], "there is no object below s3://a/none/");
    server.fault(Fault::new(FaultKind::Status(403, "AccessDenied".to_owned())).on(Operation::CopyObject));
    fails(&server, &["s3://a/small", "s3://b"], "s3://a/small may not be copied to s3://b/small (a fault");
}

#[test]
fn a_folder_is_copied_and_what_is_there_is_not_copied_again() {
    let mut server =
        TestS3::builder().bucket("b").object("a", "from", "not below").object("a", "from2/x", "x");
    for index in 0..1_100 {
        server = server.object("a", &format!("from/{index:04}"), format!("text {index}"));
    }
    let server = server.synthetic("a", "from/d/large", 130 * MIB).object("a", "from/d/", "");
    let server = server.start().expect("a server");
    let args = ["s3://a/from", "s3://b/to", "--recursive"];
    copies(&server, &args, "1,102 objects with 130.01 MiB copied, in ");
    let expected: Vec<_> = server
        .keys("a")
        .iter()
        .filter_map(|key| key.strip_prefix("from/"))
        .map(|key| format!("to/{key}"))
        .collect();
    assert_eq!(server.keys("b"), expected);
    copies(&server, &args, "0 objects with 0 B copied, 1,102 are there already");
    // The same length, and other bytes.
    server.put("b", "to/0007", "TEXT 7");
    server.put("a", "from/0008", "text nine");
    let (is_good, said) = run(&server, &[&["cp"], &args[..], &["--dry-run"]].concat());
    let lines = ["s3://a/from/0007 -> s3://b/to/0007\n", "s3://a/from/0008 -> s3://b/to/0008\n"];
    assert!(
        is_good && lines.iter().all(|line| said.contains(line)) && said.contains("\n2 objects"),
        "{said}"
    );
    copies(&server, &[&args[..], &["--no-overwrite"]].concat(), "0 objects");
    copies(&server, &args, "2 objects with 15 B copied, 1,100 are there already");
    // What fails is told, and the rest is copied.
    let server = TestS3::builder().object("a", "bad", "1").object("a", "good", "2").bucket("b");
    let server = server.start().expect("a server");
    let mut fault = Fault::new(FaultKind::Status(403, "AccessDenied".to_owned())).on(Operation::CopyObject);
    fault.key_contains = "bad".to_owned();
    server.fault(fault);
    fails(
        &server,
        &["s3://a", "s3://b", "-r"],
        "1 objects were not copied; the same command tries these again",
    );
    assert_eq!(server.keys("b"), ["good"]);
    server.clear_faults();
    copies(&server, &["s3://a", "s3://b", "-r"], "1 objects with 1 B copied, 1 are there already");
}

#[test]
fn a_key_cannot_change_what_the_terminal_shows() {
    let server = TestS3::builder().object("a", "x\ny\u{1b}[2Jz", "1").bucket("b");
    let server = server.start().expect("a server");
    let (is_good, said) = run(&server, &["cp", "s3://a", "s3://b", "--recursive", "--dry-run"]);
    let line = r"s3://a/x\ny\u{1b}[2Jz -> s3://b/x\ny\u{1b}[2Jz";
    assert!(is_good && said.starts_with(&format!("{line}\n1 objects")), "{said}");
    server.fault(Fault::new(FaultKind::Status(403, "AccessDenied".to_owned())).on(Operation::CopyObject));
    fails(&server, &["s3://a", "s3://b", "-r"], r"s3://a/x\ny\u{1b}[2Jz may not be copied to s3://b/x\n");
}

#[test]
fn an_interrupted_copy_goes_on_where_it_ended() {
    let server = TestS3::builder().synthetic("a", "k", 320 * MIB).bucket("b").start().expect("a server");
    let slow = Shape { copy_latency_ms: 300.0, ..Shape::fast() };
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        server.shape(slow);
        let before = server.stats().upload_part_copy.requests;
        let mut child = command(&server, &["cp", "s3://a/k", "s3://b/k", "--concurrency", "1"])
            .spawn()
            .expect("the program");
        wait_for("two parts are copied", || {
            server.open_uploads("b").first().is_some_and(|upload| upload.parts.len() >= 2)
        });
        kill(Pid::from_raw(i32::try_from(child.id()).expect("an id")), signal).expect("a signal");
        assert!(!child.wait().expect("its end").success());
        server.shape(Shape::fast());
        copies(&server, &["s3://a/k", "s3://b/k"], "1 objects with 320.00 MiB copied (");
        let parts = server.stats().upload_part_copy.requests - before;
        assert!(parts <= 6, "five parts, and at most one twice: {parts}");
        assert_eq!(server.open_uploads("b"), []);
        server.delete("b", "k");
    }
}

#[test]
fn bench_copies_with_each_size_of_part_and_leaves_nothing() {
    let server = TestS3::builder().synthetic("a", "k", 64 * MIB).start().expect("a server");
    let args = ["bench", "--copy", "a/k", "--part-sizes", "8MiB,64MiB", "--connections", "4,8"];
    let (is_good, said) = run(&server, &args);
    let rows = said.lines().filter(|line| line.trim_start().starts_with(['8', '6'])).count();
    assert!(is_good && rows == 4, "{said}");
    let stats = server.stats();
    assert_eq!((stats.upload_part_copy.requests, stats.copy_object.requests), (16, 2));
    assert_eq!((server.keys("a"), server.open_uploads("a").len()), (vec!["k".to_owned()], 0));
    let (is_good, said) = run(&server, &["bench", "--copy", "a/k", "--part-sizes", "1MiB"]);
    assert!(!is_good && said.starts_with("s3mount: --part-sizes 1MiB is not from 5MiB to 5GiB"), "{said}");
}
