//! How a disk cache is set up.

use std::path::PathBuf;

/// How a [`DiskCache`](crate::DiskCache) is set up.
#[derive(Clone, Debug, Default)]
pub struct DiskConfig {
    /// The cache directories, in any order. Objects are spread over them by their hash and by the size of the file
    /// systems.
    pub dirs: Vec<PathBuf>,
    /// How many bytes the cache may take, in all directories together. `None` leaves 5 % of each file system
    /// free.
    pub max_bytes: Option<u64>,
    /// Names the store: endpoint and bucket. Objects of another store are never found.
    pub source: String,
    /// How many bytes of the pool may wait to be written.
    pub queue_bytes: u64,
    /// Whether the kernel gets only files whose bytes were compared with the store's checksum.
    pub only_compared: bool,
}
