//! Names that entries are given with their folder, and what else is said meanwhile.

use std::sync::Arc;

use super::faulty::FaultyDisk;
use super::{bytes_of, put};
use crate::{EntryId, Limits, Outbox, Waiting};

const LIMITS: Limits = Limits { bytes: 240 << 10, entries: 6, segment_bytes: 48 << 10 };

fn open(disk: &FaultyDisk) -> (Outbox, Vec<Waiting>) {
    Outbox::open(Arc::new(disk.clone()), LIMITS).expect("no faults")
}

fn kept(outbox: &Outbox, key: &str, len: usize) -> EntryId {
    put(outbox, key, &bytes_of(1, len), None, &Arc::default()).expect("there is room").id
}

fn keys(waiting: &[Waiting]) -> Vec<(EntryId, &str)> {
    waiting.iter().map(|waiting| (waiting.id, &*waiting.entry.key)).collect()
}

#[test]
fn of_files_with_one_name_a_folder_takes_the_newest_with_it() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let (newest, _) = (kept(&outbox, "from/other", 10), kept(&outbox, "from/file", 10));
    outbox.moved(newest, "from/file", None, None);
    outbox.folder_moved("from/", "to/");
    assert_eq!(keys(&open(&disk.left()).1), [(newest, "to/file")]);
}

#[test]
fn of_files_with_one_name_the_newest_stays_so_when_it_is_written_anew() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let (newest, before) = (kept(&outbox, "from/other", 10), kept(&outbox, "from/file", 10));
    outbox.moved(newest, "from/file", None, None);
    outbox.folder_moved("from/", "to/");
    // Each has a file of its own: with the third one, the oldest is emptied.
    for _ in 0..3 {
        let long = kept(&outbox, "long", 47 << 10);
        outbox.done(long);
    }
    assert_eq!(keys(&outbox.waiting()), [(newest, "to/file"), (before, "to/file")]);
    assert_eq!(keys(&open(&disk.left()).1), [(newest, "to/file")]);
}

#[test]
fn what_had_failed_when_its_folder_was_renamed_stays_where_it_was() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let (refused, waits) = (kept(&outbox, "from/refused", 10), kept(&outbox, "from/waits", 10));
    // Nothing of this is written before the commit.
    disk.fail(0, 1);
    outbox.failed(refused, "no");
    outbox.folder_moved("from/", "to/");
    outbox.retry(refused);
    let names = [(refused, "from/refused"), (waits, "to/waits")];
    assert_eq!(keys(&outbox.waiting()), names);
    outbox.commit_now().expect("no faults");
    assert_eq!(keys(&open(&disk.left()).1), names);
}

#[test]
fn a_name_that_is_said_late_does_not_follow_the_flag_that_it_ends() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let file = kept(&outbox, "file", 10);
    disk.fail(0, 1);
    outbox.moved(file, "one", None, None);
    outbox.ending(file, true);
    outbox.moved(file, "other", None, None);
    // The file for them is made, and then no more than one record is written.
    disk.fail(2, 100);
    assert!(outbox.commit_now().is_err());
    let (_outbox, left) = open(&disk.left());
    assert!(!left[0].is_ending, "{:?}", keys(&left));
}
