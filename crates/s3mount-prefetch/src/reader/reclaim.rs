//! How readers give memory back when others wait for it. [`crate::readers::reclaim`] keeps the books of which reader gives next.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ObjectReader;
use super::state::ReaderState;
use super::waiter::Waiter;
use crate::fetch::Wanted;
use crate::readers::Readers;
use crate::readers::reclaim::{ReclaimOrder, Spare};
use crate::shared::Shared;
use crate::sync::{Ordering, spawn};
use crate::verify::fetch_by;

impl Readers<ObjectReader> {
    /// Makes readers give back the bytes that the GETs in the pool's queue need, as far as readers can spare them.
    pub(crate) fn reclaim(&self, shared: &Shared) {
        let books = &self.books;
        let order = &mut *books.order();
        let wanted = shared.pool.wanted_bytes();
        let mut missing = if wanted > 0 { wanted.saturating_sub(order.cancelled_bytes()) } else { 0 };
        while missing > 0
            && let Some(swept) = self.visit_next(order)
        {
            missing = missing.saturating_sub(swept);
        }
        if missing > 0 {
            let given_up = shared.backfill_queue.give_way();
            if given_up > 0 {
                order.on_cancel(given_up);
            }
            missing = missing.saturating_sub(given_up);
        }
        if missing > 0 {
            missing = missing.saturating_sub(shared.shed_unwritten(missing));
        }
        if missing > 0 {
            missing = missing.saturating_sub(self.take_idle(missing, shared.started.elapsed(), order));
        }
        if missing > 0 {
            missing = missing.saturating_sub(shared.cache.shed(missing));
        }
        for is_ready in [true, false] {
            while missing > 0
                && let Some(dropped) = self.drop_next(order, is_ready, missing)
            {
                missing = missing.saturating_sub(dropped);
            }
        }
        if missing > 0 {
            let detached: usize = order.take_holders().iter().map(|reader| reader.detach_holders()).sum();
            if detached > 0 {
                tracing::debug!(detached, "memory is short: reads gave up their buffers");
            }
        }
    }
}

impl Readers<ObjectReader> {
    /// Goes on where the limit on the memory has fallen: whoever holds more than it allows gives back, and what has come
    /// back goes away. Pages that have a small piece of something do, too, as far as that is cheap to fetch again.
    pub(crate) fn fit(&self, shared: &Shared) {
        let pool = &shared.pool;
        if pool.wanted_bytes() > 0 {
            self.reclaim(shared);
        }
        let missing = pool.missing_bytes();
        if missing == 0 {
            return;
        }
        pool.settle();
        let missing = pool.missing_bytes();
        if missing > 0 {
            let order = &mut *self.books.order();
            while self.visit_next(order).is_some() {}
            self.take_idle(missing, shared.started.elapsed(), order);
            shared.cache.shed(missing);
        }
    }

    /// Visits the next reader that has changed, if there is one. Returns how many bytes it dropped, which no read is
    /// expected to need.
    fn visit_next(&self, order: &mut ReclaimOrder<ObjectReader>) -> Option<u64> {
        let (id, listed) = self.books.next_listed()?;
        let Some(reader) = listed.upgrade() else {
            order.forget(id);
            return Some(0);
        };
        self.books.visits.fetch_add(1, Ordering::Relaxed);
        let (swept, spare) = reader.visit();
        order.note(id, listed, spare);
        Some(swept)
    }

    /// Makes the next reader drop one part that it could spare, ready or in flight, if there is such a reader. Returns
    /// how many bytes the part had.
    fn drop_next(&self, order: &mut ReclaimOrder<ObjectReader>, is_ready: bool, wanted: u64) -> Option<u64> {
        let (id, reader) = order.next(is_ready, wanted)?;
        self.books.visits.fetch_add(1, Ordering::Relaxed);
        let (dropped, spare) = reader.drop_far_end(is_ready, wanted);
        self.books.dropped_bytes.fetch_add(dropped, Ordering::Relaxed);
        order.note(id, reader.me.clone(), spare);
        if !is_ready {
            order.on_cancel(dropped);
        }
        Some(dropped)
    }

