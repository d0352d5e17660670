//! Which way a stream runs, and the object as it sees it.

use s3mount_object::ByteRange;

use super::strides::Stride;

/// Places of the orders of cursors.
pub(super) const UP: usize = 0;
pub(super) const DOWN: usize = 1;

/// Which way a stream runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
    /// Over the pieces of a stride.
    Strided(Stride),
}

impl Direction {
    /// The `len` bytes of `range` that a stream of this direction comes to first.
    pub(crate) fn first(self, range: ByteRange, len: u64) -> ByteRange {
        match self {
            Direction::Up | Direction::Strided(_) => ByteRange::new(range.start(), range.start() + len),
            Direction::Down => ByteRange::new(range.end() - len, range.end()),
        }
    }

    /// `range` of an object of `size` bytes, as a stream of this direction sees it: from the
    /// object's end, if it runs down; the pieces in it, if it has a stride.
    pub(crate) fn seen(self, range: ByteRange, size: u64) -> ByteRange {
        match self {
            Direction::Up => range,
            Direction::Down => ByteRange::new(size - range.end(), size - range.start()),
            Direction::Strided(stride) => stride.seen(range),
        }
    }

    /// How many bytes of an object of `size` bytes it sees.
    pub(super) fn length(self, size: u64) -> u64 {
        match self {
            Direction::Up | Direction::Down => size,
            Direction::Strided(stride) => stride.length(size),
        }
    }

    /// Which of the orders of cursors its streams stand in, if they do.
    pub(super) fn order(self) -> Option<usize> {
        match self {
            Direction::Up => Some(UP),
            Direction::Down => Some(DOWN),
            Direction::Strided(_) => None,
        }
    }
}
