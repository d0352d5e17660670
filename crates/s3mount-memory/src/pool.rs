//! The pool: buffers cut from one region, for readers first.
#![expect(unsafe_code, reason = "buffers are disjoint slices of one region")]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::away::{Away, Leaving};
use crate::buddy::Buddy;
use crate::pages::{PAGE_UNITS, Pages};
use crate::queue::{Asked, Queue};
use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use crate::{MemoryBudget, Reservation, UNIT_BYTES};

/// The largest buffer, which is the largest part that may be configured.
const MAX_BUFFER_BYTES: usize = 64 << 20;

/// The purpose of a request for memory, the most urgent first.
///
/// Buffers of both kinds can be given back: a reader gets its answer soon, and what was read ahead can be
/// fetched again. Callers that can't give their buffers back, such as files that are being written, take them
/// through a [`Share`](crate::Share), which has a bound. Otherwise readers and uploads could wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A reader waits for the buffer. It may take the last byte.
    Demand,
    /// The buffer is for reading ahead. It leaves a reserve for readers, and is refused while a reader queues.
    Prefetch,
}

/// [`Priority::Prefetch`] leaves this share of the limit free, so that readers get a buffer at once while windows are
/// full.
const RESERVE_SHARE: u64 = 16;

/// All payload memory of the daemon: one region of the budget's size. Cheap to clone.
///
/// Where the budget's limit may change, the region is as large as the highest limit, and what is above the limit of now
/// is *away*: given back to the kernel, for other processes ([`set_limit`](Self::set_limit)).
#[derive(Clone, Debug)]
pub struct BufferPool(Arc<SharedPool>);

#[derive(Debug)]
struct SharedPool {
    region: Region,
    budget: MemoryBudget,
    max_buffer_bytes: usize,
    state: Mutex<FreeMemory>,
    waiting: AtomicU64,
}

#[derive(Debug)]
struct FreeMemory {
    buddy: Buddy,
    pages: Pages,
    /// Readers that wait.
    queue: Queue<Buffer>,
    /// Unset where the limit stays as it is.
    away: Option<Away>,
}

/// How many whole units `bytes` are.
fn units_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX) / UNIT_BYTES
}

