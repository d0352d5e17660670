//! An outbox in a folder.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use super::{bytes_of, put, read};
use crate::{FolderDisk, Limits, Outbox, OutboxDisk as _, OutboxError, look};

const LIMITS: Limits = Limits { bytes: 1 << 20, entries: 6, segment_bytes: 64 << 10 };

fn open(folder: &tempfile::TempDir) -> (Outbox, Vec<crate::Waiting>) {
    let disk = FolderDisk::take(folder.path()).expect("nobody else has it");
    Outbox::open(Arc::new(disk), LIMITS).expect("a disk without faults")
}

#[test]
fn a_folder_is_one_outboxs_and_others_may_look() {
    let folder = tempfile::tempdir().expect("a folder");
    let (outbox, left) = open(&folder);
    assert!(left.is_empty());
    let bytes = bytes_of(1, 100_000);
    let kept = put(&outbox, "a", &bytes, None, &Arc::default()).expect("there is room");
    let refused = FolderDisk::take(folder.path()).expect_err("somebody has it");
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    let looked = look(&FolderDisk::look(folder.path()).expect("a folder")).expect("no faults").waiting;
    assert!(looked.len() == 1 && read(&looked[0].bytes) == bytes);
    for file in folder.path().read_dir().expect("a folder") {
        let mode = file.and_then(|file| file.metadata()).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others can't read what waits");
    }

    drop(outbox);
    let (outbox, left) = open(&folder);
    assert_eq!(left.len(), 1);
    assert_eq!((&*left[0].entry.key, left[0].id), ("a", kept.id));
    outbox.done(kept.id);
    drop(outbox);
    assert_eq!(read(&kept.bytes), bytes, "they can be read as long as somebody has them");
    assert_eq!(read(&looked[0].bytes), bytes);
    let names = folder.path().read_dir().expect("a folder").map(|file| file.expect("a file").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["lock"]);
}

#[test]
fn more_than_may_wait_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (outbox, _) = open(&folder);
    let refused = put(&outbox, "long", &bytes_of(1, 1 << 20), None, &Arc::default());
    assert!(matches!(refused, Err(OutboxError::Full)));
    for round in 0..100 {
        // Each is longer than half of the limit: nothing of those before is left when the next one comes.
        let kept =
            put(&outbox, "long", &bytes_of(round, 600_000), None, &Arc::default()).expect("there is room");
        outbox.done(kept.id);
    }
    let disk = FolderDisk::look(folder.path()).expect("a folder");
    assert_eq!(disk.segments().expect("a folder").len(), 1);
}

#[test]
fn what_is_known_of_a_file_has_a_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let (outbox, _) = open(&folder);
    let refused = put(&outbox, &"k".repeat(1 << 20), b"bytes", None, &Arc::default());
    assert!(matches!(refused, Err(OutboxError::Disk(error)) if error.kind() == io::ErrorKind::InvalidInput));
    let kept = put(&outbox, "a", b"bytes", None, &Arc::default()).expect("there is room");
    outbox.failed(kept.id, &"ä".repeat(1 << 20));
    let after = put(&outbox, "b", b"other bytes", None, &Arc::default()).expect("there is room");
    drop(outbox);
    let (_outbox, left) = open(&folder);
    assert_eq!(left.iter().map(|waiting| waiting.id).collect::<Vec<_>>(), [kept.id, after.id]);
    assert!(left[0].failed.as_deref().is_some_and(|why| why.starts_with("ää")));
}
