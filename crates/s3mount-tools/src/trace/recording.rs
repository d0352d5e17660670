//! What was recorded.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use crate::watch::daemon::{Daemon, Listener};
use crate::watch::events::{Call, Event, Request};
use crate::watch::prices::Prices;
use crate::watch::processes::{Process, Processes};
use crate::watch::report::{Report, between};
use crate::watch::sample::{Sample, Streams};
use crate::watch::waits::{ReadWaits, Span, by_process};

/// The most requests, and the most waits, that a page shows. Each takes some 100 bytes of it.
const MAX_SHOWN: usize = 50_000;

/// The most calls that are looked at. Each takes some 100 bytes of memory.
const MAX_CALLS: usize = 2_000_000;

/// How often memory and windows are looked at, and events are taken.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The columns of the charts of throughput.
const BINS: usize = 300;

/// A request, as the page draws it. Times are in microseconds from the beginning of the recording.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DrawnRequest {
    /// The row in which it is drawn: no two requests of a row overlap.
    lane: usize,
    at: i64,
    first: Option<i64>,
    took: i64,
    operation: String,
    status: String,
    /// Its key, by its place in the list of keys.
    key: usize,
    start: u64,
    len: u64,
}

/// A call that waited for storage.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Wait {
    /// Its process, by its place in the list of processes.
    pub(super) process: usize,
    pub(super) at: i64,
    pub(super) took: i64,
    pub(super) operation: String,
    pub(super) key: usize,
    pub(super) len: u64,
}

/// What the mount held at one time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Look {
    at: i64,
    used: u64,
    limit: u64,
    in_flight: u64,
    ahead: u64,
    window: u64,
}

/// What the page draws.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Drawn {
    /// How long the recording took.
    length: i64,
    pub(super) keys: Vec<String>,
    pub(super) processes: Vec<String>,
    pub(super) parts: Vec<DrawnRequest>,
    pub(super) waits: Vec<Wait>,
    looks: Vec<Look>,
    /// Bytes that programs asked for, in each of as many equal spans of time.
    read: Vec<f64>,
    /// Bytes that came from the store.
    fetched: Vec<f64>,
    /// Bytes that went to the store.
    uploaded: Vec<f64>,
}

/// What was recorded.
#[derive(Debug)]
pub(super) struct Recording {
    /// When it began.
    pub(super) began: SystemTime,
    /// What has happened between its beginning and its end.
    pub(super) report: Report,
    /// What the requests meanwhile have cost.
    pub(super) dollars: f64,
    /// How many requests ended, by operation and by how they ended.
    pub(super) requests: BTreeMap<(String, String), u64>,
    /// Requests and waits that are not drawn, because they are too many.
    pub(super) left_out: usize,
    pub(super) drawn: Drawn,
}

impl Recording {
    /// Records for `time`, or until `is_over`.
    ///
    /// # Errors
    /// As of [`Daemon::ask`].
    pub(super) fn make(
        daemon: &Daemon,
        time: Duration,
        prices: Prices,
        is_over: impl Fn() -> bool,
    ) -> anyhow::Result<Self> {
        let before = Sample::take(daemon)?;
        let mut listener = daemon.listen()?;
        let (began, clock) = (SystemTime::now(), Instant::now());
        let (mut events, mut looks) = (Events::default(), Vec::new());
        let mut processes = Processes::default();
        let (streams, after) = loop {
            events.take(&mut listener, &mut processes)?;
            let (streams, sample) = (Streams::take(daemon)?, Sample::take(daemon)?);
            looks.push(look(micros(clock.elapsed()), &streams, &sample));
            let left = time.saturating_sub(clock.elapsed());
            if left.is_zero() || is_over() {
                break (streams, sample);
            }
            std::thread::sleep(left.min(LOOK_INTERVAL));
        };
        // What has ended while the last look was taken.
        events.take(&mut listener, &mut processes)?;
        let over = Span { from: 0, to: micros(clock.elapsed()) };
        let reads = ReadWaits::between(&before.metrics, &after.metrics);
        let waits = by_process(&events.calls, reads, &streams.callers, over, &mut processes);
        let mut report = between(&before, &after, &streams, waits, true);
        report.source.clone_from(&daemon.source);
        report.lost_events = events.lost;
        let dollars = prices.so_far(&after) - prices.so_far(&before);
        let mut recording = Self {
            began,
            report,
            dollars,
            requests: BTreeMap::new(),
            left_out: 0,
            drawn: Drawn { length: over.to, looks, ..Drawn::default() },
        };
        recording.draw(events, reads, over, &mut processes);
        Ok(recording)
    }