impl BufferPool {
    /// A pool as large as the budget's highest limit, rounded down to whole units. Nothing is resident yet.
    ///
    /// # Errors
    /// The kernel's error, when that much address space is not available; `InvalidInput` when the limit is
    /// below one unit.
    pub fn new(budget: MemoryBudget) -> io::Result<Self> {
        let (least, units) = (units_of(budget.least_bytes()), units_of(budget.most_bytes()));
        if least == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "memory limit is below one buffer unit"));
        }
        let max_order = (MAX_BUFFER_BYTES / UNIT_BYTES).min(least).ilog2();
        let region = Region::new(units * UNIT_BYTES)?;
        let buddy = Buddy::new(units, max_order);
        let away = budget.is_adjustable().then(|| Away::new(units));
        let state = FreeMemory { buddy, pages: Pages::new(units * UNIT_BYTES), queue: Queue::new(), away };
        let least_bytes = budget.least_bytes();
        let pool = Self(Arc::new(SharedPool {
            region,
            budget,
            max_buffer_bytes: UNIT_BYTES << max_order,
            state: Mutex::new(state),
            waiting: AtomicU64::new(0),
        }));
        pool.set_limit(least_bytes);
        Ok(pool)
    }

    /// The budget that the buffers are charged to.
    pub fn budget(&self) -> &MemoryBudget {
        &self.0.budget
    }

    /// The largest buffer that can be asked for, in bytes.
    pub fn max_buffer_bytes(&self) -> usize {
        self.0.max_buffer_bytes
    }

    /// How many readers wait for memory now.
    pub fn waiting(&self) -> u64 {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// How many bytes the readers that wait have asked for.
    pub fn waiting_bytes(&self) -> u64 {
        lock(&self.0.state).queue.bytes()
    }

    /// How many bytes have to be given back so that all readers that wait can be served, and no more is used than the
    /// limit allows. 0 when none waits, unless the limit has fallen.
    pub fn wanted_bytes(&self) -> u64 {
        let state = lock(&self.0.state);
        let (limit, used) = (self.0.budget.limit_bytes(), self.0.budget.used_bytes());
        // The free memory may lie in pieces that are too small for the first reader.
        (state.queue.bytes() + used).saturating_sub(limit).max(state.queue.first_bytes())
    }

    /// A buffer of `len` bytes if there is room for it now.
    ///
    /// # Panics
    /// When `len` is 0 or above [`max_buffer_bytes`](Self::max_buffer_bytes): the caller chooses it.
    pub fn try_buffer(&self, len: usize, priority: Priority) -> Option<Buffer> {
        self.try_up_to(len, len, priority)
    }

    /// A buffer of `len` bytes if there is room for it now. Where that much is free, but only in
    /// smaller pieces, the buffer is as large as the largest of these, in multiples of `unit` bytes.
    ///
    /// # Panics
    /// As [`try_buffer`](Self::try_buffer), and when `unit` is 0.
    pub fn try_up_to(&self, len: usize, unit: usize, priority: Priority) -> Option<Buffer> {
        let mut state = lock(&self.0.state);
        let keep_free = match priority {
            Priority::Demand if state.queue.is_empty() => 0,
            Priority::Prefetch if state.queue.is_empty() => self.0.budget.limit_bytes() / RESERVE_SHARE,
            // A reader that came earlier is served first.
            Priority::Demand | Priority::Prefetch => return None,
        };
        self.cut_up_to(&mut state, len, unit, keep_free)
    }

    /// A buffer of `len` bytes for a reader, as soon as there is room for it. The call itself takes the place in the
    /// queue, and dropping the future gives the place up. The wait has no deadline of its own. Dropping a
    /// [`Reservation`] without a buffer wakes no waiter: the future sees that memory when it is polled next.
    ///
    /// # Panics
    /// As [`try_buffer`](Self::try_buffer).
    pub fn buffer(&self, len: usize) -> BufferFuture<'_> {
        self.ask(Asked { len, unit: len, is_shared: false })
    }

    /// A buffer for a share, as soon as `len` bytes are free. It may be shorter, as that of
    /// [`try_up_to`](Self::try_up_to).
    pub(crate) fn shared_up_to(&self, len: usize, unit: usize) -> BufferFuture<'_> {
        self.ask(Asked { len, unit, is_shared: true })
    }

    fn ask(&self, asked: Asked) -> BufferFuture<'_> {
        let receiver = {
            let mut state = lock(&self.0.state);
            if state.queue.is_empty()
                && let Some(buffer) = self.cut_up_to(&mut state, asked.len, asked.unit, 0)
            {
                return BufferFuture(Request::Served(Some(buffer)));
            }
            state.queue.push(asked)
        };
        // It may fit into free memory that the first in the queue can't use.
        self.serve();
        BufferFuture(Request::Queued(self, receiver))
    }

    /// Counts one more tick for [`trim`](Self::trim). The housekeeper calls it.
    pub fn tick(&self) {
        lock(&self.0.state).pages.tick();
    }

    /// Gives back to the kernel the memory of one batch of huge pages that no buffer has used for `unused_ticks`.
    /// Returns how many bytes that were. Call it again until it returns 0.
    pub fn trim(&self, unused_ticks: u32) -> u64 {
        let batch = {
            let FreeMemory { buddy, pages, queue, .. } = &mut *lock(&self.0.state);
            if !queue.is_empty() {
                return 0;
            }
            pages.take_unused(buddy, unused_ticks)
        };
        for (start, len) in batch.ranges() {
            // SAFETY: the batch has taken these bytes out of the allocator, so no buffer has them.
            unsafe { self.0.region.release(start, len) };
        }
        let bytes = batch.bytes();
        if bytes > 0 {
            let FreeMemory { buddy, pages, .. } = &mut *lock(&self.0.state);
            pages.give_back(buddy, batch);
        }
        // A reader that came meanwhile may have missed these bytes.
        self.serve();
        bytes
    }

    /// Changes the budget's limit to `bytes`, or to what is nearest of what it may be, in steps of huge pages. Returns how
    /// many bytes of the region are away now.
    ///
    /// Where the limit falls, nothing more is handed out above it from now on, and what is free of the rest goes away.
    /// What buffers have goes as they come back: call it again, or [`settle`](Self::settle), until
    /// [`missing_bytes`](Self::missing_bytes) is 0. Where it rises, what was away comes back, and readers that wait are served.
    pub fn set_limit(&self, bytes: u64) -> u64 {
        let budget = &self.0.budget;
        let (least, most) = (budget.least_bytes(), budget.most_bytes());
        let page = HUGE_PAGE_BYTES as u64;
        let away = (most - bytes.clamp(least, most)).div_ceil(page).min((most - least) / page);
        {
            let FreeMemory { buddy, away: known, .. } = &mut *lock(&self.0.state);
            // Nobody cuts meanwhile, so the order of these is of no matter.
            if let Some(known) = known {
                known.want(usize::try_from(away).unwrap_or(usize::MAX), buddy);
                budget.set_limit(most - away * page);
            }
        }
        self.settle()
    }

    /// Lets go away what has become free since the limit fell. Returns how many bytes of the region are away now.
    pub fn settle(&self) -> u64 {
        let mut below = usize::MAX;
        loop {
            let leaving = {
                let FreeMemory { buddy, pages, away, .. } = &mut *lock(&self.0.state);
                let Some(away) = away else { return 0 };
                away.take(buddy, pages, (0, below))
            };
            if leaving.batch.0.is_empty() {
                break;
            }
            below = leaving.below;
            self.release(leaving);
        }
        // Readers that came meanwhile may have missed what has come back.
        self.serve();
        self.away_bytes()
    }

    /// Gives pages that leave back to the kernel.
    fn release(&self, leaving: Leaving) {
        for (start, len) in leaving.batch.ranges() {
            // SAFETY: these bytes were taken out of the allocator, so no buffer has them.
            unsafe { self.0.region.release(start, len) };
        }
        let FreeMemory { buddy, pages, away, .. } = &mut *lock(&self.0.state);
        if let Some(away) = away {
            away.arrive(leaving, buddy, pages);
        }
    }

    /// How many bytes of the region are away: no more than the others are resident.
    pub fn away_bytes(&self) -> u64 {
        lock(&self.0.state).away.as_ref().map_or(0, |away| (away.len() * HUGE_PAGE_BYTES) as u64)
    }

    /// How many more bytes are to be away than are.
    pub fn missing_bytes(&self) -> u64 {
        lock(&self.0.state).away.as_ref().map_or(0, |away| (away.missing() * HUGE_PAGE_BYTES) as u64)
    }

    /// A buffer of `len` bytes or, where that much is free in pieces, of the longest piece.
    fn cut_up_to(&self, state: &mut FreeMemory, len: usize, unit: usize, keep_free: u64) -> Option<Buffer> {
        if let Some(buffer) = self.cut(state, len, keep_free) {
            return Some(buffer);
        }
        let is_free = self.0.budget.used_bytes() + len as u64 + keep_free <= self.0.budget.limit_bytes();
        let mut halves = std::iter::successors(Some(len), |len| Some(len / 2 / unit * unit))
            .skip(1)
            .take_while(|len| *len > 0);
        is_free.then(|| halves.find_map(|len| self.cut(state, len, keep_free))).flatten()
    }

    fn cut(&self, state: &mut FreeMemory, len: usize, keep_free: u64) -> Option<Buffer> {
        assert!(0 < len && len <= self.0.max_buffer_bytes, "buffer of {len} bytes asked for");
        let units = len.div_ceil(UNIT_BYTES);
        let reservation = self.0.budget.try_reserve((units * UNIT_BYTES) as u64, keep_free)?;
        let first = state.buddy.alloc(units)?;
        let start = first * UNIT_BYTES;
        state.pages.use_units(first, units);
        if let Some(away) = &mut state.away {
            away.on_cut(first, units);
        }
        Some(Buffer { pool: self.clone(), start, len, reservation: Some(reservation) })
    }

    /// Takes back the units of a buffer, and serves the readers that wait.
    fn give_back(&self, start: usize, reservation: Reservation) {
        let units = usize::try_from(reservation.bytes()).expect("buffers fit the address space") / UNIT_BYTES;
        let leaving = {
            let mut state = lock(&self.0.state);
            let first = start / UNIT_BYTES;
            state.buddy.free(first, first + units);
            state.pages.use_units(first, units);
            drop(reservation);
            state.on_free(first, units)
        };
        if let Some(leaving) = leaving {
            self.release(leaving);
        }
        self.serve();
    }

    /// Hands out free memory to the readers that wait.
    fn serve(&self) {
        let served = {
            let mut state = lock(&self.0.state);
            if state.queue.is_empty() && self.waiting() == 0 {
                return;
            }
            // The queue is put aside because cutting changes the rest of the state.
            let mut queue = std::mem::replace(&mut state.queue, Queue::new());
            queue.forget_closed();
            let served = queue.serve(|asked| self.cut_up_to(&mut state, asked.len, asked.unit, 0));
            self.0.waiting.store(queue.len() as u64, Ordering::Relaxed);
            state.queue = queue;
            served
        };
        for (sender, buffer) in served {
            // If the reader has left meanwhile, its buffer is dropped here, which serves the next reader.
            drop(sender.send(buffer));
        }
    }
}

