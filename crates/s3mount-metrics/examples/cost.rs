//! What the metrics of one read take: nanoseconds, or instructions under callgrind
//! (`docs/decisions/0021-metrics.md`).
#![expect(clippy::print_stdout, reason = "an example shows what it does")]
#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::hint::black_box;
use std::time::Instant;

use s3mount_metrics::{Counter, Family, Histogram, bounds, labels, metrics};

labels! {
    /// As where a read finds its bytes.
    pub enum Tier("tier") {
        /// The first of four.
        Window = "window",
        /// The second.
        Cache = "cache",
        /// The third.
        InFlight = "in_flight",
        /// The fourth.
        Store = "store",
    }
}

metrics! {
    /// What a read that is answered out of memory adds to.
    pub struct ReadMetrics {
        /// As `s3mount_reads_total`.
        reads: Counter = ("s3mount_reads_total", Count, Stable),
        /// As `s3mount_read_bytes_total`.
        bytes: Counter = ("s3mount_read_bytes_total", Bytes, Stable),
        /// As `s3mount_reads_found_total`.
        found: Family<Counter, Tier> = ("s3mount_reads_found_total", Count, Stable),
        /// As `s3mount_fuse_seconds`.
        seconds: Histogram = ("s3mount_fuse_seconds", Seconds, Stable, bounds::ANSWERS),
    }
}

fn main() {
    let reads: u32 = std::env::args().nth(1).and_then(|reads| reads.parse().ok()).unwrap_or(5_000_000);
    let metrics = ReadMetrics::default();
    let began = Instant::now();
    for read in 0..reads {
        metrics.reads.inc();
        metrics.bytes.add(black_box(4096));
        metrics.found.at(black_box(Tier::Cache)).inc();
        // Some answers take less than 10 µs, and most less than 30.
        metrics.seconds.note(u64::from(8_000 + (read & 7) * 2_000));
    }
    let took = began.elapsed();
    println!(
        "{} reads, {:.1} ns each",
        metrics.reads.get(),
        took.as_nanos() as f64 / f64::from(reads.max(1))
    );
}
