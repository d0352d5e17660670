//! What a mount does over a short time, and whether its readers wait for storage.

use std::time::{Duration, Instant};

use s3mount_bucket::{Outcome, Rate, ReadOperation};
use s3mount_prefetch::Tier;
use serde::Serialize;

use super::daemon::{Daemon, Listener};
use super::events::{Call, Event};
use super::metrics::{Metrics, ended};
use super::prices::Prices;
use super::processes::Processes;
use super::sample::{OpenFile, Sample, Stream, Streams};
use super::waits::{ProcessWaits, ReadWaits, Span, by_process};

/// From this share of the time on, the answer is yes.
const MOSTLY: f64 = 0.5;

/// Below this share of the time, the answer is no.
const HARDLY: f64 = 0.1;

/// From this share of the memory on, memory is called short.
const SHORT: f64 = 0.95;

/// The most calls of one report. Each takes some 100 bytes of memory.
const MOST_CALLS: usize = 2_000_000;

/// How often the events are taken while a report is made, so that none is lost.
const TAKE_INTERVAL: Duration = Duration::from_millis(100);

/// Whether the readers of a mount wait for storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// For at least half of the time.
    Yes,
    /// For at least a tenth of the time.
    Partly,
    /// For less.
    No,
    /// Nobody has called, or waits.
    Idle,
    /// The daemon does not say who calls: it is of another version, it is another user's, or others listen already.
    Unknown,
}

/// Who waits, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Waiting {
    pub(crate) verdict: Verdict,
    /// The share of the time, from 0 to 1, that processes waited, in the mean over those that called.
    pub(crate) share: Option<f64>,
    pub(crate) processes: Vec<ProcessWaits>,
    /// Calls that have no answer now.
    pub(crate) calls: usize,
    /// How long the longest of them waits, in seconds.
    pub(crate) longest_seconds: f64,
    /// What slows the store's answers down, if the mount can tell.
    pub(crate) reasons: Vec<String>,
}

/// Who holds the mount's memory, in bytes. What waits to be written to a disk or to the shared cache is mostly held
/// by others too.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Memory {
    pub(crate) limit_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) peak_bytes: u64,
    /// GETs that have no answer yet.
    pub(crate) in_flight_bytes: u64,
    /// Fetched ahead, and not read yet.
    pub(crate) read_ahead_bytes: u64,
    pub(crate) block_cache_bytes: u64,
    /// Files that are being written.
    pub(crate) uploads_bytes: u64,
    /// Just read, or between two owners.
    pub(crate) other_bytes: u64,
    pub(crate) disk_queue_bytes: u64,
    pub(crate) shared_cache_bytes: u64,
    /// Names, which are not part of the limit.
    pub(crate) names_bytes: u64,
}

/// Where reads found their bytes when they came, as shares from 0 to 1.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct HitRatios {
    /// In memory: in windows or in the block cache.
    pub(crate) in_memory: f64,
    /// On their way.
    pub(crate) in_flight: f64,
    /// They had to be asked for.
    pub(crate) asked_for: f64,
}

/// What has happened since the mount began.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SoFar {
    pub(crate) read_bytes: u64,
    pub(crate) fetched_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) uploaded_bytes: u64,
    pub(crate) gets: u64,
    pub(crate) heads: u64,
    pub(crate) lists: u64,
    pub(crate) retries: u64,
    pub(crate) throttled: u64,
    pub(crate) stalls: u64,
    pub(crate) hedges: u64,
    pub(crate) wasted_bytes: u64,
    pub(crate) dollars: f64,
}

/// What a mount does.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// What is mounted.
    pub(crate) source: String,
    /// The time that rates are taken over.
    pub(crate) seconds: f64,
    pub(crate) waiting: Waiting,
    pub(crate) reads_per_second: f64,
    pub(crate) read_bytes_per_second: f64,
    pub(crate) fetched_bytes_per_second: f64,
    pub(crate) gets_per_second: f64,
    pub(crate) written_bytes_per_second: f64,
    pub(crate) uploaded_bytes_per_second: f64,
    /// How long a GET took in the mean, in seconds, if any ended.
    pub(crate) get_seconds: Option<f64>,
    pub(crate) gets_in_flight: u64,
    pub(crate) gets_ahead: u64,
    pub(crate) lists_in_flight: u64,
    pub(crate) uploads_in_flight: u64,
    pub(crate) connections: u64,
    pub(crate) streams: usize,
    /// The sum of the windows of the streams that were read in the last three seconds.
    pub(crate) window_bytes: u64,
    pub(crate) widest_window_bytes: u64,
    pub(crate) memory: Memory,
    pub(crate) found: Option<HitRatios>,
    /// The share of the reads, from 0 to 1, that the disk cache answered.
    pub(crate) disk_hits: Option<f64>,
    /// The share of the ranges, from 0 to 1, that the shared cache had.
    pub(crate) shared_hits: Option<f64>,
    pub(crate) so_far: SoFar,
    /// The files that are read now, at most twenty, those first that are waited for.
    pub(crate) files: Vec<OpenFile>,
    /// Events that were lost, so that shares are too small.
    pub(crate) lost_events: u64,
}

