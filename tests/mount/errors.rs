//! What a program sees of each answer of the store, as the table of errors in docs/SEMANTICS.md says.

use std::fs;
use std::io;

use nix::errno::Errno;
use s3mount_testkit::{Fault, FaultKind, Operation, TestS3};

use crate::world::{BUCKET, World};

/// The error of a call that fails.
fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw)
}

/// A fault that strikes each request of this kind.
fn always(operation: Operation, status: u16, code: &str) -> Fault {
    Fault::new(FaultKind::Status(status, code.to_owned())).on(operation)
}

#[test]
fn an_answer_to_a_listing_has_its_errno_and_says_of_no_file_that_it_is_absent() {
    let cases = [
        (404, "NoSuchBucket", Errno::EIO),
        (404, "NoSuchKey", Errno::EIO),
        (403, "AccessDenied", Errno::EACCES),
        (400, "InvalidRequest", Errno::EIO),
    ];
    for (status, code, expected) in cases {
        let world =
            World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &["--metadata-ttl", "minimal"]);
        world.server.fault(always(Operation::ListObjects, status, code));
        assert_eq!(errno(world.path("d").metadata()), Some(expected), "{status} {code}");
        let listed = fs::read_dir(world.mount.path()).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        assert_eq!(errno(listed), Some(expected), "{status} {code}");
        world.server.clear_faults();
        assert_eq!(fs::read(world.path("d/f")).expect("d/f"), b"text", "{status} {code}");
    }
}

#[test]
fn an_archived_object_is_eio_and_the_log_says_what_to_do() {
    let world = World::new(TestS3::builder().archived(BUCKET, "d/old", 9), &[]);
    assert_eq!(world.path("d/old").metadata().expect("d/old").len(), 9);
    assert_eq!(errno(fs::read(world.path("d/old"))), Some(Errno::EIO));
    let said = world.mount.stderr();
    assert!(said.contains("\"d/old\"") && said.contains("restore"), "{said}");
}

#[test]
fn credentials_that_stay_expired_are_eacces_at_the_end_of_the_read_timeout() {
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &["--read-timeout", "5"]);
    world.path("d/f").metadata().expect("d/f");
    world.server.fault(always(Operation::GetObject, 400, "ExpiredToken"));
    assert_eq!(errno(fs::read(world.path("d/f"))), Some(Errno::EACCES));
}
