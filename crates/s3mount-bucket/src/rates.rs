//! Rates that a mount keeps to, so that it leaves room for others.
//!
//! A rate is a line that serves one request after the other, each for the time that its amount takes at this rate. A
//! request is sent when its time on the line is over. So a mount with a rate for reading is like one behind a link of
//! this rate, and the layers above do what they do at a slow link: they have fewer bytes in flight ahead of readers, and
//! give GETs more time.
//!
//! A request with bytes has its time for these first, and keeps the line of bytes until it was its turn among all requests:
//! otherwise requests whose bytes are paid for would gather there, and leave together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use s3mount_metrics::Gauge;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};

use crate::{Rate, RateMetrics};

/// A line that was idle has saved up to this time. Otherwise a timer that fires late would lower the rate.
const SAVED: Duration = Duration::from_millis(50);

/// The most that a mount asks of its store in a second. What is unset is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Bytes of objects that are read.
    pub read_bytes: Option<u64>,
    /// Bytes of objects that are written.
    pub write_bytes: Option<u64>,
    /// Requests of all kinds.
    pub requests: Option<u64>,
}

/// The lines of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    read: OnceLock<Line>,
    write: OnceLock<Line>,
    requests: OnceLock<Line>,
    /// The first whole file, and the first part, that waits for the line.
    files: Mutex<()>,
    parts: Mutex<()>,
    pub(crate) metrics: Arc<RateMetrics>,
}

impl Lines {
    /// Sets the rates. The first ones stay.
    pub(crate) fn set(&self, rates: Rates) {
        let Rates { read_bytes, write_bytes, requests } = rates;
        for (line, rate) in [(&self.read, read_bytes), (&self.write, write_bytes), (&self.requests, requests)]
        {
            if let Some(rate) = rate {
                line.get_or_init(|| Line::new(rate));
            }
        }
    }

    /// Waits until a GET of `bytes` may be sent.
    pub(crate) async fn before_get(&self, bytes: u64) {
        let _turn = self.turn(&self.read, bytes, Rate::ReadBytes).await;
        self.before_request().await;
    }

    /// Waits until a body of `bytes` may be sent, which is a whole file or a part of one. Both have turns: who writes a
    /// small file does not wait for all parts of others.
    pub(crate) async fn before_body(&self, bytes: u64, is_part: bool) {
        let _first = match is_part {
            true => self.parts.lock().await,
            false => self.files.lock().await,
        };
        let _turn = self.turn(&self.write, bytes, Rate::WriteBytes).await;
        self.before_request().await;
    }

    /// Waits until a request without a body may be sent.
    pub(crate) async fn before_request(&self) {
        self.turn(&self.requests, 1, Rate::Requests).await;
    }

    /// Counts requests that were sent without a wait.
    pub(crate) async fn owe(&self, requests: u64) {
        if let Some(line) = self.requests.get() {
            line.owe(requests).await;
        }
    }

    /// How long the GETs that wait now will take until all of them are sent.
    pub(crate) fn gets_wait(&self) -> Duration {
        let queues = [&self.read, &self.requests].map(|line| line.get().map_or(Duration::ZERO, Line::queue));
        queues.into_iter().max().unwrap_or_default()
    }

    /// Waits for its turn, which is over when the result is dropped.
    async fn turn<'a>(
        &'a self,
        line: &'a OnceLock<Line>,
        amount: u64,
        rate: Rate,
    ) -> Option<MutexGuard<'a, Option<Instant>>> {
        let line = line.get()?;
        let waiting = Waiting::new(line, amount, self.metrics.held_now.at(rate));
        let came = Instant::now();
        let mut busy_until = line.busy_until.lock().await;
        let ends = line.after(*busy_until) + line.time_of(amount);
        if ends > came {
            self.metrics.held.at(rate).inc();
        }
        sleep_until(ends).await;
        *busy_until = Some(ends);
        drop(waiting);
        Some(busy_until)
    }
}

/// One rate.
#[derive(Debug)]
struct Line {
    /// At least 1.
    per_second: u64,
    /// When the last request had its time. Who waits for the line waits for this lock, which is fair.
    busy_until: Mutex<Option<Instant>>,
    /// The amounts of all requests that wait.
    waiting: AtomicU64,
}

/// A request that waits as long as this lives.
struct Waiting<'a> {
    line: &'a Line,
    amount: u64,
    now: &'a Gauge,
}

impl<'a> Waiting<'a> {
    fn new(line: &'a Line, amount: u64, now: &'a Gauge) -> Self {
        line.waiting.fetch_add(amount, Ordering::Relaxed);
        now.inc();
        Self { line, amount, now }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.line.waiting.fetch_sub(self.amount, Ordering::Relaxed);
        self.now.dec();
    }
}

