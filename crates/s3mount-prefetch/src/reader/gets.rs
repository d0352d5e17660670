//! The GETs of one object version: those that reads wait for, and those ahead of their readers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use s3mount_memory::{Buffer, Priority};
use s3mount_object::ByteRange;
use tokio::time::Instant;

use super::ObjectReader;
use super::plan::{Planner, edge_bytes};
use super::state::ReaderState;
use crate::fetch::{LOOK, Next, Wanted};
use crate::limits::ahead::AheadPermit;
use crate::limits::need::USUAL;
use crate::limits::window::WindowLimits;
use crate::reader::segment::Purpose;
use crate::readers::Readers;
use crate::shared::Shared;
use crate::stream::Access;
use crate::sync::{Ordering, spawn};
use crate::verify::fetch_by;

/// Segments that streams have passed by may keep this share of the memory from later reads. With an eighth, four
/// workers that share a queue of records in 128 MiB fetch a tenth twice.
const PASSED_SHARE: u64 = 4;

impl ObjectReader {
    /// Starts GETs for the missing bytes of `span`, an offset and a length, because they will be read. Of a span longer
    /// than a part, it fetches the first part. Without a span, it fetches a small object whole, and as much of a larger
    /// one as reading ahead begins with. Returns the range that is then in memory or in flight, which ends at the
    /// object's end at the latest, or `None` when memory or requests are short.
    pub fn fetch_ahead(&self, span: Option<(u64, u64)>) -> Option<ByteRange> {
        let config = &self.shared.config;
        let beginning = if self.is_small() { self.size() } else { self.first_bytes() };
        let (offset, len) = span.unwrap_or((0, beginning));
        let start = offset.min(self.size());
        let wanted = ByteRange::new(start, start.saturating_add(len.min(config.part_bytes)).min(self.size()));
        let state = &mut self.lock().state;
        while state.stale.is_none()
            && let Some(missing) = state.segments.first_missing(wanted)
        {
            let missing = self.version.front(missing);
            let permit = self.permit_ahead(state, missing.len())?;
            let buffer = self.buffer_ahead(state, missing, missing.len())?;
            self.start(state, missing, Purpose::Hinted, Some(buffer), Some(permit));
        }
        Some(wanted)
    }

    pub(super) fn planner<'a>(&'a self, state: &'a ReaderState) -> Planner<'a> {
        let ReaderState { segments, streams, .. } = state;
        let parts = self.verifier.as_ref().and_then(|verifier| verifier.parts());
        let config = &self.shared.config;
        let bound = self.shared.ahead.congestion.bound();
        let most_bytes = bound.map_or(u64::MAX, |bound| bound.max(config.random_read_bytes));
        Planner { segments, streams, version: &self.version, parts, config, most_bytes }
    }

    /// Starts GETs for the missing bytes of `range`, because a reader waits for them.
    pub(super) fn demand(&self, state: &mut ReaderState, range: ByteRange, access: Access) {
        let mut at = state.segments.first_gap(range.start());
        while at < range.end() {
            let (get, buffer) = self.demanded(state, ByteRange::new(at, range.end()), access);
            let purpose = self.planner(state).purpose(get, access);
            self.start(state, get, purpose, buffer, None);
            at = state.segments.first_gap(get.end());
        }
    }

    /// The GET for a reader that waits for `missing`, and its buffer, if one is free at once. If none is free, the GET
    /// is no larger than the reader needs. All its bytes come from one place, the disk or the store.
    fn demanded(
        &self,
        state: &ReaderState,
        missing: ByteRange,
        access: Access,
    ) -> (ByteRange, Option<Buffer>) {
        let planner = self.planner(state);
        let is_cached = |at| self.shared.cache.contains(self.object(), at);
        let get = |whole_parts| {
            let range =
                self.with_limits(|limits| planner.demanded(missing, access, limits, whole_parts, is_cached));
            self.version.around(missing.start(), range)
        };
        let buffer = |get: ByteRange| {
            let len = usize::try_from(get.len()).unwrap_or(usize::MAX);
            self.shared.pool.try_buffer(len, Priority::Demand)
        };
        let largest = get(true);
        match buffer(largest) {
            Some(buffer) => (largest, Some(buffer)),
            None => {
                let least = get(false);
                (least, (least != largest).then(|| buffer(least)).flatten())
            }
        }
    }

