//! The segment map: the bytes of one object version that are in memory or in flight.
//!
//! **Invariant:** segments do not overlap. Each is one GET, and has all its bytes or none, because the client delivers
//! a part whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use s3mount_object::ByteRange;

use crate::PrefetchMetrics;
use crate::sync::AbortHandle;

/// Why a segment was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For the stream of this id, which will reach it.
    Stream(u64),
    /// For one random read. Its blocks move to the cache when they land.
    Random,
    /// For a random read of a small object, which is fetched whole.
    Whole,
    /// Ahead of an expected reader: a hint named the bytes, the file was opened, or the object before this one is being
    /// read.
    Hinted,
}

impl Purpose {
    /// Whether the segment stays while it is not read. It is dropped when the code that asked for it releases it, or
    /// when memory is short.
    pub(crate) fn stays_unread(self) -> bool {
        matches!(self, Purpose::Whole | Purpose::Hinted)
    }
}

/// Names a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentKey {
    pub(crate) start: u64,
    pub(crate) id: u64,
    pub(crate) len: u64,
}

/// One GET and its bytes. `W` is what waits for it.
#[derive(Debug)]
pub(crate) struct Segment<W> {
    /// Tells this segment from an earlier one with the same start.
    pub(crate) id: u64,
    pub(crate) range: ByteRange,
    pub(crate) purpose: Purpose,
    pub(crate) state: SegmentState<W>,
    /// Which of its bytes readers received.
    pub(crate) served: Served,
}

#[derive(Debug)]
pub(crate) enum SegmentState<W> {
    /// The segment is in flight. `task` is the task of its GET. It may be aborted while no read waits.
    InFlight {
        task: AbortHandle,
        waiters: Vec<W>,
    },
    Ready(Bytes),
}

impl<W> Segment<W> {
    /// Notes that a reader receives `range`. Returns how many of these bytes count as served for the first time.
    pub(crate) fn serve(&mut self, range: ByteRange) -> u64 {
        let before = self.served.bytes;
        self.served.note(range);
        self.served.bytes - before
    }

    /// How many bytes were fetched and never read. The bytes of a random read do not count: they are in the block cache
    /// by now, or lie around the requested bytes.
    pub(crate) fn unread_bytes(&self) -> u64 {
        match &self.state {
            SegmentState::Ready(bytes) if self.purpose != Purpose::Random => {
                (bytes.len() as u64).saturating_sub(self.served.bytes)
            }
            SegmentState::Ready(_) | SegmentState::InFlight { .. } => 0,
        }
    }

    /// Whether a read waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(&self.state, SegmentState::InFlight { waiters, .. } if !waiters.is_empty())
    }

    /// Takes out all that waits for it.
    pub(crate) fn take_waiters(&mut self) -> Vec<W> {
        match &mut self.state {
            SegmentState::InFlight { waiters, .. } => std::mem::take(waiters),
            SegmentState::Ready(_) => Vec::new(),
        }
    }

    /// Whether its bytes are in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.state, SegmentState::InFlight { .. })
    }

    pub(crate) fn key(&self) -> SegmentKey {
        SegmentKey { start: self.range.start(), id: self.id, len: self.range.len() }
    }

    /// Whether readers received every byte.
    pub(crate) fn is_consumed(&self) -> bool {
        self.served.bytes >= self.range.len()
    }
}

/// How much of a segment readers received. Bytes that are read again do not count.
///
/// It knows the span from the first byte to the last that was read, and how many bytes of the span were skipped. A read
/// inside the span counts as a read of skipped bytes, as long as there are any, because the kernel's readahead comes
/// out of order. So the count is exact for a reader that goes up or down, and for one that returns to bytes that it
/// skipped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    span: Option<(u64, u64)>,
    skipped: u64,
    bytes: u64,
}

