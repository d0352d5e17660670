use std::time::Duration;

use proptest::prelude::*;
use s3mount_object::ByteRange;

use super::{Access, Direction, IDLE_TICKS, MAX_STREAMS, MAX_STRIDED, SLOTS, Stream, StreamTable};
use crate::PrefetchConfig;
use crate::stream::LEFT_TICKS;
use crate::stream::candidates::MAX_CANDIDATES;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SIZE: u64 = 1 << 41;

fn read(table: &mut StreamTable, offset: u64, len: u64) -> Access {
    table.on_read(ByteRange::new(offset, offset + len), &PrefetchConfig::default())
}

/// The id of the stream that a read belongs to.
fn stream(table: &mut StreamTable, offset: u64, len: u64) -> Option<u64> {
    match read(table, offset, len) {
        Access::Stream(id) => Some(id),
        Access::Random | Access::Paged => None,
    }
}

/// The positions of the streams without a stride.
fn positions(table: &StreamTable) -> Vec<u64> {
    let streams = table.iter().filter(|stream| stream.direction.order().is_some());
    let mut positions: Vec<_> = streams.map(|stream| stream.position).collect();
    positions.sort_unstable();
    positions
}

fn nth(table: &StreamTable, index: usize) -> &Stream {
    table.iter().nth(index).expect("a stream")
}

#[test]
fn a_stream_starts_at_the_beginning_or_with_a_neighbour() {
    let mut table = StreamTable::new(SIZE);
    let first = stream(&mut table, 0, 4096).expect("a stream");
    assert_eq!(read(&mut table, 100 * MIB, 4096), Access::Random);
    assert_eq!(read(&mut table, 200 * MIB, 4096), Access::Random);
    let second = stream(&mut table, 100 * MIB + 4096, 4096).expect("a stream");
    assert!(first != second && positions(&table) == [4096, 100 * MIB + 8192]);
}

#[test]
fn readahead_out_of_order_is_one_stream() {
    let mut table = StreamTable::new(SIZE);
    for index in [0, 2, 1, 3, 5, 4, 7, 6, 8] {
        read(&mut table, index * MIB, MIB);
    }
    assert_eq!(positions(&table), [9 * MIB]);
}

#[test]
fn two_readers_far_apart_are_two_streams() {
    let mut table = StreamTable::new(SIZE);
    for step in 0..20 {
        read(&mut table, step * MIB, MIB);
        read(&mut table, 500 * MIB + step * MIB, MIB);
    }
    assert_eq!(positions(&table), [20 * MIB, 520 * MIB]);
}

#[test]
fn the_third_step_down_makes_a_stream() {
    let mut table = StreamTable::new(SIZE);
    let at = |step: u64| SIZE - (step + 1) * MIB;
    assert_eq!([0, 1].map(|step| read(&mut table, at(step), MIB)), [Access::Random; 2]);
    for step in 2..20 {
        assert!(matches!(read(&mut table, at(step), MIB), Access::Stream(_)), "step {step}");
    }
    let streams: Vec<_> = table.iter().map(|stream| (stream.direction, stream.position)).collect();
    assert_eq!(streams, [(Direction::Down, 20 * MIB)]);
}

