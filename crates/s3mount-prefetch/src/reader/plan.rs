//! The planner chooses the bytes of the next GET. Pure: it sees the segments, the streams and the limits of a stream's
//! window, and answers with a range.

use s3mount_object::ByteRange;
use s3mount_shared::{BLOCK_BYTES, SharedTier};

use super::waiter::Waiter;
use crate::limits::window::WindowLimits;
use crate::reader::segment::{Purpose, SegmentMap};
use crate::stream::{Access, Direction, Stream, StreamTable, Stride};
use crate::sums::upload_parts::UploadParts;
use crate::version::Version;
use crate::{EDGE_BYTES, PrefetchConfig};

/// The inputs of a plan.
pub(super) struct Planner<'a> {
    pub(super) segments: &'a SegmentMap<Waiter>,
    pub(super) streams: &'a StreamTable,
    /// The version to fetch from.
    pub(super) version: &'a Version,
    /// The parts of the object's upload, if each is compared with its checksum.
    pub(super) parts: Option<&'a UploadParts>,
    pub(super) config: &'a PrefetchConfig,
    /// The most bytes of a GET that nobody asked for as a whole. That is no bound unless readers were starved.
    pub(super) most_bytes: u64,
}

impl Planner<'_> {
    /// The GET for a reader that waits for `missing`, whose first byte is in no segment: `missing`, rounded to blocks,
    /// or to edges for a stream that has ramped; or the whole of a small object. With `whole_parts`, a stream that may
    /// fetch nothing ahead just now takes a whole part: otherwise it would need a GET for each edge. Blocks that the
    /// cache holds (`is_cached`) are not fetched again.
    pub(super) fn demanded(
        &self,
        missing: ByteRange,
        access: Access,
        limits: &WindowLimits<'_>,
        whole_parts: bool,
        is_cached: impl Fn(u64) -> bool,
    ) -> ByteRange {
        let config = self.config;
        let is_small = self.version.size <= config.small_object_bytes.min(self.most_bytes);
        if is_small && self.segments.held_bytes() == 0 {
            return ByteRange::new(0, self.version.size);
        }
        let after = self.segments.next_start(missing.start()).unwrap_or(self.version.size);
        let before = self.segments.previous_end(missing.start()).unwrap_or(0);
        let block = config.random_read_bytes;
        if let Some(piece) = self.piece(missing.start(), access) {
            let end = piece.end().max(missing.end()).min(after);
            let most = config.part_bytes.max(block).min(self.most_bytes);
            return ByteRange::new(missing.start(), end.min(missing.start() + most));
        }
        let start = (missing.start() / block * block).max(before);
        let wanted = match self.ramped(access) {
            Some(stream) => {
                let end = missing.end().next_multiple_of(limits.edge_bytes.max(block));
                let takes_part = whole_parts && stream.is_hungry && stream.direction == Direction::Up;
                if takes_part { end.max(self.part_ahead(stream, start, after, limits).end()) } else { end }
            }
            // Otherwise the rest of the record would be another GET, which the reader waits for after this
            // one.
            None if access == Access::Paged && missing.len() <= RECORD_BYTES => {
                (missing.end() + RECORD_BYTES).next_multiple_of(block)
            }
            None => missing.end().next_multiple_of(block),
        };
        let end = wanted.min(after).min(start + config.part_bytes.max(block));
        let mut cut = (start / block + 1) * block;
        while cut < end {
            if cut > missing.start() && is_cached(cut) {
                return ByteRange::new(start, cut);
            }
            cut += block;
        }
        ByteRange::new(start, end)
    }

    fn ramped(&self, access: Access) -> Option<&Stream> {
        let Access::Stream(id) = access else { return None };
        let initial = self.config.initial_window_bytes;
        self.streams.get(id).filter(|stream| {
            stream.window.bytes() > initial && !matches!(stream.direction, Direction::Strided(_))
        })
    }

    /// The piece of the stride that holds `at`, for a read of a stream with a stride.
    fn piece(&self, at: u64, access: Access) -> Option<ByteRange> {
        let Access::Stream(id) = access else { return None };
        let Direction::Strided(stride) = self.streams.get(id)?.direction else { return None };
        stride.piece_at(at, self.version.size)
    }

    /// The next missing bytes of the pieces of `stride`. The search begins at `at`. Both `at` and `end` count the
    /// pieces' bytes as if the pieces lay end to end.
    fn next_piece(&self, stride: Stride, mut at: u64, end: u64) -> Option<ByteRange> {
        while at < end {
            let (rest, next) = stride.rest(at, self.version.size)?;
            let start = self.segments.first_gap(rest.start());
            if start < rest.end() {
                let after = self.segments.next_start(start).unwrap_or(rest.end());
                let part = start + self.config.part_bytes;
                return Some(ByteRange::new(start, rest.end().min(after).min(part)));
            }
            at = next;
        }
        None
    }

    /// The part at `start` for `stream`, which goes up. The bytes at `after` are already in memory or in flight.
    fn part_ahead(&self, stream: &Stream, start: u64, after: u64, limits: &WindowLimits<'_>) -> ByteRange {
        let limit = self.streams.limit(stream, self.config.random_read_bytes);
        let ends = limit.into_iter().chain(stream.window.limit(stream.position));
        let part = stream.window.part_bytes(start.saturating_sub(stream.position), limits);
        let limit = ends.fold(after, u64::min).max(start);
        let planned = next_part(start, part, limits.edge_bytes, limit);
        // A GET of more than half of the stream's share would leave no room for another one beside it.
        let most = self.config.part_bytes.min(limits.share_bytes / 2);
        match self.parts {
            Some(parts) => parts.fit(planned, most, limit),
            None if self.takes_blocks(stream, most) => {
                ByteRange::new(start, SharedTier::block_edge(start).min(limit))
            }
            None => planned,
        }
    }

    /// Whether the GETs of `stream` that go up bring whole blocks of the shared tier, so that this mount may promise
    /// the blocks to other mounts. Then the window has room for two blocks.
    fn takes_blocks(&self, stream: &Stream, most: u64) -> bool {
        let has_ramped =
            stream.window.bytes() >= 2 * BLOCK_BYTES && stream.window.limit(stream.position).is_none();
        self.version.has_blocks && has_ramped && most >= BLOCK_BYTES
    }

    /// Whether all bytes that `stream` will reach are in memory or in flight.
    pub(super) fn is_complete(&self, stream: &Stream) -> bool {
        let planned = stream.planned_end.max(stream.position);
        match stream.direction {
            Direction::Up => self.segments.first_gap(planned) >= self.version.size,
            Direction::Down => self.segments.gap_before(self.version.size.saturating_sub(planned)) == 0,
            Direction::Strided(stride) => self.next_piece(stride, planned, u64::MAX).is_none(),
        }
    }

    /// The purpose of the GET of `range`, for which a read with this `access` waits.
    pub(super) fn purpose(&self, range: ByteRange, access: Access) -> Purpose {
        match access {
            Access::Stream(id) => Purpose::Stream(id),
            Access::Random | Access::Paged if range.len() == self.version.size => Purpose::Whole,
            Access::Random | Access::Paged => Purpose::Random,
        }
    }

    /// How far the window of `stream` reaches beyond the object's end, in bytes. That many bytes of the following
    /// objects are fetched. Zero for a small object, which is fetched whole without a window.
    pub(super) fn bytes_beyond(&self, stream: &Stream, limits: &WindowLimits<'_>) -> u64 {
        let is_small = self.version.size <= self.config.small_object_bytes;
        if is_small || !stream.is_from_start() {
            return 0;
        }
        let window = stream.window.bytes().min(limits.share_bytes);
        (stream.position + window).saturating_sub(self.version.size)
    }

    /// The length of the GETs for the objects that follow, up to `bytes` beyond the end of this object. Of these bytes,
    /// `begun` are in memory or in flight. `None` while this object is not complete, and while less than an edge is
    /// left to fetch, so that not every read has to check.
    pub(super) fn part_beyond(
        &self,
        stream: &Stream,
        bytes: u64,
        begun: u64,
        limits: &WindowLimits<'_>,
    ) -> Option<u64> {
        let is_worth_it = bytes > begun && bytes >= begun.saturating_add(limits.edge_bytes);
        (is_worth_it && self.is_complete(stream)).then(|| {
            let ahead = (self.version.size - stream.position).saturating_add(begun);
            stream.window.part_bytes(ahead, limits)
        })
    }

    /// The next range to fetch for `stream`, or `None` while its window is full.
    pub(super) fn next_ahead(&self, stream: &Stream, limits: &WindowLimits<'_>) -> Option<ByteRange> {
        let part = self.next_missing(stream, limits)?;
        Some(match stream.direction {
            Direction::Up | Direction::Strided(_) => self.version.front(part),
            Direction::Down => self.version.back(part),
        })
    }

    /// Like [`next_ahead`](Self::next_ahead), wherever the bytes are stored.
    fn next_missing(&self, stream: &Stream, limits: &WindowLimits<'_>) -> Option<ByteRange> {
        let Self { segments, version, .. } = *self;
        let size = version.size;
        let window = stream.window.bytes().min(limits.share_bytes);
        let planned = stream.planned_end.max(stream.position);
        match stream.direction {
            Direction::Up => {
                let start = segments.first_gap(planned);
                let after = segments.next_start(start).unwrap_or(size);
                let part = self.part_ahead(stream, start, after, limits);
                let is_full = start >= stream.position + window || part.len() == 0;
                (!is_full).then_some(part)
            }
            Direction::Down => {
                let end = segments.gap_before(size.saturating_sub(planned));
                let limit = segments.previous_end(end).unwrap_or(0);
                let is_full = size - end >= stream.position + window || end <= limit;
                let part = stream.window.part_bytes(planned - stream.position, limits);
                (!is_full).then(|| part_before(end, part, limits.edge_bytes, limit))
            }
            Direction::Strided(stride) => self.next_piece(stride, planned, stream.position + window),
        }
    }
}