    /// Calls `show` with the limits of a stream's window as they are now.
    pub(super) fn with_limits<R>(&self, show: impl FnOnce(&WindowLimits<'_>) -> R) -> R {
        let config = &self.shared.config;
        let share_bytes = self.shared.stream_share_bytes();
        let latency = |bytes| self.shared.latencies.least_lately(bytes);
        let mean = |bytes| self.shared.latencies.mean(bytes);
        let link = &self.shared.latencies.link;
        let streams = self.shared.active_streams.load(Ordering::Relaxed).max(1) as u64;
        let edge_bytes = edge_bytes(share_bytes, config);
        let requests = config.max_requests.min(USUAL) as u64;
        show(&WindowLimits {
            edge_bytes,
            share_bytes,
            streams,
            requests,
            latency: &latency,
            mean: &mean,
            queue: link.queue(),
            slow_link: link.slow(),
            full_link: link.full(),
            config,
        })
    }

    /// Starts the GETs that keep the window of stream `id` full. When requests or memory are short, the stream waits
    /// for its turn when a GET lands. Returns whether it waits so.
    pub(super) fn plan(&self, state: &mut ReaderState, id: u64, limits: &WindowLimits<'_>) -> bool {
        while let Some(stream) = state.streams.get(id) {
            // A stream that may be mere chance takes nothing from others.
            let (direction, may_take) = (stream.direction, stream.is_from_start() || !stream.is_young());
            let Some(part) = self.planner(state).next_ahead(stream, limits) else {
                let is_complete = self.planner(state).is_complete(stream);
                state.streams.note_complete(id, is_complete);
                return false;
            };
            let Some(permit) = self.permit_ahead(state, part.len()) else {
                state.streams.note_hungry(id);
                return true;
            };
            let Some(buffer) = self.buffer_ahead(state, part, limits.edge_bytes) else {
                state.is_short |= may_take;
                state.streams.note_hungry(id);
                return true;
            };
            let part = direction.first(part, buffer.as_ref().len() as u64);
            self.start(state, part, Purpose::Stream(id), Some(buffer), Some(permit));
            state.streams.planned(id, direction.seen(part, self.size()).end());
        }
        false
    }

    /// Fills the windows of hungry streams in turn, until requests or memory are short again.
    pub(super) fn plan_hungry(&self, state: &mut ReaderState) {
        while let Some(id) = state.streams.next_hungry() {
            if self.with_limits(|limits| self.plan(state, id, limits)) {
                return;
            }
        }
    }

    /// A permit for a GET of `bytes` ahead of its reader. If GETs ahead failed before, this GET is their retry, and
    /// takes a retry that readers can spare.
    pub(super) fn permit_ahead(&self, state: &mut ReaderState, bytes: u64) -> Option<AheadPermit> {
        let permit = self.shared.ahead.try_permit(bytes, self.shared.latencies.link.most_ahead_bytes())?;
        if state.given_up > 0 {
            let has_spare = self.shared.bucket.budget().take_spare(Instant::now().into_std());
            state.given_up -= u64::from(has_spare);
            return has_spare.then_some(permit);
        }
        Some(permit)
    }

    /// A buffer for `part`. If memory is free only in smaller pieces, the buffer holds a multiple of `edge_bytes` of
    /// the part.
    pub(super) fn buffer_ahead(
        &self,
        state: &mut ReaderState,
        part: ByteRange,
        edge_bytes: u64,
    ) -> Option<Buffer> {
        let (len, edge) = (usize::try_from(part.len()).ok()?, usize::try_from(edge_bytes).ok()?);
        let buffer = || self.shared.pool.try_up_to(len, edge, Priority::Prefetch);
        let keep = self.shared.pool.budget().limit_bytes() / PASSED_SHARE;
        buffer().or_else(|| (state.sweep_but(keep) > 0).then(buffer).flatten())
    }

    /// Sends one GET and notes it in the map of segments. No GET brings bytes that are in memory or in flight: if a
    /// plan asks for them after all, the GET is cut.
    pub(super) fn start(
        &self,
        state: &mut ReaderState,
        range: ByteRange,
        purpose: Purpose,
        buffer: Option<Buffer>,
        permit: Option<AheadPermit>,
    ) {
        let missing = state.segments.first_missing(range);
        debug_assert_eq!(missing, Some(range), "a plan overlaps what is there");
        let Some(range) = missing else { return };
        let id = state.next_segment();
        self.list(state);
        let (version, verifier) = (self.version.clone(), self.verifier.clone());
        let get = Get {
            shared: self.shared.clone(),
            readers: self.readers.clone(),
            reader: self.me.clone(),
            start: range.start(),
            id,
            len: range.len(),
            sent: self.now(),
            deadline: Instant::now() + self.shared.config.read_timeout,
        };
        let task = spawn(&self.shared.runtime, async move {
            let Get { shared, reader, .. } = &get;
            let result = fetch_by(verifier.as_ref(), shared, &version, range, buffer, &get).await;
            if result.is_ok() {
                permit.as_ref().inspect(|permit| permit.on_answer(&shared.latencies));
            }
            drop(permit);
            if let Some(reader) = reader.upgrade() {
                reader.landed(range.start(), id, result);
            }
        });
        state.insert(id, range, purpose, task);
        if matches!(purpose, Purpose::Stream(_)) {
            state.streams.fetched(range.len());
        }
    }
}

/// A GET in flight, which reads may join.
struct Get {
    shared: Arc<Shared>,
    readers: Arc<Readers<ObjectReader>>,
    reader: Weak<ObjectReader>,
    start: u64,
    /// The id of its segment.
    id: u64,
    len: u64,
    sent: Duration,
    deadline: Instant,
}

impl Wanted for Get {
    fn is_awaited(&self) -> bool {
        self.reader.upgrade().is_some_and(|reader| reader.lock().state.is_awaited(self.start, self.id))
    }

    fn first_deadline(&self) -> Instant {
        self.deadline
    }

    fn deadline(&self) -> Instant {
        let reader = self.reader.upgrade();
        let last = reader.and_then(|reader| reader.lock().state.last_deadline(self.start, self.id));
        last.map_or(self.deadline, |last| last.max(self.deadline))
    }

    fn look(&self) -> Next {
        let Some(reader) = self.reader.upgrade() else { return Next::Fail };
        let now = Instant::now();
        let Some(first) = reader.expire(self.start, self.id) else {
            return if now < self.deadline {
                Next::LookAt(self.deadline.min(now + LOOK))
            } else {
                Next::Fail
            };
        };
        let waited = (now + self.shared.config.read_timeout).saturating_duration_since(first);
        self.readers.reclaim_for_starved(&self.shared, waited, self.len);
        let is_starved = self.shared.ahead.congestion.has_begun_since(self.sent);
        let block = self.shared.config.random_read_bytes;
        if is_starved && reader.lock().state.is_too_long(self.start, self.id, block) {
            return Next::GiveWay;
        }
        if now < first { Next::LookAt(first.min(now + LOOK)) } else { Next::Fail }
    }

    fn reclaim(&self) {
        self.readers.reclaim(&self.shared);
    }
}
