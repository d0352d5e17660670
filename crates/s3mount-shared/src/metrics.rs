//! The metrics of the shared tier.

use s3mount_metrics::{Counter, Family, Gauge, Histogram, bounds, labels, metrics};

labels! {
    /// Why the tier did not serve a range.
    pub enum MissReason("reason") {
        /// The block is not there.
        Absent = "absent",
        /// The block does not match its checksums.
        Damaged = "damaged",
        /// The request failed, or was not answered in time.
        Failed = "failed",
        /// The tier was asked for too much, for as long as it was waited for.
        Throttled = "throttled",
        /// The tier was left alone after failures.
        Resting = "resting",
        /// There was no memory for the request, or it could not be sent.
        Busy = "busy",
        /// Wrong bytes of the version came before.
        Distrusted = "distrusted",
    }
}

labels! {
    /// What became of a lease that was asked for.
    pub enum LeaseOutcome("outcome") {
        /// This mount fetches the block for all.
        Held = "held",
        /// Another mount fetches the block.
        Taken = "taken",
        /// The request failed.
        Failed = "failed",
    }
}

labels! {
    /// What became of a block that was to be uploaded.
    pub enum PutOutcome("outcome") {
        /// It was written.
        Written = "written",
        /// Another mount was first.
        Exists = "exists",
        /// The request failed.
        Failed = "failed",
        /// It was given up before: memory was short, or the tier was left alone.
        Dropped = "dropped",
    }
}

metrics! {
    /// What the shared tier serves, and what is written to it.
    pub struct SharedMetrics {
        /// Ranges that the shared tier served.
        hits: Counter = ("s3mount_shared_hits_total", Count, Stable),
        /// Bytes of these ranges.
        hit_bytes: Counter = ("s3mount_shared_hit_bytes_total", Bytes, Stable),
        /// Ranges that were fetched from the source because the shared tier did not serve them, by the reason.
        misses: Family<Counter, MissReason> = ("s3mount_shared_misses_total", Count, Stable),
        /// How long answered GETs to the shared tier took.
        get_times: Histogram = ("s3mount_shared_get_seconds", Seconds, Stable, bounds::REQUESTS),
        /// Leases that were asked for, by what became of them.
        leases: Family<Counter, LeaseOutcome> = ("s3mount_shared_leases_total", Count, Experimental),
        /// How long blocks were waited for that another mount had promised.
        wait_times: Histogram = ("s3mount_shared_wait_seconds", Seconds, Experimental, bounds::REQUESTS),
        /// Blocks that were to be uploaded, by what became of them.
        puts: Family<Counter, PutOutcome> = ("s3mount_shared_puts_total", Count, Stable),
        /// Blocks that were fetched whole from the source, behind random reads.
        fills: Counter = ("s3mount_shared_fills_total", Count, Experimental),
        /// How many bytes of `--memory-limit` wait to be uploaded.
        held: Gauge = ("s3mount_shared_held_bytes", Bytes, Experimental),
        /// 1 while the shared tier is left alone after failures, otherwise 0.
        resting: Gauge = ("s3mount_shared_resting", Count, Stable),
    }
}
