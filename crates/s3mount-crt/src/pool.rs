//! The pool that lends buffers: the CRT writes each part into the buffer that the caller brought.
//!
//! When the CRT prepares a request, it asks its pool for memory and names the request. So the client stores
//! the caller's buffer here under the id of the request, and the pool gives that buffer to the CRT. For such
//! a request the pool never waits and never allocates. Only the request that keeps connections open waits
//! here, until it ends.
//!
//! A request asks for memory once, as much as its range is long. When the CRT retries the request, the
//! request keeps its ticket (`s_s3_client_retry_ready` prepares it anew without the pool), so the retry
//! writes into the same buffer from its start. If an answer has a `Content-Range` that begins elsewhere, the
//! CRT makes more requests under the same id. Those requests get memory from the heap, and they are cancelled
//! when the headers arrive. So a buffer that the CRT releases is never stored here again: it goes back to its
//! lender.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mountpoint_s3_crt::s3::client::MetaRequest;
use mountpoint_s3_crt::s3::pool::{Cancellation, CancellationToken, MemoryPool};
use s3mount_object::PartBuffer;

use crate::keep_alive::KeepAlive;

/// The lent buffers, by the id of the request they were brought for. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct LendingPool(Arc<Mutex<Lent>>);

#[derive(Default)]
struct Lent {
    buffers: HashMap<u64, Box<dyn PartBuffer>>,
    /// What the requests that keep connections open wait for.
    waits: HashMap<u64, Weak<KeepAlive>>,
}

impl std::fmt::Debug for LendingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LendingPool").field("waiting", &self.lock().buffers.len()).finish()
    }
}

impl LendingPool {
    /// The request that keeps connections open waits here as long as `keep_alive` says.
    pub(crate) fn wait_for(&self, keep_alive: &Arc<KeepAlive>) {
        self.lock().waits.insert(keep_alive.id(), Arc::downgrade(keep_alive));
    }

    /// What a request waits for that keeps connections open.
    fn wait_of(&self, id: u64) -> Option<Arc<KeepAlive>> {
        self.lock().waits.get(&id)?.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, Lent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores `buffer` for the request `id`.
    pub(crate) fn lend(&self, id: u64, buffer: Box<dyn PartBuffer>) {
        self.lock().buffers.insert(id, buffer);
    }

    /// Takes the buffer of the request `id` back, if the CRT has not asked for it.
    pub(crate) fn take_back(&self, id: u64) {
        let buffer = self.lock().buffers.remove(&id);
        // Drop the buffer without the lock: it returns to a pool of its own.
        drop(buffer);
    }
}

/// The memory into which the CRT writes a body.
pub(crate) enum BodyBuffer {
    Lent { buffer: Box<dyn PartBuffer>, len: usize },
    Own(Vec<u8>),
}

impl AsMut<[u8]> for BodyBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            // The slice is exactly as long as the CRT asked for, so a longer body is an error and no overrun.
            // This code runs in a thread of the CRT and must not panic: a buffer that is too short gives an
            // empty slice, which is refused.
            BodyBuffer::Lent { buffer, len } => (**buffer).as_mut().get_mut(..*len).unwrap_or_default(),
            BodyBuffer::Own(bytes) => bytes,
        }
    }
}

impl MemoryPool for LendingPool {
    type Buffer = BodyBuffer;

    async fn get_buffer_async(
        &self,
        size: usize,
        meta_request: &MetaRequest,
        token: CancellationToken,
    ) -> Result<BodyBuffer, Cancellation> {
        let lent = meta_request.custom_id().and_then(|id| self.lock().buffers.remove(&id));
        if lent.is_none()
            && let Some(keep_alive) = meta_request.custom_id().and_then(|id| self.wait_of(id))
        {
            keep_alive.kept().await;
            meta_request.cancel();
        }
        match lent {
            Some(buffer) if (*buffer).as_ref().len() >= size => Ok(BodyBuffer::Lent { buffer, len: size }),
            Some(_) | None if token.is_cancelled() => Err(Cancellation),
            Some(_) | None => Ok(BodyBuffer::Own(vec![0; size])),
        }
    }

    fn trim(&self) -> bool {
        false
    }
}
