//! The log, and what it says.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::time::SystemTime;

use proptest::prelude::*;
use s3mount_names::FolderNote;
use s3mount_object::{ETag, ObjectId};
use s3mount_write::WrittenNotes;

use super::log::{HALF_BYTES, Key, Log, Said};
use super::record::{
    DraftHandle, KnownNode, LocalFolderRecord, NODE, NodeRecord, OPEN, OpenAs, OpenFolderRecord, OpenRecord,
    Record, StoredVersion,
};
use super::{Handover, HandoverError, Numbers};
use crate::attributes::modes::Mode;
use crate::names::Target;
use crate::numbers::{FIRST_FREE, FileHandle, InodeNo, ROOT};
use crate::tree::inode::InodeTable;

const SEED: [u8; 16] = [7; 16];

type Records = BTreeMap<Key, Vec<u8>>;

fn file() -> File {
    tempfile::tempfile().expect("a file")
}

fn again(file: &File) -> File {
    file.try_clone().expect("a descriptor")
}

/// Opens a log, and returns what it says.
fn opened(file: &File) -> Result<(Log, Said, Records), HandoverError> {
    let mut records = Records::new();
    let (log, said) = Log::open(again(file), |key, bytes| {
        assert!(records.insert(key, bytes.to_vec()).is_none(), "{key:?} is passed twice");
        Ok(())
    })?;
    Ok((log, said, records))
}

