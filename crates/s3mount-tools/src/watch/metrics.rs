//! What the tools read of a mount's metrics. Each is read by the name that stands with its definition, so a metric that
//! has another name is read by that, and one that is gone does not compile.

use std::collections::BTreeMap;

use anyhow::Context as _;
use s3mount_bucket::{
    Outcome, Rate, RateMetrics, ReadOperation, RequestMetrics, RetryMetrics, WriteOperation,
    WriteRequestMetrics,
};
use s3mount_cache::DiskMetrics;
use s3mount_fs::FsMetrics;
use s3mount_metrics::{Family, Histogram, Key, Label, Name, Number};
use s3mount_prefetch::{PrefetchMetrics, Tier};
use s3mount_shared::{MissReason, SharedMetrics};
use s3mount_system::metrics::DaemonMetrics;
use s3mount_write::WriteMetrics;
use serde_json::{Map, Value};

/// Why the shared cache did not have a range that it was asked for.
const MISSES: [MissReason; 6] = [
    MissReason::Absent,
    MissReason::Damaged,
    MissReason::Failed,
    MissReason::Resting,
    MissReason::Busy,
    MissReason::Distrusted,
];

/// What a histogram of times has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

/// Requests that have ended, by operation and by how they ended.
pub(crate) type Requests<Operation> = BTreeMap<(Operation, Outcome), u64>;

/// The metrics of a mount. What it does not show is 0: a mount without a cache has no metrics of one, and a daemon of
/// another version may lack some.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    /// Reads whose bytes were not there yet, and that have ended.
    pub(crate) read_waits: Times,
    pub(crate) found: BTreeMap<Tier, u64>,
    pub(crate) get_requests: u64,
    pub(crate) fetched_bytes: u64,
    pub(crate) wasted_bytes: u64,
    pub(crate) hedges: u64,
    pub(crate) gets_ahead: u64,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) memory_used_bytes: u64,
    pub(crate) memory_peak_bytes: u64,
    pub(crate) block_cache_bytes: u64,
    pub(crate) disk_reads: u64,
    pub(crate) disk_used_bytes: u64,
    pub(crate) disk_queued_bytes: u64,
    pub(crate) shared_hits: u64,
    pub(crate) shared_misses: u64,
    pub(crate) shared_held_bytes: u64,
    pub(crate) requests: Requests<ReadOperation>,
    pub(crate) get_times: Times,
    pub(crate) gets_in_flight: u64,
    pub(crate) lists_in_flight: u64,
    pub(crate) throttled: u64,
    pub(crate) retries: u64,
    pub(crate) stalls: u64,
    /// Requests that a rate has held back, and those that it holds back now.
    pub(crate) held: Vec<(Rate, u64, u64)>,
    pub(crate) write_requests: Requests<WriteOperation>,
    pub(crate) written_bytes: u64,
    pub(crate) uploaded_bytes: u64,
    pub(crate) uploads_in_flight: u64,
    pub(crate) upload_memory_bytes: u64,
    pub(crate) names_bytes: u64,
    pub(crate) connections: u64,
}

impl Metrics {
    /// Reads what a mount shows as JSON.
    pub(crate) fn parse(json: &str) -> anyhow::Result<Self> {
        Ok(Self::read(&mut Shown::parse(json)?))
    }

