//! One object version, as all its readers see it.

mod giving;
mod learning;
mod plan;
mod seam;
mod state;
mod verifying;
mod waiter;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::{Buffer, Priority};
use s3mount_object::{ByteRange, ObjectId};
use tokio::time::Instant;

use self::plan::{Planner, edge_bytes};
use self::seam::Awaited;
use self::state::{Failed, State};
use self::waiter::{Pieces, Progress, Waiter};
use crate::ahead::Ahead;
use crate::fetch::{Failure, Wanted};
use crate::need::USUAL;
use crate::prefetcher::Shared;
use crate::relief::Number;
use crate::segment::{Purpose, State as SegmentState};
use crate::stream::{Access, BEHIND_BYTES};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, lock, spawn};
use crate::verify::{Verifier, fetch_by};
use crate::window::Terms;
use crate::{ReadError, Tier};

/// Reads one object version: from memory if the bytes are there, else when their GET lands.
#[derive(Debug)]
pub struct ObjectReader {
    shared: Arc<Shared>,
    object: ObjectId,
    size: u64,
    /// What relief knows it by.
    number: Number,
    verifier: Option<Arc<Verifier>>,
    /// Set once wrong bytes of the version came.
    condemned: OnceLock<()>,
    /// Whether it is to be told what follows the object.
    is_near_end: AtomicBool,
    state: Mutex<State>,
    me: Weak<ObjectReader>,
}

/// Of the memory, the part that what streams have passed by may keep from what is read later. With an eighth
/// four workers that share a queue of records in 128 MiB fetch a tenth twice.
const PASSED_SHARE: u64 = 4;

impl ObjectReader {
    pub(crate) fn new(shared: Arc<Shared>, object: ObjectId, size: u64) -> Arc<Self> {
        let block = shared.config.random_read_bytes;
        let verify = shared.config.verify_whole;
        let verifier = verify.then(|| Arc::new(Verifier::new(object.clone(), size, block)));
        let state = State::new(size, shared.metrics.clone());
        Arc::new_cyclic(|me| Self {
            number: shared.relief.number(),
            verifier,
            condemned: OnceLock::new(),
            shared,
            object,
            size,
            is_near_end: AtomicBool::new(false),
            state: Mutex::new(state),
            me: me.clone(),
        })
    }

    /// The version it reads.
    pub fn object(&self) -> &ObjectId {
        &self.object
    }