#[derive(Clone, Debug)]
enum Step {
    Put(Key, Vec<u8>),
    Remove(Key),
    /// Another daemon goes on.
    Open,
    /// Another daemon goes on, and begins anew with another seed.
    Reseed(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || (1_u8..4, 0_u64..12);
    // Long records make the log clean up every few steps.
    let len = prop_oneof![4 => 0_usize..200, 1 => 100_000_usize..300_000];
    let put = (key(), len, any::<u8>()).prop_map(|(key, len, byte)| Step::Put(key, vec![byte; len]));
    let step = prop_oneof![
        12 => put,
        4 => key().prop_map(Step::Remove),
        1 => Just(Step::Open),
        1 => any::<bool>().prop_map(Step::Reseed),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_log_says_what_was_put_and_not_removed(steps in steps()) {
        let file = file();
        let (mut log, mut known) = (Log::create(again(&file), SEED).expect("room"), Records::new());
        for step in steps {
            match step {
                Step::Put(key, bytes) => {
                    log.put(key, &bytes).expect("room");
                    known.insert(key, bytes);
                }
                Step::Remove(key) => {
                    log.remove(key).expect("room");
                    known.remove(&key);
                }
                Step::Open => log = opened(&file).expect("a log").0,
                Step::Reseed(keeps) => {
                    log.reseed([8; 16], keeps).expect("room");
                    if !keeps {
                        known.clear();
                    }
                }
            }
            let mut keys = (1..4).flat_map(|kind| (0..12).map(move |id| (kind, id)));
            prop_assert!(keys.all(|key| log.has(key) == known.contains_key(&key)));
        }
        let live: usize = known.values().map(|bytes| bytes.len() + 24).sum();
        prop_assert_eq!(log.live_bytes(), live as u64);
        let (next, said, records) = opened(&file).expect("a log");
        prop_assert_eq!(said, Said::All);
        prop_assert_eq!(next.live_bytes(), live as u64);
        prop_assert_eq!(records, known);
    }
}

#[test]
fn a_log_that_is_cut_at_any_byte_says_all_before() {
    let file = file();
    let mut log = Log::create(again(&file), SEED).expect("room");
    let put: [(Key, &[u8]); 3] = [((1, !0), b"first"), ((1, !1), b""), ((1, !0), b"again, and longer")];
    let mut said = vec![(0, Records::new())];
    let mut end = 0;
    for (key, bytes) in put {
        log.put(key, bytes).expect("room");
        let mut records = said.last().expect("a state").1.clone();
        records.insert(key, bytes.to_vec());
        end += 24 + bytes.len() as u64;
        said.push((end, records));
    }
    log.remove((1, !1)).expect("room");
    let mut records = said.last().expect("a state").1.clone();
    records.remove(&(1, !1));
    said.push((end + 24, records));
    let begin = 4096;
    for cut in (0..=end + 24).rev() {
        // What a daemon has not written is zero, and so are the bytes that it could not write to their end.
        file.write_all_at(&vec![0; (end + 24 - cut) as usize], begin + cut).expect("room");
        let right = &said.iter().rfind(|(end, _)| *end <= cut).expect("the first state").1;
        assert_eq!(opened(&file).expect("a log").2, *right, "cut after {cut} bytes");
    }
}

#[test]
fn a_damaged_record_ends_the_log() {
    let file = file();
    let mut log = Log::create(again(&file), SEED).expect("room");
    for id in 0..3 {
        log.put((NODE, id), b"some bytes").expect("room");
    }
    // The second one.
    file.write_all_at(b"X", 4096 + 34 + 24).expect("room");
    let (mut next, said, records) = opened(&file).expect("a log");
    assert_eq!((said, records.into_keys().collect::<Vec<_>>()), (Said::All, vec![(NODE, 0)]));
    next.put((NODE, 7), b"new").expect("room");
    let keys: Vec<Key> = opened(&file).expect("a log").2.into_keys().collect();
    assert_eq!(keys, [(NODE, 0), (NODE, 7)], "what comes after it takes its place");
}

#[test]
fn a_log_is_cleaned_up_again_and_again() {
    let file = file();
    let mut log = Log::create(again(&file), SEED).expect("room");
    log.put((NODE, 1), b"stays").expect("room");
    let long = vec![1; 100_000];
    for round in 0..2_000_u64 {
        let mut bytes = long.clone();
        bytes[..8].copy_from_slice(&round.to_le_bytes());
        log.put((OPEN, round % 3), &bytes).expect("room");
    }
    let (_, said, records) = opened(&file).expect("a log");
    assert_eq!((said, records.len()), (Said::All, 4));
    assert_eq!(records[&(NODE, 1)], b"stays");
    assert_eq!(records[&(OPEN, 1)][..8], 1_999_u64.to_le_bytes());
    let held = file.metadata().expect("a file").blocks() * 512;
    assert!(held < 8 << 20, "{held} bytes are held, of {} written", 2_000 * long.len());
}

#[test]
fn the_same_record_again_takes_no_room() {
    let file = file();
    let mut log = Log::create(again(&file), SEED).expect("room");
    log.put((NODE, 1), b"one").expect("room");
    let before = first_hole(&file);
    log.put((NODE, 1), b"one").expect("room");
    assert_eq!(first_hole(&file), before);
    log.put((NODE, 1), b"two").expect("room");
    assert_ne!(first_hole(&file), before);
}

/// Where the records of the first half end.
fn first_hole(file: &File) -> usize {
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, 4096).expect("a half");
    bytes.iter().rposition(|byte| *byte != 0).unwrap_or_default()
}

#[test]
fn a_log_that_is_full_is_not_believed() {
    let file = file();
    let handover = Handover::create(again(&file), SEED).expect("room");
    let session = vec![1; 1 << 20];
    handover.set_session(b"session");
    let open = OpenRecord::new(InodeNo(99), OpenAs::Own);
    handover.set_open(FileHandle(1), &open);
    {
        let mut records = handover.lock();
        for id in 0..HALF_BYTES / session.len() as u64 + 1 {
            records.put((NODE, id), &session);
        }
        assert!(records.is_broken, "more than a half does not fit");
    }
    let (next, left) = Handover::open(again(&file), [9; 16]).expect("a log");
    assert_eq!(left.records, [Record::Session(b"session".to_vec())]);
    assert_ne!(format!("{:?}", next.numbers()), format!("{:?}", Numbers(SEED)), "numbers are new ones");
    next.set_open(FileHandle(2), &open);
    let (_, left) = Handover::open(file, [10; 16]).expect("a log");
    assert_eq!(left.records, [Record::Open(FileHandle(2), open)], "and the next log is whole");
}

#[test]
fn another_version_is_refused() {
    let file = file();
    drop(Log::create(again(&file), SEED).expect("room"));
    let mut version = [0; 4];
    file.read_exact_at(&mut version, 8).expect("a header");
    let other = u32::from_le_bytes(version) + 1;
    file.write_all_at(&other.to_le_bytes(), 8).expect("room");
    let refused = opened(&file).expect_err("another form");
    assert!(matches!(refused, HandoverError::OtherVersion { found, .. } if found == other), "{refused}");
    file.write_all_at(b"another!", 0).expect("room");
    assert!(matches!(opened(&file), Err(HandoverError::NoLog)));
}

#[test]
fn a_damaged_header_is_refused() {
    let file = file();
    drop(Log::create(again(&file), SEED).expect("room"));
    file.write_all_at(&[1], 20).expect("room");
    assert!(matches!(opened(&file), Err(HandoverError::NoLog)));
}

#[test]
fn records_are_read_as_they_were_written() {
    let file = file();
    let handover = Handover::create(again(&file), SEED).expect("room");
    let node = |name: &str, node| NodeRecord { parent: InodeNo(1), name: name.into(), is_newest: true, node };
    let version =
        KnownNode::Version { etag: "\"etag\"".into(), size: 1 << 40, modified: -5, may_have_old_pages: true };
    let stored = StoredVersion { etag: "\"2\"".into(), size: 0, modified: 7 };
    let draft = |stored, is_saved| KnownNode::Draft { stored, is_saved };
    let nodes = [
        node("folder", KnownNode::Folder),
        node("ä", version),
        node("new", draft(None, false)),
        node("synced", draft(Some(stored.clone()), true)),
        node("changed", draft(Some(stored), false)),
    ];
    let opens = [
        OpenAs::Own,
        OpenAs::Object { is_direct: true },
        OpenAs::Passthrough(None),
        OpenAs::Passthrough(Some(0)),
        OpenAs::Draft(DraftHandle { writes: true, is_writer: true, ..DraftHandle::default() }),
    ];
    let mut right = vec![Record::Session(b"session".to_vec())];
    handover.set_session(b"session");
    for (at, node) in nodes.iter().enumerate() {
        handover.set_node(InodeNo(100 + at as u64), Some(node), false);
        right.push(Record::Node(InodeNo(100 + at as u64), node.clone()));
    }
    for (at, as_what) in opens.into_iter().enumerate() {
        let open = OpenRecord::new(InodeNo(101), as_what);
        handover.set_open(FileHandle(at as u64), &open);
        right.push(Record::Open(FileHandle(at as u64), open));
    }
    let folder = OpenFolderRecord {
        ino: InodeNo(100),
        read: 3,
        behind: "b".into(),
        owed: vec!["a".to_owned(), String::new()],
        given: vec!["c/".to_owned()],
    };
    handover.set_open_folder(FileHandle(9), &folder);
    right.push(Record::OpenFolder(FileHandle(9), folder));
    handover.set_local_folder("above/", "made", Some(FolderNote::Made));
    handover.set_local_folder("above/", "emptied", Some(FolderNote::Emptied));
    handover.set_local_folder("above/", "gone", Some(FolderNote::Made));
    handover.set_local_folder("above/", "gone", None);
    for (name, note) in [("made", FolderNote::Made), ("emptied", FolderNote::Emptied)] {
        right.push(Record::LocalFolder(LocalFolderRecord {
            prefix: "above/".into(),
            name: name.into(),
            note,
        }));
    }
    let (_, left) = Handover::open(file, SEED).expect("a log");
    assert_eq!(left.session(), Some(&b"session"[..]));
    let opened: Vec<_> = left.opened().collect();
    let mut backings: Vec<_> = opened.iter().map(|(_, backing)| *backing).collect();
    backings.sort();
    assert_eq!(
        backings,
        [None, None, Some(0)],
        "neither own files, nor backing files that the kernel has not"
    );
    assert_eq!(left.records.len(), right.len());
    assert!(right.iter().all(|record| left.records.contains(record)), "{:?}", left.records);
}

#[test]
fn what_is_closed_is_not_left() {
    let file = file();
    let handover = Handover::create(again(&file), SEED).expect("room");
    let (ino, other) = (InodeNo(100), InodeNo(101));
    let open = OpenRecord::new(ino, OpenAs::Object { is_direct: false });
    handover.set_open(FileHandle(1), &open);
    handover.set_open(FileHandle(1), &open);
    handover.set_open(FileHandle(2), &open);
    handover.set_open_folder(FileHandle(1), &OpenFolderRecord::new(other));
    handover.set_closed(FileHandle(1), Some(ino));
    assert!(handover.is_open(ino), "the other handle");
    handover.set_closed(FileHandle(2), Some(ino));
    assert!(!handover.is_open(ino) && handover.is_open(other));
    handover.set_closed_folder(FileHandle(1), other);
    assert!(!handover.is_open(other));
    let (next, left) = Handover::open(file, SEED).expect("a log");
    assert_eq!((left.records, next.bytes()), (Vec::new(), 0));
}

#[test]
fn the_next_life_forgets_first_what_was_written_first() {
    let file = file();
    let handover = Handover::create(again(&file), SEED).expect("room");
    let mode = Mode { run: 0o111, version: None };
    let key = |index: usize| format!("key{index}");
    let version = |index: usize| ObjectId::new(&key(index), ETag::new("e"));
    let hash = |handover: &Handover, index| handover.hash(&version(index));
    // Once around, and some more, in two lives.
    let (all, first) = (super::MOST_WRITTEN as usize + 10, 100);
    (0..first).for_each(|index| handover.note(hash(&handover, index)));
    (0..first).for_each(|index| handover.set_mode(&key(index), Some(&mode)));
    handover.set_mode(&key(0), Some(&mode));
    let (handover, left) = Handover::open(again(&file), SEED).expect("a log");
    let modes = |records: &[Record]| -> Vec<Box<str>> {
        let modes = records.iter().filter_map(|record| match record {
            Record::Mode(noted) => Some(noted.key.clone()),
            _ => None,
        });
        modes.collect()
    };
    let expected: Vec<_> = (1..first).chain([0]).map(|index| key(index).into()).collect();
    assert_eq!(modes(&left.records), expected, "the one that was set again is the last");
    (first..all).for_each(|index| handover.note(hash(&handover, index)));
    let (_, left) = Handover::open(file, SEED).expect("a log");
    let written: Vec<_> = left
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Written(_, hash) => Some(*hash),
            _ => None,
        })
        .collect();
    let expected: Vec<_> = (10..all).map(|index| hash(&handover, index)).collect();
    assert_eq!(written, expected);
}