impl Line {
    fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), busy_until: Mutex::default(), waiting: AtomicU64::new(0) }
    }

    /// When the next request begins to be served, if the line was busy until then.
    fn after(&self, busy_until: Option<Instant>) -> Instant {
        let now = Instant::now();
        busy_until.map_or(now, |until| until.max(now.checked_sub(SAVED).unwrap_or(until)))
    }

    /// Serves requests that were sent already: those behind them wait.
    async fn owe(&self, amount: u64) {
        let mut busy_until = self.busy_until.lock().await;
        *busy_until = Some(self.after(*busy_until) + self.time_of(amount));
    }

    fn queue(&self) -> Duration {
        self.time_of(self.waiting.load(Ordering::Relaxed))
    }

    fn time_of(&self, amount: u64) -> Duration {
        Duration::from_secs_f64(amount as f64 / self.per_second as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use futures::future::join_all;
    use tokio::time::{Instant, sleep};

    use super::{Lines, Rates, SAVED};
    use crate::Rate;

    fn lines(rates: Rates) -> Lines {
        let lines = Lines::default();
        lines.set(rates);
        lines
    }

    #[tokio::test(start_paused = true)]
    async fn requests_pass_in_order_and_at_the_rate() {
        let lines = lines(Rates { read_bytes: Some(1000), ..Rates::default() });
        let start = Instant::now();
        let times = join_all((0..10).map(|_| async {
            lines.before_get(500).await;
            start.elapsed().as_millis()
        }));
        assert_eq!(times.await, (1..=10).map(|number| number * 500).collect::<Vec<u128>>());
        lines.before_body(1 << 40, true).await;
        assert_eq!(start.elapsed().as_millis(), 5000, "what is not limited does not wait");
        assert_eq!(lines.metrics.held.at(Rate::ReadBytes).get(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_line_saves_no_more_than_a_moment() {
        let lines = lines(Rates { requests: Some(100), ..Rates::default() });
        let passed = async || {
            let start = Instant::now();
            for _ in 0..50 {
                lines.before_request().await;
            }
            start.elapsed().as_millis()
        };
        assert_eq!(passed().await, 500);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(passed().await, 450);
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_takes_nothing_of_the_rate() {
        let lines = lines(Rates { write_bytes: Some(1), ..Rates::default() });
        let (start, mut gone) = (Instant::now(), Box::pin(lines.before_body(1000, false)));
        assert!((&mut gone).now_or_never().is_none());
        drop(gone);
        lines.before_body(2, false).await;
        assert_eq!(start.elapsed().as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_what_waits() {
        let lines = lines(Rates { read_bytes: Some(100), requests: Some(1), ..Rates::default() });
        assert_eq!(lines.gets_wait(), Duration::ZERO);
        let mut gets = [300, 300, 300].map(|bytes| Box::pin(lines.before_get(bytes)));
        for get in &mut gets {
            assert!(get.now_or_never().is_none());
        }
        assert_eq!(lines.gets_wait(), Duration::from_secs(9));
        sleep(Duration::from_secs(3)).await;
        assert!((&mut gets[0]).now_or_never().is_none(), "now it waits for its turn as a request");
        assert_eq!(lines.gets_wait(), Duration::from_secs(6));
        assert_eq!(lines.metrics.held_now.at(Rate::ReadBytes).get(), 2);
        drop(gets);
        assert_eq!(lines.gets_wait(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn with_two_rates_nothing_leaves_in_a_bunch() {
        let lines = lines(Rates { read_bytes: Some(100), requests: Some(1), ..Rates::default() });
        let start = Instant::now();
        let get = async |bytes: u64| {
            lines.before_get(bytes).await;
            (start.elapsed().as_secs_f64(), bytes)
        };
        // The large one pays for its bytes while the small ones have their turns as requests.
        let ask = async {
            for _ in 0..10 {
                lines.before_request().await;
            }
        };
        let (mut sent, ()) = futures::join!(join_all([10, 10, 10, 300, 300, 10].map(get)), ask);
        sent.sort_by(|one, other| one.0.total_cmp(&other.0));
        let saved = SAVED.as_secs_f64();
        for pair in sent.windows(2) {
            let (apart, bytes) = (pair[1].0 - pair[0].0, pair[1].1);
            assert!(apart > 1.0 - 2.0 * saved && apart > bytes as f64 / 100.0 - 2.0 * saved, "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_file_waits_for_one_part_of_others_and_what_was_sent_is_owed() {
        let lines = lines(Rates { write_bytes: Some(100), requests: Some(10), ..Rates::default() });
        let start = Instant::now();
        let part = async |_| lines.before_body(1000, true).await;
        let file = async {
            sleep(Duration::from_secs(5)).await;
            lines.before_body(1, false).await;
            start.elapsed().as_secs()
        };
        let (_, waited) = futures::join!(join_all((0..10).map(part)), file);
        assert_eq!((waited, start.elapsed().as_secs()), (10, 100));
        lines.owe(100).await;
        lines.before_request().await;
        assert_eq!(start.elapsed().as_secs(), 110);
    }
}
