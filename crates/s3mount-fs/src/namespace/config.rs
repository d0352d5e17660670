//! Settings of names, as plain data.

use std::time::{Duration, SystemTime};

/// Which names are shown, and how long they are believed.
#[derive(Clone, Debug)]
pub(crate) struct NamesConfig {
    /// Only keys below this prefix are shown. It is empty, or ends in `/`.
    pub(crate) root: String,
    /// When the bucket was mounted: a listing on the disk is as old as that at most, if names never change.
    pub(crate) mounted_at: SystemTime,
    /// How long a name that a listing has shown is taken to be there.
    pub(crate) ttl: Duration,
    /// How long a name that a listing has not shown is taken to be absent.
    pub(crate) negative_ttl: Duration,
    /// Whether names never change.
    pub(crate) is_immutable: bool,
    /// Memory for the pages of listings, in bytes.
    pub(crate) limit_bytes: usize,
    /// Whether objects may be written, so that listings must not be kept for later mounts.
    pub(crate) allows_writes: bool,
    /// How long a look-up may take, including its retries. Then it fails.
    pub(crate) timeout: Duration,
}
