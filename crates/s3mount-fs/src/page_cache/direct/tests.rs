use proptest::prelude::*;

use super::{Change, Closed, Counts, Direct, Large, PAUSE, PROBE_BYTES, Pieces, Reason};
use crate::numbers::InodeNo;
use crate::page_cache::kind::KindKey;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Size of each file, in bytes.
const SIZE: u64 = 140 * MIB;

fn kind() -> KindKey {
    (InodeNo(1), "npz".into())
}

/// A mount whose readers have this much page cache, and a folder of this many bytes.
struct Mount {
    direct: Direct,
    cache_bytes: u64,
    data_set_bytes: u64,
    size: u64,
}

impl Mount {
    fn new(cache_bytes: u64, data_set_bytes: u64) -> Self {
        Self { direct: Direct::default(), cache_bytes, data_set_bytes, size: SIZE }
    }

    /// A data set of ten times the page cache.
    fn large() -> Self {
        Self::new(10 * GIB, 100 * GIB)
    }

    fn open(&mut self, ino: u64) -> (bool, Option<Change>) {
        let file = Large { ino: InodeNo(ino), size: self.size, cache_bytes: self.cache_bytes };
        self.direct.on_open(&kind(), &file, self.data_set_bytes)
    }

    fn close(&mut self, ino: u64, read_bytes: u64, is_direct: bool) {
        self.direct.on_close(&kind(), &Closed { ino: InodeNo(ino), size: self.size, read_bytes, is_direct });
    }

    /// Opens a file, reads it whole in pieces that are large or not, and closes it. Returns whether it was opened
    /// directly.
    fn read(&mut self, ino: u64, are_large: bool) -> bool {
        let is_direct = self.open(ino).0;
        if is_direct {
            self.direct.on_pieces(&kind(), InodeNo(ino), are_large);
        }
        self.close(ino, self.size, is_direct);
        is_direct
    }

    /// How many of these files are opened directly.
    fn count(&mut self, files: impl IntoIterator<Item = u64>, are_large: bool) -> usize {
        files.into_iter().filter(|ino| self.read(*ino, are_large)).count()
    }

    fn back(&self, reason: Reason) -> u64 {
        self.direct.counts().back[reason as usize]
    }
}

#[test]
fn large_pieces_of_a_large_data_set_are_read_directly_from_the_first_file_on() {
    let mut mount = Mount::large();
    assert_eq!(mount.count(0..700, true), 700);
    assert_eq!(mount.count(0..700, true), 700, "an epoch later");
    assert_eq!(mount.direct.counts(), Counts { opens: 1400, kinds: 1, back: [0; 4] });
}

#[test]
fn a_data_set_that_may_fit_is_left_alone() {
    let mut mount = Mount::new(10 * GIB, 20 * GIB - 1);
    assert_eq!(mount.count(0..140, true), 0);
    mount.data_set_bytes = 20 * GIB;
    assert_eq!(mount.count(200..210, true), 10);
    mount.data_set_bytes = 0;
    assert_eq!(mount.count(210..220, true), 10, "the kind is remembered");
}

#[test]
fn one_file_at_a_time_is_the_probe() {
    let mut mount = Mount::large();
    assert_eq!([1, 2, 3].map(|ino| mount.open(ino).0), [true, false, false]);
    let change = mount.direct.on_pieces(&kind(), InodeNo(1), true);
    assert_eq!(change, Some(Change::Direct));
    assert_eq!(mount.direct.on_pieces(&kind(), InodeNo(1), true), None, "no news");
    assert_eq!([4, 5].map(|ino| mount.open(ino).0), [true; 2]);
}

#[test]
fn a_probe_that_is_hardly_read_says_nothing() {
    let mut mount = Mount::large();
    for ino in 0..10 {
        assert!(mount.open(ino).0);
        mount.close(ino, 64 * KIB, true);
    }
    assert_eq!(mount.direct.counts().kinds, 0);
    assert!(mount.open(3).0, "and the page cache has nothing of it");
}

