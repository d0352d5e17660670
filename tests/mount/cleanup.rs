//! Daemons are killed while they write, and what they leave is cleaned up.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use s3mount_testkit::{Builder, Fault, FaultKind, MountGuard, Operation, TestS3, content, run_with_timeout};
use serde_json::Value;

use crate::world::{BUCKET, MIB, World, wait_for};

const ALL: [&str; 3] = ["--allow=rename", "--allow=delete", "--allow=overwrite"];

fn server() -> Builder {
    (0..12).fold(TestS3::builder(), |server, number| {
        server.object(BUCKET, &format!("old/{}/{number}", number % 3), format!("bytes {number}"))
    })
}

fn twelve() -> BTreeMap<String, Vec<u8>> {
    (0..12)
        .map(|number| (format!("{}/{number}", number % 3), format!("bytes {number}").into_bytes()))
        .collect()
}

/// Runs `s3mount cleanup` on the journals of the test. Returns its exit code, what it printed, and its errors.
fn cleanup(world: &World, flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    command.arg("cleanup").args(flags).env_clear().env("XDG_STATE_HOME", world.folder());
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
    let output = run_with_timeout(&mut command, Duration::from_secs(100)).expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The states that `cleanup --json` tells, of which none may have failed.
fn states(world: &World, flags: &[&str]) -> Vec<String> {
    let (code, stdout, stderr) = cleanup(world, &[&["--json"], flags].concat());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let state = |line: &str| {
        let item: Value = serde_json::from_str(line).expect("JSON");
        format!("{} {}", item["kind"].as_str().expect("a kind"), item["state"].as_str().expect("a state"))
    };
    stdout.lines().map(state).collect()
}

fn journals(world: &World) -> usize {
    fs::read_dir(world.folder().join("s3mount")).map_or(0, Iterator::count)
}

fn uploads(world: &World) -> Vec<String> {
    world.server.open_uploads(BUCKET).into_iter().map(|upload| upload.key).collect()
}

/// Writes more than one part, and does not close the file.
fn write_half(mount: &MountGuard, name: &str) -> File {
    let mut file = File::create(mount.path().join(name)).expect("a file");
    file.write_all(&content(name, 0, 20 * MIB as usize)).and_then(|()| file.sync_all()).expect("a write");
    file
}

#[test]
fn only_the_uploads_of_a_killed_daemon_are_aborted() {
    let world = World::counting(server(), &ALL);
    let dir = world.folder().join("other");
    fs::create_dir(&dir).expect("a folder");
    let other = world.also(&dir, &ALL);
    let _files = (write_half(&world.mount, "dead"), write_half(&other, "alive"));
    let mut stream =
        TcpStream::connect(world.server.endpoint().trim_start_matches("http://")).expect("a server");
    write!(stream, "POST /{BUCKET}/foreign?uploads HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n")
        .expect("sent");
    wait_for("the upload of another program", || uploads(&world).len() == 3);
    assert_eq!(journals(&world), 2);
    assert_eq!(states(&world, &[]), [""; 0], "both live");
    world.crash();
    assert_eq!(states(&world, &["--dry-run"]), ["upload aborted"]);
    assert_eq!(uploads(&world), ["alive", "dead", "foreign"]);
    assert_eq!(states(&world, &["s3://another-bucket", "--endpoint-url", &world.server.endpoint()]), [""; 0]);
    // A store that refuses leaves the journal as it is.
    let denied =
        Fault::new(FaultKind::Status(403, "AccessDenied".to_owned())).on(Operation::AbortMultipartUpload);
    world.server.fault(denied.times(1));
    let (code, stdout, _) = cleanup(&world, &[]);
    assert!(code == Some(1) && stdout.starts_with("failed: the upload of s3://data/dead"), "{stdout}");
    // One that is slow and busy is waited for.
    let busy = FaultKind::Status(503, "SlowDown".to_owned());
    for kind in [busy, FaultKind::LostAnswer, FaultKind::Stall(2000)] {
        world.server.fault(Fault::new(kind).on(Operation::AbortMultipartUpload).times(2));
    }
    let (code, stdout, stderr) = cleanup(&world, &[]);
    assert!(
        code == Some(0) && stdout.starts_with("aborted: the upload of s3://data/dead ("),
        "{stdout}{stderr}"
    );
    assert_eq!((uploads(&world), journals(&world)), (vec!["alive".to_owned(), "foreign".into()], 1));
    assert_eq!(states(&world, &[]), [""; 0], "nothing is left");
    // Those of other programs go when they are asked for, and what lives stays.
    let endpoint = world.server.endpoint();
    let all = |age| states(&world, &["s3://data", "--endpoint-url", &endpoint, "--all", "--older-than", age]);
    assert_eq!(all("1h"), [""; 0]);
    assert_eq!(all("0s"), ["upload aborted"]);
    assert_eq!(uploads(&world), ["alive"]);
}

#[test]
fn a_mount_puts_in_order_what_another_has_left() {
    let mut world = World::new(server(), &ALL);
    let _file = write_half(&world.mount, "half");
    world.server.fault(Fault {
        key_contains: "old/1".to_owned(),
        ..Fault::new(FaultKind::Status(503, "SlowDown".to_owned())).on(Operation::DeleteObject)
    });
    std::thread::scope(|scope| {
        scope.spawn(|| drop(fs::rename(world.path("old"), world.path("new"))));
        wait_for("some are deleted", || (1..12).contains(&world.stored_below("old/").len()));
        world.crash();
    });
    assert_eq!((uploads(&world).len(), world.stored_below("new/")), (1, twelve()));
    world.server.clear_faults();
    world.remount(&ALL);
    wait_for("no upload is left", || uploads(&world).is_empty());
    wait_for("the rename is finished", || world.stored_below("old/").is_empty());
    assert_eq!(world.stored_below("new/"), twelve());
    wait_for("its journal is gone", || journals(&world) == 1);
}

/// The daemon is killed while it copies, while it looks for the copies, and while it deletes. Afterwards the folder
/// is at one place, and whole.
#[test]
fn a_rename_that_was_cut_off_is_undone_or_finished() {
    let fault =
        |kind, operation, key: &str| Fault { key_contains: key.to_owned(), ..Fault::new(kind).on(operation) };
    let busy = || FaultKind::Status(503, "SlowDown".to_owned());
    for (fault, copies, left, outcome) in [
        (fault(busy(), Operation::CopyObject, "new/1"), 8, 12, "rename undone"),
        // The listings before the copies are slow, too.
        (fault(FaultKind::Stall(4000), Operation::ListObjects, "new/"), 12, 12, "rename undone"),
        // The last old object is deleted alone, and first: it is not one of these.
        (fault(busy(), Operation::DeleteObject, "old/1"), 12, 4, "rename finished"),
    ] {
        let world = World::counting(server(), &ALL);
        fs::metadata(world.path("old")).expect("a folder");
        assert!(fs::metadata(world.path("new")).is_err());
        world.server.fault(fault);
        std::thread::scope(|scope| {
            let renamed = scope.spawn(|| fs::rename(world.path("old"), world.path("new")));
            wait_for("its middle", || {
                world.stored_below("new/").len() == copies && world.stored_below("old/").len() == left
            });
            world.crash();
            let _ = renamed.join().expect("no panic");
        });
        world.server.clear_faults();
        let before = (world.stored_below("old/"), world.stored_below("new/"));
        assert_eq!(states(&world, &["--dry-run"]), [outcome], "{before:?}");
        assert_eq!(
            (world.stored_below("old/"), world.stored_below("new/")),
            before,
            "nothing is changed by a dry run"
        );
        assert_eq!(states(&world, &[]), [outcome]);
        let both = (world.stored_below("old/"), world.stored_below("new/"));
        let expected = match outcome {
            "rename undone" => (twelve(), BTreeMap::new()),
            _ => (BTreeMap::new(), twelve()),
        };
        assert_eq!(both, expected);
        assert_eq!((states(&world, &[]).len(), journals(&world)), (0, 0));
    }
}

/// What was written after the daemon was killed is nobody's copy, and stays.
#[test]
fn what_was_written_since_stays() {
    let world = World::new(server(), &ALL);
    world.server.fault(Fault {
        key_contains: "old/1".to_owned(),
        ..Fault::new(FaultKind::Status(503, "SlowDown".to_owned())).on(Operation::DeleteObject)
    });
    std::thread::scope(|scope| {
        scope.spawn(|| drop(fs::rename(world.path("old"), world.path("new"))));
        wait_for("most are deleted", || world.stored_below("old/").len() == 4);
        world.crash();
    });
    world.server.clear_faults();
    world.server.put(BUCKET, "old/1/4", "another");
    world.server.delete(BUCKET, "new/1/7");
    world.server.put(BUCKET, "old/late", "late");
    let (code, stdout, _) = cleanup(&world, &[]);
    assert!(code == Some(0) && stdout.contains("2 old objects deleted; 3 objects in old/ stay"), "{stdout}");
    let expected = [("1/4", "another"), ("1/7", "bytes 7"), ("late", "late")];
    assert_eq!(
        world.stored_below("old/"),
        expected.map(|(key, text)| (key.to_owned(), text.as_bytes().to_vec())).into()
    );
    assert_eq!(world.stored_below("new/").len(), 11);
}

#[test]
fn nothing_is_lost_whenever_the_daemon_is_killed() {
    for round in 0..8 {
        let world = World::counting(server(), &ALL);
        fs::metadata(world.path("old/0/0")).expect("a file");
        for (operation, share) in [(Operation::CopyObject, 0.5), (Operation::DeleteObject, 0.5)] {
            world.server.fault(Fault::new(FaultKind::Stall(30)).on(operation).share(share));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| drop(fs::rename(world.path("old"), world.path("new"))));
            scope.spawn(|| {
                let mut file = File::create(world.path("half"))?;
                file.write_all(&content("half", 0, 24 * MIB as usize))
            });
            std::thread::sleep(Duration::from_millis(10 + round * 12));
            world.crash();
        });
        world.server.clear_faults();
        let mut union = world.stored_below("new/");
        union.extend(world.stored_below("old/"));
        assert_eq!(union, twelve(), "round {round}");
        let endpoint = world.server.endpoint();
        let told = states(&world, &[]);
        // An upload whose id the daemon had no time to write down is left alone.
        let asked = ["s3://data", "--endpoint-url", &endpoint, "--all", "--older-than", "0s"];
        let told = (told, states(&world, &asked));
        assert_eq!(uploads(&world), [""; 0], "round {round}: {told:?}");
        let (old, new) = (world.stored_below("old/"), world.stored_below("new/"));
        let is_whole = (old == twelve() && new.is_empty()) || (new == twelve() && old.is_empty());
        assert!(is_whole, "round {round}: {told:?} {old:?} {new:?}");
    }
}

