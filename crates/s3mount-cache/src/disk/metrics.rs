//! The metrics of the disk cache.

use s3mount_metrics::{Counter, Family, Gauge, labels, metrics};

labels! {
    /// What the disk holds of a version that is opened.
    pub enum Coverage("found") {
        /// All of it.
        Whole = "whole",
        /// Some blocks of it.
        Partial = "part",
        /// None of it.
        Nothing = "nothing",
    }
}

labels! {
    /// Why bytes of the store were not written to the disk.
    pub enum Dropped("reason") {
        /// As many bytes as may wait were waiting.
        Queue = "queue",
        /// Readers needed the memory that the bytes took.
        Memory = "memory",
        /// The cache is full, and nothing in it may go.
        Room = "room",
        /// The disk does not work as it should.
        Disk = "disk",
        /// Another process fetches the object.
        Filled = "filled",
        /// The object is longer than a file can be there.
        Long = "long",
    }
}

labels! {
    /// How a directory of the disk cache is.
    pub enum DiskState("state") {
        /// It is read and written.
        Healthy = "healthy",
        /// It is read. Nothing is added until there is room again.
        Full = "full",
        /// It is read. Nothing is added, because it can't be written.
        Unwritable = "unwritable",
        /// Its reads take several times what the store takes. It is left alone for a while.
        Slow = "slow",
        /// Operations fail or hang. It is used less.
        Failing = "failing",
        /// Operations fail or hang. It is not used until a probe succeeds.
        Off = "off",
        /// The directory was deleted, and can't be made again. It is not used.
        Gone = "gone",
    }
}

/// All of them.
pub(crate) const STATES: [DiskState; 7] = [
    DiskState::Healthy,
    DiskState::Full,
    DiskState::Unwritable,
    DiskState::Slow,
    DiskState::Failing,
    DiskState::Off,
    DiskState::Gone,
];

metrics! {
    /// What the disk cache does.
    pub struct DiskMetrics {
        /// Versions that were looked for in the disk cache, by what was found.
        looks: Family<Counter, Coverage> = ("s3mount_disk_cache_looks_total", Count, Experimental),
        /// Reads that the disk cache answered.
        reads: Counter = ("s3mount_disk_cache_reads_total", Count, Experimental),
        /// Bytes that the disk cache answered reads with.
        read_bytes: Counter = ("s3mount_disk_cache_read_bytes_total", Bytes, Experimental),
        /// Bytes of the store that were written to the disk.
        written_bytes: Counter = ("s3mount_disk_cache_written_bytes_total", Bytes, Experimental),
        /// Bytes of the store that were not written to the disk, by reason.
        dropped_bytes: Family<Counter, Dropped> = ("s3mount_disk_cache_dropped_bytes_total", Bytes, Experimental),
        /// Files of the disk cache that were deleted because their bytes were wrong.
        corrupt: Counter = ("s3mount_disk_cache_corrupt_files_total", Count, Experimental),
        /// Files of the disk cache that were deleted because the disk could not read them.
        unreadable: Counter = ("s3mount_disk_cache_unreadable_files_total", Count, Experimental),
        /// Objects that were evicted from the disk cache.
        evicted: Counter = ("s3mount_disk_cache_evicted_total", Count, Experimental),
        /// Bytes of the disk that evictions gave back.
        evicted_bytes: Counter = ("s3mount_disk_cache_evicted_bytes_total", Bytes, Experimental),
        /// Bytes of the disk that the cache takes, counted for all mounts that share it.
        used_bytes: Gauge = ("s3mount_disk_cache_used_bytes", Bytes, Experimental),
        /// Directories of the disk cache, by how they are.
        directories: Family<Gauge, DiskState> = ("s3mount_disk_cache_directories", Count, Experimental),
        /// Bytes that wait to be written to the disk.
        queued_bytes: Gauge = ("s3mount_disk_cache_queued_bytes", Bytes, Experimental),
    }
}
