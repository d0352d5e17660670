//! Counts of the CRT's attempts at requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mountpoint_s3_crt::s3::client::RequestMetrics;

/// Counts of all attempts at requests. The CRT retries some by itself.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// The number of answers that asked the client to slow down.
    pub(crate) refused: AtomicU64,
    /// The number of the CRT's retries.
    pub(crate) repeated: AtomicU64,
}

impl Attempts {
    /// Counts an attempt at a request. `was_made` tells whether the CRT has made one before.
    pub(crate) fn note(&self, was_made: &AtomicBool, metrics: &RequestMetrics) {
        if matches!(metrics.status_code(), Some(429 | 503)) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        if was_made.swap(true, Ordering::Relaxed) {
            self.repeated.fetch_add(1, Ordering::Relaxed);
        }
    }
}