/// Makes reports of a mount, one after the other.
#[derive(Debug)]
pub(crate) struct Reporter {
    daemon: Daemon,
    prices: Prices,
    /// Unset if the daemon does not tell events.
    listener: Option<Listener>,
    needs_events: bool,
    began: Instant,
    before: Sample,
    processes: Processes,
}

impl Reporter {
    /// Begins to look at a mount.
    ///
    /// # Errors
    /// As of [`Daemon::ask`]. That the daemon does not know events is no error, unless `needs_events`.
    pub(crate) fn new(daemon: &Daemon, prices: Prices, needs_events: bool) -> anyhow::Result<Self> {
        let before = Sample::take(daemon)?;
        let listener = match daemon.listen() {
            Err(error) if needs_events => return Err(error),
            listener => listener.ok(),
        };
        let began = Instant::now();
        let processes = Processes::default();
        Ok(Self { daemon: daemon.clone(), prices, listener, needs_events, began, before, processes })
    }

    /// Waits for `interval`, and reports what has happened in it. `is_over` is asked often, and ends the wait.
    ///
    /// # Errors
    /// As of [`Daemon::ask`].
    pub(crate) fn next(
        &mut self,
        interval: Duration,
        mut is_over: impl FnMut() -> bool,
    ) -> anyhow::Result<Report> {
        let (mut calls, mut lost) = (Vec::new(), 0);
        let from = micros(self.began.elapsed());
        let began = Instant::now();
        loop {
            self.take(&mut calls, &mut lost)?;
            let left = interval.saturating_sub(began.elapsed());
            if left.is_zero() || is_over() {
                break;
            }
            std::thread::sleep(left.min(TAKE_INTERVAL));
        }
        let streams = Streams::take(&self.daemon).ok();
        let after = Sample::take(&self.daemon)?;
        let over = Span { from, to: micros(self.began.elapsed()) };
        let callers = streams.as_ref().map(|streams| streams.callers.as_slice()).unwrap_or_default();
        let reads = ReadWaits::between(&self.before.metrics, &after.metrics);
        let processes = by_process(&calls, reads, callers, over, &mut self.processes);
        let knows = self.listener.is_some() && streams.is_some();
        let streams = streams.unwrap_or_default();
        let mut report = between(&self.before, &after, &streams, processes, knows);
        report.source.clone_from(&self.daemon.source);
        report.so_far.dollars = self.prices.so_far(&after);
        report.lost_events = lost;
        self.before = after;
        Ok(report)
    }

