//! The state of one object version: its bytes in memory and in flight, its streams, and its waiting reads.
//! It is the data behind a reader's lock. It changes with reads and answers, and sends no request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::{MemoryBudget, Reservation};
use s3mount_object::ByteRange;
use tokio::time::Instant;

use super::waiter::{Progress, Waiter};
use crate::fetch::Failure;
use crate::learn::Noted;
use crate::reader::segment::{Purpose, Segment, SegmentKey, SegmentMap, SegmentState, Served};
use crate::stream::StreamTable;
use crate::sync::AbortHandle;
use crate::{PrefetchMetrics, ReadError, Tier};

#[derive(Debug)]
pub(super) struct ReaderState {
    /// The object's size in bytes.
    pub(super) size: u64,
    /// A read that has no answer after this time fails.
    read_timeout: Duration,
    pub(super) segments: SegmentMap<Waiter>,
    pub(super) streams: StreamTable,
    /// Segments that were read to their end, oldest first.
    pub(super) consumed: VecDeque<SegmentKey>,
    pub(super) consumed_bytes: u64,
    /// Hinted ranges that were given back unread because memory was short.
    pub(super) reclaimed: Vec<ByteRange>,
    /// Set when the version is gone, or when wrong bytes of it came. The version can no longer be read.
    pub(super) stale: Option<ReadError>,
    pub(super) failed: Option<Failed>,
    /// The memory of the candidates, in bytes, and its reservations.
    candidate_bytes: u64,
    reserved: Vec<Reservation>,
    /// The number of GETs that failed ahead of their readers, and were not sent again yet.
    pub(super) given_up: u64,
    pub(super) next_segment: u64,
    /// The ids of the last segments sent before each of the last two ticks, the latest first.
    pub(super) sent_before_ticks: [u64; 2],
    /// This reader's share of [`Shared::active_streams`](crate::shared::Shared::active_streams).
    pub(super) active_streams: usize,
    /// Whether this reader is listed as changed since reclaim last visited it.
    pub(super) is_listed: bool,
    /// Whether reclaim ever visited this reader.
    pub(super) was_visited: bool,
    /// Whether this reader is listed as one that could give bytes ahead of idle streams.
    pub(super) is_listed_idle: bool,
    pub(super) handles: Handles,
    /// Whether a stream that is being read was short of memory.
    pub(super) is_short: bool,
    /// How many bytes from the object's beginning had been read when the mount last noted its reading.
    pub(super) noted_bytes: u64,
    /// That note, if the reader seemed to have left the object before its end.
    pub(super) noted_left: Option<Noted>,
    /// Set while the object's beginning is in memory for the reader of an earlier object, until that reader comes.
    pub(super) early: Option<EarlyBeginning>,
}

/// The handles of a version.
#[derive(Debug, Default)]
pub(super) struct Handles {
    pub(super) open: usize,
    pub(super) was_closed: bool,
    /// Whether the version was reopened a moment after it had been closed.
    pub(super) is_reopened: bool,
    /// Whether a stream was read since the version was opened.
    has_read: bool,
    /// Whether reads may come without a handle.
    pub(super) are_not_all: bool,
    /// Whether the program that reopened it continued a stream, instead of starting the file anew.
    pub(super) goes_on: bool,
}

impl Handles {
    /// Notes that a handle was opened.
    pub(super) fn open(&mut self) {
        if self.open == 0 && self.was_closed {
            (self.is_reopened, self.has_read) = (true, false);
        }
        self.open += 1;
    }

    /// Notes that a stream is read at `offset`.
    pub(super) fn on_stream(&mut self, offset: u64) {
        if !self.has_read {
            (self.has_read, self.goes_on) = (true, self.is_reopened && offset > 0);
        }
    }
}

/// The beginning of an object that was fetched before any read.
#[derive(Debug, Default)]
pub(super) struct EarlyBeginning {
    /// Ticks of the housekeeper since it was fetched.
    ticks: u32,
    /// Whether all of the object is in memory or in flight. Then it takes no share of the memory.
    pub(super) is_complete: bool,
}

/// An unread beginning is given back after this many ticks of the housekeeper: half a minute, as for any other
/// prediction.
const UNREAD_TICKS: u32 = 30;

/// What a read does after it has collected the bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It can be answered: all its bytes are in memory.
    Answer,
    /// It waits for the segment in flight that starts here.
    WaitFor(u64),
    /// It needs a GET for these bytes, whose first is in no segment. Then it goes on.
    Fetch(ByteRange),
}

