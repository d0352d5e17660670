//! What all parts of the kernel use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::draw::Draw;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// The most bytes of one READ or WRITE (`fuse_conn.max_read`, `fuse_conn.max_write`).
pub(super) const MOST_BYTES: usize = 1 << 20;

/// Locks a mutex whose holder has not panicked, or has: then the run has failed anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until when something is believed that was told just now. A time of 0 is over at once (`time_to_jiffies`).
pub(super) fn until(ttl: Duration) -> Option<Instant> {
    (!ttl.is_zero()).then(|| Instant::now() + ttl)
}

/// Whether something is still believed.
pub(super) fn is_believed(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() <= until)
}

/// How the kernel behaves where it has a choice.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    /// Decides every pause.
    pub draw: Arc<Draw>,
    /// Whether requests and answers take time. Without it, each comes at once.
    pub has_pauses: bool,
    /// Readahead of each file, in bytes.
    pub readahead_bytes: u64,
    /// Whether the mount is read-only for the kernel.
    pub is_read_only: bool,
    /// Whether the requests are recorded.
    pub keeps_record: bool,
    /// Whether it reads whole files of the disk cache by itself.
    pub has_passthrough: bool,
}

impl KernelConfig {
    /// A kernel with the readahead that s3mount sets, and with pauses.
    pub fn new(draw: Arc<Draw>) -> Self {
        Self {
            draw,
            has_pauses: true,
            readahead_bytes: 1 << 20,
            is_read_only: false,
            keeps_record: false,
            has_passthrough: false,
        }
    }
}