#[test]
fn the_next_life_finds_the_same_numbers() {
    let file = file();
    let numbers = Handover::create(again(&file), SEED).expect("room").numbers();
    let (next, _) = Handover::open(file, [9; 16]).expect("a log");
    let of = |numbers: Numbers, name, etag, tries| numbers.of(InodeNo(1), name, etag, tries);
    for (name, etag) in [("a", None), ("a", Some("\"1\"")), ("a", Some("\"2\"")), ("b", None)] {
        let number = of(numbers, name, etag, 0);
        assert_eq!(number, of(next.numbers(), name, etag, 0), "{name} {etag:?}");
        assert!(number >= FIRST_FREE && number.0 < 1 << 63);
        assert_ne!(number, of(numbers, name, etag, 1), "who finds it taken takes another");
        assert_ne!(number, of(Numbers([9; 16]), name, etag, 0), "nobody knows it without the seed");
    }
    let pairs = [of(numbers, "a", None, 0), of(numbers, "a", Some(""), 0), of(numbers, "a/", None, 0)];
    assert!(pairs[0] != pairs[1] && pairs[0] != pairs[2]);
}

fn version(etag: &str) -> Target {
    let object = ObjectId::new("b", ETag::new(etag));
    Target::File(s3mount_names::File { object, size: 1, mtime: SystemTime::UNIX_EPOCH })
}

