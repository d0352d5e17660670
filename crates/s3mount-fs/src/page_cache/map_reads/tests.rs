use proptest::prelude::*;
use s3mount_object::ByteRange;

use super::{Answer, Change, LONE_READS, MapReads, PATIENCE, PIECE_BYTES, may_be_read_around};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4 * KIB;
const SIZE: u64 = 8 << 30;

fn file() -> MapReads {
    MapReads::new(MIB, SIZE, false)
}

fn range(start: u64, len: u64) -> ByteRange {
    ByteRange::new(start, start + len)
}

/// The offset of the faulting page in the window with this number.
fn fault(window: u64) -> u64 {
    window * 48 * MIB + 37 * PAGE
}

/// The kernel's first READ for a fault.
fn around(fault: u64) -> ByteRange {
    range(fault - MIB / 2, MIB)
}

fn answer(reads: &mut MapReads, read: ByteRange) -> Answer {
    reads.on_read(read, || false).answer
}

/// Sends READs of a file that look like random faults until one is refused, that of the fault in `window`.
fn probe(reads: &mut MapReads, window: u64) -> ByteRange {
    for window in 1..=u64::from(LONE_READS) {
        assert_eq!(answer(reads, around(fault(100 + window))), Answer::Serve);
    }
    let refused = around(fault(window));
    assert_eq!(answer(reads, refused), Answer::Refuse);
    refused
}

fn random() -> MapReads {
    let mut reads = file();
    probe(&mut reads, 10);
    let decision = reads.on_read(range(fault(10), PAGE), || false);
    assert_eq!((decision.answer, decision.change), (Answer::Apart, Some(Change::Random)));
    assert!(reads.is_random());
    reads
}

#[test]
fn a_probe_that_is_asked_for_its_middle_finds_a_map() {
    let mut reads = random();
    // The window's next page, and the next windows.
    assert_eq!(answer(&mut reads, range(fault(10) + PAGE, PAGE)), Answer::Apart);
    for window in 20..40 {
        assert_eq!(answer(&mut reads, around(fault(window))), Answer::Refuse);
        for page in 0..3 {
            assert_eq!(answer(&mut reads, range(fault(window) + page * PAGE, PAGE)), Answer::Apart);
        }
    }
    // Next to cached pages, the kernel reads less around.
    assert_eq!(answer(&mut reads, range(fault(50), 300 * KIB)), Answer::Refuse);
    assert_eq!(answer(&mut reads, range(fault(50) + 100 * KIB, PAGE)), Answer::Apart);
}

#[test]
fn a_probe_that_is_asked_for_its_beginning_finds_a_read() {
    let mut reads = file();
    let refused = probe(&mut reads, 10);
    let decision = reads.on_read(range(refused.start(), PAGE), || false);
    assert_eq!(decision.answer, Answer::Serve);
    // The kernel reads on in large READs once the refused pages are gone.
    assert_eq!(decision.drop, Some(ByteRange::new(refused.start() + PAGE, refused.end())));
    assert!(reads.is_only_watching());
    for window in 0..16 * u64::from(LONE_READS) {
        let read = range((window + 1) * 16 * MIB + PAGE, MIB);
        assert_eq!(answer(&mut reads, read), Answer::Serve, "the next probe is far away");
    }
}

#[test]
fn a_probe_that_nobody_comes_back_for_is_given_up() {
    let mut reads = file();
    probe(&mut reads, 10);
    for window in 0..=u64::from(PATIENCE) {
        assert_eq!(answer(&mut reads, around(fault(20 + window % 100))), Answer::Serve);
    }
    assert!(reads.is_only_watching());
}

#[test]
fn streams_are_never_probed() {
    let mut reads = file();
    // In order from an odd place; by several readers in turn; as far as a stream is known.
    (0..100).for_each(|at| assert_eq!(answer(&mut reads, range(PAGE + at * MIB, MIB)), Answer::Serve));
    for at in 0..100 {
        for reader in 1..=16 {
            let read = range(reader * 300 * MIB + PAGE + at * MIB, MIB);
            let answer = reads.on_read(read, || at > 0).answer;
            assert_eq!(answer, Answer::Serve);
        }
    }
    // Readers that began at once, and were taken for random ones, are served again.
    let mut many = file();
    (1..=20).for_each(|at| assert_eq!(answer(&mut many, around(fault(at))) == Answer::Refuse, at == 17));
    assert_eq!(answer(&mut many, range(fault(17), PAGE)), Answer::Apart);
    let next = |at| range(fault(at) + MIB / 2, MIB);
    (1..=16).for_each(|at| assert_eq!(answer(&mut many, next(at)), Answer::Serve));
    // Pieces of some MiB at random offsets: the policy does not even see a READ that continues the last one.
    for window in 1..100 {
        assert_eq!(answer(&mut reads, around(fault(window))), Answer::Serve);
        reads.on_stream();
    }
    // Records of a MiB on their edges, and READs of other sizes.
    (1..100).for_each(|at| assert_eq!(answer(&mut reads, range(at * 37 * MIB, MIB)), Answer::Serve));
    (1..100).for_each(|at| assert_eq!(answer(&mut reads, range(fault(at), 200 * KIB)), Answer::Serve));
    assert!(reads.is_only_watching());
}