    fn take(&mut self, calls: &mut Vec<Call>, lost: &mut u64) -> anyhow::Result<()> {
        let Some(listener) = &mut self.listener else { return Ok(()) };
        let events = match listener.take() {
            Err(error) if self.needs_events => return Err(error),
            // A daemon that is gone is found out about by the next question.
            Err(_) => {
                self.listener = None;
                return Ok(());
            }
            Ok(events) => events,
        };
        for event in events {
            match event {
                Event::Call(call) => {
                    // Its thread may end soon.
                    self.processes.of(call.pid);
                    if calls.len() < MOST_CALLS {
                        calls.push(call);
                    } else {
                        *lost += 1;
                    }
                }
                Event::Lost { count } => *lost += count,
                Event::Request(_) | Event::Unknown => {}
            }
        }
        Ok(())
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The most files of a report.
const MAX_FILES: usize = 20;

/// What has happened between two samples. `processes` have called meanwhile, if the daemon says so (`knows`);
/// `streams` is what is being read at the end.
pub(crate) fn between(
    before: &Sample,
    after: &Sample,
    streams: &Streams,
    processes: Vec<ProcessWaits>,
    knows: bool,
) -> Report {
    let seconds = after.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let grown = |of: fn(&Metrics) -> u64| of(&after.metrics).saturating_sub(of(&before.metrics));
    let rate = |of: fn(&Metrics) -> u64| grown(of) as f64 / seconds;
    let of = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let tier = |tier| after.metrics.found[&tier].saturating_sub(before.metrics.found[&tier]);
    let reads: u64 = Tier::ALL.iter().copied().map(tier).sum();
    let found = (reads > 0).then(|| HitRatios {
        in_memory: of(tier(Tier::Window) + tier(Tier::Cache), reads).unwrap_or(0.0),
        in_flight: of(tier(Tier::InFlight), reads).unwrap_or(0.0),
        asked_for: of(tier(Tier::Store), reads).unwrap_or(0.0),
    });
    let misses = grown(|metrics| metrics.shared_misses);
    let hits = grown(|metrics| metrics.shared_hits);
    let disk_reads = grown(|metrics| metrics.disk_reads);
    let disk_misses = grown(|metrics| metrics.get_requests);
    let (times, times_before) = (after.metrics.get_times, before.metrics.get_times);
    let answered = times.count.saturating_sub(times_before.count);
    let get_seconds = (answered > 0).then(|| (times.seconds - times_before.seconds) / answered as f64);
    let windows = || {
        let active = streams.files.iter().flat_map(|file| &file.streams);
        active.filter(|stream| stream.is_active()).map(|stream| stream.window_bytes)
    };
    let memory = memory(&after.metrics, streams);
    let active = |file: &&OpenFile| {
        file.gets_in_flight > 0 || file.waiting > 0 || file.streams.iter().any(Stream::is_active)
    };
    let waiting =
        waiting(streams, processes, knows, reasons(&before.metrics, &after.metrics, &memory, get_seconds));
    let now = &after.metrics;
    let sum_of = |operations: &[ReadOperation]| ended(&now.requests, operations, Outcome::ALL);
    Report {
        source: String::new(),
        seconds,
        waiting,
        reads_per_second: rate(|metrics| metrics.reads),
        read_bytes_per_second: rate(|metrics| metrics.read_bytes),
        fetched_bytes_per_second: rate(|metrics| metrics.fetched_bytes),
        gets_per_second: rate(|metrics| metrics.get_requests),
        written_bytes_per_second: rate(|metrics| metrics.written_bytes),
        uploaded_bytes_per_second: rate(|metrics| metrics.uploaded_bytes),
        get_seconds,
        gets_in_flight: now.gets_in_flight,
        gets_ahead: now.gets_ahead,
        lists_in_flight: now.lists_in_flight,
        uploads_in_flight: now.uploads_in_flight,
        connections: now.connections,
        streams: windows().count(),
        window_bytes: windows().sum(),
        widest_window_bytes: windows().max().unwrap_or(0),
        memory,
        found,
        disk_hits: (now.disk_used_bytes > 0).then(|| of(disk_reads, disk_reads + disk_misses)).flatten(),
        shared_hits: of(hits, hits + misses),
        so_far: SoFar {
            read_bytes: now.read_bytes,
            fetched_bytes: now.fetched_bytes,
            written_bytes: now.written_bytes,
            uploaded_bytes: now.uploaded_bytes,
            gets: sum_of(&[ReadOperation::Get]),
            heads: sum_of(&[ReadOperation::Head, ReadOperation::Attributes]),
            lists: sum_of(&[ReadOperation::List]),
            retries: now.retries,
            throttled: now.throttled,
            stalls: now.stalls,
            hedges: now.hedges,
            wasted_bytes: now.wasted_bytes,
            dollars: 0.0,
        },
        files: streams.files.iter().filter(active).take(MAX_FILES).cloned().collect(),
        lost_events: 0,
    }
}

fn memory(metrics: &Metrics, streams: &Streams) -> Memory {
    let used_bytes = metrics.memory_used_bytes;
    let (in_flight_bytes, read_ahead_bytes) = (streams.in_flight_bytes, streams.unread_bytes);
    let block_cache_bytes = metrics.block_cache_bytes;
    let uploads_bytes = metrics.upload_memory_bytes;
    let known = in_flight_bytes + read_ahead_bytes + block_cache_bytes + uploads_bytes;
    Memory {
        limit_bytes: metrics.memory_limit_bytes,
        used_bytes,
        peak_bytes: metrics.memory_peak_bytes,
        in_flight_bytes,
        read_ahead_bytes,
        block_cache_bytes,
        uploads_bytes,
        other_bytes: used_bytes.saturating_sub(known),
        disk_queue_bytes: metrics.disk_queued_bytes,
        shared_cache_bytes: metrics.shared_held_bytes,
        names_bytes: metrics.names_bytes,
    }
}

fn waiting(streams: &Streams, processes: Vec<ProcessWaits>, knows: bool, reasons: Vec<String>) -> Waiting {
    let count = processes.len();
    let share = (knows && count > 0)
        .then(|| processes.iter().map(|process| process.share).sum::<f64>() / count as f64);
    let verdict = match share {
        _ if !knows => Verdict::Unknown,
        None => Verdict::Idle,
        Some(share) if share >= MOSTLY => Verdict::Yes,
        Some(share) if share >= HARDLY => Verdict::Partly,
        Some(_) => Verdict::No,
    };
    let longest = streams.callers.iter().map(|caller| caller.waits).fold(0.0, f64::max);
    let reasons = if matches!(verdict, Verdict::Yes | Verdict::Partly) { reasons } else { Vec::new() };
    Waiting { verdict, share, processes, calls: streams.callers.len(), longest_seconds: longest, reasons }
}

/// The flag that sets a rate.
fn rate_flag(rate: Rate) -> &'static str {
    match rate {
        Rate::ReadBytes => "--max-read-rate",
        Rate::WriteBytes => "--max-write-rate",
        Rate::Requests => "--max-request-rate",
    }
}

/// What slows the store's answers down.
fn reasons(before: &Metrics, after: &Metrics, memory: &Memory, get_seconds: Option<f64>) -> Vec<String> {
    let mut reasons = Vec::new();
    let throttled = after.throttled.saturating_sub(before.throttled);
    if throttled > 0 {
        reasons.push(format!("the store asked to slow down {throttled} times"));
    }
    let (retries, stalls) =
        (after.retries.saturating_sub(before.retries), after.stalls.saturating_sub(before.stalls));
    if retries + stalls > 0 {
        reasons.push(format!("{retries} requests failed and were made again, {stalls} stalled"));
    }
    for ((rate, before, _), (_, after, now)) in before.held.iter().zip(&after.held) {
        let (held, flag) = (after.saturating_sub(*before), rate_flag(*rate));
        if held + now > 0 {
            reasons.push(format!("{flag} holds requests back: {held} had to wait, and {now} wait now"));
        }
    }
    if memory.limit_bytes > 0 && memory.used_bytes as f64 >= SHORT * memory.limit_bytes as f64 {
        reasons.push("all of --memory-limit is taken; a larger one lets more be fetched ahead".into());
    }
    let in_flight = after.gets_in_flight;
    match get_seconds {
        Some(seconds) => reasons
            .push(format!("a GET takes {:.0} ms in the mean, and {in_flight} are in flight", seconds * 1e3)),
        None if in_flight > 0 => {
            reasons.push(format!("{in_flight} GETs are in flight, and none was answered meanwhile"));
        }
        None => {}
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::{Verdict, between};
    use crate::watch::sample::{Sample, Streams};
    use crate::watch::waits::ProcessWaits;

    fn process(share: f64) -> ProcessWaits {
        ProcessWaits { pid: 1, name: "python3".into(), share, calls: 1, bytes: 1 }
    }

    #[test]
    fn the_verdict_goes_by_the_mean_over_processes() {
        let sample = Sample::parse("{}").expect("JSON");
        let verdict = |shares: &[f64], knows| {
            let processes = shares.iter().map(|share| process(*share)).collect();
            between(&sample, &sample, &Streams::default(), processes, knows).waiting.verdict
        };
        assert_eq!(verdict(&[0.9, 0.2], true), Verdict::Yes);
        assert_eq!(verdict(&[0.3, 0.0], true), Verdict::Partly);
        assert_eq!(verdict(&[0.05], true), Verdict::No);
        assert_eq!(verdict(&[], true), Verdict::Idle);
        assert_eq!(verdict(&[], false), Verdict::Unknown);
    }

    #[test]
    fn memory_is_shown_by_owner_and_adds_up() {
        let sample = Sample::parse(
            r#"{"memory_used_bytes": 100, "memory_limit_bytes": 100, "block_cache_bytes": 20,
                "throttled_answers": 3, "requests_in_flight_get": 7}"#,
        )
        .expect("JSON");
        let streams = Streams { unread_bytes: 30, in_flight_bytes: 40, ..Streams::default() };
        let before = Sample::parse("{}").expect("JSON");
        let report = between(&before, &sample, &streams, vec![process(1.0)], true);
        assert_eq!(report.memory.other_bytes, 10);
        let reasons = report.waiting.reasons.join("; ");
        assert!(
            reasons.contains("slow down 3 times") && reasons.contains("all of --memory-limit"),
            "{reasons}"
        );
        assert!(reasons.contains("7 GETs are in flight, and none"), "{reasons}");
    }

    #[test]
    fn rates_are_by_the_second() {
        let mut after = Sample::parse(
            r#"{"read_bytes": 3000, "reads_found_window": 3, "reads_found_store": 1,
                "request_seconds_get": {"count": 4, "sum": 0.4}}"#,
        )
        .expect("JSON");
        let before = Sample::parse(r#"{"read_bytes": 1000}"#).expect("JSON");
        after.at = before.at + std::time::Duration::from_secs(2);
        let report = between(&before, &after, &Streams::default(), Vec::new(), true);
        assert!((report.read_bytes_per_second - 1000.0).abs() < 1e-6);
        assert!((report.get_seconds.expect("GETs ended") - 0.1).abs() < 1e-9);
        let found = report.found.expect("reads came");
        assert_eq!((found.in_memory, found.in_flight, found.asked_for), (0.75, 0.0, 0.25));
    }
}