    fn draw(&mut self, events: Events, reads: ReadWaits, over: Span, processes: &mut Processes) {
        let Events { mut requests, calls, .. } = events;
        let mut keys = Numbers::default();
        for request in &requests {
            let ended = (request.operation.clone(), request.status.clone());
            *self.requests.entry(ended).or_default() += 1;
        }
        let flows = |operations: &[&str]| {
            let is_chosen = |request: &&Request| {
                request.status == "ok" && operations.contains(&request.operation.as_str())
            };
            bins(requests.iter().filter(is_chosen).map(flow), over)
        };
        (self.drawn.fetched, self.drawn.uploaded) = (flows(&["get"]), flows(&["put", "upload_part"]));
        self.drawn.read = bins(calls.iter().filter(|call| call.operation == "read").map(read), over);
        requests.sort_by_key(|request| request.at);
        let mut lanes = Lanes::default();
        self.left_out = requests.len().saturating_sub(MAX_SHOWN);
        self.drawn.parts = requests
            .into_iter()
            .take(MAX_SHOWN)
            .map(|request| DrawnRequest {
                lane: lanes.of(request.at, request.at + request.took),
                at: request.at,
                first: request.first,
                took: request.took,
                operation: request.operation,
                status: request.status,
                key: keys.of(request.key),
                start: request.start,
                len: request.len,
            })
            .collect();
        let mut waits = reads.of(&calls);
        self.left_out += waits.len().saturating_sub(MAX_SHOWN);
        // The longest are drawn.
        waits.sort_by_key(|(_, micros)| -micros);
        let mut callers = Numbers::<Process>::default();
        self.drawn.waits = waits
            .into_iter()
            .take(MAX_SHOWN)
            .map(|(call, took)| Wait {
                process: callers.of(processes.of(call.pid)),
                at: call.at,
                took,
                operation: call.operation.clone(),
                key: keys.of(call.key.clone()),
                len: call.len,
            })
            .collect();
        self.drawn.keys = keys.list;
        let name = |process: Process| format!("{} ({})", process.name, process.pid);
        self.drawn.processes = callers.list.into_iter().map(name).collect();
    }
}

/// The events of a recording.
#[derive(Default)]
struct Events {
    requests: Vec<Request>,
    calls: Vec<Call>,
    lost: u64,
}

impl Events {
    /// Takes what has happened. Threads are looked up at once: they may end soon.
    fn take(&mut self, listener: &mut Listener, processes: &mut Processes) -> anyhow::Result<()> {
        for event in listener.take()? {
            if let Event::Call(call) = &event {
                processes.of(call.pid);
            }
            match event {
                Event::Request(request) if self.requests.len() < MAX_CALLS => self.requests.push(request),
                Event::Call(call) if self.calls.len() < MAX_CALLS => self.calls.push(call),
                Event::Lost { count } => self.lost += count,
                Event::Request(_) | Event::Call(_) => self.lost += 1,
                Event::Unknown => {}
            }
        }
        Ok(())
    }
}

