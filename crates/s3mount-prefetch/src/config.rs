//! Settings of the read path, as plain data.

use std::time::Duration;

/// How much is fetched at once, and how far ahead.
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
    /// A read that has no answer after this long, retries included, fails.
    pub read_timeout: Duration,
    /// The share of all GETs that may be sent a second time because they are slow; with 0 none is.
    pub hedge_share: f64,
    /// At most this many GETs are in flight at once, and fewer while the store asks to slow down. An eighth
    /// of them is kept for GETs that readers wait for. Of GETs ahead of their readers 64 are in flight, and
    /// more as long as that makes them take no longer.
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