impl Served {
    /// Notes that a reader received `range`.
    pub(crate) fn note(&mut self, range: ByteRange) {
        let Some((start, end)) = self.span else {
            self.span = Some((range.start(), range.end()));
            self.bytes = range.len();
            return;
        };
        // Bytes outside the span are new. Bytes between the span and the range are skipped.
        let below = range.end().min(start).saturating_sub(range.start());
        let above = range.end().saturating_sub(range.start().max(end));
        self.skipped += start.saturating_sub(range.end()) + range.start().saturating_sub(end);
        let again = (range.len() - below - above).min(self.skipped);
        self.skipped -= again;
        self.bytes += below + above + again;
        self.span = Some((start.min(range.start()), end.max(range.end())));
    }
}

/// Segments by their first byte.
#[derive(Debug)]
pub(crate) struct SegmentMap<W> {
    segments: BTreeMap<u64, Segment<W>>,
    held_bytes: u64,
    metrics: Arc<PrefetchMetrics>,
}

impl<W> SegmentMap<W> {
    /// An empty map. Bytes that leave it unread are counted in `metrics`.
    pub(crate) fn new(metrics: Arc<PrefetchMetrics>) -> Self {
        Self { segments: BTreeMap::new(), held_bytes: 0, metrics }
    }

    pub(crate) fn metrics(&self) -> &Arc<PrefetchMetrics> {
        &self.metrics
    }

    /// Sum of all segments' lengths.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The segment that holds `offset`.
    pub(crate) fn covering(&mut self, offset: u64) -> Option<&mut Segment<W>> {
        let (_, segment) = self.segments.range_mut(..=offset).next_back()?;
        segment.range.contains(offset).then_some(segment)
    }

    pub(crate) fn get_mut(&mut self, start: u64) -> Option<&mut Segment<W>> {
        self.segments.get_mut(&start)
    }

    /// The first byte at or after `offset` that is in no segment.
    pub(crate) fn first_gap(&self, mut offset: u64) -> u64 {
        if let Some((_, before)) = self.segments.range(..=offset).next_back() {
            offset = offset.max(before.range.end());
        }
        for (start, segment) in self.segments.range(offset..) {
            if *start > offset {
                break;
            }
            offset = segment.range.end();
        }
        offset
    }

    /// The first stretch of `range` that is in no segment.
    pub(crate) fn first_missing(&self, range: ByteRange) -> Option<ByteRange> {
        let start = self.first_gap(range.start());
        let end = || self.next_start(start).map_or(range.end(), |next| next.min(range.end()));
        (start < range.end()).then(|| ByteRange::new(start, end()))
    }

    /// The end of the last gap before `offset`. All bytes from there to `offset` are in segments.
    pub(crate) fn gap_before(&self, mut offset: u64) -> u64 {
        for (start, segment) in self.segments.range(..offset).rev() {
            if segment.range.end() < offset {
                break;
            }
            offset = *start;
        }
        offset
    }

    /// Where the first segment at or after `offset` starts.
    pub(crate) fn next_start(&self, offset: u64) -> Option<u64> {
        self.segments.range(offset..).next().map(|(start, _)| *start)
    }

    /// Where the last segment before `offset` ends.
    pub(crate) fn previous_end(&self, offset: u64) -> Option<u64> {
        self.segments.range(..offset).next_back().map(|(_, segment)| segment.range.end())
    }

    pub(crate) fn insert(&mut self, segment: Segment<W>) {
        debug_assert!(self.first_gap(segment.range.start()) == segment.range.start());
        debug_assert!(self.next_start(segment.range.start()).is_none_or(|next| next >= segment.range.end()));
        self.held_bytes += segment.range.len();
        self.segments.insert(segment.range.start(), segment);
    }

    /// Takes out the segment at `start` if its id is `id`.
    pub(crate) fn remove(&mut self, start: u64, id: u64) -> Option<Segment<W>> {
        if self.segments.get(&start)?.id != id {
            return None;
        }
        let segment = self.segments.remove(&start)?;
        self.held_bytes -= segment.range.len();
        self.metrics.wasted_bytes.add(segment.unread_bytes());
        Some(segment)
    }

