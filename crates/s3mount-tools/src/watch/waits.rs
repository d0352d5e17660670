//! How long each process has waited for storage.

use std::collections::BTreeMap;

use serde::Serialize;

use super::events::Call;
use super::metrics::Metrics;
use super::processes::{Process, Processes};
use super::sample::Caller;

/// A call that takes less was answered out of memory or from a disk of this machine, and is no wait for storage.
/// Stores answer in 1 ms (in the rack) to 200 ms.
const WAIT_MICROS: i64 = 500;

/// How the daemon names a call that reads.
const READ: &str = "read";

/// The reads of some time that found their bytes not there yet, as the mount counts them. A READ of 1 MiB out of memory
/// takes longer than [`WAIT_MICROS`] where all processors are busy, and only the mount knows that it waited for nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadWaits {
    /// How many of them ended.
    count: usize,
    /// How long they waited in all, in microseconds.
    micros: i64,
}

impl ReadWaits {
    /// Those that ended between two looks at the metrics.
    pub(crate) fn between(before: &Metrics, after: &Metrics) -> Self {
        let (before, after) = (before.read_waits, after.read_waits);
        let count = after.count.saturating_sub(before.count);
        Self {
            count: usize::try_from(count).unwrap_or(usize::MAX),
            micros: ((after.seconds - before.seconds) * 1e6) as i64,
        }
    }

    /// So many that nothing is left out.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self { count: usize::MAX, micros: i64::MAX };

    /// The calls that waited for storage, each with how long it did, in microseconds. The mount does not say which of the
    /// reads waited, so the longest are taken for them, and no more than it counts.
    pub(crate) fn of(mut self, calls: &[Call]) -> Vec<(&Call, i64)> {
        let slow = calls.iter().filter(|call| call.took >= WAIT_MICROS);
        let (mut reads, others): (Vec<_>, Vec<_>) = slow.partition(|call| call.operation == READ);
        reads.sort_unstable_by_key(|call| -call.took);
        reads.truncate(self.count);
        let reads = reads.into_iter().map_while(|call| {
            let micros = call.took.min(self.micros);
            self.micros -= micros;
            (micros > 0).then_some((call, micros))
        });
        others.into_iter().map(|call| (call, call.took)).chain(reads).collect()
    }
}

/// What one process has done over some time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessWaits {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// The share of the time, from 0 to 1, that the thread of it waited for storage that waited most.
    pub(crate) share: f64,
    /// How many of its calls were answered.
    pub(crate) calls: u64,
    /// Bytes that it asked for.
    pub(crate) bytes: u64,
}

/// A span of time in microseconds from the beginning of the listening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Span {
    /// How much of it `spans` cover. They may overlap, and stand in any order.
    fn covered(self, spans: &mut [Span]) -> i64 {
        spans.sort_unstable_by_key(|span| span.from);
        let (mut covered, mut at) = (0, self.from);
        for span in spans {
            let (from, to) = (span.from.max(at), span.to.min(self.to));
            if to > from {
                covered += to - from;
                at = to;
            }
        }
        covered
    }
}

#[derive(Default)]
struct Thread {
    waits: Vec<Span>,
    calls: u64,
    bytes: u64,
}

