//! What an object has beside its bytes, and its file keeps when it is changed: text of the user, headers and tags.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use s3mount_object::{Encryption, NewObject};
use s3mount_testkit::{Fault, FaultKind, Operation, TestS3};

use crate::attributes::put;
use crate::world::{BUCKET, MIB, World};

/// What another program has written beside the bytes.
const BESIDE: [(&str, &str); 10] = [
    ("Content-Type", "application/x-weights"),
    ("Cache-Control", "max-age=7"),
    ("Content-Disposition", "attachment"),
    ("Content-Encoding", "identity"),
    ("Content-Language", "de"),
    ("x-amz-meta-author", "somebody"),
    ("x-amz-meta-mtime", "1700000000"),
    ("x-amz-tagging", "team=vision&stage=a%20b"),
    ("x-amz-storage-class", "STANDARD_IA"),
    ("x-amz-server-side-encryption", "aws:kms"),
];

fn world(flags: &[&str]) -> World {
    let flags = [&["--allow=delete", "--allow=overwrite", "--write-part-size", "5MiB"], flags].concat();
    World::new(TestS3::builder().bucket(BUCKET), &flags)
}

/// What an object has beside its bytes, without the mark of its write.
fn beside(world: &World, key: &str) -> NewObject {
    let mut beside = world.server.stored(BUCKET, key).expect("an object").beside;
    beside.metadata.remove("s3mount-write");
    beside
}

fn all() -> NewObject {
    let text = |text: &str| Some(text.to_owned());
    NewObject {
        content_type: text("application/x-weights"),
        cache_control: text("max-age=7"),
        content_disposition: text("attachment"),
        content_encoding: text("identity"),
        content_language: text("de"),
        expires: None,
        metadata: [("author".to_owned(), "somebody".to_owned())].into(),
        storage_class: text("STANDARD_IA"),
        encryption: Some(Encryption { method: "aws:kms".to_owned(), kms_key_id: None }),
        tags: text("team=vision&stage=a%20b"),
    }
}

fn append(world: &World, name: &str, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).open(world.path(name)).expect("a file");
    file.write_all(bytes).expect("a write");
    nix::unistd::close(file).expect("it is stored");
}

fn patch(world: &World, name: &str) {
    let file = OpenOptions::new().write(true).open(world.path(name)).expect("a file");
    file.write_at(b"new", 1).expect("a write");
    nix::unistd::close(file).expect("it is stored");
}

#[test]
fn a_file_that_is_changed_keeps_what_its_object_has() {
    let world = world(&[]);
    let long = "0123456789abcdef".repeat(12 * MIB as usize / 16);
    for (name, body) in [("short", "old bytes"), ("cut", "old bytes"), ("long", &long), ("patched", &long)] {
        put(&world, name, body, &BESIDE);
    }
    append(&world, "short", b" and more");
    assert_eq!(world.server.stored(BUCKET, "short").expect("an object").bytes(), b"old bytes and more");
    assert_eq!(beside(&world, "short"), all(), "the time of another version is not kept");
    // It is asked for once.
    patch(&world, "short");
    append(&world, "short", b"!");
    assert_eq!(beside(&world, "short"), all());
    let file = OpenOptions::new().write(true).open(world.path("cut")).expect("a file");
    file.set_len(3).expect("a cut");
    nix::unistd::close(file).expect("it is stored");
    assert_eq!(beside(&world, "cut"), all());
    // Those that are uploaded in parts.
    append(&world, "long", &[7; 6 * MIB as usize]);
    assert_eq!(beside(&world, "long"), all());
    assert_eq!(world.server.stored(BUCKET, "long").expect("an object").bytes().len() as u64, 18 * MIB);
    patch(&world, "patched");
    assert_eq!(beside(&world, "patched"), all());
    assert!(world.server.stats().complete_multipart_upload.requests >= 2);
    // Under another name, too.
    append(&world, "patched", b"more");
    fs::rename(world.path("patched"), world.path("moved")).expect("another name");
    append(&world, "moved", b"more");
    assert_eq!(beside(&world, "moved"), all());
}

#[test]
fn a_file_that_is_emptied_or_made_anew_keeps_nothing() {
    let world = world(&[]);
    let new = NewObject { content_type: Some("application/json".to_owned()), ..NewObject::default() };
    for name in ["a.json", "b.json", "c.json"] {
        put(&world, name, "{}", &BESIDE);
    }
    world.write("a.json", "[]");
    assert_eq!(beside(&world, "a.json"), new);
    fs::remove_file(world.path("b.json")).expect("gone");
    world.write("b.json", "[]");
    assert_eq!(beside(&world, "b.json"), new);
    // Also one that somebody else has changed in place, and has open still.
    let mut other = OpenOptions::new().append(true).open(world.path("c.json")).expect("a file");
    other.write_all(b"[]").expect("a write");
    other.sync_all().expect("it is stored");
    assert_eq!(beside(&world, "c.json"), all());
    world.write("c.json", "[]");
    drop(other);
    assert_eq!(beside(&world, "c.json"), new);
}

#[test]
fn who_may_not_read_or_write_tags_saves_without_them() {
    let world = world(&[]);
    let without = NewObject { tags: None, ..all() };
    let refused = || Fault::new(FaultKind::Status(403, "AccessDenied".to_owned()));
    for name in ["read", "written", "long"] {
        let body = if name == "long" { "old!".repeat(3 * MIB as usize) } else { "old".to_owned() };
        put(&world, name, &body, &BESIDE);
    }
    world.server.fault(refused().on(Operation::Other).times(1));
    append(&world, "read", b"more");
    assert_eq!(beside(&world, "read"), without);
    world.server.fault(refused().on(Operation::PutObject).times(1));
    append(&world, "written", b"more");
    assert_eq!(beside(&world, "written"), without);
    world.server.fault(refused().on(Operation::CreateMultipartUpload).times(1));
    append(&world, "long", b"more");
    assert_eq!(beside(&world, "long"), without);
    // Bytes that may not be written are not.
    put(&world, "kept", "old", &BESIDE);
    world.server.fault(refused().on(Operation::PutObject));
    let mut file = OpenOptions::new().append(true).open(world.path("kept")).expect("a file");
    file.write_all(b"more").expect("a write");
    assert_eq!(nix::unistd::close(file), Err(nix::errno::Errno::EACCES));
    assert_eq!(world.server.stored(BUCKET, "kept").expect("an object").bytes(), b"old");
}