/// A GET that has ended.
pub(super) struct Landed {
    pub(super) range: ByteRange,
    pub(super) purpose: Purpose,
    /// The reads that waited for it, and go on.
    pub(super) waiters: Vec<Waiter>,
    /// The reads that fail with it.
    pub(super) failing: Vec<Waiter>,
    pub(super) result: Result<Bytes, Failure>,
}

/// The last GET that failed reads. After a failed readahead the kernel asks for its first page again at once. Without
/// this note, its caller would wait for the read time-out twice.
#[derive(Debug)]
pub(super) struct Failed {
    /// The id of its segment.
    id: u64,
    /// The ranges of the failed reads. Other reads have their own deadlines.
    ranges: Vec<ByteRange>,
    at: Duration,
    error: ReadError,
}

/// The ranges of these reads.
fn ranges(reads: &[Waiter]) -> Vec<ByteRange> {
    reads.iter().map(|read| read.progress.range).collect()
}

/// This much memory of an object's candidates is not counted. Small objects need no more.
const FREE_CANDIDATE_BYTES: u64 = 1 << 10;

/// For this long, a read of the same bytes fails with the same error.
const SAME_MOMENT: Duration = Duration::from_millis(100);

impl ReaderState {
    pub(super) fn new(size: u64, read_timeout: Duration, metrics: Arc<PrefetchMetrics>) -> Self {
        Self {
            size,
            read_timeout,
            segments: SegmentMap::new(metrics),
            streams: StreamTable::new(size),
            consumed: VecDeque::new(),
            consumed_bytes: 0,
            stale: None,
            failed: None,
            candidate_bytes: FREE_CANDIDATE_BYTES,
            reserved: Vec::new(),
            given_up: 0,
            reclaimed: Vec::new(),
            next_segment: 0,
            sent_before_ticks: [0; 2],
            active_streams: 0,
            is_listed: false,
            was_visited: false,
            is_listed_idle: false,
            handles: Handles::default(),
            is_short: false,
            noted_bytes: 0,
            noted_left: None,
            early: None,
        }
    }

    /// The error of the GET for the byte at `offset`, if it failed a read just now and no other GET for the byte is in
    /// flight.
    pub(super) fn just_failed(&mut self, offset: u64, now: impl Fn() -> Duration) -> Option<ReadError> {
        let failed =
            self.failed.as_ref().filter(|failed| failed.ranges.iter().any(|range| range.contains(offset)))?;
        let error = (now() < failed.at + SAME_MOMENT).then(|| failed.error.clone());
        let id = failed.id;
        error.filter(|_| {
            self.segments.covering(offset).is_none_or(|segment| segment.id == id && segment.is_in_flight())
        })
    }

    /// Reserves the memory of the candidates in `budget`. If there is none, forgets the candidates.
    pub(super) fn pay_candidates(&mut self, budget: &MemoryBudget) {
        let held = self.streams.candidates.held_bytes();
        if held > self.candidate_bytes {
            match budget.try_keep(held - self.candidate_bytes) {
                Some(more) => {
                    self.candidate_bytes = held;
                    self.reserved.push(more);
                }
                None => self.streams.candidates.forget(),
            }
        }
    }

    /// The id of the next segment.
    pub(super) fn next_segment(&mut self) -> u64 {
        self.next_segment += 1;
        self.next_segment
    }

    /// Notes a GET in flight.
    pub(super) fn insert(&mut self, id: u64, range: ByteRange, purpose: Purpose, task: AbortHandle) {
        self.reclaimed.retain(|before| !before.overlaps(range));
        let state = SegmentState::InFlight { task, waiters: Vec::new() };
        self.segments.insert(Segment { id, range, purpose, state, served: Served::default() });
    }

