use proptest::prelude::*;
use s3mount_object::ByteRange;

use super::{Access, Direction, MAX_STREAMS, StreamTable};
use crate::PrefetchConfig;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 1 << 41;

fn read(table: &mut StreamTable, offset: u64, len: u64) -> Access {
    table.on_read(ByteRange::new(offset, offset + len), &PrefetchConfig::default())
}

#[test]
fn a_stream_starts_at_the_beginning_or_with_a_neighbour() {
    let mut table = StreamTable::new(SIZE);
    assert_eq!(read(&mut table, 0, 4096), Access::Stream(1));
    assert_eq!(read(&mut table, 100 * MIB, 4096), Access::Random);
    assert_eq!(read(&mut table, 200 * MIB, 4096), Access::Random);
    assert_eq!(read(&mut table, 100 * MIB + 4096, 4096), Access::Stream(2));
    assert_eq!(table.iter().count(), 2);
}

#[test]
fn readahead_out_of_order_is_one_stream() {
    let mut table = StreamTable::new(SIZE);
    for index in [0, 2, 1, 3, 5, 4, 7, 6, 8] {
        read(&mut table, index * MIB, MIB);
    }
    assert_eq!(table.iter().count(), 1);
    assert_eq!(table.iter().next().map(|stream| stream.position), Some(9 * MIB));
}

#[test]
fn two_readers_far_apart_are_two_streams() {
    let mut table = StreamTable::new(SIZE);
    for step in 0..20 {
        read(&mut table, step * MIB, MIB);
        read(&mut table, 500 * MIB + step * MIB, MIB);
    }
    assert_eq!(table.iter().map(|stream| stream.position).collect::<Vec<_>>(), [20 * MIB, 520 * MIB]);
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

proptest! {
    /// Whatever is read: the table stays bounded, cursors never lie before what was read last by
    /// their stream, and a part is neither empty nor beyond its limit, and ends on an edge.
    #[test]
    fn stays_bounded(reads in proptest::collection::vec((0u64..1 << 34, 1u64..2 * MIB), 1..300)) {
        let mut table = StreamTable::new(SIZE);
        for (offset, len) in reads {
            match read(&mut table, offset, len) {
                Access::Stream(id) => {
                    let stream = table.get(id).expect("it was just read");
                    let seen = stream.direction.seen(ByteRange::new(offset, offset + len), SIZE);
                    prop_assert!(stream.position >= seen.end());
                }
                Access::Random => prop_assert!(offset > 0),
            }
            prop_assert!(table.streams.len() <= MAX_STREAMS);
        }
    }
}
