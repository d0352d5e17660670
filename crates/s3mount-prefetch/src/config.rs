//! Settings of the read path, as plain data.

use std::time::Duration;

/// How much is fetched at once, and how far ahead.
#[derive(Clone, Debug)]
pub struct PrefetchConfig {
    /// Largest GET, in bytes; a multiple of 1 MiB. Windows below four of these use smaller ones.
    pub part_bytes: u64,
    /// A new stream's window, in bytes.
    pub initial_window_bytes: u64,
    /// The largest window, in bytes.
    pub max_window_bytes: u64,
    /// Random reads fetch whole multiples of this many bytes; a multiple of 64 KiB.
    pub random_read_bytes: u64,
    /// Objects up to this many bytes are fetched whole by their first read.
    pub small_object_bytes: u64,
    /// A read that has no answer after this long fails, retries included.
    pub read_timeout: Duration,
    /// Of all GETs, the part that may be sent a second time because they are slow; 0 for none.
    pub hedge_share: f64,
    /// At most this many GETs are in flight at once. An eighth of them is kept for GETs that readers wait
    /// for. While the store asks to slow down, fewer are. Of those ahead of their readers, 64 are in flight,
    /// and more as long as they take no longer for it.
    pub max_requests: usize,
    /// Compare objects that are fetched in parts with the checksums that the store keeps of them.
    pub verify_whole: bool,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        Self {
            part_bytes: 8 << 20,
            initial_window_bytes: 1 << 20,
            max_window_bytes: 512 << 20,
            random_read_bytes: 128 << 10,
            small_object_bytes: 1 << 20,
            read_timeout: Duration::from_secs(60),
            hedge_share: 0.05,
            max_requests: 512,
            verify_whole: false,
        }
    }
}
