//! What the prefetcher counts and measures.

use s3mount_metrics::{Counter, Family, Gauge, Histogram, bounds, labels, metrics};

labels! {
    /// Where a read found its bytes when it came. Of several places, the one that took longest.
    pub enum Tier("tier") {
        /// All in segments that were fetched for its stream, or ahead of it.
        Window = "window",
        /// In the block cache.
        Cache = "cache",
        /// A GET for them was in flight.
        InFlight = "in_flight",
        /// A GET was sent for them.
        Store = "store",
    }
}

metrics! {
    /// What readers ask for, what is fetched for them, and the memory that takes.
    pub struct PrefetchMetrics {
        /// Reads answered or failed.
        reads: Counter = ("s3mount_reads_total", Count, Stable),
        /// Reads whose bytes were not there yet.
        waits: Counter = ("s3mount_waits_total", Count, Stable),
        /// Bytes asked for by readers.
        read_bytes: Counter = ("s3mount_read_bytes_total", Bytes, Stable),
        /// Reads by where they found their bytes when they came; of several places, the one that takes
        /// longest.
        found: Family<Counter, Tier> = ("s3mount_reads_found_total", Count, Experimental),
        /// How long reads waited whose bytes were not there yet.
        read_wait: Histogram = ("s3mount_read_wait_seconds", Seconds, Stable, bounds::ANSWERS),
        /// GETs that succeeded. Where a slow GET was sent a second time, the two count as one.
        get_requests: Counter = ("s3mount_get_requests_total", Count, Stable),
        /// Bytes that these GETs brought.
        fetched_bytes: Counter = ("s3mount_fetched_bytes_total", Bytes, Stable),
        /// How many bytes each GET brought.
        part_size: Histogram = ("s3mount_part_bytes", Bytes, Experimental, bounds::SIZES),
        /// Bytes that were fetched for a stream or a hint and dropped before anybody read them. Bytes that
        /// random reads fetch beyond what they asked for stay in the block cache, and are not counted.
        wasted_bytes: Counter = ("s3mount_wasted_bytes_total", Bytes, Experimental),
        /// How wide the prefetch window was when an object had been read to its end, or was closed by its
        /// last reader.
        window_size: Histogram = ("s3mount_window_bytes", Bytes, Experimental, bounds::SIZES),
        /// Bytes that were fetched while nobody read, because the disk cache lacked them of versions that are
        /// read more than once. They are part of the bytes that GETs brought.
        refilled_bytes: Counter = ("s3mount_refilled_bytes_total", Bytes, Experimental),
        /// Second GETs, sent because the first were slow.
        hedges: Counter = ("s3mount_hedges_total", Count, Stable),
        /// Versions that were fetched in parts and matched the checksum that the store keeps (`--verify
        /// whole`).
        objects_verified: Counter = ("s3mount_objects_verified_total", Count, Stable),
        /// Versions that could not be compared with a checksum: the store keeps no CRC, or they were read in
        /// too many pieces.
        objects_unverified: Counter = ("s3mount_objects_unverified_total", Count, Stable),
        /// Versions whose bytes came wrong.
        objects_corrupt: Counter = ("s3mount_objects_corrupt_total", Count, Stable),
        /// GETs that brought wrong bytes, and were sent again before any reader got these bytes.
        refetches: Counter = ("s3mount_refetches_total", Count, Stable),
        /// Streams that take a share of the memory.
        active_streams: Gauge = ("s3mount_active_streams", Count, Experimental),
        /// GETs in flight that nobody waited for when they were sent.
        gets_ahead: Gauge = ("s3mount_gets_ahead", Count, Experimental),
        /// The limit on the memory for object data: `--memory-limit`, or what it is now with `--memory-floor`.
        memory_limit: Gauge = ("s3mount_memory_limit_bytes", Bytes, Stable),
        /// How many bytes of `--memory-limit` are taken now.
        memory_used: Gauge = ("s3mount_memory_used_bytes", Bytes, Stable),
        /// The most bytes of `--memory-limit` that were ever taken at once.
        memory_peak: Gauge = ("s3mount_memory_peak_bytes", Bytes, Stable),
        /// How many bytes of `--memory-limit` the block cache holds.
        block_cache: Gauge = ("s3mount_block_cache_bytes", Bytes, Experimental),
    }
}