#[test]
fn what_somebody_may_wait_for_is_not_refused() {
    let mut reads = random();
    for read in [
        range(0, MIB),
        range(SIZE - 300 * KIB, 300 * KIB),
        range(SIZE - 300 * KIB, MIB),
        range(100 * MIB, MIB),
        range(100 * MIB + 256 * KIB, 256 * KIB),
        range(fault(60), PIECE_BYTES),
    ] {
        assert_ne!(answer(&mut reads, read), Answer::Refuse, "{read}");
    }
    let read = around(fault(70));
    assert_eq!(reads.on_read(read, || true).answer, Answer::Serve, "a stream");
    assert_eq!(answer(&mut reads, read), Answer::Refuse);
    assert_eq!(answer(&mut reads, read), Answer::Serve, "not twice");
}

#[test]
fn wide_windows_end_the_refusals() {
    let mut reads = random();
    for window in [20, 21] {
        assert_eq!(answer(&mut reads, around(fault(window))), Answer::Refuse);
        let decisions: Vec<_> =
            (0..40).map(|page| reads.on_read(range(fault(window) + page * PAGE, PAGE), || false)).collect();
        // After 128 KiB the rest of what was refused is dropped, once.
        let dropped: Vec<_> = decisions.iter().filter_map(|decision| decision.drop).collect();
        let from = fault(window) + 34 * PAGE;
        let rest = ByteRange::new(from, around(fault(window)).end());
        // The other refused ranges may lie anywhere, when that is over.
        assert_eq!(dropped, [if reads.is_random() { rest } else { range(0, SIZE) }]);
        assert_eq!(decisions[32].answer, Answer::Apart);
        assert_eq!((decisions[33].answer, decisions[34].answer), (Answer::Serve, Answer::Serve));
    }
    assert!(reads.is_only_watching());
    assert_eq!(answer(&mut reads, around(fault(30))), Answer::Serve);
}

#[test]
fn one_wide_window_among_small_ones_does_not() {
    let mut reads = random();
    for window in 20..100 {
        assert_eq!(answer(&mut reads, around(fault(window))), Answer::Refuse);
        let pages = if window % 8 == 0 { 60 } else { 2 };
        (0..pages).for_each(|page| {
            reads.on_read(range(fault(window) + page * PAGE, PAGE), || false);
        });
    }
    assert!(reads.is_random());
}

#[test]
fn who_reads_through_forgotten_refusals_gets_rid_of_them() {
    let mut reads = random();
    let pages = (0..40).map(|page| reads.on_read(range(3 * MIB + page * PAGE, PAGE), || false).drop);
    let dropped: Vec<_> = pages.flatten().collect();
    let from = 3 * MIB + 34 * PAGE;
    assert_eq!(dropped, [range(from, 64 * MIB)]);
}

#[test]
fn a_small_readahead_is_taken_by_the_piece() {
    let mut reads = MapReads::new(MIB, SIZE, true);
    for window in 1..100 {
        // Two READs of 64 KiB, for a window that goes beyond the first.
        let start = fault(window) - 32 * KIB;
        assert_eq!(answer(&mut reads, range(start, 64 * KIB)), Answer::Apart);
        assert_eq!(answer(&mut reads, range(start + 64 * KIB, 64 * KIB)), Answer::Apart);
    }
    assert!(reads.is_random());
    // Two readers in a row that go on.
    for reader in [10, 90] {
        (0..8).for_each(|at| {
            assert_ne!(
                answer(&mut reads, range(reader * MIB + PAGE + at * 64 * KIB, 64 * KIB)),
                Answer::Refuse
            );
        });
    }
    assert!(!reads.is_random());
}

/// READs of any kind: their start in pages, their length in pages, and whether a stream is there.
fn reads() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    let len = prop_oneof![Just(256u64), Just(1), 1u64..=256];
    let read = (0u64..600, len, proptest::bool::weighted(0.1));
    proptest::collection::vec(read, 1..400)
}

proptest! {
    /// Whatever READs come, none that is small, on an edge, or inside of the last refusal is refused, and a refused
    /// READ that comes back is served.
    #[test]
    fn refuses_only_what_comes_back_in_pages(reads in reads(), is_random: bool) {
        let size = 800 * PAGE;
        let mut file = MapReads::new(MIB, size, is_random);
        let mut last_refused: Option<ByteRange> = None;
        for (start, len, is_streamed) in reads {
            let read = range(start * PAGE, len * PAGE);
            let was_watching = file.is_only_watching();
            let answer = file.on_read(read, || is_streamed).answer;
            if answer != Answer::Refuse {
                continue;
            }
            prop_assert!(len * PAGE > PIECE_BYTES && start > 0 && read.end() < size && !is_streamed);
            prop_assert!(!was_watching || may_be_read_around(read, MIB, size));
            let is_inside = last_refused.is_some_and(|last| last.contains(read.start()));
            prop_assert!(!is_inside || was_watching, "{read} lies in {last_refused:?}");
            last_refused = Some(read);
            prop_assert_ne!(file.on_read(range(read.start() + len / 2 * PAGE, PAGE), || false).answer, Answer::Refuse);
        }
    }
}
