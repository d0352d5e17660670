//! Which way a stream goes, and the object in the stream's own offsets.

use s3mount_object::ByteRange;

use super::strides::Stride;

/// The indexes of the two orders of cursors.
pub(super) const UP: usize = 0;
pub(super) const DOWN: usize = 1;

/// Which way a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
    /// Over the pieces of a stride.
    Strided(Stride),
}

impl Direction {
    /// The first `len` bytes of `range` that a stream of this direction reaches.
    pub(crate) fn first(self, range: ByteRange, len: u64) -> ByteRange {
        match self {
            Direction::Up | Direction::Strided(_) => ByteRange::new(range.start(), range.start() + len),
            Direction::Down => ByteRange::new(range.end() - len, range.end()),
        }
    }

    /// `range` of an object of `size` bytes in the offsets of a stream of this direction: counted from the object's end
    /// if it goes down, and over only the pieces if it has a stride.
    pub(crate) fn seen(self, range: ByteRange, size: u64) -> ByteRange {
        match self {
            Direction::Up => range,
            Direction::Down => ByteRange::new(size - range.end(), size - range.start()),
            Direction::Strided(stride) => stride.seen(range),
        }
    }

    /// The length of an object of `size` bytes in these offsets.
    pub(super) fn length(self, size: u64) -> u64 {
        match self {
            Direction::Up | Direction::Down => size,
            Direction::Strided(stride) => stride.length(size),
        }
    }

    /// The index of the order of cursors that holds its streams, if any.
    pub(super) fn order(self) -> Option<usize> {
        match self {
            Direction::Up => Some(UP),
            Direction::Down => Some(DOWN),
            Direction::Strided(_) => None,
        }
    }
}