    /// Collects the bytes of a read from the segments and from the cache: `cached` returns the cached bytes at an
    /// offset. Returns what the read does next. `keep_bytes` of the segments that were read to their end stay.
    pub(super) fn collect(
        &mut self,
        progress: &mut Progress,
        cached: impl Fn(u64) -> Option<Bytes>,
        keep_bytes: impl Fn() -> u64,
    ) -> Step {
        while progress.at < progress.range.end() {
            let at = progress.at;
            let Some(segment) = self.segments.covering(at) else {
                let Some(mut bytes) = cached(at) else {
                    progress.tier = Tier::Store;
                    return Step::Fetch(ByteRange::new(at, progress.range.end()));
                };
                bytes.truncate(usize::try_from(progress.range.end() - at).unwrap_or(usize::MAX));
                progress.at += bytes.len() as u64;
                progress.found.push(bytes);
                progress.tier = progress.tier.max(Tier::Cache);
                continue;
            };
            let SegmentState::Ready(bytes) = &segment.state else {
                progress.tier = progress.tier.max(Tier::InFlight);
                return Step::WaitFor(segment.range.start());
            };
            let end = progress.range.end().min(segment.range.end());
            let offset_in = |at: u64| usize::try_from(at - segment.range.start()).unwrap_or(usize::MAX);
            progress.found.push(bytes.slice(offset_in(at)..offset_in(end)));
            progress.at = end;
            let first_served = segment.serve(ByteRange::new(at, end));
            let key = segment.key();
            let is_consumed = first_served > 0 && segment.is_consumed();
            if matches!(segment.purpose, Purpose::Stream(_)) {
                self.streams.served(first_served);
            }
            if is_consumed {
                self.consume(key, keep_bytes());
            }
        }
        Step::Answer
    }

    /// Notes that the GET of the segment `id` at `start` has ended at the time `now`. Returns `None` if that segment
    /// was dropped meanwhile.
    pub(super) fn land(
        &mut self,
        start: u64,
        id: u64,
        result: Result<Bytes, Failure>,
        now: impl Fn() -> Duration,
    ) -> Option<Landed> {
        let segment = self.segments.get_mut(start).filter(|segment| segment.id == id)?;
        let (range, purpose) = (segment.range, segment.purpose);
        let arrived = SegmentState::Ready(result.as_ref().map_or_else(|_| Bytes::new(), Bytes::clone));
        let SegmentState::InFlight { waiters, .. } = std::mem::replace(&mut segment.state, arrived) else {
            return None;
        };
        let (failing, waiters) = match &result {
            Ok(_) | Err(Failure::GivenUp) => (Vec::new(), waiters),
            Err(Failure::Late(_, over)) => {
                waiters.into_iter().partition(|waiter| waiter.deadline(self.read_timeout) <= *over)
            }
            Err(Failure::Read(_)) => (waiters, Vec::new()),
        };
        if let Err(failure) = &result {
            self.segments.remove(start, id);
            self.streams.unplan(range);
            // What has given way to a shorter GET is sent at once.
            let gave_way = matches!(failure, Failure::GivenUp) && !waiters.is_empty();
            self.given_up += u64::from(failing.is_empty() && !gave_way);
            if let Some(error) = failure.error().filter(|_| !failing.is_empty()) {
                self.failed = Some(Failed { id, ranges: ranges(&failing), at: now(), error: error.clone() });
            }
        }
        Some(Landed { range, purpose, waiters, failing, result })
    }

    /// The reads that wait for the segment `id` at `start`, which is in flight.
    fn waiters(&mut self, start: u64, id: u64) -> Option<&mut Vec<Waiter>> {
        let segment = self.segments.get_mut(start).filter(|segment| segment.id == id)?;
        match &mut segment.state {
            SegmentState::InFlight { waiters, .. } => Some(waiters),
            SegmentState::Ready(_) => None,
        }
    }

    /// The latest deadline of the reads that wait for the segment `id` at `start`.
    pub(super) fn last_deadline(&mut self, start: u64, id: u64) -> Option<Instant> {
        let limit = self.read_timeout;
        let waiters = self.waiters(start, id)?;
        waiters.iter().map(|waiter| waiter.deadline(limit)).max()
    }

    /// Takes out the reads that wait for the segment `id` at `start` and are past their deadline at `now`, the
    /// policies' time. Returns them, and the next read's deadline.
    pub(super) fn expire(
        &mut self,
        start: u64,
        id: u64,
        now: impl Fn() -> Duration,
    ) -> (Vec<Waiter>, Option<Instant>) {
        let limit = self.read_timeout;
        let Some(waiters) = self.waiters(start, id) else { return (Vec::new(), None) };
        let over = Instant::now();
        let late: Vec<_> = waiters.extract_if(.., |waiter| waiter.deadline(limit) <= over).collect();
        let next = waiters.iter().map(|waiter| waiter.deadline(limit)).min();
        if !late.is_empty() {
            let error = ReadError::TimedOut(limit);
            self.failed = Some(Failed { id, ranges: ranges(&late), at: now(), error });
        }
        (late, next)
    }