    /// The object's size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads up to `len` bytes from `offset` and hands them to `reply`: fewer at the object's
    /// end, none behind it. Never waits: `reply` is called before this returns when the bytes are
    /// here, else later from another thread.
    pub fn read<R>(&self, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], ReadError>) + Send + 'static,
    {
        self.read_as(offset, len, None, reply);
    }

    /// Reads as [`read`](Self::read) does, and apart from all streams: what is fetched is what is asked
    /// for, rounded to blocks, even if a neighbour was read just before. A read of few pages is taken for a
    /// part of a small window: it is fetched with the next pages.
    pub fn read_apart<R>(&self, offset: u64, len: usize, reply: R)
    where
        R: FnOnce(Result<&[u8], ReadError>) + Send + 'static,
    {
        self.read_as(offset, len, Some(Access::Window), reply);
    }

    fn read_as<R>(&self, offset: u64, len: usize, access: Option<Access>, reply: R)
    where
        R: FnOnce(Result<&[u8], ReadError>) + Send + 'static,
    {
        let end = offset.saturating_add(len as u64).min(self.size);
        let metrics = &self.shared.metrics;
        metrics.reads.inc();
        metrics.read_bytes.add(end.saturating_sub(offset));
        if offset >= end {
            return reply(Ok(&[]));
        }
        let range = ByteRange::new(offset, end);
        let mut state = self.lock();
        if let Some(error) = state.stale.clone().or_else(|| state.just_failed(offset, || self.now())) {
            drop(state);
            return reply(Err(error));
        }
        let access = access.unwrap_or_else(|| state.streams.on_read(range, &self.shared.config));
        let mut progress = Progress { range, at: offset, access, tier: Tier::Window, pieces: Pieces::None };
        let waits_on = self.advance(&mut state, &mut progress);
        metrics.found.at(progress.tier).inc();
        let mut seam = None;
        if let Access::Stream(id) = access {
            let now = self.now();
            self.with_terms(|terms| {
                if offset == 0 {
                    self.begin(&mut state, id, terms);
                }
                state.streams.on_answer(id, now, waits_on.is_some(), terms);
                self.plan(&mut state, id, terms);
                seam = self.seam(&mut state, id, terms);
            });
            if end == self.size {
                self.note_reading(&mut state, false);
            }
        }
        self.count_active(&mut state);
        self.list(&mut state);
        if let Some(start) = waits_on {
            metrics.waits.inc();
            state.wait(start, Waiter { progress, reply: Box::new(reply), since: Instant::now() });
            drop(state);
        } else {
            drop(state);
            progress.pieces.with(|bytes| reply(Ok(bytes)));
        }
        if let Some(seam) = seam {
            self.cross(&seam);
        }
    }

    /// Starts the GET of the whole object, if it is small and nothing of it is here: its reader will
    /// ask for it in a moment. Nothing happens where memory is short.
    pub fn fetch_if_small(&self) {
        if self.is_small() {
            self.fetch_ahead(None);
        }
    }

    /// Starts GETs for what is missing of the bytes of `span`, its offset and length, because somebody
    /// will read them; of more than a part, the first part. Without a span it is a small object, or as
    /// much as reading ahead begins with. Returns what is here or on its way then (nothing behind the
    /// object's end), or `None` where memory or requests are short just now.
    pub fn fetch_ahead(&self, span: Option<(u64, u64)>) -> Option<ByteRange> {
        let config = &self.shared.config;
        let beginning = if self.is_small() { self.size } else { self.first_bytes() };
        let (offset, len) = span.unwrap_or((0, beginning));
        let start = offset.min(self.size);
        let wanted = ByteRange::new(start, start.saturating_add(len.min(config.part_bytes)).min(self.size));
        let mut state = self.lock();
        let mut at = wanted.start();
        while state.stale.is_none() {
            at = state.segments.first_gap(at);
            if at >= wanted.end() {
                break;
            }
            let end = state.segments.next_start(at).unwrap_or(wanted.end()).min(wanted.end());
            let gap = ByteRange::new(at, end);
            let ahead = Ahead::try_new(&self.shared, gap.len())?;
            let buffer = self.buffer_ahead(&mut state, gap, gap.len())?;
            self.start(&mut state, gap, Purpose::Stream(0), Some(buffer), Some(ahead));
        }
        Some(wanted)
    }

    /// Whether `range`, which was fetched ahead, was not read yet: it is here or on its way, or was given
    /// back because memory was short.
    pub fn is_unread(&self, range: ByteRange) -> bool {
        let mut state = self.lock();
        state.segments.covering(range.start()).is_some_and(|segment| !segment.is_consumed())
            || state.taken.iter().any(|taken| taken.contains(range.start()))
    }

    /// Gives up what was fetched ahead of `range`: nobody is expected to read it any more.
    pub fn let_go(&self, range: ByteRange) {
        self.lock().drop_told(range);
    }

    /// Whether a stream that is being read goes on with `range`.
    pub fn is_streamed(&self, range: ByteRange) -> bool {
        let end = range.end().min(self.size);
        range.start() < end && self.lock().streams.is_going_on(ByteRange::new(range.start(), end))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The time that policies count in.
    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    fn planner<'a>(&'a self, state: &'a State) -> Planner<'a> {
        let State { segments, streams, .. } = state;
        let parts = self.verifier.as_ref().and_then(|verifier| verifier.parts());
        Planner { segments, streams, size: self.size, parts, config: &self.shared.config }
    }

    /// Collects what is there. Returns the start of the segment in flight that the read has to
    /// wait for, or `None` when it is complete. GETs for whatever is missing are then on their way.
    fn advance(&self, state: &mut State, progress: &mut Progress) -> Option<u64> {
        while progress.at < progress.range.end() {
            let at = progress.at;
            let Some(segment) = state.segments.covering(at) else {
                if let Some(mut bytes) = self.shared.cache.get(&self.object, at) {
                    bytes.truncate(usize::try_from(progress.range.end() - at).unwrap_or(usize::MAX));
                    progress.at += bytes.len() as u64;
                    progress.pieces.push(bytes);
                    progress.tier = progress.tier.max(Tier::Cache);
                } else {
                    progress.tier = Tier::Store;
                    self.demand(state, ByteRange::new(at, progress.range.end()), progress.access);
                }
                continue;
            };
            let SegmentState::Ready(bytes) = &segment.state else {
                progress.tier = progress.tier.max(Tier::InFlight);
                return Some(segment.range.start());
            };
            let end = progress.range.end().min(segment.range.end());
            let offset_in = |at: u64| usize::try_from(at - segment.range.start()).unwrap_or(usize::MAX);
            progress.pieces.push(bytes.slice(offset_in(at)..offset_in(end)));
            progress.at = end;
            let first_served = segment.serve(ByteRange::new(at, end));
            let (start, id, len) = (segment.range.start(), segment.id, segment.range.len());
            let is_consumed = first_served > 0 && segment.is_consumed();
            if matches!(segment.purpose, Purpose::Stream(1..)) {
                state.streams.served(first_served);
            }
            if is_consumed {
                state.consume(start, id, len, self.keep_bytes());
            }
        }
        None
    }

    /// Starts GETs for what is missing of `range`: readers wait for them.
    fn demand(&self, state: &mut State, range: ByteRange, access: Access) {
        let mut at = range.start();
        while at < range.end() {
            at = state.segments.first_gap(at);
            if at >= range.end() {
                break;
            }
            let (get, buffer) = self.demanded(state, ByteRange::new(at, range.end()), access);
            let purpose = match access {
                Access::Stream(id) => Purpose::Stream(id),
                Access::Random | Access::Window if get.len() == self.size => Purpose::Stream(0),
                Access::Random | Access::Window => Purpose::Random,
            };
            self.start(state, get, purpose, buffer, None);
            at = get.end();
        }
    }

    /// The GET for a reader that waits for `missing`, and its buffer, if there is one at once. Where there
    /// is none, the reader waits for no larger one than it needs.
    fn demanded(&self, state: &State, missing: ByteRange, access: Access) -> (ByteRange, Option<Buffer>) {
        let planner = self.planner(state);
        let is_cached = |at| self.shared.cache.contains(&self.object, at);
        let get = |whole_parts| {
            self.with_terms(|terms| planner.demanded(missing, access, terms, whole_parts, is_cached))
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

    /// Shows what a stream may use just now.
    fn with_terms<R>(&self, show: impl FnOnce(&Terms<'_>) -> R) -> R {
        let config = &self.shared.config;
        let share_bytes = self.shared.stream_share_bytes();
        let latency = |bytes| self.shared.latencies.of(bytes);
        let mean = |bytes| self.shared.latencies.mean(bytes);
        let queue = self.shared.latencies.queue();
        let streams = self.shared.active_streams.load(Ordering::Relaxed).max(1) as u64;
        let edge_bytes = edge_bytes(share_bytes, config);
        let requests = config.max_requests.min(USUAL) as u64;
        show(&Terms {
            edge_bytes,
            share_bytes,
            streams,
            requests,
            latency: &latency,
            mean: &mean,
            queue,
            config,
        })
    }

    /// Starts the GETs that keep the window of stream `id` full. Where requests or memory are short, its
    /// turn comes when a GET lands; returns whether that is so.
    fn plan(&self, state: &mut State, id: u64, terms: &Terms<'_>) -> bool {
        while let Some(stream) = state.streams.get(id) {
            let direction = stream.direction;
            let Some(part) = self.planner(state).next_ahead(stream, terms) else {
                let is_complete = self.planner(state).is_complete(stream);
                state.streams.note_complete(id, is_complete);
                return false;
            };
            let ahead = Ahead::try_new(&self.shared, part.len());
            let Some((ahead, buffer)) =
                ahead.and_then(|ahead| Some((ahead, self.buffer_ahead(state, part, terms.edge_bytes)?)))
            else {
                state.streams.note_hungry(id);
                return true;
            };
            let part = direction.first(part, buffer.as_ref().len() as u64);
            self.start(state, part, Purpose::Stream(id), Some(buffer), Some(ahead));
            state.streams.planned(id, direction.seen(part, self.size).end());
        }
        false
    }

    /// Goes on filling the windows that were not filled, in turn, until something is short again.
    fn plan_hungry(&self, state: &mut State) {
        while let Some(id) = state.streams.next_hungry() {
            if self.with_terms(|terms| self.plan(state, id, terms)) {
                return;
            }
        }
    }

    /// A buffer for `part`, or for a number of `edge_bytes` of it where memory is free only in pieces.
    fn buffer_ahead(&self, state: &mut State, part: ByteRange, edge_bytes: u64) -> Option<Buffer> {
        let (len, edge) = (usize::try_from(part.len()).ok()?, usize::try_from(edge_bytes).ok()?);
        let buffer = || self.shared.pool.try_part(len, edge, Priority::Prefetch);
        let keep = self.shared.pool.budget().limit_bytes() / PASSED_SHARE;
        buffer().or_else(|| (state.sweep_but(keep) > 0).then(buffer).flatten())
    }

    /// Sends one GET on its way and notes it in the map.
    fn start(
        &self,
        state: &mut State,
        range: ByteRange,
        purpose: Purpose,
        buffer: Option<Buffer>,
        ahead: Option<Ahead>,
    ) {
        let id = state.next_segment();
        self.list(state);
        let (shared, me, object) = (self.shared.clone(), self.me.clone(), self.object.clone());
        let verifier = self.verifier.clone();
        let task = spawn(&self.shared.runtime, async move {
            let is_awaited = || me.upgrade().is_some_and(|reader| reader.is_awaited(range.start(), id));
            let deadline = Instant::now() + shared.config.read_timeout;
            let wanted = Wanted { deadline, is_awaited: &is_awaited };
            let result = fetch_by(verifier.as_ref(), &shared, &object, range, buffer, wanted).await;
            if result.is_ok() {
                ahead.as_ref().inspect(|ahead| ahead.on_answer());
            }
            drop(ahead);
            if let Some(reader) = me.upgrade() {
                reader.landed(range.start(), id, result);
            }
        });
        state.insert(id, range, purpose, task);
        if matches!(purpose, Purpose::Stream(1..)) {
            state.streams.fetched(range.len());
        }
    }

    /// A GET has come to its end: whoever waited for it goes on.
    fn landed(&self, start: u64, id: u64, result: Result<Bytes, Failure>) {
        let mut state = self.lock();
        let Some(segment) = state.segments.get_mut(start).filter(|segment| segment.id == id) else {
            return;
        };
        let (range, purpose) = (segment.range, segment.purpose);
        let arrived = match &result {
            Ok(bytes) => SegmentState::Ready(bytes.clone()),
            Err(_) => SegmentState::Ready(Bytes::new()),
        };
        let SegmentState::InFlight { waiters, .. } = std::mem::replace(&mut segment.state, arrived) else {
            return;
        };
        let corrupt =
            result.as_ref().err().and_then(Failure::error).filter(|error| error.is_corrupt()).cloned();
        let answers = match result {
            Ok(bytes) => {
                let answers = self.go_on(&mut state, waiters);
                if purpose == Purpose::Random {
                    self.keep_random(&mut state, range, id, &bytes);
                }
                self.plan_hungry(&mut state);
                answers
            }
            Err(Failure::GivenUp) => {
                tracing::debug!(object = ?self.object, %range, "reading ahead was given up");
                state.segments.remove(start, id);
                state.streams.unplan(range);
                // Whoever came in this moment has it fetched anew.
                self.go_on(&mut state, waiters)
            }
            Err(Failure::Read(error)) => {
                state.segments.remove(start, id);
                state.streams.unplan(range);
                if error.is_stale() {
                    state.stale = Some(error.clone());
                } else if waiters.is_empty() {
                    tracing::debug!(object = ?self.object, %range, %error, "reading ahead failed");
                } else {
                    state.failed = Some(Failed { range, at: self.now(), error: error.clone() });
                }
                waiters.into_iter().map(|waiter| (waiter, Some(error.clone()))).collect()
            }
        };
        self.count_active(&mut state);
        self.list(&mut state);
        drop(state);
        if let Some(error) = corrupt {
            self.condemn(&error);
        }
        for (waiter, error) in answers {
            self.shared.metrics.read_wait.note_time(waiter.since.elapsed());
            match error {
                None => waiter.progress.pieces.with(|bytes| (waiter.reply)(Ok(bytes))),
                Some(error) => (waiter.reply)(Err(error)),
            }
        }
        // There may be something to spare now.
        if self.shared.pool.waiting() > 0 {
            self.shared.relieve();
        }
    }

    /// Whether a reader waits for the segment at `start` called `id`.
    fn is_awaited(&self, start: u64, id: u64) -> bool {
        self.lock().is_awaited(start, id)
    }

    /// Takes the waiters of a segment that is there now one step further; returns the complete.
    fn go_on(&self, state: &mut State, waiters: Vec<Waiter>) -> Vec<(Waiter, Option<ReadError>)> {
        let mut complete = Vec::with_capacity(waiters.len());
        for mut waiter in waiters {
            match self.advance(state, &mut waiter.progress) {
                Some(start) => state.wait(start, waiter),
                None => complete.push((waiter, None)),
            }
        }
        complete
    }

    /// How much of what was consumed stays for those just behind, in bytes: nothing while somebody waits
    /// for memory.
    fn keep_bytes(&self) -> u64 {
        if self.shared.pool.waiting() > 0 {
            return 0;
        }
        BEHIND_BYTES.min(self.shared.pool.budget().limit_bytes() / 16)
    }

    /// A random read's run moves to the cache. One that the cache does not admit stays for a moment, for
    /// the read of its next page.
    fn keep_random(&self, state: &mut State, range: ByteRange, id: u64, bytes: &Bytes) {
        let start = range.start();
        self.shared.cache.insert(&self.object, self.size, range, bytes);
        if self.shared.cache.contains(&self.object, start) {
            state.segments.remove(start, id);
        } else if let Some(segment) = state.segments.get_mut(start) {
            segment.served.note(range);
            state.consume(start, id, range.len(), self.keep_bytes());
        }
    }

    fn count_active(&self, state: &mut State) {
        let active =
            state.streams.active() + usize::from(state.awaited.as_ref().is_some_and(Awaited::is_active));
        let count = &self.shared.active_streams;
        if active > state.active_streams {
            count.fetch_add(active - state.active_streams, Ordering::Relaxed);
        } else if active < state.active_streams {
            count.fetch_sub(state.active_streams - active, Ordering::Relaxed);
        }
        state.active_streams = active;
    }

    /// The housekeeper's look, once a second.
    pub(crate) fn tick(&self) {
        let mut state = self.lock();
        state.streams.tick();
        state.tick_awaited();
        state.tick_passed();
        self.count_active(&mut state);
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.shared.forget(&self.object);
        self.note_reading(&mut self.lock(), true);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.shared.active_streams.fetch_sub(state.active_streams, Ordering::Relaxed);
        state.abort_all();
        if state.was_visited {
            self.shared.relief.list(self.number, Weak::new());
        } else if state.is_listed {
            self.shared.relief.unlist(self.number);
        }
    }
}
