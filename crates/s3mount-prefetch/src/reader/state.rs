//! What one object version has here and on its way, and who reads it: the state behind a reader's
//! lock, and what of it is given back.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use s3mount_object::ByteRange;

use super::ObjectReader;
use super::seam::{Awaited, Next};
use super::waiter::Waiter;
use crate::prefetcher::LEFT_TICKS;
use crate::segment::{Purpose, Segment, SegmentMap, Served, State as SegmentState};
use crate::stream::StreamTable;
use crate::sync::AbortHandle;
use crate::{PrefetchMetrics, ReadError};

#[derive(Debug)]
pub(super) struct State {
    /// The object's size in bytes.
    pub(super) size: u64,
    pub(super) segments: SegmentMap<Waiter>,
    pub(super) streams: StreamTable,
    /// Segments that were read to their end, oldest first, as (start, id, length).
    consumed: VecDeque<(u64, u64, u64)>,
    consumed_bytes: u64,
    /// What was fetched because somebody told of it, and given back unread when memory was short.
    pub(super) taken: Vec<ByteRange>,
    /// Set once the version is gone, or wrong bytes of it came: nothing of it can be read any more.
    pub(super) stale: Option<ReadError>,
    pub(super) failed: Option<Failed>,
    next_segment: u64,
    /// The last segments that were sent before each of the last two ticks, the latest first.
    sent_before_ticks: [u64; 2],
    /// This reader's part of [`Shared::active_streams`](crate::prefetcher::Shared::active_streams).
    pub(super) active_streams: usize,
    /// Whether this reader is listed as changed since it was looked at for memory.
    pub(super) is_listed: bool,
    /// Whether it was ever looked at.
    pub(super) was_visited: bool,
    /// Whether the mount has learnt how the object was read.
    pub(super) is_noted: bool,
    /// What follows the object.
    pub(super) next: Next,
    /// Its beginning, if it was fetched for a reader of an object before it, until that one comes.
    pub(super) awaited: Option<Awaited>,
    /// The reader of which it is to be told what follows.
    pub(super) asks: Option<Weak<ObjectReader>>,
}

/// The last GET that failed a read. The kernel asks for the first page of a read-ahead that failed once
/// more, in the same moment: without this its caller would wait for the read time-out twice.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) range: ByteRange,
    pub(super) at: Duration,
    pub(super) error: ReadError,
}

/// For so long a read of the same bytes fails as the one before.
const SAME_MOMENT: Duration = Duration::from_millis(100);

impl State {
    pub(super) fn new(size: u64, metrics: Arc<PrefetchMetrics>) -> Self {
        Self {
            size,
            segments: SegmentMap::new(metrics),
            streams: StreamTable::new(size),
            consumed: VecDeque::new(),
            consumed_bytes: 0,
            stale: None,
            failed: None,
            taken: Vec::new(),
            next_segment: 0,
            sent_before_ticks: [0; 2],
            active_streams: 0,
            is_listed: false,
            was_visited: false,
            is_noted: false,
            next: Next::default(),
            awaited: None,
            asks: None,
        }
    }

    /// Why the GET of the byte at `offset` failed, if it did so in this moment and no other is under way.
    pub(super) fn just_failed(&mut self, offset: u64, now: impl Fn() -> Duration) -> Option<ReadError> {
        let failed = self.failed.as_ref().filter(|failed| failed.range.contains(offset))?;
        let error = (now() < failed.at + SAME_MOMENT).then(|| failed.error.clone());
        error.filter(|_| self.segments.covering(offset).is_none())
    }

    /// The id of the next segment.
    pub(super) fn next_segment(&mut self) -> u64 {
        self.next_segment += 1;
        self.next_segment
    }

    /// Notes a GET that is on its way.
    pub(super) fn insert(&mut self, id: u64, range: ByteRange, purpose: Purpose, task: AbortHandle) {
        self.taken.retain(|taken| !taken.overlaps(range));
        let state = SegmentState::InFlight { task, waiters: Vec::new() };
        self.segments.insert(Segment { id, range, purpose, state, served: Served::default() });
    }

    /// Puts a waiter on the segment at `start`, which is in flight: nothing can have landed since it
    /// was found, because the state was locked all along.
    pub(super) fn wait(&mut self, start: u64, waiter: Waiter) {
        match self.segments.get_mut(start).map(|segment| &mut segment.state) {
            Some(SegmentState::InFlight { waiters, .. }) => waiters.push(waiter),
            Some(SegmentState::Ready(_)) | None => {
                unreachable!("the segment was in flight under the same lock")
            }
        }
    }

    /// A segment was read to its end: it stays a little for those just behind, then goes. Of such
    /// segments `keep` bytes stay.
    pub(super) fn consume(&mut self, start: u64, id: u64, len: u64, keep: u64) {
        self.consumed.push_back((start, id, len));
        self.consumed_bytes += len;
        while self.consumed_bytes > keep
            && let Some((start, id, len)) = self.consumed.pop_front()
        {
            self.consumed_bytes -= len;
            self.segments.remove(start, id);
        }
    }