    fn read(shown: &mut Shown) -> Self {
        let reads = PrefetchMetrics::NAMES;
        let disk = DiskMetrics::NAMES;
        let shared = SharedMetrics::NAMES;
        let requests = RequestMetrics::NAMES;
        let writes = WriteMetrics::NAMES;
        let rates = RateMetrics::NAMES;
        Self {
            reads: shown.number(reads.reads),
            read_bytes: shown.number(reads.read_bytes),
            read_waits: shown.times(&reads.read_wait.into()),
            found: Tier::ALL.iter().map(|tier| (*tier, shown.number(reads.found.at(*tier)))).collect(),
            get_requests: shown.number(reads.get_requests),
            fetched_bytes: shown.number(reads.fetched_bytes),
            wasted_bytes: shown.number(reads.wasted_bytes),
            hedges: shown.number(reads.hedges),
            gets_ahead: shown.number(reads.gets_ahead),
            memory_limit_bytes: shown.number(reads.memory_limit),
            memory_used_bytes: shown.number(reads.memory_used),
            memory_peak_bytes: shown.number(reads.memory_peak),
            block_cache_bytes: shown.number(reads.block_cache),
            disk_reads: shown.number(disk.reads),
            disk_used_bytes: shown.number(disk.used_bytes),
            disk_queued_bytes: shown.number(disk.queued_bytes),
            shared_hits: shown.number(shared.hits),
            shared_misses: MISSES.iter().map(|reason| shown.number(shared.misses.at(*reason))).sum(),
            shared_held_bytes: shown.number(shared.held),
            requests: shown.requests(requests.requests, ReadOperation::ALL),
            get_times: shown.times(&requests.times.at(ReadOperation::Get)),
            gets_in_flight: shown.number(requests.in_flight.at(ReadOperation::Get)),
            lists_in_flight: shown.number(requests.in_flight.at(ReadOperation::List)),
            throttled: shown.number(requests.throttled),
            retries: shown.number(RetryMetrics::NAMES.retries),
            stalls: shown.number(RetryMetrics::NAMES.stalls),
            held: Rate::ALL
                .iter()
                .map(|rate| {
                    (*rate, shown.number(rates.held.at(*rate)), shown.number(rates.held_now.at(*rate)))
                })
                .collect(),
            write_requests: shown.requests(WriteRequestMetrics::NAMES.requests, WriteOperation::ALL),
            written_bytes: shown.number(writes.written_bytes),
            uploaded_bytes: shown.number(writes.uploaded_bytes),
            uploads_in_flight: shown.number(writes.in_flight),
            upload_memory_bytes: shown.number(writes.memory),
            names_bytes: shown.number(FsMetrics::NAMES.metadata),
            connections: shown.number(DaemonMetrics::NAMES.connections),
        }
    }
}

/// How many requests of these operations ended in these ways.
pub(crate) fn ended<Operation: Copy + Ord>(
    requests: &Requests<Operation>,
    operations: &[Operation],
    outcomes: &[Outcome],
) -> u64 {
    let pairs = operations.iter().flat_map(|operation| outcomes.iter().map(|outcome| (*operation, *outcome)));
    pairs.filter_map(|pair| requests.get(&pair)).sum()
}

/// The keys of metrics that the tools read, and that are not among those that a mount shows as JSON.
///
/// # Errors
/// When it is no JSON.
pub fn missing(json: &str) -> anyhow::Result<Vec<String>> {
    let mut shown = Shown::parse(json)?;
    Metrics::read(&mut shown);
    Ok(shown.missing)
}

/// What a mount shows of its metrics.
#[derive(Debug)]
struct Shown {
    metrics: Map<String, Value>,
    /// What was asked for in vain.
    missing: Vec<String>,
}

impl Shown {
    fn parse(json: &str) -> anyhow::Result<Self> {
        let metrics = serde_json::from_str(json)
            .context("the daemon's metrics are no JSON; it may be of another version")?;
        Ok(Self { metrics, missing: Vec::new() })
    }

    /// A counter or a gauge.
    fn number<T: Number>(&mut self, key: impl Into<Key<T>>) -> u64 {
        let key = key.into();
        let number = self.metrics.get(key.as_str()).and_then(Value::as_u64);
        self.noted(key.as_str(), number)
    }

    /// How many values a histogram has seen, and their sum.
    fn times(&mut self, key: &Key<Histogram>) -> Times {
        let histogram = self.metrics.get(key.as_str());
        let member = |name| histogram.and_then(|histogram| histogram.get(name));
        let count = member("count").and_then(Value::as_u64);
        let seconds = member("sum").and_then(Value::as_f64).unwrap_or(0.0);
        Times { count: self.noted(key.as_str(), count), seconds }
    }

    /// Requests by all of these operations, and by how they ended.
    fn requests<T: Number, Operation: Label + Ord>(
        &mut self,
        name: Name<Family<T, (Operation, Outcome)>>,
        operations: &[Operation],
    ) -> Requests<Operation> {
        let pairs =
            operations.iter().flat_map(|operation| Outcome::ALL.iter().map(|outcome| (*operation, *outcome)));
        pairs.map(|pair| (pair, self.number(name.at(pair)))).collect()
    }

    fn noted(&mut self, key: &str, found: Option<u64>) -> u64 {
        found.unwrap_or_else(|| {
            self.missing.push(key.to_owned());
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn keys_that_a_mount_does_not_show_are_named() {
        let all = missing("{}").expect("JSON");
        assert!(all.contains(&"reads_found_in_flight".to_owned()), "{all:?}");
        assert!(all.contains(&"request_seconds_get".to_owned()), "{all:?}");
        let shown = r#"{"reads_found_in_flight": 1, "request_seconds_get": {"count": 0, "sum": 0}}"#;
        let rest = missing(shown).expect("JSON");
        assert_eq!(rest.len(), all.len() - 2);
    }
}