#[test]
fn small_pieces_cost_one_probe_in_ever_more_files() {
    let mut mount = Mount::large();
    assert_eq!(mount.count(0..u64::from(PAUSE) + 1, false), 1);
    assert_eq!(mount.back(Reason::SmallPieces), 1);
    assert_eq!(mount.count(100..100 + u64::from(PAUSE.pow(2)) + 1, false), 1);
    assert_eq!(mount.count(1000..5000, false), 1);
    assert_eq!(mount.back(Reason::SmallPieces), 3);
    assert_eq!(mount.direct.counts().kinds, 0);
}

#[test]
fn readers_that_come_to_ask_for_small_pieces_end_it() {
    let mut mount = Mount::large();
    assert_eq!(mount.count(0..10, true), 10);
    assert_eq!(mount.count(10..20, false), 1);
    assert_eq!(mount.back(Reason::SmallPieces), 1);
}

#[test]
fn a_map_ends_it() {
    let mut mount = Mount::large();
    assert_eq!(mount.count(0..10, true), 10);
    assert!(mount.open(10).0);
    assert_eq!(mount.direct.on_map(&kind()), Some(Change::Cached(Reason::Mapped)));
    assert_eq!(mount.direct.on_map(&kind()), None);
    assert_eq!(mount.count(20..20 + u64::from(PAUSE), true), 0);
    assert_eq!(mount.count(100..110, true), 10, "another probe");
}

#[test]
fn a_huge_file_is_no_probe_before_a_reader_has_begun_with_a_large_piece() {
    let mut mount = Mount::large();
    mount.size = PROBE_BYTES + 1;
    assert_eq!(mount.count(0..10, true), 0);
    mount.direct.on_large_beginning(&kind());
    assert_eq!(mount.count(10..20, true), 10);
}

#[test]
fn a_second_reader_has_the_page_cache() {
    let mut mount = Mount::large();
    assert_eq!(mount.count(0..10, true), 10);
    assert_eq!([mount.open(20), mount.open(20)], [(true, None), (false, None)]);
    mount.close(20, MIB, true);
    assert_eq!(mount.open(20), (false, None), "one has it open");
    // One such file is an accident, two in a row are a habit.
    assert!(mount.open(21).0);
    assert_eq!(mount.open(21), (false, Some(Change::Cached(Reason::Shared))));
    assert!(!mount.open(22).0);
}

#[test]
fn files_that_are_read_again_soon_come_from_the_page_cache() {
    let mut mount = Mount::large();
    // Eight of many.
    assert_eq!(mount.count(0..8, true), 8);
    assert_eq!(mount.count(0..8, true), 0);
    assert_eq!(mount.back(Reason::Again), 1);
    assert_eq!(mount.count((0..40).map(|read| read % 8), true), 0);
    assert_eq!(mount.back(Reason::Again), 1);
    // Fully cached files are read without READs.
    for ino in 0..8 {
        assert!(!mount.open(ino).0);
        mount.close(ino, 0, false);
    }
}

#[test]
fn so_do_parts_of_a_huge_file() {
    let mut mount = Mount::large();
    mount.size = 100 * GIB;
    mount.open(1);
    mount.direct.on_large_beginning(&kind());
    mount.close(1, GIB, false);
    assert!(!mount.open(1).0, "the page cache has the part that was read");
    mount.close(1, 0, false);
    assert!(mount.open(2).0);
}