    /// Drops what was consumed and what streams have passed by; returns how many bytes that were.
    pub(super) fn sweep(&mut self) -> u64 {
        self.sweep_but(0)
    }

    /// The same, but for the last `keep` bytes that were passed by. Where several workers read as one stream,
    /// one that waited for a slow GET comes to them yet: they are not worth a place for what is read later.
    pub(super) fn sweep_but(&mut self, keep: u64) -> u64 {
        let before = self.segments.held_bytes();
        self.consumed_bytes = 0;
        for (start, id, _) in std::mem::take(&mut self.consumed) {
            self.segments.remove(start, id);
        }
        let mut passed = self.passed();
        passed.sort_unstable_by_key(|(_, id, _)| Reverse(*id));
        let mut kept = 0;
        for (start, id, len) in passed {
            kept += len;
            if kept > keep {
                self.drop_passed(start, id);
            }
        }
        before - self.segments.held_bytes()
    }

    /// The housekeeper's look: what was passed by goes, but not what came a moment ago.
    pub(super) fn tick_passed(&mut self) {
        let [lately, before] = self.sent_before_ticks;
        self.sent_before_ticks = [self.next_segment, lately];
        for (start, id, _) in self.passed() {
            if id <= before {
                self.drop_passed(start, id);
            }
        }
    }

    /// Ready segments that no stream will reach, as (start, id, length): skipped, of a stream that has ended,
    /// or of one that nobody reads for [`LEFT_TICKS`].
    fn passed(&self) -> Vec<(u64, u64, u64)> {
        let is_passed = |segment: &&Segment<Waiter>| {
            // Whole small objects stay until they are closed or memory is short.
            matches!(segment.state, SegmentState::Ready(_))
                && segment.purpose != Purpose::Stream(0)
                && !segment.is_consumed()
                && !self.streams.may_read(segment.range, LEFT_TICKS)
        };
        let passed = self.segments.iter().filter(is_passed);
        passed.map(|segment| (segment.range.start(), segment.id, segment.range.len())).collect()
    }

    fn drop_passed(&mut self, start: u64, id: u64) {
        if let Some(dropped) = self.segments.remove(start, id) {
            // Should somebody go on after all.
            self.streams.unplan(dropped.range);
        }
    }

    /// Drops what was fetched of `range` before anybody read it, and that nobody waits for.
    pub(super) fn drop_told(&mut self, range: ByteRange) {
        let is_unread = |segment: &&Segment<Waiter>| {
            let is_waited_for =
                matches!(&segment.state, SegmentState::InFlight { waiters, .. } if !waiters.is_empty());
            let is_in_range = segment.range.start() < range.end() && range.start() < segment.range.end();
            segment.purpose == Purpose::Stream(0) && is_in_range && !is_waited_for
        };
        let unread = self.segments.iter().filter(is_unread);
        let unread: Vec<_> = unread.map(|segment| (segment.range.start(), segment.id)).collect();
        self.taken.retain(|taken| !taken.overlaps(range));
        for (start, id) in unread {
            let Some(dropped) = self.segments.remove(start, id) else { continue };
            if let SegmentState::InFlight { task, .. } = &dropped.state {
                task.abort();
            }
            self.streams.unplan(dropped.range);
        }
    }

    /// Whether a read waits for the segment at `start` called `id`.
    pub(super) fn is_awaited(&mut self, start: u64, id: u64) -> bool {
        self.segments.get_mut(start).is_some_and(|segment| {
            segment.id == id
                && matches!(&segment.state, SegmentState::InFlight { waiters, .. } if !waiters.is_empty())
        })
    }

    /// Drops everything, and cancels every GET in flight; nothing of the version is read from now on.
    /// Returns the reads that wait.
    pub(super) fn condemn(&mut self, error: &ReadError) -> Vec<Waiter> {
        self.abort_all();
        let metrics = self.segments.metrics().clone();
        let mut segments = std::mem::replace(&mut self.segments, SegmentMap::new(metrics));
        let waiters = segments.iter_mut().filter_map(|segment| match &mut segment.state {
            SegmentState::InFlight { waiters, .. } => Some(std::mem::take(waiters)),
            SegmentState::Ready(_) => None,
        });
        let waiters = waiters.flatten().collect();
        self.stale = Some(error.clone());
        self.consumed.clear();
        self.consumed_bytes = 0;
        self.streams = StreamTable::new(self.size);
        // The mount learns nothing from that.
        self.is_noted = true;
        waiters
    }

    /// Cancels every GET in flight.
    pub(super) fn abort_all(&self) {
        for segment in self.segments.iter() {
            if let SegmentState::InFlight { task, .. } = &segment.state {
                task.abort();
            }
        }
    }
}
