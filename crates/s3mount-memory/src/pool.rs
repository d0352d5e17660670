//! Handing out: buffers cut from one region, for readers first.
#![expect(unsafe_code, reason = "buffers are disjoint slices of one region")]

use std::collections::VecDeque;
use std::io;

use tokio::sync::oneshot;

use crate::buddy::Buddy;
use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use crate::{MemoryBudget, Reservation, UNIT_BYTES};

/// No buffer is larger than this: the largest part that may be configured.
const MAX_BUFFER_BYTES: usize = 64 << 20;

/// Who asks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A reader waits for it: may take the last byte.
    Demand,
    /// Reading ahead: leaves a reserve for readers, and gets nothing while one queues.
    Prefetch,
}

/// All payload memory of the daemon: one region of the budget's size. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BufferPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    region: Region,
    budget: MemoryBudget,
    /// What [`Priority::Prefetch`] leaves free: one sixteenth, so that readers get a buffer at
    /// once while windows are full.
    reserve_bytes: u64,
    max_buffer_bytes: usize,
    state: Mutex<State>,
    waiting: AtomicU64,
}

#[derive(Debug)]
struct State {
    buddy: Buddy,
    /// Which huge pages of the region may be resident.
    touched: Vec<bool>,
    /// Readers that wait, in order of arrival.
    queue: VecDeque<(usize, oneshot::Sender<Buffer>)>,
}

impl BufferPool {
    /// A pool of the budget's limit, rounded down to whole units. Nothing is resident yet.
    ///
    /// # Errors
    /// The kernel's, when that much address space can't be had; `InvalidInput` when the limit is
    /// below one unit.
    pub fn new(budget: MemoryBudget) -> io::Result<Self> {
        let units = usize::try_from(budget.limit_bytes()).unwrap_or(usize::MAX) / UNIT_BYTES;
        if units == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "memory limit is below one buffer unit"));
        }
        let max_order = (MAX_BUFFER_BYTES / UNIT_BYTES).min(units).ilog2();
        let region = Region::new(units * UNIT_BYTES)?;
        let touched = vec![false; (units * UNIT_BYTES).div_ceil(HUGE_PAGE_BYTES)];
        let state = State { buddy: Buddy::new(units, max_order), touched, queue: VecDeque::new() };
        Ok(Self(Arc::new(Inner {
            region,
            reserve_bytes: budget.limit_bytes() / 16,
            budget,
            max_buffer_bytes: UNIT_BYTES << max_order,
            state: Mutex::new(state),
            waiting: AtomicU64::new(0),
        })))
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

    /// A buffer of `len` bytes if there is room for it now.
    ///
    /// # Panics
    /// When `len` is 0 or above [`max_buffer_bytes`](Self::max_buffer_bytes): the caller chooses it.
    pub fn try_buffer(&self, len: usize, priority: Priority) -> Option<Buffer> {
        let mut state = lock(&self.0.state);
        let keep_free = match priority {
            Priority::Demand if state.queue.is_empty() => 0,
            Priority::Prefetch if state.queue.is_empty() => self.0.reserve_bytes,
            // Whoever came first is served first.
            Priority::Demand | Priority::Prefetch => return None,
        };
        self.cut(&mut state, len, keep_free)
    }

    /// A buffer of `len` bytes for a reader, as soon as there is room for it. Served in order of
    /// arrival; dropping the future gives the place up. It has no deadline of its own.
    ///
    /// # Panics
    /// As [`try_buffer`](Self::try_buffer).
    pub async fn buffer(&self, len: usize) -> Buffer {
        let mut place = {
            let mut state = lock(&self.0.state);
            if state.queue.is_empty()
                && let Some(buffer) = self.cut(&mut state, len, 0)
            {
                return buffer;
            }
            let (sender, receiver) = oneshot::channel();
            state.queue.push_back((len, sender));
            self.0.waiting.store(state.queue.len() as u64, Ordering::Relaxed);
            Place { pool: self, receiver: Some(receiver) }
        };
        let receiver = place.receiver.as_mut().expect("it was just put there");
        let buffer = receiver.await.expect("the queue lives as long as the pool, and serves who listens");
        place.receiver = None;
        buffer
    }

    /// Gives the memory of free buffers back to the kernel, as far as whole huge pages of it are
    /// free. To be called when the mount has been idle for a while; returns the bytes given back.
    pub fn trim(&self) -> u64 {
        let mut state = lock(&self.0.state);
        let State { buddy, touched, .. } = &mut *state;
        let mut released = 0;
        for (unit, units) in buddy.free_blocks(HUGE_PAGE_BYTES / UNIT_BYTES) {
            let (start, len) = (unit * UNIT_BYTES, units * UNIT_BYTES);
            let (first, end) = (start / HUGE_PAGE_BYTES, (start + len) / HUGE_PAGE_BYTES);
            for (page, touched) in (first..).zip(&mut touched[first..end]) {
                if std::mem::take(touched) {
                    // SAFETY: the page belongs to a free block, and stays so while we hold the lock.
                    unsafe { self.0.region.release(page * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES) };
                    released += HUGE_PAGE_BYTES as u64;
                }
            }
        }
        released
    }

    fn cut(&self, state: &mut State, len: usize, keep_free: u64) -> Option<Buffer> {
        assert!(0 < len && len <= self.0.max_buffer_bytes, "buffer of {len} bytes asked for");
        let units = len.div_ceil(UNIT_BYTES);
        let reservation = self.0.budget.try_reserve((units * UNIT_BYTES) as u64, keep_free)?;
        let first = state.buddy.alloc(units)?;
        let start = first * UNIT_BYTES;
        let pages = start / HUGE_PAGE_BYTES..(start + units * UNIT_BYTES).div_ceil(HUGE_PAGE_BYTES);
        state.touched[pages].fill(true);
        Some(Buffer { pool: self.clone(), start, len, reservation: Some(reservation) })
    }

    /// Takes back the units of a buffer and serves who waits.
    fn give_back(&self, start: usize, reservation: Reservation) {
        let units = usize::try_from(reservation.bytes()).expect("buffers fit the address space") / UNIT_BYTES;
        {
            let mut state = lock(&self.0.state);
            let first = start / UNIT_BYTES;
            state.buddy.free(first, first + units);
            drop(reservation);
        }
        self.serve();
    }

    /// Hands out what is free to those who wait, in order.
    fn serve(&self) {
        let mut served = Vec::new();
        {
            let mut state = lock(&self.0.state);
            while let Some((len, sender)) = state.queue.front() {
                if sender.is_closed() {
                    state.queue.pop_front();
                    continue;
                }
                let len = *len;
                let Some(buffer) = self.cut(&mut state, len, 0) else { break };
                let (_, sender) = state.queue.pop_front().expect("the front was just looked at");
                served.push((sender, buffer));
            }
            self.0.waiting.store(state.queue.len() as u64, Ordering::Relaxed);
        }
        for (sender, buffer) in served {
            // One that left meanwhile drops its buffer here, which serves the next in line.
            drop(sender.send(buffer));
        }
    }
}

/// A place in the queue. Who gives it up lets those behind move up: they may fit where it did not.
struct Place<'a> {
    pool: &'a BufferPool,
    receiver: Option<oneshot::Receiver<Buffer>>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            drop(receiver);
            self.pool.serve();
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
    /// What it takes of the budget, in bytes: its length rounded up to whole units.
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
