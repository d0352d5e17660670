//! What a disk that refuses at one moment leaves.

use std::sync::Arc;

use super::faulty::FaultyDisk;
use super::{bytes_of, put, read};
use crate::{EntryId, Limits, Outbox, OutboxError, Waiting};

const LIMITS: Limits = Limits { bytes: 240 << 10, entries: 2, segment_bytes: 48 << 10 };

fn open(disk: &FaultyDisk) -> (Outbox, Vec<Waiting>) {
    Outbox::open(Arc::new(disk.clone()), LIMITS).expect("no faults")
}

fn ids(waiting: &[Waiting]) -> Vec<EntryId> {
    waiting.iter().map(|waiting| waiting.id).collect()
}

/// The number of an entry with these bytes.
fn kept(outbox: &Outbox, bytes: &[u8], replaced: Option<EntryId>) -> EntryId {
    put(outbox, "a", bytes, replaced, &Arc::default()).expect("there is room").id
}

#[test]
fn what_an_entry_was_to_replace_stays_when_the_entry_is_refused() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let bytes = bytes_of(1, 100);
    let before = kept(&outbox, &bytes, None);
    // Two pieces and the head are written, and the sync is refused.
    disk.fail(3, 1);
    let refused = put(&outbox, "a", b"others", Some(before), &Arc::default());
    assert!(matches!(refused, Err(OutboxError::Disk(_))));
    assert_eq!(ids(&outbox.waiting()), [before]);
    let (_outbox, left) = open(&disk.left());
    assert_eq!(ids(&left), [before]);
    assert_eq!(read(&left[0].bytes), bytes);
    // What such a disk has is not known, whatever it says later.
    let refused = put(&outbox, "a", b"others", Some(before), &Arc::default());
    assert!(matches!(refused, Err(OutboxError::Broken)));
    assert!(outbox.commit_now().is_err());
}

#[test]
fn what_the_disk_has_refused_is_said_later() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let (one, other) = (kept(&outbox, b"one", None), put(&outbox, "b", b"other", None, &Arc::default()));
    let other = other.expect("there is room").id;
    disk.fail(0, 1);
    outbox.done(one);
    outbox.moved(other, "c", None, None);
    outbox.failed(other, "no");
    assert!(outbox.is_to_be_committed());
    outbox.commit_now().expect("no faults");
    assert!(!outbox.is_to_be_committed());
    let left = disk.left();
    left.disk.cut(|_| 0);
    let (_outbox, left) = open(&left);
    assert_eq!(ids(&left), [other]);
    assert_eq!((&*left[0].entry.key, left[0].failed.as_deref()), ("c", Some("no")));
}

#[test]
fn a_replaced_entry_makes_room_only_if_it_waits() {
    let (outbox, _) = open(&FaultyDisk::default());
    let one = kept(&outbox, b"one", None);
    let other = kept(&outbox, b"other", None);
    outbox.failed(one, "no");
    kept(&outbox, b"third", None);
    let refused = put(&outbox, "a", b"fourth", Some(one), &Arc::default());
    assert!(matches!(refused, Err(OutboxError::Full)), "the failed one was not counted");
    kept(&outbox, b"fourth", Some(other));
    assert_eq!(outbox.metrics().entries, 2);
}

#[test]
fn a_disk_that_takes_nothing_does_not_keep_a_daemon_from_uploading() {
    for after in [0, 1] {
        let disk = FaultyDisk::default();
        let (outbox, _) = open(&disk);
        let waits = kept(&outbox, b"bytes", None);
        drop(outbox);
        // The sync of the old file, or all behind it.
        disk.fail(after, 100);
        let (outbox, left) = open(&disk);
        assert_eq!((ids(&left), read(&left[0].bytes)), (vec![waits], b"bytes".to_vec()));
        outbox.done(waits);
        disk.fail(0, 0);
        // Nothing waits any more, so nothing of what the disk has is wanted.
        outbox.commit_now().expect("no faults");
        assert!(open(&disk.left()).1.is_empty());
        kept(&outbox, b"bytes", None);
    }
}