/// Numbers for things, in the order in which they come.
struct Numbers<T> {
    list: Vec<T>,
    known: HashMap<T, usize>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { list: Vec::new(), known: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Numbers<T> {
    fn of(&mut self, thing: T) -> usize {
        *self.known.entry(thing).or_insert_with_key(|thing| {
            self.list.push(thing.clone());
            self.list.len() - 1
        })
    }
}

/// Rows for bars that come in the order of their beginnings.
#[derive(Default)]
struct Lanes(Vec<i64>);

impl Lanes {
    /// The first row whose last bar has ended by `from`. The bar ends at `to`.
    fn of(&mut self, from: i64, to: i64) -> usize {
        let free = self.0.iter().position(|end| *end <= from);
        let lane = free.unwrap_or(self.0.len());
        match self.0.get_mut(lane) {
            Some(end) => *end = to,
            None => self.0.push(to),
        }
        lane
    }
}

/// When the bytes of a request came, and how many.
fn flow(request: &Request) -> (Span, u64) {
    let from = request.at + request.first.unwrap_or(request.took).min(request.took);
    (Span { from, to: request.at + request.took }, request.len)
}

/// When a reader got the bytes of a call, and how many.
fn read(call: &Call) -> (Span, u64) {
    let end = call.at + call.took;
    (Span { from: end, to: end }, call.len)
}

/// Bytes in each of [`BINS`] equal parts of `over`. What took some time is spread over it.
fn bins(flows: impl Iterator<Item = (Span, u64)>, over: Span) -> Vec<f64> {
    let mut bins = vec![0.0; BINS];
    let width = ((over.to - over.from).max(1) as f64) / BINS as f64;
    for (Span { from, to }, bytes) in flows {
        let length = ((to - from) as f64).max(1.0);
        let (from, to) = ((from - over.from) as f64, (from - over.from) as f64 + length);
        let (first, last) = ((from / width).floor().max(0.0), (to / width).floor().min(BINS as f64 - 1.0));
        let mut at = first;
        while at <= last {
            let part = ((at + 1.0) * width).min(to) - (at * width).max(from);
            bins[at as usize] += bytes as f64 * (part.max(0.0) / length);
            at += 1.0;
        }
    }
    bins
}

fn look(at: i64, streams: &Streams, sample: &Sample) -> Look {
    let windows = streams.files.iter().flat_map(|file| &file.streams);
    Look {
        at,
        used: sample.metrics.memory_used_bytes,
        limit: sample.metrics.memory_limit_bytes,
        in_flight: streams.in_flight_bytes,
        ahead: streams.unread_bytes,
        window: windows.filter(|stream| stream.is_active()).map(|stream| stream.window_bytes).sum(),
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// A recording of one second.
#[cfg(test)]
pub(super) fn recording_of(requests: Vec<Request>, calls: Vec<Call>) -> Recording {
    let (sample, over) = (Sample::parse("{}").expect("JSON"), Span { from: 0, to: 1_000_000 });
    let mut processes = Processes::default();
    let waits = by_process(&calls, ReadWaits::ALL, &[], over, &mut processes);
    let mut recording = Recording {
        began: SystemTime::UNIX_EPOCH,
        report: between(&sample, &sample, &Streams::default(), waits, true),
        dollars: 0.0,
        requests: BTreeMap::new(),
        left_out: 0,
        drawn: Drawn { length: over.to, ..Drawn::default() },
    };
    recording.draw(Events { requests, calls, lost: 0 }, ReadWaits::ALL, over, &mut processes);
    recording
}

#[cfg(test)]
mod tests {
    use super::{BINS, Lanes, Numbers, bins};
    use crate::watch::waits::Span;

    #[test]
    fn bars_of_a_row_do_not_overlap() {
        let mut lanes = Lanes::default();
        let bars = [(0, 10), (1, 5), (2, 3), (5, 7), (10, 12), (11, 20)];
        assert_eq!(bars.map(|(from, to)| lanes.of(from, to)), [0, 1, 2, 1, 0, 1]);
    }

    #[test]
    fn bytes_are_spread_over_the_time_in_which_they_came() {
        let over = Span { from: 0, to: BINS as i64 * 10 };
        let found =
            bins([(Span { from: 5, to: 25 }, 200), (Span { from: 100, to: 100 }, 7)].into_iter(), over);
        assert_eq!(found[..3], [50.0, 100.0, 50.0]);
        assert!((found[10] - 7.0).abs() < 1e-9, "{:?}", &found[8..12]);
        // What began before counts in part, and what ends later too.
        let found = bins([(Span { from: -10, to: 10 }, 100)].into_iter(), over);
        assert_eq!((found[0], found.iter().sum::<f64>()), (50.0, 50.0));
        let found = bins([(Span { from: over.to - 10, to: over.to + 10 }, 100)].into_iter(), over);
        assert_eq!(found[BINS - 1], 50.0);
    }

    #[test]
    fn things_keep_their_numbers() {
        let mut numbers = Numbers::default();
        assert_eq!(["a", "b", "a", "c"].map(|name| numbers.of(name)), [0, 1, 0, 2]);
        assert_eq!(numbers.list, ["a", "b", "c"]);
    }
}
