//! A disk that does not have what it was given.

use std::sync::Arc;

use proptest::prelude::*;

use super::faulty::FaultyDisk;
use super::steps::{Step, cases, live, step};
use super::{bytes_of, put, read};
use crate::replay::IN_DOUBT;
use crate::{Damage, EntryId, Limits, Outbox, OutboxDisk as _, Waiting};

const LIMITS: Limits = Limits { bytes: 4 << 20, entries: 100, segment_bytes: 1 << 20 };

fn open(disk: &FaultyDisk) -> (Outbox, Vec<Waiting>) {
    Outbox::open(Arc::new(disk.clone()), LIMITS).expect("no faults")
}

fn kept(outbox: &Outbox, key: &str, bytes: &[u8], replaced: Option<EntryId>) -> EntryId {
    put(outbox, key, bytes, replaced, &Arc::default()).expect("there is room").id
}

/// The only file of a disk.
fn only(disk: &FaultyDisk) -> u64 {
    let numbers = disk.segments().expect("no faults");
    assert_eq!(numbers.len(), 1);
    numbers[0]
}

/// Changes a byte of a file.
fn flip(disk: &FaultyDisk, number: u64, offset: u64) {
    let mut byte = [0];
    disk.open(number).and_then(|file| file.read(offset, &mut byte)).expect("it is there");
    disk.overwrite(number, offset, &[byte[0] ^ 0x10]);
}

/// Where the record of an entry begins, and its bytes.
fn places(outbox: &Outbox, id: EntryId) -> (u64, u64) {
    let waiting = outbox.find(id).expect("it waits");
    let location = waiting.bytes.location().clone();
    (location.start + waiting.size - location.record_bytes, location.start)
}

/// What is found, as key and whether it waits for a decision.
fn shown(left: &[Waiting]) -> Vec<(&str, bool)> {
    let shown = left.iter().map(|waiting| (&*waiting.entry.key, waiting.failed.as_deref() == Some(IN_DOUBT)));
    shown.collect()
}

#[test]
fn a_damaged_record_does_not_take_those_behind_it_along() {
    for at_text in [0, 80] {
        let disk = FaultyDisk::default();
        let (outbox, _) = open(&disk);
        let ids = ["a", "b", "c", "d"].map(|key| kept(&outbox, key, &bytes_of(1, 5_000), None));
        let disk = disk.left();
        let number = only(&disk);
        flip(&disk, number, places(&outbox, ids[1]).0 + at_text);
        let (outbox, left) = open(&disk);
        assert_eq!(shown(&left), [("a", true), ("c", false), ("d", false)]);
        assert_eq!(outbox.damage(), [Damage::File(number)]);
        assert_eq!(read(&left[1].bytes), bytes_of(1, 5_000));
        // A number that the damaged record may have had is not given again.
        assert!(kept(&outbox, "e", b"bytes", None).0 > 1 << 20);

        outbox.retry(ids[0]);
        let (_, left) = open(&disk.left());
        assert_eq!(shown(&left)[0], ("a", false), "somebody has decided");
    }
}

#[test]
fn damaged_bytes_are_one_files_loss() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let before = kept(&outbox, "a", b"before", None);
    let other = kept(&outbox, "b", b"other", None);
    let over = kept(&outbox, "c", &bytes_of(2, 500), None);
    let newer = kept(&outbox, "a", &bytes_of(1, 5_000), Some(before));
    let last = kept(&outbox, "d", b"last", None);
    let (over_at, newer_at) = (places(&outbox, over).1, places(&outbox, newer).1);
    outbox.done(over);
    let disk = disk.left();
    let number = only(&disk);
    flip(&disk, number, over_at + 100);
    flip(&disk, number, newer_at + 100);
    let (outbox, left) = open(&disk);
    assert_eq!(outbox.damage(), [Damage::Lost("a".to_owned()), Damage::File(number)]);
    assert_eq!(left.iter().map(|waiting| waiting.id).collect::<Vec<_>>(), [before, other, last]);
    assert_eq!(shown(&left), [("a", true), ("b", false), ("d", false)]);
}

