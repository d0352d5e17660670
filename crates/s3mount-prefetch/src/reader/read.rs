//! The path of a read: it collects the bytes in memory, waits for the bytes in flight, and is answered.

use bytes::Bytes;
use s3mount_object::ByteRange;
use tokio::time::Instant;

use super::seam::Seam;
use super::state::{Landed, ReaderState, Step};
use super::waiter::{FoundBytes, Progress, Waiter};
use super::{Locked, ObjectReader};
use crate::fetch::Failure;
use crate::reader::segment::Purpose;
use crate::stream::{Access, BEHIND_BYTES};
use crate::{ReadError, Tier};

impl ObjectReader {
    pub(super) fn read_as<R>(&self, offset: u64, len: usize, access: Option<Access>, reply: R)
    where
        R: FnOnce(Result<&[u8], ReadError>) + Send + 'static,
    {
        let end = offset.saturating_add(len as u64).min(self.size());
        let metrics = &self.shared.metrics;
        metrics.reads.inc();
        metrics.read_bytes.add(end.saturating_sub(offset));
        if offset >= end {
            return reply(Ok(&[]));
        }
        let range = ByteRange::new(offset, end);
        let mut guard = self.lock();
        let locked = &mut *guard;
        let state = &mut locked.state;
        if let Some(error) = state.stale.clone().or_else(|| state.just_failed(offset, || self.now())) {
            drop(guard);
            return reply(Err(error));
        }
        let access = access.unwrap_or_else(|| state.streams.on_read(range, &self.shared.config));
        state.pay_candidates(self.shared.pool.budget());
        let mut progress =
            Progress { range, at: offset, access, tier: Tier::Window, found: FoundBytes::None };
        let waits_on = self.advance(state, &mut progress);
        metrics.found.at(progress.tier).inc();
        let seam = match access {
            Access::Stream(id) => self.fill_window(locked, id, range, waits_on.is_some()),
            Access::Random | Access::Paged => None,
        };
        let state = &mut locked.state;
        self.count_active(state);
        self.list(state);
        let is_short = std::mem::take(&mut state.is_short);
        if let Some(start) = waits_on {
            metrics.waits.inc();
            state.wait(start, Waiter { progress, reply: Box::new(reply), since: Instant::now() });
            drop(guard);
        } else {
            drop(guard);
            progress.found.with(|bytes| reply(Ok(bytes)));
        }
        if is_short {
            self.feed();
        }
        if let Some(seam) = seam {
            self.cross(&seam);
        }
    }

    /// Fills the window of stream `id`, which has read `range` or `waits` for it. Returns what to fetch of the
    /// following objects.
    fn fill_window(&self, locked: &mut Locked, id: u64, range: ByteRange, waits: bool) -> Option<Seam> {
        let now = self.now();
        let seam = self.with_limits(|limits| {
            let state = &mut locked.state;
            state.handles.on_stream(range.start());
            if range.start() == 0 {
                self.begin(state, id, limits);
            }
            state.streams.on_answer(id, now, waits, limits);
            self.plan(state, id, limits);
            self.seam(locked, id, limits)
        });
        self.note_return(&mut locked.state);
        if range.end() == self.size() {
            self.note_reading(&mut locked.state, false);
        }
        seam
    }

    /// Collects the bytes in memory, and starts GETs for the missing ones. Returns the start of the segment in flight
    /// that the read must wait for, or `None` when the read is complete.
    fn advance(&self, state: &mut ReaderState, progress: &mut Progress) -> Option<u64> {
        let cached = |at| self.shared.cache.get(self.object(), at);
        loop {
            match state.collect(progress, cached, || self.keep_bytes()) {
                Step::Answer => return None,
                Step::WaitFor(start) => return Some(start),
                Step::Fetch(missing) => self.demand(state, missing, progress.access),
            }
        }
    }

    /// Ends a GET: the reads that waited for it go on.
    pub(super) fn landed(&self, start: u64, id: u64, result: Result<Bytes, Failure>) {
        let mut guard = self.lock();
        let state = &mut guard.state;
        let Some(landed) = state.land(start, id, result, || self.now()) else { return };
        let Landed { range, purpose, waiters, mut failing, result } = landed;
        // After a failure, the bytes are fetched anew for reads that still have time.
        let complete = self.go_on(state, waiters);
        match &result {
            Ok(bytes) => {
                if purpose == Purpose::Random {
                    self.keep_random(state, range, id, bytes);
                }
                self.plan_hungry(state);
            }
            Err(failure) if failing.is_empty() => {
                tracing::debug!(object = ?self.object(), %range, ?failure, "a GET ahead failed");
            }
            Err(_) => {}
        }
        let error = result.as_ref().err().and_then(Failure::error);
        if let Some(error) = error.filter(|error| error.is_stale()) {
            failing.extend(self.bury(state, error));
        }
        self.count_active(state);
        self.list(state);
        let is_short = std::mem::take(&mut state.is_short);
        drop(guard);
        if let Some(error) = error {
            if error.is_corrupt() {
                self.quarantine(error);
            }
            self.fail(failing, error);
        }
        for waiter in complete {
            self.shared.metrics.read_wait.note_time(waiter.since.elapsed());
            waiter.progress.found.with(|bytes| (waiter.reply)(Ok(bytes)));
        }
        if is_short {
            self.feed();
        }
        // This reader may have memory to spare now.
        if self.shared.pool.waiting() > 0 {
            self.readers.reclaim(&self.shared);
        }
    }

    /// Answers reads with an error. The caller holds no lock.
    pub(super) fn fail(&self, waiters: Vec<Waiter>, error: &ReadError) {
        for waiter in waiters {
            self.shared.metrics.read_wait.note_time(waiter.since.elapsed());
            (waiter.reply)(Err(error.clone()));
        }
    }

    /// Fails reads that waited too long for the segment `id` at `start`. Returns the next read's deadline.
    pub(super) fn expire(&self, start: u64, id: u64) -> Option<Instant> {
        let (late, next) = self.lock().state.expire(start, id, || self.now());
        self.fail(late, &ReadError::TimedOut(self.shared.config.read_timeout));
        next
    }

    /// Continues the reads that waited for a segment that has landed. Returns the complete reads.
    fn go_on(&self, state: &mut ReaderState, waiters: Vec<Waiter>) -> Vec<Waiter> {
        let mut complete = Vec::with_capacity(waiters.len());
        for mut waiter in waiters {
            match self.advance(state, &mut waiter.progress) {
                Some(start) => state.wait(start, waiter),
                None => {
                    if let Access::Stream(id) = waiter.progress.access {
                        state.streams.answered(id, self.now());
                    }
                    complete.push(waiter);
                }
            }
        }
        complete
    }

    /// The bytes of consumed segments that stay for readers just behind: none while a read waits for memory.
    fn keep_bytes(&self) -> u64 {
        if self.shared.pool.waiting() > 0 {
            return 0;
        }
        BEHIND_BYTES.min(self.shared.pool.budget().limit_bytes() / 16)
    }

    /// Moves the blocks of a random read to the cache. If the cache does not admit them, the segment stays for a
    /// moment, for the read of the next page.
    fn keep_random(&self, state: &mut ReaderState, range: ByteRange, id: u64, bytes: &Bytes) {
        let start = range.start();
        self.shared.cache.insert(self.object(), self.size(), range, bytes);
        if self.shared.cache.contains(self.object(), start) {
            state.segments.remove(start, id);
        } else if let Some(segment) = state.segments.get_mut(start) {
            segment.served.note(range);
            let key = segment.key();
            state.consume(key, self.keep_bytes());
        }
    }
}
