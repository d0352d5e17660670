//! Strides: pieces of one length whose beginnings are equally far apart, up or down the object. One reader of
//! strides reads every fourth MiB. Another reads one column of a table whose rows have one length.
//!
//! A *run* is a range that was read without a gap. When a run begins where the three runs before it point, its reader
//! has a stride, and gets a stream that goes over only the pieces. The stream counts the pieces' bytes as if the pieces
//! lay end to end. So its window and its share of the memory are those of any other stream.

use std::collections::VecDeque;

use s3mount_object::ByteRange;

use super::reach::{ADJACENT_BYTES, REORDERED_BYTES};

/// The runs that are remembered: enough for four readers with a stride each.
const REMEMBERED: usize = 16;

/// A stride is at least this many times as long as its pieces. A reader of a larger share of an object has a stream
/// that also fetches the gaps, in larger parts and so with fewer GETs.
const SPARSENESS: u64 = 2;

/// Pieces of one length, equally far apart. Their bytes are counted as if the pieces lay end to end, the
/// first piece first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stride {
    /// Where the first piece begins in the object.
    first: u64,
    /// The distance from the beginning of a piece to that of the next one.
    step: u64,
    /// Whether the next piece lies before this one. Each piece is read upwards.
    is_down: bool,
    /// The length of a piece.
    len: u64,
    /// The bytes that a piece counts for: its length, or a block if that is more, because a GET costs no less.
    pitch: u64,
}

impl Stride {
    /// The index of the last piece that begins at `at` or before, and the distance from its beginning to
    /// `at`. `None` before all pieces of a stride that goes up.
    fn find(self, at: u64) -> Option<(u64, u64)> {
        if self.is_down {
            let index = self.first.saturating_sub(at).div_ceil(self.step);
            return Some((index, at + index * self.step - self.first));
        }
        let distance = at.checked_sub(self.first)?;
        Some((distance / self.step, distance % self.step))
    }

    /// The offset, over the pieces, of the byte that is `inside` bytes from the beginning of the piece
    /// `index`. A byte in the gap after the piece counts as the next piece's first byte.
    fn count(self, index: u64, inside: u64) -> u64 {
        if inside < self.len { index * self.pitch + inside } else { (index + 1) * self.pitch }
    }

    fn piece(self, index: u64, size: u64) -> Option<ByteRange> {
        let distance = index.checked_mul(self.step)?;
        let begin =
            if self.is_down { self.first.checked_sub(distance) } else { self.first.checked_add(distance) };
        begin.filter(|begin| *begin < size).map(|begin| ByteRange::new(begin, size.min(begin + self.len)))
    }

    /// The piece that holds `at`, in an object of `size` bytes.
    pub(crate) fn piece_at(self, at: u64, size: u64) -> Option<ByteRange> {
        let (index, inside) = self.find(at)?;
        if inside < self.len { self.piece(index, size) } else { None }
    }

    /// The bytes that all pieces in an object of `size` bytes count for.
    pub(super) fn length(self, size: u64) -> u64 {
        let last = if self.is_down { self.first } else { size.saturating_sub(self.first + 1) };
        (last / self.step + 1) * self.pitch
    }

    /// The rest of the piece that holds the offset `at` over the pieces, and the offset with which the next
    /// piece begins. `None` after the last piece.
    pub(crate) fn rest(self, at: u64, size: u64) -> Option<(ByteRange, u64)> {
        let (index, inside) = (at / self.pitch, at % self.pitch);
        let piece = self.piece(index, size)?;
        let start = piece.end().min(piece.start() + inside);
        Some((ByteRange::new(start, piece.end()), (index + 1) * self.pitch))
    }

    /// The span of offsets over the pieces that lies in `range`, which may be empty. A piece's last byte
    /// counts for all that the piece counts for.
    pub(super) fn seen(self, range: ByteRange) -> ByteRange {
        let last = range.end().max(range.start() + 1) - 1;
        let (from, to) = (self.find(range.start()), self.find(last));
        let (start, end) = match (from, to) {
            (Some((index, inside)), Some((before, _))) if self.is_down && before < index => {
                let end = if inside < self.len { index + 1 } else { index };
                (before * self.pitch, end * self.pitch)
            }
            _ => {
                let start = from.map_or(0, |(index, inside)| self.count(index, inside));
                (start, to.map_or(0, |(index, inside)| self.count(index, inside + 1)))
            }
        };
        ByteRange::new(start, end.max(start))
    }

    /// The bytes between two pieces.
    pub(super) fn gap_bytes(self) -> u64 {
        self.step - self.len
    }

    /// Whether a stream over these pieces serves a reader of the pieces of `other`: the pieces begin at the
    /// same places, and the reader reads at least half of each.
    pub(super) fn serves(self, other: Self) -> bool {
        let is_same_way = self.step == other.step && self.is_down == other.is_down;
        is_same_way && other.len <= self.len && self.len < other.len * 2
    }
}

/// A range that was read without a gap of more than [`ADJACENT_BYTES`].
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
}