#[test]
fn a_copy_of_a_record_is_none() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let first = kept(&outbox, "first", b"bytes", None);
    let number = only(&disk);
    let mut copy = vec![0; 4_000];
    disk.open(number).and_then(|file| file.read(0, &mut copy)).expect("no faults");
    let second = kept(&outbox, "second", &copy, None);
    outbox.done(first);
    outbox.commit_now().expect("no faults");
    kept(&outbox, "third", b"bytes", None);
    let disk = disk.left();
    flip(&disk, number, places(&outbox, second).0);
    let (_, left) = open(&disk);
    assert_eq!(shown(&left), [("third", false)]);
}

#[test]
fn what_can_not_be_read_is_damaged() {
    let disk = FaultyDisk::default();
    let (outbox, _) = open(&disk);
    let ids = ["a", "b", "c", "d"].map(|key| kept(&outbox, key, &bytes_of(1, 50_000), None));
    let disk = disk.left();
    let number = only(&disk);
    let bad = places(&outbox, ids[1]).1 + 20_000;
    disk.make_unreadable(bad..bad + 512);
    let (outbox, left) = open(&disk);
    assert_eq!(shown(&left), [("a", false), ("c", false), ("d", false)]);
    assert_eq!(outbox.damage(), [Damage::Lost("b".to_owned()), Damage::File(number)]);
}

#[test]
fn a_file_of_an_unknown_form_is_kept() {
    let disk = FaultyDisk::default();
    drop(open(&disk));
    disk.create(7 << 32, 4_000).expect("no faults");
    disk.overwrite(7 << 32, 0, &[b'x'; 100]);
    let (outbox, left) = open(&disk);
    assert!(left.is_empty());
    assert_eq!(outbox.damage(), [Damage::File(7 << 32)]);
    drop(outbox);
    assert_eq!(
        (disk.segments().expect("no faults"), disk.damaged().expect("no faults")),
        (vec![], vec![7 << 32])
    );
    assert_eq!(open(&disk).0.damage(), [Damage::Kept(7 << 32)]);
}

/// What happens to the disk: bytes of a file change, or a file is gone.
#[derive(Clone, Debug)]
enum Blow {
    Flip { file: usize, at: usize },
    Zeros { file: usize, at: usize, len: usize },
    CutShort { file: usize, at: usize },
    Gone { file: usize },
}

fn blow() -> impl Strategy<Value = Blow> {
    let (file, at) = (any::<usize>, any::<usize>);
    prop_oneof![
        6 => (file(), at()).prop_map(|(file, at)| Blow::Flip { file, at }),
        2 => (file(), at(), 1..5_000_usize).prop_map(|(file, at, len)| Blow::Zeros { file, at, len }),
        1 => (file(), at()).prop_map(|(file, at)| Blow::CutShort { file, at }),
        1 => file().prop_map(|file| Blow::Gone { file }),
    ]
}

/// Changes what was durable: all files but the last one, and the first one is not removed.
fn strike(disk: &FaultyDisk, numbers: &[u64], blow: &Blow) {
    let (_, old) = numbers.split_last().expect("a file");
    let bytes = |number: u64| disk.open(number).and_then(|file| file.bytes()).expect("it is there") as usize;
    let pick = |file: usize| old.get(file % old.len().max(1)).copied().filter(|number| bytes(*number) > 0);
    match *blow {
        Blow::Flip { file, at } => {
            let Some(number) = pick(file) else { return };
            flip(disk, number, (at % bytes(number)) as u64);
        }
        Blow::Zeros { file, at, len } => {
            let Some(number) = pick(file) else { return };
            let at = at % bytes(number);
            disk.overwrite(number, at as u64, &vec![0; len.min(bytes(number) - at)]);
        }
        Blow::CutShort { file, at } => {
            let Some(number) = pick(file) else { return };
            let file = disk.open(number).expect("it is there");
            file.shorten((at % bytes(number)) as u64).expect("no faults");
        }
        Blow::Gone { file } => {
            if old.len() > 1 {
                disk.disk.remove(old[1 + file % (old.len() - 1)]).expect("it is there");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn damage_is_told_and_takes_nothing_else_along(
        steps in prop::collection::vec(step(false), 1..60),
        blows in prop::collection::vec(blow(), 1..4),
    ) {
        let steps: Vec<Step> = steps;
        live(steps).damage(|disk, numbers| {
            blows.iter().for_each(|blow| if disk.segments().expect("no faults").len() == numbers.len() {
                strike(disk, numbers, blow);
            });
        });
    }
}