/// The answer that names an upload is lost: nobody knows whose it is.
#[test]
fn an_upload_without_a_name_is_told_and_left_alone() {
    let mut world = World::new(server(), &ALL);
    // The client sends it twice before it says so.
    world.server.fault(Fault::new(FaultKind::LostAnswer).on(Operation::CreateMultipartUpload).times(2));
    let bytes = content("file", 0, 20 * MIB as usize);
    world.write("file", &bytes);
    assert!(world.server.stored(BUCKET, "file").expect("an object").bytes() == bytes);
    let lost = uploads(&world).len();
    assert!(lost > 0, "the server has begun uploads that nobody knows");
    world.remount(&[]);
    let (code, stdout, _) = cleanup(&world, &[]);
    assert!(code == Some(0) && stdout.starts_with("left alone: the upload of s3://data/file"), "{stdout}");
    assert_eq!(uploads(&world).len(), lost);
    let endpoint = world.server.endpoint();
    let all = ["s3://data", "--endpoint-url", &endpoint, "--all", "--older-than", "0s"];
    assert_eq!(states(&world, &all).len(), lost + 1);
    assert_eq!(states(&world, &[]), ["upload nothing"]);
    assert_eq!((uploads(&world).len(), journals(&world)), (0, 0));
}

#[test]
fn a_mount_that_ends_leaves_no_journal() {
    let mut world = World::new(server(), &ALL);
    world.write("file", content("file", 0, 20 * MIB as usize));
    fs::rename(world.path("old"), world.path("new")).expect("a rename");
    assert_eq!(journals(&world), 1);
    world.remount(&[]);
    assert_eq!(journals(&world), 0, "and a mount that only reads has none");
}