/// What each process has done in `over`, those first that waited most. `reads` says how far its reads count as waits.
/// `callers` are those whose calls had no answer yet at its end.
pub(crate) fn by_process(
    calls: &[Call],
    reads: ReadWaits,
    callers: &[Caller],
    over: Span,
    processes: &mut Processes,
) -> Vec<ProcessWaits> {
    let mut threads = BTreeMap::<u32, Thread>::new();
    for call in calls {
        let thread = threads.entry(call.pid).or_default();
        thread.calls += 1;
        thread.bytes += if call.operation == READ { call.len } else { 0 };
    }
    for (call, micros) in reads.of(calls) {
        let thread = threads.entry(call.pid).or_default();
        thread.waits.push(Span { from: call.at, to: call.at + micros });
    }
    for caller in callers {
        let micros = (caller.waits * 1e6) as i64;
        if micros >= WAIT_MICROS {
            let thread = threads.entry(caller.pid).or_default();
            thread.waits.push(Span { from: over.to - micros, to: over.to });
        }
    }
    let length = (over.to - over.from).max(1) as f64;
    let mut found = BTreeMap::<Process, ProcessWaits>::new();
    for (tid, mut thread) in threads {
        let process = processes.of(tid);
        if process.pid == std::process::id() {
            // Whoever looks also calls.
            continue;
        }
        let share = over.covered(&mut thread.waits) as f64 / length;
        let Process { pid, name } = process.clone();
        let waits =
            found.entry(process).or_insert(ProcessWaits { pid, name, share: 0.0, calls: 0, bytes: 0 });
        waits.share = waits.share.max(share);
        waits.calls += thread.calls;
        waits.bytes += thread.bytes;
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by(|a, b| b.share.total_cmp(&a.share).then(b.bytes.cmp(&a.bytes)));
    found
}

#[cfg(test)]
mod tests {
    use super::{ReadWaits, Span, by_process};
    use crate::watch::events::Call;
    use crate::watch::metrics::Metrics;
    use crate::watch::processes::Processes;
    use crate::watch::sample::Caller;

    fn call(pid: u32, at: i64, took: i64) -> Call {
        Call { operation: "read".into(), pid, key: "k".into(), len: 10, at, took }
    }

    #[test]
    fn waits_that_overlap_count_once_and_end_with_the_time() {
        let over = Span { from: 0, to: 1_000_000 };
        let me = std::os::unix::process::parent_id();
        // Two reads of readahead at a time, one from before, and one that is not answered yet.
        let calls = [call(me, -500_000, 600_000), call(me, 200_000, 100_000), call(me, 250_000, 150_000)];
        let callers = [Caller { pid: me, waits: 0.5 }];
        let found = by_process(&calls, ReadWaits::ALL, &callers, over, &mut Processes::default());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].pid, found[0].calls, found[0].bytes), (me, 3, 30));
        assert!((found[0].share - 0.8).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn answers_out_of_memory_are_no_waits() {
        let over = Span { from: 0, to: 1_000_000 };
        let calls: Vec<_> = (0..10_000).map(|at| call(1, at * 100, 99)).collect();
        let found = by_process(&calls, ReadWaits::ALL, &[], over, &mut Processes::default());
        assert_eq!((found[0].calls, found[0].share), (10_000, 0.0));
    }

    #[test]
    fn slow_reads_out_of_memory_are_waits_only_as_far_as_the_mount_has_counted_waits() {
        let over = Span { from: 0, to: 1_000_000 };
        // A busy machine: 800 reads that take 1.1 ms each, one after the other.
        let mut calls: Vec<_> = (0..800).map(|at| call(1, at * 1_200, 1_100)).collect();
        let share = |calls: &[Call], count, micros| {
            let reads = ReadWaits { count, micros };
            by_process(calls, reads, &[], over, &mut Processes::default())[0].share
        };
        assert_eq!(share(&calls, 0, 0), 0.0, "the mount says that all was there");
        // Ten of them waited, for 1 ms each.
        assert!((share(&calls, 10, 10_000) - 0.01).abs() < 1e-3);
        // One read waited, and took 30 ms: it is the longest.
        calls.push(call(1, 960_000, 30_000));
        assert!((share(&calls, 1, 30_000) - 0.03).abs() < 1e-6);
        // Other calls have no such count, and are judged by their time.
        calls.push(Call { operation: "lookup".into(), ..call(1, 0, 200_000) });
        assert!((share(&calls, 0, 0) - 0.2).abs() < 1e-6);
    }

    #[test]
    fn waits_of_reads_are_those_that_ended_meanwhile() {
        let metrics = |count, sum: f64| {
            let json = format!(r#"{{"read_wait_seconds": {{"count": {count}, "sum": {sum}}}}}"#);
            Metrics::parse(&json).expect("JSON")
        };
        let ReadWaits { count, micros } = ReadWaits::between(&metrics(5, 1.5), &metrics(7, 1.75));
        assert_eq!((count, micros), (2, 250_000));
    }
}