/// The bytes fetched beyond the first pages of a record that is read by the page. A record of 8 KiB, as of tokens, lies
/// in three pages. A sixteenth of such records cross the edge of a block of 128 KiB.
const RECORD_BYTES: u64 = 8 << 10;

/// A stream whose share of the memory is less than this many parts of 1 MiB uses smaller parts.
const EDGES_AT_ONCE: u64 = 4;

/// The least length of a GET ahead for a stream that may hold `share_bytes`: 1 MiB, or a block when memory is short.
/// The GET's edges are multiples of it.
pub(super) fn edge_bytes(share_bytes: u64, config: &PrefetchConfig) -> u64 {
    let is_short = share_bytes < EDGES_AT_ONCE * EDGE_BYTES;
    if is_short { config.random_read_bytes.min(EDGE_BYTES) } else { EDGE_BYTES.min(config.part_bytes) }
}

/// The GET of up to `part` bytes that starts at `start`. It ends on an edge, or at `limit`, which is the
/// object's end or the next segment.
pub(super) fn next_part(start: u64, part: u64, edge: u64, limit: u64) -> ByteRange {
    let end = if start.is_multiple_of(edge) { start + part } else { start.next_multiple_of(edge) };
    ByteRange::new(start, end.min(limit))
}

/// The GET of up to `part` bytes that ends at `end`. It starts on an edge, or at `limit`.
fn part_before(end: u64, part: u64, edge: u64, limit: u64) -> ByteRange {
    let start = if end.is_multiple_of(edge) { end.saturating_sub(part) } else { end / edge * edge };
    ByteRange::new(start.max(limit), end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{next_part, part_before};

    proptest! {
        #[test]
        fn parts_end_on_edges(
            start in 0u64..1 << 40,
            edge in 0u32..4,
            parts in 0u32..5,
            size in 1u64..1 << 40,
        ) {
            let (limit, edge) = (start + size, (64u64 << 10) << edge);
            let part = next_part(start, edge << parts, edge, limit);
            prop_assert!(part.len() > 0 && part.end() <= limit);
            prop_assert!(part.end() == limit || part.end().is_multiple_of(edge));
            let below = part_before(limit, edge << parts, edge, start);
            prop_assert!(below.len() > 0 && below.start() >= start);
            prop_assert!(below.start() == start || below.start().is_multiple_of(edge));
        }
    }
}
