//! What is noted of drafts, compared with one flag for each byte.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use s3mount_write::{MemoryDisk, SpoolBytes, SpoolDisk as _};

use super::{MOST_FILES, MOST_OF_DRAFT, SpoolKeeper};
use crate::handover::Handover;
use crate::handover::record::Changes;
use crate::numbers::InodeNo;

/// Keeps numbers.
#[derive(Debug, Default)]
struct Kept(Mutex<BTreeSet<u64>>);

impl Kept {
    fn numbers(&self) -> BTreeSet<u64> {
        self.0.lock().expect("no test panics with it").clone()
    }
}

impl SpoolKeeper for Kept {
    fn keep(&self, number: u64, _: &Arc<dyn SpoolBytes>) -> io::Result<()> {
        assert!(self.0.lock().expect("no test panics with it").insert(number), "{number} is used twice");
        Ok(())
    }

    fn leave(&self, number: u64) {
        self.0.lock().expect("no test panics with it").remove(&number);
    }
}

const INODE: InodeNo = InodeNo(77);

fn begun(kept: &Arc<Kept>) -> (File, Handover) {
    let file = tempfile::tempfile().expect("a file");
    let handover = Handover::create(file.try_clone().expect("a descriptor"), [7; 16]).expect("room");
    handover.keep_files(kept.clone());
    (file, handover)
}

fn bytes() -> Arc<dyn SpoolBytes> {
    MemoryDisk.file().expect("memory")
}

fn opened(file: &File, kept: &Arc<Kept>) -> Handover {
    let (handover, _) = Handover::open(file.try_clone().expect("a descriptor"), [8; 16]).expect("a log");
    handover.keep_files(kept.clone());
    handover
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(u64, u64),
    Wrote(u64, u64),
    Resized(u64),
    End,
    /// Another daemon goes on.
    Open,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0_u64..200, 1_u64..30).prop_map(|(start, len)| Step::Wrote(start, start + len)),
        4 => (0_u64..240).prop_map(Step::Resized),
        1 => (0_u64..100, 0_u64..50).prop_map(|(base, more)| Step::Begin(base, base + more)),
        1 => Just(Step::End),
        3 => Just(Step::Open),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A draft: its size, how many bytes of its version it has, and which bytes its file has.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    size: u64,
    base_bytes: u64,
    in_file: BTreeSet<u64>,
}

proptest! {
    #[test]
    fn the_next_daemon_knows_each_byte(steps in steps()) {
        let kept = Arc::<Kept>::default();
        let (file, mut handover) = begun(&kept);
        let mut model = None;
        for step in steps {
            match step {
                Step::Begin(base_bytes, size) => {
                    handover.begin_spooled(INODE, &bytes(), (base_bytes, size)).expect("room");
                    model = Some(Model { size, base_bytes, in_file: BTreeSet::new() });
                }
                Step::Wrote(start, end) => {
                    prop_assert_eq!(handover.note_spooled(INODE, start, end), model.is_some());
                    if let Some(model) = &mut model {
                        model.in_file.extend(start..end);
                        model.size = model.size.max(end);
                    }
                }
                Step::Resized(size) => {
                    handover.resize_spooled(INODE, size);
                    if let Some(model) = &mut model {
                        model.in_file.retain(|at| *at < size);
                        model.base_bytes = model.base_bytes.min(size);
                        model.size = size;
                    }
                }
                Step::End => {
                    handover.end_spooled(INODE);
                    model = None;
                }
                Step::Open => handover = opened(&file, &kept),
            }
            let known = handover.look_spooled(INODE, |known| {
                let Changes::InFile { base_bytes, .. } = known.record.changes else { panic!("it has a file") };
                let in_file = known.ranges().flat_map(|(start, end)| start..end).collect();
                Model { size: known.size(), base_bytes, in_file }
            });
            prop_assert_eq!(&known, &model);
            prop_assert_eq!(kept.numbers().len(), usize::from(model.is_some()));
        }
    }
}

#[test]
fn what_is_noted_has_bounds() {
    let kept = Arc::<Kept>::default();
    let (_file, handover) = begun(&kept);
    for number in 0..MOST_FILES as u64 {
        handover.begin_spooled(InodeNo(1000 + number), &bytes(), (0, 0)).expect("room");
    }
    let error = handover.begin_spooled(INODE, &bytes(), (0, 0)).expect_err("no room");
    assert!(error.to_string().contains("256"), "{error}");
    handover.end_spooled(InodeNo(1000));
    handover.begin_spooled(INODE, &bytes(), (0, 0)).expect("room");
    for at in 0..MOST_OF_DRAFT as u64 {
        assert!(handover.note_spooled(INODE, 2 * at, 2 * at + 1));
    }
    assert_eq!(handover.look_spooled(INODE, |known| known.ranges().count()), Some(MOST_OF_DRAFT));
    assert!(!handover.note_spooled(INODE, u64::MAX - 1, u64::MAX));
    assert!(handover.look_spooled(INODE, |_| ()).is_none(), "it is lost with this daemon");
    assert_eq!(kept.numbers().len(), MOST_FILES - 1);
}