/// The inodes of a daemon that keeps its notes in `handover`.
fn inodes(handover: &Arc<Handover>) -> InodeTable {
    let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
    table.hand_over(handover.clone());
    table
}

#[test]
fn names_whose_numbers_collide_get_different_ones_and_keep_them() {
    let file = file();
    let handover = Arc::new(Handover::create(again(&file), SEED).expect("room"));
    let of = |tries| handover.numbers().of(ROOT, "b", Some("e"), tries);
    let table = inodes(&handover);
    let node = KnownNode::Version { etag: "e".into(), size: 1, modified: 0, may_have_old_pages: false };
    table.restore([(of(0), NodeRecord { parent: ROOT, name: "a".into(), is_newest: true, node })]);
    let ino = table.lookup_or_insert(ROOT, "", "b", &version("e")).ino;
    assert_eq!(ino, of(1), "another file has the first number");
    let (next, left) = Handover::open(file, [9; 16]).expect("a log");
    let nodes = left.records.into_iter().filter_map(|record| match record {
        Record::Node(ino, node) => Some((ino, node)),
        _ => None,
    });
    let nodes: Vec<_> = nodes.collect();
    assert!(nodes.iter().any(|(of, node)| (*of, &*node.name) == (ino, "b")), "{nodes:?}");
    let table = inodes(&Arc::new(next));
    table.restore(nodes);
    assert_eq!(table.lookup_or_insert(ROOT, "", "b", &version("e")).ino, ino);
}

