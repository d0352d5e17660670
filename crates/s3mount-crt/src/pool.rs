//! Lending: the CRT writes each part into the buffer that its caller brought.
//!
//! The CRT asks its pool for memory when it prepares a request, and tells which request it is
//! for. So a caller's buffer is put down here under the request's id, and the pool hands out that
//! one: it never waits, and never allocates (but for the request that keeps connections open, which waits
//! here for its end).
//!
//! A request asks once. It asks for its range's length, and keeps its ticket when the CRT tries it
//! again (`s_s3_client_retry_ready` prepares it anew without the pool), so a retry writes into the
//! same buffer from the front. Only an answer whose `Content-Range` begins elsewhere makes the CRT
//! invent more requests under the same id; those get memory of their own from the heap, and are
//! cancelled as soon as the headers are seen. A buffer that the CRT lets go is therefore never put
//! down again: it goes straight back to its lender.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mountpoint_s3_crt::s3::client::MetaRequest;
use mountpoint_s3_crt::s3::pool::{Cancellation, CancellationToken, MemoryPool};
use s3mount_object::PartBuffer;

use crate::warm::{self, Warm};

/// Buffers by the id of the request they were brought for. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LendingPool {
    lent: Arc<Mutex<HashMap<u64, Box<dyn PartBuffer>>>>,
    warm: Arc<Warm>,
}

impl std::fmt::Debug for LendingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LendingPool").field("waiting", &self.lock().len()).finish()
    }
}

impl LendingPool {
    /// Nothing is lent yet. The request that keeps connections open waits here as long as `warm` says.
    pub(crate) fn new(warm: Arc<Warm>) -> Self {
        Self { lent: Arc::default(), warm }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Box<dyn PartBuffer>>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `buffer` down for the request `id`.
    pub(crate) fn lend(&self, id: u64, buffer: Box<dyn PartBuffer>) {
        self.lock().insert(id, buffer);
    }

    /// Takes it back, if the CRT has not asked for it.
    pub(crate) fn take_back(&self, id: u64) {
        let buffer = self.lock().remove(&id);
        // Not under the lock: it goes to a pool of its own.
        drop(buffer);
    }
}

/// What the CRT writes a body into.
pub(crate) enum BodyBuffer {
    Lent { buffer: Box<dyn PartBuffer>, len: usize },
    Own(Vec<u8>),
}

impl AsMut<[u8]> for BodyBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            // Exactly what was asked for, so that a longer body is an error and no overrun. No panic
            // here, in the CRT's thread: too short a buffer becomes an empty one, which is refused.
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
        if meta_request.custom_id() == Some(warm::ID) {
            self.warm.kept().await;
            meta_request.cancel();
        }
        let lent = meta_request.custom_id().and_then(|id| self.lock().remove(&id));
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