impl Run {
    /// Adds `range` if it continues the run or ends where the run begins: the kernel's readahead arrives out of order.
    /// A read in the middle of a long run belongs to another reader.
    fn take(&mut self, range: ByteRange) -> bool {
        let tail = self.start.max(self.end.saturating_sub(REORDERED_BYTES))..=self.end + ADJACENT_BYTES;
        let head = self.start.saturating_sub(ADJACENT_BYTES)..=self.end.min(self.start + REORDERED_BYTES);
        let is_near = tail.contains(&range.start()) || head.contains(&range.end());
        if is_near {
            *self = Self { start: self.start.min(range.start()), end: self.end.max(range.end()) };
        }
        is_near
    }

    fn len(self) -> u64 {
        self.end - self.start
    }
}

/// The latest runs of one object, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Strides(VecDeque<Run>);

impl Strides {
    /// Notes a read that continues another one. Returns `false` if that one is in none of the latest runs.
    pub(super) fn go_on(&mut self, range: ByteRange) -> bool {
        self.0.iter_mut().rev().any(|run| run.take(range))
    }

    /// Notes a read. Returns the stride of its reader, if the read begins the stride's fourth piece or a
    /// later one. Pieces count for at least `block` bytes.
    pub(super) fn on_read(&mut self, range: ByteRange, block: u64) -> Option<Stride> {
        if self.go_on(range) {
            return None;
        }
        let stride = self.find(range.start(), block);
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(Run { start: range.start(), end: range.end() });
        stride
    }

    /// The stride of three runs, in the order in which they were read, that point to a run at `start`. Nothing else was
    /// read between the three and `start`.
    fn find(&self, start: u64, block: u64) -> Option<Stride> {
        (2..self.0.len()).rev().find_map(|at| {
            let third = self.0[at];
            let step = start.abs_diff(third.start);
            let is_down = start < third.start;
            let before = |run: Run| {
                if is_down { run.start.checked_add(step) } else { run.start.checked_sub(step) }
            };
            let earlier = |at: usize, begin: u64| (0..at).rev().find(|other| self.0[*other].start == begin);
            let second = earlier(at, before(third)?)?;
            let first = earlier(second, before(self.0[second])?)?;
            let pieces = [first, second, at].map(|at| self.0[at]);
            let lens = pieces.map(Run::len);
            let len = lens.into_iter().max()?;
            let is_regular = lens.into_iter().all(|other| other * 2 > len) && len * SPARSENESS <= step;
            let (low, high) = (start.min(pieces[0].start), start.max(pieces[0].start));
            let between = self.0.iter().filter(|run| (low..=high).contains(&run.start)).count();
            (is_regular && between == pieces.len()).then_some(Stride {
                first: pieces[0].start,
                step,
                is_down,
                len,
                pitch: len.max(block),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use s3mount_object::ByteRange;

    use super::{Stride, Strides};

    const MIB: u64 = 1 << 20;

    proptest! {
        /// The span of a range holds each byte of the pieces in it, in order, and the rest of each piece is
        /// in the same place.
        #[test]
        fn pieces_lie_end_to_end(
            (first, len, gap, more) in (0u64..200, 1u64..20, 1u64..30, 0u64..9),
            is_down: bool,
            (start, span, size) in (0u64..300, 1u64..60, 200u64..400),
        ) {
            let stride = Stride { first, step: len + gap, is_down, len, pitch: len + more };
            let range = ByteRange::new(start.min(size - 1), (start.min(size - 1) + span).min(size));
            let seen = stride.seen(range);
            let mut count = 0;
            for index in 0..400 {
                let Some(piece) = stride.piece(index, size) else { continue };
                prop_assert!(stride.length(size) >= (index + 1) * stride.pitch);
                for at in piece.start()..piece.end() {
                    prop_assert_eq!(stride.piece_at(at, size), Some(piece));
                    let counted = index * stride.pitch + at - piece.start();
                    let rest = (ByteRange::new(at, piece.end()), (index + 1) * stride.pitch);
                    prop_assert_eq!(stride.rest(counted, size), Some(rest));
                    prop_assert!(seen.contains(counted) || !range.contains(at));
                    count += u64::from(range.contains(at));
                }
            }
            prop_assert!(seen.len() == 0 || count > 0 || seen.start() >= stride.length(size));
            prop_assert_eq!(stride.rest(stride.length(size), size), None);
            let whole = stride.piece_at(range.start(), size).filter(|piece| piece.covers(range));
            prop_assert!(whole.is_none_or(|_| (range.len()..=range.len() + more).contains(&seen.len())));
        }

        /// Reads of whole pages at random hardly ever have a stride.
        #[test]
        fn chance_makes_no_stride(seed: u64) {
            let mut strides = Strides::default();
            let spot = |turn: u64| s3mount_testkit::mix(seed ^ turn << 32) % (256 * MIB / 4096) * 4096;
            let found = (0..2000).filter(|turn| {
                let at = spot(*turn);
                strides.on_read(ByteRange::new(at, at + 4096), 128 << 10).is_some()
            });
            prop_assert!(found.count() <= 1);
        }
    }
}