    /// Makes a read wait for the segment at `start`, which is in flight. It can't have landed since it was
    /// found, because the state was locked all along.
    pub(super) fn wait(&mut self, start: u64, waiter: Waiter) {
        match self.segments.get_mut(start).map(|segment| &mut segment.state) {
            Some(SegmentState::InFlight { waiters, .. }) => waiters.push(waiter),
            Some(SegmentState::Ready(_)) | None => {
                unreachable!("the segment was in flight under the same lock")
            }
        }
    }

    /// Whether the segment `id` at `start` has more than twice the bytes that the reads need which wait for it, of which
    /// a GET brings one `block` at least.
    pub(super) fn is_too_long(&mut self, start: u64, id: u64, block: u64) -> bool {
        let Some(waiters) = self.waiters(start, id) else { return false };
        let needed = waiters.iter().map(|waiter| waiter.progress.range.end().saturating_sub(start)).max();
        let len = self.segments.get_mut(start).map_or(0, |segment| segment.range.len());
        needed.is_some_and(|needed| len > 2 * needed.max(block))
    }

    /// Whether a read waits for the segment `id` at `start`.
    pub(super) fn is_awaited(&mut self, start: u64, id: u64) -> bool {
        self.waiters(start, id).is_some_and(|waiters| !waiters.is_empty())
    }

    /// Drops everything, and cancels every GET in flight. The version can no longer be read. Returns the reads that
    /// wait.
    pub(super) fn invalidate(&mut self, error: &ReadError) -> Vec<Waiter> {
        self.abort_all();
        let metrics = self.segments.metrics().clone();
        let mut segments = std::mem::replace(&mut self.segments, SegmentMap::new(metrics));
        let waiters = segments.iter_mut().flat_map(Segment::take_waiters).collect();
        self.stale = Some(error.clone());
        self.consumed.clear();
        self.consumed_bytes = 0;
        self.streams = StreamTable::new(self.size);
        self.early = None;
        // The mount learns nothing from this reading.
        self.noted_bytes = u64::MAX;
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

    /// Notes that stream `id` has begun to read the bytes that were fetched before it came.
    pub(super) fn arrive(&mut self, id: u64) {
        if self.early.take().is_none() {
            return;
        }
        for segment in self.segments.iter_mut().filter(|segment| segment.purpose.stays_unread()) {
            segment.purpose = Purpose::Stream(id);
            self.streams.fetched(segment.range.len());
        }
    }

    /// How many streams take a share of the memory, including one that is expected.
    pub(super) fn count_streams(&self) -> usize {
        self.streams.active() + usize::from(self.early.as_ref().is_some_and(|early| !early.is_complete))
    }

    /// Called by the housekeeper once a second.
    pub(super) fn tick(&mut self) {
        self.streams.tick();
        self.tick_early();
        self.tick_passed();
    }

    /// Gives back an unread beginning.
    fn tick_early(&mut self) {
        let Some(EarlyBeginning { ticks, .. }) = &mut self.early else { return };
        *ticks += 1;
        if *ticks >= UNREAD_TICKS {
            self.early = None;
            self.drop_hinted(ByteRange::new(0, u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use s3mount_memory::MemoryBudget;
    use s3mount_object::ByteRange;
    use s3mount_testkit::mix;

    use super::ReaderState;
    use crate::PrefetchConfig;

    #[test]
    fn candidates_are_a_part_of_the_memory() {
        let read_at_random = |budget: &MemoryBudget| {
            let mut state = ReaderState::new(1 << 40, Duration::ZERO, Arc::default());
            for turn in 0..1000 {
                let at = mix(turn) % (1 << 39);
                state.streams.on_read(ByteRange::new(at, at + 4096), &PrefetchConfig::default());
                state.pay_candidates(budget);
            }
            (state.streams.candidates.held_bytes(), budget.used_bytes())
        };
        let (held, counted) = read_at_random(&MemoryBudget::new(1 << 20));
        assert!(held >= 16 << 10 && counted == held - super::FREE_CANDIDATE_BYTES, "{held}, {counted}");
        let (held, counted) = read_at_random(&MemoryBudget::new(4 << 10));
        assert!(held <= 5 << 10 && counted <= 4 << 10, "{held}, {counted}");
    }
}