#[test]
fn an_accident_in_five_files_ends_nothing() {
    let mut mount = Mount::large();
    for ino in 0..500 {
        assert!(mount.read(ino, true));
        if ino % 5 == 4 {
            assert!(!mount.read(ino, true), "again at once");
        }
    }
    assert_eq!(mount.direct.counts().back, [0; 4]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut mount = Mount::large();
    for ino in 0..2 * super::MAX_RECENT as u64 {
        mount.read(ino, true);
    }
    assert_eq!((mount.direct.recent.len(), mount.direct.open.len()), (super::MAX_RECENT, 0));
    for folder in 0..10_000 {
        let file = Large { ino: InodeNo(folder), size: SIZE, cache_bytes: GIB };
        mount.direct.on_open(&(InodeNo(folder), "bin".into()), &file, 0);
    }
    assert!(mount.direct.kinds.len() <= super::MAX_KINDS);
}

#[test]
fn pieces_are_judged_by_their_mean() {
    let after = |pieces: &[u64]| {
        let mut sum = Pieces::default();
        pieces.iter().cycle().take(300).find_map(|len| {
            sum = Pieces { reads: sum.reads + 1, bytes: sum.bytes + len };
            sum.are_large()
        })
    };
    assert_eq!(after(&[MIB]), Some(true));
    assert_eq!(after(&[128 * KIB]), Some(true));
    assert_eq!(after(&[252 * KIB, 4 * KIB]), Some(true), "np.load");
    assert_eq!(after(&[64 * KIB]), Some(false));
    assert_eq!(after(&[4 * KIB]), Some(false));
    assert_eq!(Pieces { reads: 12, bytes: 12 * MIB - 1 }.are_large(), None);
}

/// A step of a test.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u64),
    Close(usize, u64),
    Pieces(usize, bool),
    Map(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..40_u64).prop_map(Step::Open),
        4 => (0..9_usize, 0..=SIZE).prop_map(|(index, bytes)| Step::Close(index, bytes)),
        2 => (0..9_usize, any::<bool>()).prop_map(|(index, large)| Step::Pieces(index, large)),
        1 => (0..9_usize).prop_map(Step::Map),
    ];
    proptest::collection::vec(step, 0..300)
}

proptest! {
    /// Whatever readers do, no file is opened directly that another reader has open, or that was read while the page
    /// cache could still hold it.
    #[test]
    fn never_directly_where_the_page_cache_has_something(steps in steps(), files in 1..20_u64) {
        let mut mount = Mount::new(files * SIZE, 100 * GIB);
        let mut open: Vec<(u64, bool)> = Vec::new();
        let mut log: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Open(ino) => {
                    let is_direct = mount.open(ino).0;
                    let newer = log.iter().rposition(|(read, _)| *read == ino).map(|last| &log[last + 1..]);
                    let since: Option<u64> = newer.map(|rest| rest.iter().map(|(_, bytes)| bytes).sum());
                    let own = log.iter().filter(|(read, _)| *read == ino).map(|(_, bytes)| *bytes).max();
                    let held = since.unwrap_or(0) + own.unwrap_or(0);
                    let is_cacheable = since.is_some() && held <= mount.cache_bytes;
                    let is_shared = open.iter().any(|(other, _)| *other == ino);
                    prop_assert!(!is_direct || !(is_shared || is_cacheable));
                    open.push((ino, is_direct));
                }
                Step::Close(index, bytes) if index < open.len() => {
                    let (ino, is_direct) = open.swap_remove(index);
                    mount.close(ino, bytes, is_direct);
                    if bytes >= super::LEAST_BYTES || log.iter().any(|(read, _)| *read == ino) {
                        log.push((ino, bytes));
                    } else {
                        // The read counts for the others.
                        log.push((u64::MAX, bytes));
                    }
                }
                Step::Pieces(index, are_large) if open.get(index).is_some_and(|(_, direct)| *direct) => {
                    mount.direct.on_pieces(&kind(), InodeNo(open[index].0), are_large);
                }
                Step::Map(index) if open.get(index).is_some_and(|(_, direct)| *direct) => {
                    mount.direct.on_map(&kind());
                }
                _ => {}
            }
        }
        for (ino, is_direct) in open {
            mount.close(ino, 0, is_direct);
        }
        prop_assert!(mount.direct.open.is_empty());
    }
}
