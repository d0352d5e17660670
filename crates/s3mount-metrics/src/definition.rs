//! The definition of a metric: name, unit, labels, help, stability and bounds in one place.

use crate::label::Names;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum since the mount, which only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// How many values lay below each of some bounds, and their sum.
    Histogram,
}

/// What a metric counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things: reads, requests, files.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds. Histograms keep them as nanoseconds.
    Seconds,
}

/// What users may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// The name, the labels and the meaning stay within a major version.
    Stable,
    /// It follows the code, and may go in any version.
    Experimental,
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Its name as Prometheus has it: `s3mount_`, what it is, the unit, and `_total` for a counter.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// What it counts in.
    pub unit: Unit,
    /// Its labels and their values. There is one series for each combination of values.
    pub labels: &'static [Names],
    /// One sentence or a few.
    pub help: &'static str,
    /// What users may rely on.
    pub stability: Stability,
    /// The bounds of a histogram, ascending, in [`raw`](Unit) units; empty for other metrics.
    pub bounds: &'static [u64],
}

impl Definition {
    /// The name in JSON: without `s3mount_` and `_total`.
    pub fn short_name(&self) -> &'static str {
        short(self.name)
    }

    /// The name in JSON of one series: the short name, and the values of its labels.
    pub fn key(&self, labels: &[&str]) -> String {
        key(self.name, labels)
    }

    /// What is wrong with the name or the bounds, if anything is.
    pub fn fault(&self) -> Option<&'static str> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let base = self.name.strip_suffix("_total").unwrap_or(self.name);
        if !self.name.starts_with("s3mount_") || !self.name.bytes().all(is_plain) {
            return Some("the name is s3mount_ and lower case letters");
        }
        if (self.kind == MetricKind::Counter) != self.name.ends_with("_total") {
            return Some("a counter's name ends in _total, and no other");
        }
        if base.ends_with("_bytes") != (self.unit == Unit::Bytes)
            || base.ends_with("_seconds") != (self.unit == Unit::Seconds)
        {
            return Some("the name ends in its unit");
        }
        if (self.kind == MetricKind::Histogram) == self.bounds.is_empty()
            || !self.bounds.is_sorted_by(|a, b| a < b)
        {
            return Some("a histogram has ascending bounds, and no other metric has any");
        }
        self.help.trim().is_empty().then_some("it has no help")
    }
}

/// A name without `s3mount_` and `_total`.
fn short(name: &'static str) -> &'static str {
    let name = name.strip_prefix("s3mount_").unwrap_or(name);
    name.strip_suffix("_total").unwrap_or(name)
}

/// The name in JSON of the series of the metric `name` with these values of its labels.
pub(crate) fn key(name: &'static str, labels: &[&str]) -> String {
    labels.iter().fold(short(name).to_owned(), |key, value| format!("{key}_{value}"))
}

/// Bounds of histograms.
pub mod bounds {
    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const S: u64 = 1_000_000_000;
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// Seconds, from an answer out of memory (some 10 µs) to the read time-out. Three steps for each
    /// power of a hundred suffice to see which tier has answered.
    pub const ANSWERS: &[u64] = &[
        10 * US,
        30 * US,
        100 * US,
        300 * US,
        MS,
        3 * MS,
        10 * MS,
        30 * MS,
        100 * MS,
        300 * MS,
        S,
        3 * S,
        10 * S,
        30 * S,
    ];

    /// Seconds of a request to a store: S3 answers in 10 to 200 ms, and what is slower than its peers by
    /// half should show.
    pub const REQUESTS: &[u64] = &[
        MS,
        2 * MS,
        5 * MS,
        10 * MS,
        20 * MS,
        30 * MS,
        50 * MS,
        75 * MS,
        100 * MS,
        150 * MS,
        200 * MS,
        300 * MS,
        500 * MS,
        S,
        2 * S,
        5 * S,
        10 * S,
        30 * S,
    ];

    /// Bytes, from a page to the largest window.
    pub const SIZES: &[u64] = &[
        4 * KIB,
        16 * KIB,
        64 * KIB,
        128 * KIB,
        256 * KIB,
        512 * KIB,
        MIB,
        2 * MIB,
        4 * MIB,
        8 * MIB,
        16 * MIB,
        32 * MIB,
        64 * MIB,
        256 * MIB,
        1024 * MIB,
    ];
}