impl FreeMemory {
    /// Notes for [`Away`] that units are free again. Returns the pages of these that leave now.
    fn on_free(&mut self, first: usize, units: usize) -> Option<Leaving> {
        let away = self.away.as_mut()?;
        away.on_free(first, units);
        if !away.is_unsettled() {
            return None;
        }
        let pages = (first / PAGE_UNITS, (first + units).div_ceil(PAGE_UNITS));
        let leaving = away.take(&mut self.buddy, &self.pages, pages);
        (!leaving.batch.0.is_empty()).then_some(leaving)
    }
}

/// A buffer as soon as there is room for it: see [`BufferPool::buffer`].
#[derive(Debug)]
pub struct BufferFuture<'a>(Request<'a>);

/// A request for a buffer. When a request leaves the queue, those behind it move up: they may fit where it
/// did not.
#[derive(Debug)]
enum Request<'a> {
    Served(Option<Buffer>),
    Queued(&'a BufferPool, oneshot::Receiver<Buffer>),
}

impl Future for BufferFuture<'_> {
    type Output = Buffer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Buffer> {
        let buffer = match &mut self.0 {
            Request::Served(buffer) => buffer.take().expect("a future is not polled after its end"),
            Request::Queued(pool, receiver) => {
                // Memory that is given back without a buffer serves no waiter by itself.
                pool.serve();
                match Pin::new(receiver).poll(context) {
                    Poll::Ready(buffer) => {
                        buffer.expect("the queue lives as long as the pool, and serves who listens")
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        };
        self.0 = Request::Served(None);
        Poll::Ready(buffer)
    }
}

impl Drop for BufferFuture<'_> {
    fn drop(&mut self) {
        if let Request::Queued(pool, receiver) = std::mem::replace(&mut self.0, Request::Served(None)) {
            drop(receiver);
            pool.serve();
        }
    }
}

/// Some bytes of the pool, owned by one holder and given back on drop.
///
/// The content of a fresh buffer is whatever its last user left in it.
#[derive(Debug)]
pub struct Buffer {
    pool: BufferPool,
    start: usize,
    len: usize,
    reservation: Option<Reservation>,
}

impl Buffer {
    /// How many bytes of the budget it takes: its length, rounded up to whole units.
    pub fn reserved_bytes(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::bytes)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the allocator gave these bytes to this buffer alone, and `&self` excludes writes.
        unsafe { self.pool.0.region.slice(self.start, self.len) }
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the allocator gave these bytes to this buffer alone, and `&mut self` excludes
        // everybody else.
        unsafe { self.pool.0.region.slice_mut(self.start, self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.pool.give_back(self.start, reservation);
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "limit_tests.rs"]
mod limit_tests;