    /// Cancels all GETs ahead that nobody waits for, if a read that has waited for `waited`, for a GET of `bytes`, is
    /// starved. It is not where it waits for the disk.
    pub(super) fn reclaim_for_starved(&self, shared: &Shared, waited: Duration, bytes: u64) {
        let mean = shared.latencies.mean(bytes);
        let asks_store = shared.latencies.link.has_in_flight_beside(0);
        if !asks_store || !shared.ahead.congestion.on_wait(waited, mean, shared.started.elapsed()) {
            return;
        }
        tracing::debug!(?waited, "nothing came for seconds: cancelling all GETs ahead");
        let order = &mut *self.books.order();
        // Readers that are read meanwhile list themselves anew.
        for _ in 0..self.books.listed() {
            self.visit_next(order);
        }
        while self.drop_next(order, false, u64::MAX).is_some() {}
    }
}

/// The GET of one read, which no other read joins.
struct Detached {
    shared: Arc<Shared>,
    readers: Arc<Readers<ObjectReader>>,
    deadline: Instant,
}

impl Wanted for Detached {
    fn is_awaited(&self) -> bool {
        true
    }

    fn first_deadline(&self) -> Instant {
        self.deadline
    }

    fn reclaim(&self) {
        self.readers.reclaim(&self.shared);
    }
}

impl ObjectReader {
    /// Lists this reader as changed, unless it is listed already.
    pub(super) fn list(&self, state: &mut ReaderState) {
        if !std::mem::replace(&mut state.is_listed, true) {
            self.readers.books.list(self.id, self.me.clone());
        }
    }

    /// Drops the segments that no read is expected to need. Returns how many bytes they had, and what else the reader
    /// could spare.
    pub(crate) fn visit(&self) -> (u64, Spare) {
        let state = &mut self.lock().state;
        (state.is_listed, state.was_visited) = (false, true);
        let swept = state.sweep();
        (swept, state.spare())
    }

    /// Drops one of the parts that will be read last, ready or in flight. The part is as small as `wanted` bytes allow.
    /// Returns its length, or 0 when there is none, and what else the reader could spare.
    pub(crate) fn drop_far_end(&self, is_ready: bool, wanted: u64) -> (u64, Spare) {
        let state = &mut self.lock().state;
        let dropped = state.drop_far_end(is_ready, wanted, &self.shared.config);
        (dropped, state.spare())
    }

    /// Makes waiting reads give up the buffers that they hold. A GET of its own, for all its bytes, then answers each
    /// such read. That GET needs one buffer, and the read holds none while the GET waits for it. Returns the number of
    /// such reads.
    pub(crate) fn detach_holders(&self) -> usize {
        let detached: Vec<Waiter> = {
            let state = &mut self.lock().state;
            self.list(state);
            state.take_holders()
        };
        let count = detached.len();
        for Waiter { progress, reply, since } in detached {
            let (me, version, verifier) = (self.me.clone(), self.version.clone(), self.verifier.clone());
            let limit = self.shared.config.read_timeout;
            let (shared, readers, deadline) = (self.shared.clone(), self.readers.clone(), since + limit);
            let get = Detached { shared, readers, deadline };
            drop(progress.found);
            spawn(&self.shared.runtime, async move {
                let shared = &get.shared;
                let result = fetch_by(verifier.as_ref(), shared, &version, progress.range, None, &get).await;
                let result = result.map_err(|failure| failure.into_error(limit));
                if let (Err(error), Some(reader)) = (&result, me.upgrade()) {
                    reader.note_end(error);
                }
                shared.metrics.read_wait.note_time(since.elapsed());
                reply(result.as_deref().map_err(Clone::clone));
            });
        }
        count
    }
}
