//! Threads that put, replace and end entries at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::faulty::FaultyDisk;
use super::{bytes_of, put, read};
use crate::{EntryId, Limits, Outbox};

const THREADS: u64 = 4;

/// Each thread has a file that it writes again and again, and others that come and go. Returns the last bytes of the file.
fn work(outbox: &Outbox, thread: u64) -> (EntryId, Vec<u8>) {
    let key = format!("file {thread}");
    let (mut last, mut others) = (None, Vec::new());
    for round in 0..60 {
        let bytes = bytes_of(thread << 8 | round, 300);
        let kept = put(outbox, &key, &bytes, last.map(|(id, _)| id), &Arc::default()).expect("there is room");
        last = Some((kept.id, bytes));
        let other = put(outbox, &format!("{thread}, {round}"), &bytes_of(0, 2_000), None, &Arc::default());
        others.push(other.expect("there is room").id);
        if others.len() > 2 {
            outbox.done(others.remove(0));
        }
    }
    others.into_iter().for_each(|id| outbox.done(id));
    last.expect("a round")
}

#[test]
fn threads_do_not_lose_each_others_entries() {
    let disk = FaultyDisk::default();
    let limits = Limits { bytes: 512 << 10, entries: 64, segment_bytes: 48 << 10 };
    let (outbox, _) = Outbox::open(Arc::new(disk.clone()), limits).expect("no faults");
    let expected: BTreeMap<EntryId, Vec<u8>> = std::thread::scope(|scope| {
        let outbox = &outbox;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(outbox, thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let check = |waiting: Vec<crate::Waiting>| {
        let found: BTreeMap<EntryId, Vec<u8>> =
            waiting.iter().map(|waiting| (waiting.id, read(&waiting.bytes))).collect();
        assert!(found == expected, "{:?} is not {:?}", found.keys(), expected.keys());
    };
    check(outbox.waiting());
    let (_outbox, left) = Outbox::open(Arc::new(disk.left()), limits).expect("no faults");
    check(left);
}
