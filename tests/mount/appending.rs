//! Logs: files to which programs append a few bytes again and again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use s3mount_testkit::{Fault, FaultKind, Operation, TestS3, content};

use crate::world::{BUCKET, World, wait_for};

const ALL: [&str; 2] = ["--allow=delete", "--allow=overwrite"];

/// As writers of TensorBoard's files do.
fn append(path: &Path, line: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line)?;
    nix::unistd::close(file).map_err(std::io::Error::from)
}

fn world(flags: &[&str]) -> World {
    let log = content("log", 0, 1 << 20);
    World::counting(TestS3::builder().object(BUCKET, "log", log), &[&ALL, flags].concat())
}

fn stored(world: &World, key: &str) -> Vec<u8> {
    world.server.stored(BUCKET, key).expect("an object").bytes()
}

fn lines() -> Vec<u8> {
    (0..100).flat_map(|index| [index; 100]).collect()
}

#[test]
fn a_hundred_appends_are_a_hundred_uploads_and_one_get() {
    let world = world(&[]);
    let path = world.path("log");
    for line in lines().chunks(100) {
        append(&path, line).expect("an append");
    }
    let stats = world.server.stats();
    assert_eq!((stats.get_object.requests, stats.get_object.bytes), (1, 1 << 20));
    assert_eq!(stats.put_object.requests, 100);
    let sent: u64 = (1..=100).map(|index| (1 << 20) + index * 100).sum();
    assert_eq!(stats.put_object.received, sent);
    assert_eq!(stats.head_object.requests, 1, "what the object has beside its bytes");
    assert_eq!(stats.requests() - stats.list_objects.requests, 102, "{stats:?}");
    assert!(stats.list_objects.requests <= 3, "{stats:?}");
    assert_eq!(stored(&world, "log"), [content("log", 0, 1 << 20), lines()].concat());
    // Another's version is not appended to blindly, and is read anew.
    world.server.put(BUCKET, "log", "others, ");
    let close = append(&path, b"mine");
    assert_eq!(close.map_err(|error| error.raw_os_error()), Err(Some(libc::ESTALE)));
    wait_for("the other's version", || fs::read(&path).is_ok_and(|bytes| bytes == b"others, "));
    append(&path, b"mine").expect("an append");
    assert_eq!(stored(&world, "log"), b"others, mine");
}

#[test]
fn with_a_delay_appends_wait_for_nothing_and_are_uploaded_together() {
    let world = world(&["--append-delay", "3s"]);
    let path = world.path("log");
    for line in lines().chunks(100) {
        append(&path, line).expect("an append");
    }
    let all = [content("log", 0, 1 << 20), lines()].concat();
    assert!(fs::read(&path).expect("a reader") == all, "readers of the mount see it at once");
    wait_for("the object", || stored(&world, "log") == all);
    let stats = world.server.stats();
    assert!(stats.get_object.bytes <= 1 << 20 && stats.put_object.requests <= 10, "{stats:?}");
    // A file that is written otherwise is an object once it is closed.
    world.write("other", "now");
    assert_eq!(stored(&world, "other"), b"now");
}

#[test]
fn what_waits_is_uploaded_when_it_is_asked_for() {
    let mut world = world(&["--append-delay", "1h"]);
    let path = world.path("log");
    append(&path, b"one").expect("an append");
    assert_eq!(stored(&world, "log").len(), 1 << 20);
    // By fsync, of any handle.
    let file = OpenOptions::new().append(true).open(&path).expect("a file");
    file.sync_all().expect("safe");
    drop(file);
    assert!(stored(&world, "log").ends_with(b"one"));
    // When it gets another name.
    append(&path, b"two").expect("an append");
    fs::rename(&path, world.path("moved")).expect("another name");
    assert!(stored(&world, "moved").ends_with(b"onetwo"));
    append(&world.path("new"), b"new").expect("an append");
    fs::rename(world.path("new"), world.path("newer")).expect("another name");
    // By a copy, which sees it.
    append(&world.path("moved"), b"three").expect("an append");
    fs::copy(world.path("moved"), world.path("copy")).expect("a copy");
    assert!(stored(&world, "copy").ends_with(b"onetwothree"));
    // A log that is deleted is gone.
    append(&world.path("gone"), b"gone").expect("an append");
    fs::remove_file(world.path("gone")).expect("gone");
    // When the mount ends.
    world.remount(&ALL);
    assert!(stored(&world, "moved").ends_with(b"onetwothree"));
    assert_eq!(stored(&world, "newer"), b"new");
    assert_eq!(world.server.keys(BUCKET), ["copy", "moved", "newer"]);
}

#[test]
fn what_is_lost_after_its_close_is_told_to_who_opens_next() {
    let world = world(&["--append-delay", "1s"]);
    let path = world.path("log");
    let refused = FaultKind::Status(403, "AccessDenied".to_owned());
    world.server.fault(Fault::new(refused).on(Operation::PutObject).times(1));
    append(&path, b"lost").expect("close does not wait");
    wait_for("it was tried", || world.server.stats().put_object.errors == 1);
    wait_for("readers see what is there", || fs::metadata(&path).is_ok_and(|found| found.len() == 1 << 20));
    let open = || OpenOptions::new().append(true).open(&path).map(drop);
    assert_eq!(open().map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));
    open().expect("it is told once");
    append(&path, b"kept").expect("an append");
    wait_for("the object", || stored(&world, "log").ends_with(b"kept"));
    assert_eq!(stored(&world, "log").len(), (1 << 20) + 4);
}
