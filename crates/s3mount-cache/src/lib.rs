//! The caches of the daemon: in memory, and on a local disk.
//!
//! - [`BlockCache`] holds blocks in memory, for random readers.
//! - [`DiskCache`] holds whole and partly fetched objects in a directory, for the next epoch and for other
//!   mounts.
//!
//! Both address bytes by version, so they need no coherency.

mod disk;
mod memory;

pub use disk::{
    CacheDir, Cached, Cleared, Described, DiskCache, DiskConfig, DiskError, DiskMetrics, DiskNote,
    DiskObject, Evicted, Listings, NameStore, NamesFile, NamesWriter, Run, Stats, Verdict, WalkError,
};
#[cfg(any(test, feature = "by-hand"))]
pub use disk::{Hand, Op, Synced};
pub use memory::BlockCache;
