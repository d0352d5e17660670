//! Settings of the read path, as plain data.

use std::time::Duration;

/// The size of GETs and of the prefetch window.
#[derive(Clone, Debug)]
pub struct PrefetchConfig {
    /// The largest GET, in bytes; a multiple of 1 MiB. A window that is smaller than four of these uses
    /// smaller GETs.
    pub part_bytes: u64,
    /// A new stream's window, in bytes.
    pub initial_window_bytes: u64,
    /// The largest window, in bytes.
    pub max_window_bytes: u64,
    /// Random reads fetch whole multiples of this many bytes; a multiple of 64 KiB.
    pub random_read_bytes: u64,
    /// The first read of an object of up to this many bytes fetches it whole.
    pub small_object_bytes: u64,
    /// A read that has no answer after this time, retries included, fails.
    pub read_timeout: Duration,
    /// The share of all GETs that may be sent a second time because they are slow; 0 sends none.
    pub hedge_share: f64,
    /// The most GETs in flight at once; fewer while the store asks to slow down. An eighth is kept for GETs that
    /// readers wait for. 64 GETs ahead of their readers are in flight, and more as long as that makes none of them
    /// slower.
    pub max_requests: usize,
    /// Whether objects that are fetched in parts are compared with the store's checksums.
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