#[test]
fn each_of_hundreds_who_share_an_object_has_a_stream() {
    for readers in [33, 64, 256, MAX_STREAMS as u64] {
        let (mut table, share) = (StreamTable::new(32 * GIB), 32 * GIB / readers);
        for step in 0..8 {
            for reader in 0..readers {
                let access = read(&mut table, reader * share + step * MIB, MIB);
                // With many candidates, each needs two reads that go on from it.
                assert!(step < 2 || matches!(access, Access::Stream(_)), "{readers} readers, step {step}");
            }
        }
        assert_eq!(
            positions(&table),
            (0..readers).map(|reader| reader * share + 8 * MIB).collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_full_table_gives_a_place_to_a_new_stream_once_nobody_reads_an_old_one() {
    let mut table = StreamTable::new(SIZE);
    // At no constant distance.
    let at = |index: u64| index * GIB + index * (index - 1) * 128 * KIB;
    let begin = |table: &mut StreamTable, index: u64| {
        read(table, at(index), MIB);
        stream(table, at(index) + MIB, MIB)
    };
    for index in 1..=MAX_STREAMS as u64 {
        assert!(begin(&mut table, index).is_some());
    }
    assert_eq!(begin(&mut table, 1000), None, "all are read");
    for _ in 0..IDLE_TICKS {
        table.tick();
    }
    read(&mut table, at(1) + 2 * MIB, MIB);
    assert!(begin(&mut table, 1001).is_some());
    assert!(positions(&table).contains(&(at(1) + 3 * MIB)), "it was read");
    assert!(!positions(&table).contains(&(at(2) + 2 * MIB)), "it was not, for the longest time");
}

#[test]
fn an_older_candidate_has_to_go_on_twice() {
    let mut table = StreamTable::new(8 * GIB);
    let random = |table: &mut StreamTable, count: u64| {
        for index in 0..count {
            read(table, 4 * GIB + index * 7 * MIB + index * index * KIB, 4096);
        }
    };
    read(&mut table, GIB, 4096);
    random(&mut table, 60);
    assert!(stream(&mut table, GIB + 4096, 4096).is_some(), "sixty others may lie between in 8 GiB");
    read(&mut table, 2 * GIB, 4096);
    random(&mut table, 70);
    assert_eq!(stream(&mut table, 2 * GIB + 4096, 4096), None);
    random(&mut table, 70);
    assert!(stream(&mut table, 2 * GIB + 8192, 4096).is_some());
}

#[test]
fn where_much_is_not_read_a_stream_skips_as_much_as_it_has_read() {
    let mut table = StreamTable::new(SIZE);
    table.fetched(GIB);
    let first = stream(&mut table, 0, MIB).expect("a stream");
    // Every second MiB or so, at no constant distance.
    let at = |turn: u64| turn * 2 * MIB - turn * turn * 4 * KIB;
    for turn in 1..100 {
        assert_eq!(stream(&mut table, at(turn), MIB), Some(first));
    }
    // A quarter is read.
    assert_eq!(stream(&mut table, at(99) + 5 * MIB, MIB), None);
    assert_eq!(stream(&mut table, at(99) + 9 * MIB, MIB), None);
    // Other streams skip as far as their window reaches.
    table.served(GIB);
    let last = read(&mut table, at(99) + MIB, MIB);
    assert_eq!(read(&mut table, at(99) + 3 * MIB, MIB), last);
    // Late requests for the skipped bytes earn the credit back.
    let mut table = StreamTable::new(SIZE);
    table.fetched(GIB);
    let first = stream(&mut table, 0, MIB).expect("a stream");
    for turn in 0..10 {
        assert_eq!(stream(&mut table, (3 * turn + 2) * MIB, MIB), Some(first));
        assert_eq!(stream(&mut table, (3 * turn + 1) * MIB, MIB), Some(first));
        assert_eq!(stream(&mut table, (3 * turn + 3) * MIB, MIB), Some(first));
    }
}

#[test]
fn a_new_stream_is_fetched_as_far_as_others_went() {
    let mut table = StreamTable::new(SIZE);
    let piece = |table: &mut StreamTable, at: u64| {
        for step in 0..8 {
            // At no constant distance.
            read(table, (16 * at + u64::from(at.is_multiple_of(2))) * MIB + step * 128 * KIB, 128 * KIB);
        }
    };
    let limit = |table: &StreamTable, index: usize| table.limit(nth(table, index), 128 * KIB);
    table.fetched(100 * MIB);
    (1..=3).for_each(|at| piece(&mut table, at));
    assert_eq!(limit(&table, 2), None, "two say nothing yet");
    piece(&mut table, 4);
    read(&mut table, 80 * MIB, 128 * KIB);
    read(&mut table, 80 * MIB + 128 * KIB, 128 * KIB);
    assert_eq!(limit(&table, 4), Some(81 * MIB));
    (2..8).for_each(|step| {
        read(&mut table, 80 * MIB + step * 128 * KIB, 128 * KIB);
    });
    assert_eq!(limit(&table, 4), Some(81 * MIB), "it may end here");
    (8..20).for_each(|step| {
        read(&mut table, 80 * MIB + step * 128 * KIB, 128 * KIB);
    });
    assert_eq!(limit(&table, 4), None, "it goes further");
    // The reader of one of the other streams goes on.
    read(&mut table, 49 * MIB, 8 * MIB);
    read(&mut table, 96 * MIB, 128 * KIB);
    read(&mut table, 96 * MIB + 128 * KIB, 128 * KIB);
    assert_eq!(limit(&table, 5), Some(105 * MIB));
}

#[test]
fn a_stream_that_chance_has_made_ends_when_nobody_reads_it() {
    let mut table = StreamTable::new(SIZE);
    for at in [GIB, GIB + 4096] {
        read(&mut table, at, 4096);
    }
    (0..10).for_each(|turn| assert!(stream(&mut table, turn * MIB, MIB).is_some()));
    for _ in 0..LEFT_TICKS {
        assert_eq!(table.iter().count(), 2);
        table.tick();
    }
    assert_eq!(positions(&table), [10 * MIB], "who has read more may go on");
}

#[test]
fn the_hungry_have_their_turn() {
    let mut table = StreamTable::new(SIZE);
    let first = stream(&mut table, 0, MIB).expect("a stream");
    read(&mut table, GIB, MIB);
    let second = stream(&mut table, GIB + MIB, MIB).expect("a stream");
    for id in [second, first, second] {
        table.note_hungry(id);
    }
    assert_eq!(
        [table.next_hungry(), table.next_hungry(), table.next_hungry()],
        [Some(second), Some(first), None]
    );
}

/// Checks the orders and counts of the table against its streams.
fn check(table: &StreamTable) -> Result<(), TestCaseError> {
    prop_assert!(table.slots.len() <= SLOTS && table.candidates.len() as u64 <= MAX_CANDIDATES);
    prop_assert_eq!(table.active(), table.iter().filter(|stream| stream.is_active(table.size)).count());
    for direction in [Direction::Up, Direction::Down] {
        let mut want: Vec<_> = (0..)
            .zip(&table.slots)
            .filter_map(|(slot, stream)| stream.as_ref().map(|stream| (stream, slot)))
            .filter(|(stream, _)| stream.direction == direction)
            .map(|(stream, slot)| (stream.position, slot))
            .collect();
        want.sort_unstable();
        let order = direction.order().expect("up and down have one");
        let cursors: Vec<_> = table.cursors[order].from(0).collect();
        prop_assert_eq!(cursors, want);
    }
    let strided = table.iter().filter(|stream| stream.direction.order().is_none()).count();
    prop_assert!(strided == table.strided.len() && strided <= MAX_STRIDED);
    let up = table.iter().filter(|stream| stream.direction == Direction::Up);
    let mut beginnings: Vec<_> = up.map(|stream| stream.began).collect();
    beginnings.sort_unstable();
    prop_assert_eq!(table.beginnings.from(0).map(|(began, _)| began).collect::<Vec<_>>(), beginnings);
    Ok(())
}

proptest! {
    /// After any reads, the table stays bounded, no cursor lies before the last read of its stream, and the orders
    /// match the streams.
    #[test]
    fn stays_bounded(
        size in 1u64..1 << 34,
        reads in proptest::collection::vec((any::<u64>(), 1u64..2 * MIB, 0..4), 1..300),
    ) {
        let (mut table, mut next) = (StreamTable::new(size), 0);
        for (offset, len, kind) in reads {
            let offset = if kind == 0 { offset % size } else { (next + offset % (kind as u64 * MIB)) % size };
            let len = len.min(size - offset);
            match read(&mut table, offset, len) {
                Access::Stream(id) => {
                    let stream = table.get(id).expect("it was just read");
                    let seen = stream.direction.seen(ByteRange::new(offset, offset + len), size);
                    prop_assert!(stream.position >= seen.end());
                }
                Access::Random | Access::Paged => prop_assert!(offset > 0),
            }
            next = offset + len;
            if offset % 17 == 0 {
                table.tick();
            }
            check(&table)?;
        }
    }

    /// Active streams stay, however many random reads come in between, and whatever streams chance makes of them.
    #[test]
    fn random_reads_take_no_stream_away(
        readers in 1u64..100,
        between in proptest::collection::vec((0u64..1 << 28, 1u64..256), 1..2000),
    ) {
        let (size, share) = (1 << 40, (1u64 << 40) / 100);
        let mut table = StreamTable::new(size);
        let turn = |table: &mut StreamTable, step: u64| -> Vec<_> {
            (0..readers).map(|reader| stream(table, reader * share + step * MIB, MIB)).collect()
        };
        (0..3).for_each(|step| { turn(&mut table, step); });
        let begun = turn(&mut table, 3);
        prop_assert!(begun.iter().all(Option::is_some));
        for (step, chunk) in (4..).zip(between.chunks(50)) {
            for (page, pages) in chunk {
                let offset = page * 4096;
                // Not just before a cursor, where the read would belong to the stream.
                if offset % share > 100 * MIB && offset % share < share - 100 * MIB {
                    read(&mut table, offset, pages * 4096);
                }
            }
            prop_assert_eq!(&turn(&mut table, step), &begun);
        }
    }
}

/// Reads pieces of `len` bytes, each `step` bytes after the last one. Returns the access of the last read of
/// each piece.
fn pieces(table: &mut StreamTable, first: u64, step: i64, len: u64, count: u64) -> Vec<Access> {
    let at = |turn: u64| first.checked_add_signed(step * turn as i64).expect("inside the object");
    let block = len.min(128 * KIB);
    let piece = |turn| (0..len / block).map(|read| at(turn) + read * block).collect::<Vec<_>>();
    let mut last = |turn| piece(turn).into_iter().map(|offset| read(table, offset, block)).last();
    (0..count).map(|turn| last(turn).expect("a read")).collect()
}

#[test]
fn the_fourth_piece_of_a_stride_makes_a_stream_and_others_do_not() {
    for (step, len) in [(4, MIB), (16, MIB), (2, MIB), (1, 4 * KIB), (64, 8 * MIB)] {
        for step in [step, -step] {
            let mut table = StreamTable::new(SIZE);
            let accesses = pieces(&mut table, 4 * GIB, step * MIB as i64, len, 20);
            let strided: Vec<_> = table.iter().filter(|stream| stream.direction.order().is_none()).collect();
            assert_eq!(strided.len(), 1, "{step} MiB, {len}");
            let id = strided[0].id;
            assert_eq!(accesses[3..], [Access::Stream(id); 17], "{step} MiB, {len}");
            assert!(!accesses[..3].contains(&Access::Stream(id)));
        }
    }
    // It is the same where all bytes were read before.
    let mut table = StreamTable::new(SIZE);
    for step in 0..64 {
        read(&mut table, GIB + step * MIB, MIB);
    }
    pieces(&mut table, GIB, 4 * MIB as i64, MIB, 10);
    assert_eq!(table.strided.len(), 1);
    let none = |reads: &[(u64, u64)]| {
        let mut table = StreamTable::new(SIZE);
        reads.iter().for_each(|(at, len)| {
            read(&mut table, *at, *len);
        });
        assert!(table.strided.is_empty(), "{reads:?}");
    };
    let at = |at: u64| (GIB + at * MIB, MIB);
    none(&[at(0), at(4), at(8), at(13), at(16), at(21)]);
    // More is read than skipped.
    none(&[0, 6, 12, 18, 24].map(|at| (GIB + at * 256 * KIB, MIB)));
    // Something else is read in between, so there is no stride.
    none(&[at(0), at(4), at(6), at(8), at(12)]);
    // While nothing is wasted, a stream skips such short gaps: another reader may come to them.
    let mut table = StreamTable::new(SIZE);
    let every_third = |table: &mut StreamTable, from: u64| {
        pieces(table, 4 * MIB + from * 384 * KIB, 384 * KIB as i64, 128 * KIB, 20);
        table.strided.len()
    };
    (0..4).for_each(|step| {
        read(&mut table, step * MIB, MIB);
    });
    assert_eq!(every_third(&mut table, 0), 0);
    table.fetched(GIB);
    assert_eq!(every_third(&mut table, 20), 1);
    // Readers that share an object begin equally far apart, but go on.
    let shares = (0..4).flat_map(|step| (0..16).map(move |share| (share * 64 * MIB + step * MIB, MIB)));
    let mut table = StreamTable::new(SIZE);
    shares.for_each(|(at, len)| {
        read(&mut table, at, len);
    });
    assert_eq!(positions(&table), (0..16).map(|share| (64 * share + 4) * MIB).collect::<Vec<_>>());
}

#[test]
fn a_stride_is_left_with_its_pieces() {
    let mut table = StreamTable::new(SIZE);
    let begin = |table: &mut StreamTable, first: u64| pieces(table, first, 4 * MIB as i64, MIB, 8).pop();
    let strided = begin(&mut table, GIB);
    // A reader that goes on after a piece has a stream of its own.
    let on = GIB + 29 * MIB;
    let behind: Vec<_> = (0..3).map(|step| read(&mut table, on + step * 128 * KIB, 128 * KIB)).collect();
    assert!(matches!(behind[2], Access::Stream(_)) && behind.iter().all(|access| Some(*access) != strided));
    // Every eighth MiB from now on, then longer pieces, then shorter ones. The fourth piece of each begins a
    // new stream.
    for (first, step, len) in [(40, 8, MIB), (256, 4, 2 * MIB), (512, 4, 256 * KIB)] {
        let access = pieces(&mut table, GIB + first * MIB, step * MIB as i64, len, 8).pop().expect("a read");
        let Access::Stream(id) = access else { panic!("{step} MiB") };
        let Direction::Strided(stride) = table.get(id).expect("it was read").direction else {
            panic!("{step} MiB")
        };
        let at = GIB + (first + 7 * step as u64) * MIB;
        assert_eq!(stride.piece_at(at, SIZE), Some(ByteRange::new(at, at + len)));
    }
}

#[test]
fn a_stream_that_waited_for_long_is_not_quiet_when_it_is_answered() {
    let mut table = StreamTable::new(SIZE);
    let id = stream(&mut table, 0, 4096).expect("a stream");
    let is_quiet = |table: &StreamTable, ms| nth(table, 0).is_quiet(Duration::from_millis(ms));
    table.change_id(id, |stream| stream.on_read(Duration::from_millis(1)));
    assert!(is_quiet(&table, 4000));
    table.answered(id, Duration::from_millis(4000));
    assert!(!is_quiet(&table, 4001) && is_quiet(&table, 4300));
}
