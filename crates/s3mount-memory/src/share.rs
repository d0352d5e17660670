//! A share of the pool, for callers that can't give their buffers back whenever a reader wants them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Buffer, BufferPool, Priority, UNIT_BYTES};

/// How much a caller needs a buffer of a [`Share`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The caller can't go on without it, nor give anything back. It may come from the half of the share
    /// that is kept for such callers.
    Least,
    /// The caller would go faster with it.
    More,
}

/// A bounded part of a pool's memory. Cheap to clone.
///
/// Readers can give their buffers back at any time. A file that is being written can't: its bytes are nowhere
/// else. So all such buffers together have a bound, and the rest of the pool is always the readers'. Within
/// the bound, one half is only for callers that could not go on otherwise. Both halves are first come, first
/// served.
#[derive(Clone, Debug)]
pub struct Share(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: BufferPool,
    /// Permits count [`UNIT_BYTES`].
    more: Arc<Semaphore>,
    least: Arc<Semaphore>,
    units: usize,
    waiting: AtomicU64,
}

/// A buffer of a share. Its content is whatever its last user left in it.
#[derive(Debug)]
pub struct ShareBuffer {
    // Dropped in this order: the memory is free before the share says so.
    buffer: Buffer,
    permit: OwnedSemaphorePermit,
}

struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn units(len: usize) -> u32 {
    u32::try_from(len.div_ceil(UNIT_BYTES)).expect("a buffer is far below 4 Gi units")
}

impl Share {
    /// A share of `limit_bytes` of `pool`.
    pub fn new(pool: BufferPool, limit_bytes: u64) -> Self {
        let units =
            usize::try_from(limit_bytes.min(pool.budget().limit_bytes())).unwrap_or(usize::MAX) / UNIT_BYTES;
        let least = units / 2;
        Self(Arc::new(Inner {
            pool,
            more: Arc::new(Semaphore::new(units - least)),
            least: Arc::new(Semaphore::new(least)),
            units,
            waiting: AtomicU64::new(0),
        }))
    }

    /// The bound, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        (self.0.units * UNIT_BYTES) as u64
    }

    /// How many bytes its buffers take now.
    pub fn held_bytes(&self) -> u64 {
        let free = self.0.more.available_permits() + self.0.least.available_permits();
        (self.0.units.saturating_sub(free) * UNIT_BYTES) as u64
    }

    /// How many callers wait for a buffer.
    pub fn waiting(&self) -> u64 {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// The largest buffer that it can ever give, in bytes.
    pub fn max_buffer_bytes(&self) -> usize {
        (self.0.units / 2 * UNIT_BYTES).min(self.0.pool.max_buffer_bytes())
    }

    /// A buffer of `len` bytes if there is room for it now. It leaves the pool's reserve to readers.
    ///
    /// # Panics
    /// When `len` is 0, or above the pool's largest buffer.
    pub fn try_buffer(&self, len: usize, need: Need) -> Option<ShareBuffer> {
        let more = self.0.more.clone().try_acquire_many_owned(units(len));
        let permit = match (more, need) {
            (Ok(permit), _) => permit,
            (Err(_), Need::Least) => self.0.least.clone().try_acquire_many_owned(units(len)).ok()?,
            (Err(_), Need::More) => return None,
        };
        Some(ShareBuffer { buffer: self.0.pool.try_buffer(len, Priority::Prefetch)?, permit })
    }

    /// A buffer of `len` bytes, as soon as there is room for it, first in the share and then in the pool, where
    /// it queues with the readers. `reclaim` is called when it begins to wait for the pool: others have to give
    /// memory back then. The wait has no deadline of its own.
    ///
    /// # Panics
    /// When `len` is 0, or above [`max_buffer_bytes`](Self::max_buffer_bytes).
    pub async fn buffer(&self, len: usize, need: Need, reclaim: &(dyn Fn() + Send + Sync)) -> ShareBuffer {
        assert!(len <= self.max_buffer_bytes(), "buffer of {len} bytes asked for");
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.0.waiting);
        let more = self.0.more.clone().acquire_many_owned(units(len));
        let permit = match need {
            Need::More => more.await,
            Need::Least => {
                let least = self.0.least.clone().acquire_many_owned(units(len));
                tokio::select! { biased; permit = more => permit, permit = least => permit }
            }
        };
        let permit = permit.expect("the semaphores are never closed");
        drop(waiting);
        if let Some(buffer) = self.0.pool.try_buffer(len, Priority::Prefetch) {
            return ShareBuffer { buffer, permit };
        }
        let queued = self.0.pool.buffer(len);
        reclaim();
        ShareBuffer { buffer: queued.await, permit }
    }
}

impl ShareBuffer {
    /// How many bytes of the share it takes.
    pub fn held_bytes(&self) -> u64 {
        (self.permit.num_permits() * UNIT_BYTES) as u64
    }
}

impl AsRef<[u8]> for ShareBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl AsMut<[u8]> for ShareBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut()
    }
}
