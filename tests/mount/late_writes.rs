//! A store that carries a request out after its connection broke, when the client has sent it again with success.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use s3mount_testkit::{Fault, FaultKind, Operation, TestS3};

use crate::world::{BUCKET, World};

/// After so many milliseconds the store carries the request out.
const LATE: u64 = 1500;

/// The next request of this kind for a key comes late, and is sent again.
fn delay_next(world: &World, operation: Operation, key: &str) {
    let fault = Fault { key_contains: key.to_owned(), ..Fault::new(FaultKind::Late(LATE)) };
    world.server.fault(fault.on(operation).times(1));
}

fn close(file: File) {
    nix::unistd::close(file).expect("nobody else writes this file");
}

fn write(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("a file");
    file.write_all(bytes).expect("a write");
    close(file);
}

#[test]
fn a_late_request_undoes_nothing_and_is_no_strangers() {
    let world = World::new(TestS3::builder(), &["--allow=overwrite", "--allow=delete", "--allow=rename"]);
    let stored = |key: &str| world.server.stored(BUCKET, key).map(|object| object.bytes());

    // The last of three writes has the bytes of the first: the second, which is late, waits for their ETag.
    write(&world.path("again"), b"A");
    delay_next(&world, Operation::PutObject, "again");
    write(&world.path("again"), b"B");
    write(&world.path("again"), b"A");

    // As with logs that are rotated: the next file of the name meets the late write of the last one.
    delay_next(&world, Operation::PutObject, "log");
    write(&world.path("log"), b"old");
    fs::rename(world.path("log"), world.path("saved")).expect("a rename");
    let mut next = OpenOptions::new().append(true).create(true).open(world.path("log")).expect("a file");
    next.write_all(b"new").expect("a write");

    delay_next(&world, Operation::PutObject, "gone");
    write(&world.path("gone"), b"old");
    fs::remove_file(world.path("gone")).expect("a file");
    let mut made = File::create(world.path("gone")).expect("a file");
    made.write_all(b"new").expect("a write");

    write(&world.path("pid"), b"1234");
    delay_next(&world, Operation::DeleteObject, "pid");
    fs::remove_file(world.path("pid")).expect("a file");
    write(&world.path("pid"), b"1234");

    // A copy has the ETag of its source, if both are made by one request.
    write(&world.path("state"), b"the same");
    write(&world.path("state.tmp"), b"the same");
    delay_next(&world, Operation::DeleteObject, "state");
    fs::remove_file(world.path("state")).expect("a file");
    fs::rename(world.path("state.tmp"), world.path("state")).expect("a rename");

    write(&world.path("there"), b"and back");
    delay_next(&world, Operation::DeleteObject, "there");
    fs::rename(world.path("there"), world.path("away")).expect("a rename");
    fs::rename(world.path("away"), world.path("there")).expect("a rename");

    fs::create_dir(world.path("folder")).expect("a folder");
    write(&world.path("folder/file"), b"below");
    delay_next(&world, Operation::DeleteObject, "folder/file");
    fs::rename(world.path("folder"), world.path("moved")).expect("a rename");
    fs::rename(world.path("moved"), world.path("folder")).expect("a rename");

    write(&world.path("source"), b"copied");
    write(&world.path("copy"), b"copied");
    delay_next(&world, Operation::DeleteObject, "copy");
    fs::remove_file(world.path("copy")).expect("a file");
    fs::copy(world.path("source"), world.path("copy")).expect("a copy inside the store");

    thread::sleep(Duration::from_millis(LATE + 500));
    assert_eq!(stored("gone").as_deref(), Some(&b"old"[..]), "the store carries the late write out");
    close(next);
    close(made);
    assert_eq!(stored("again").as_deref(), Some(&b"A"[..]));
    assert_eq!(world.read("again"), b"A");
    assert_eq!(stored("pid").as_deref(), Some(&b"1234"[..]));
    assert_eq!(stored("state").as_deref(), Some(&b"the same"[..]));
    assert_eq!(stored("there").as_deref(), Some(&b"and back"[..]));
    assert_eq!(stored("folder/file").as_deref(), Some(&b"below"[..]));
    assert_eq!(stored("copy").as_deref(), Some(&b"copied"[..]));
    assert_eq!(stored("saved").as_deref(), Some(&b"old"[..]));
    assert_eq!(stored("log").as_deref(), Some(&b"new"[..]));
    assert_eq!(stored("gone").as_deref(), Some(&b"new"[..]));
}
