//! How long each process has waited for storage.

use std::collections::BTreeMap;

use serde::Serialize;

use super::events::Call;
use super::processes::{Process, Processes};
use super::sample::Caller;

/// A call that takes less was answered out of memory or from a disk of this machine, and is no wait for storage.
/// Stores answer in 1 ms (in the rack) to 200 ms.
pub(crate) const WAIT_MICROS: i64 = 500;

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

/// What each process has done in `over`, those first that waited most. `callers` are those whose calls had no
/// answer yet at its end.
pub(crate) fn by_process(
    calls: &[Call],
    callers: &[Caller],
    over: Span,
    processes: &mut Processes,
) -> Vec<ProcessWaits> {
    let mut threads = BTreeMap::<u32, Thread>::new();
    for call in calls {
        let thread = threads.entry(call.pid).or_default();
        thread.calls += 1;
        thread.bytes += if call.operation == "read" { call.len } else { 0 };
        if call.took >= WAIT_MICROS {
            thread.waits.push(Span { from: call.at, to: call.at + call.took });
        }
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
    use super::{Span, by_process};
    use crate::watch::events::Call;
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
        let found = by_process(&calls, &callers, over, &mut Processes::default());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].pid, found[0].calls, found[0].bytes), (me, 3, 30));
        assert!((found[0].share - 0.8).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn answers_out_of_memory_are_no_waits() {
        let over = Span { from: 0, to: 1_000_000 };
        let calls: Vec<_> = (0..10_000).map(|at| call(1, at * 100, 99)).collect();
        let found = by_process(&calls, &[], over, &mut Processes::default());
        assert_eq!((found[0].calls, found[0].share), (10_000, 0.0));
    }
}
