//! Settings of names, as plain data.

use std::time::{Duration, SystemTime};

/// Which names are shown, and how long they are cached.
#[derive(Clone, Debug)]
pub struct NamesConfig {
    /// Only keys below this prefix are shown. It is empty, or ends in `/`.
    pub root: String,
    /// When this process has begun, by the time of day: the reference for the age of listings on the disk.
    pub started_at: SystemTime,
    /// How long a name from a listing is cached as present.
    pub ttl: Duration,
    /// How long a name that is not in a listing is cached as absent.
    pub negative_ttl: Duration,
    /// Whether names never change.
    pub is_immutable: bool,
    /// Memory for the pages of listings, in bytes.
    pub limit_bytes: usize,
    /// Whether objects may be written, so that listings must not be kept for later mounts.
    pub allows_writes: bool,
    /// Whether the store tells of changes. It did not for other mounts, so the listings that they have kept are not used.
    pub is_told: bool,
    /// The time after which a look-up fails, including its retries.
    pub timeout: Duration,
}