    /// All segments in the order of their offsets, mutable.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Segment<W>> {
        self.segments.values_mut()
    }

    /// All segments in the order of their offsets.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Segment<W>> {
        self.segments.values()
    }
}

impl<W> Drop for SegmentMap<W> {
    fn drop(&mut self) {
        let unread: u64 = self.segments.values().map(Segment::unread_bytes).sum();
        self.metrics.wasted_bytes.add(unread);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use s3mount_object::ByteRange;

    use super::{Purpose, Segment, SegmentMap, SegmentState, Served};
    use crate::PrefetchMetrics;

    fn ready(start: u64, end: u64) -> Segment<()> {
        Segment {
            id: start,
            range: ByteRange::new(start, end),
            purpose: Purpose::Random,
            state: SegmentState::Ready(Bytes::new()),
            served: Served::default(),
        }
    }

    #[test]
    fn finds_gaps_between_segments() {
        let mut map = SegmentMap::new(Arc::default());
        for (start, end) in [(10, 20), (20, 30), (40, 50)] {
            map.insert(ready(start, end));
        }
        let gaps: Vec<_> = [0, 10, 15, 25, 30, 39, 45, 60].map(|at| map.first_gap(at)).into();
        assert_eq!(gaps, [0, 30, 30, 30, 30, 39, 50, 60]);
        let before: Vec<_> = [60, 50, 45, 40, 30, 25, 5].map(|at| map.gap_before(at)).into();
        assert_eq!(before, [60, 40, 40, 40, 10, 10, 5]);
        assert_eq!((map.next_start(31), map.previous_end(40)), (Some(40), Some(30)));
        assert!(map.covering(35).is_none());
        assert_eq!(map.covering(29).map(|segment| segment.range.start()), Some(20));
        assert!(map.remove(20, 7).is_none(), "another segment is at that place");
        assert!(map.remove(20, 20).is_some());
        assert_eq!((map.first_gap(15), map.held_bytes()), (20, 20));
    }

    #[test]
    fn what_leaves_unread_is_counted_once() {
        let metrics = Arc::<PrefetchMetrics>::default();
        let mut map = SegmentMap::new(metrics.clone());
        for start in [0, 10, 20, 30] {
            let state = SegmentState::Ready(Bytes::from_static(&[0; 10]));
            map.insert(Segment { purpose: Purpose::Stream(1), state, ..ready(start, start + 10) });
        }
        map.insert(Segment { state: SegmentState::Ready(Bytes::from_static(&[0; 10])), ..ready(40, 50) });
        map.covering(0).expect("a segment").serve(ByteRange::new(0, 10));
        map.covering(10).expect("a segment").serve(ByteRange::new(10, 13));
        for (start, wasted) in [(0, 0), (10, 7), (20, 17)] {
            map.remove(start, start).expect("a segment");
            assert_eq!(metrics.wasted_bytes.get(), wasted);
        }
        drop(map);
        assert_eq!(metrics.wasted_bytes.get(), 27, "the last, and not the random read's");
    }

    /// What is counted as served after these reads.
    fn served(reads: &[(u64, u64)]) -> u64 {
        let mut served = Served::default();
        for (start, end) in reads {
            served.note(ByteRange::new(*start, *end));
        }
        served.bytes
    }

    #[test]
    fn a_repeat_serves_nothing() {
        assert_eq!(served(&[(0, 10), (0, 10), (5, 10)]), 10);
        assert_eq!(served(&[(0, 10), (10, 20), (5, 25)]), 25);
        assert_eq!(served(&[(90, 100), (80, 90), (80, 100)]), 20, "downwards");
        assert_eq!(served(&[(0, 10), (20, 30), (10, 20), (30, 40)]), 40, "out of order");
        assert_eq!(served(&[(50, 60), (0, 10), (90, 100)]), 30);
        assert_eq!(served(&[(40, 50), (0, 100), (0, 100)]), 100);
    }
}