#[test]
fn the_kernel_is_told_of_drafts_that_are_lost() {
    let handover = Arc::new(Handover::create(file(), SEED).expect("room"));
    let table = inodes(&handover);
    let node = |name: &str, is_newest| {
        let node = KnownNode::Draft { stored: None, is_saved: false };
        NodeRecord { parent: ROOT, name: name.into(), is_newest, node }
    };
    table.restore([(InodeNo(100), node("new", true)), (InodeNo(101), node("removed", false))]);
    let (folder, names) = table.take_outdated(|_| true).expect("a folder");
    assert_eq!((folder, names.len(), &*names[0].name), (ROOT, 1, "new"));
    assert!(table.node(InodeNo(100)).is_none() && table.attr(InodeNo(100)).is_none());
    table.forget(InodeNo(100), 3);
    assert!(table.take_outdated(|_| true).is_none());
}

#[test]
fn the_next_life_uses_no_handle_again() {
    let file = file();
    let first = Handover::create(again(&file), SEED).expect("room").first_handle();
    let lives =
        [[8; 16], [9; 16]].map(|seed| Handover::open(again(&file), seed).expect("a log").0.first_handle());
    // No daemon opens that many files.
    let far = 1 << 48;
    assert!(lives.iter().all(|life| life.0.abs_diff(first.0) > far), "{lives:?}");
    assert!(lives[0].0.abs_diff(lives[1].0) > far, "{lives:?}");
}

#[test]
fn of_a_log_that_could_not_be_written_only_the_session_is_believed() {
    let file = file();
    let handover = Handover::create(again(&file), SEED).expect("room");
    handover.set_session(b"session");
    handover.set_open(FileHandle(1), &OpenRecord::new(InodeNo(100), OpenAs::Own));
    handover.lock().check(Err(std::io::ErrorKind::StorageFull.into()));
    handover.set_closed(FileHandle(1), None);
    let (next, left) = Handover::open(again(&file), [9; 16]).expect("a log");
    assert_eq!(left.records, [Record::Session(b"session".to_vec())]);
    assert_ne!(next.numbers().of(ROOT, "a", None, 0), handover.numbers().of(ROOT, "a", None, 0));
    next.set_session(b"session");
    let (_, left) = Handover::open(file, [8; 16]).expect("a log");
    assert_eq!(left.records.len(), 1, "it is a log as any other again");
}
