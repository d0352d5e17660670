//! Settings of names, as plain data.

use std::time::{Duration, SystemTime};

/// Which names are shown, and how long they are believed.
#[derive(Clone, Debug)]
pub struct NamesConfig {
    /// Only keys below this prefix are shown. It is empty, or ends in `/`.
    pub root: String,
    /// When the bucket was mounted, by the time of day: it tells how old a listing on the disk is.
    pub mounted_at: SystemTime,
    /// How long a name that a listing has shown is taken to be there.
    pub ttl: Duration,
    /// How long a name that a listing has not shown is taken to be absent.
    pub negative_ttl: Duration,
    /// Whether names never change.
    pub is_immutable: bool,
    /// Memory for the pages of listings, in bytes.
    pub limit_bytes: usize,
    /// Whether objects may be written, so that listings must not be kept for later mounts.
    pub allows_writes: bool,
    /// How long a look-up may take, including its retries. Then it fails.
    pub timeout: Duration,
}
