//! The rate of the link to the store, and the bytes in flight on it.
//!
//! The rate is measured while GETs are in flight. A GET tells of its bytes when it ends, but they came throughout: many
//! GETs that share a slow link all end within the same second, after many seconds. So a measurement lasts at least as
//! long as its GETs took. Until its end, a GET that ended counts with the share of its time that lies within the
//! measurement: that is never too much.
//!
//! Bytes beyond what the link carries within a round trip only queue at it: the GET that a reader waits for takes as
//! long as all others. TCP finds out by losing packets, where one connection carries all. Here many connections share
//! the link, and none of them is slow by itself. So the bytes ahead of readers are bounded by the measured rate, as the
//! bytes in flight are in BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14-5, 2016). The
//! bound lets a stream that only the latency limits grow at least sevenfold with each round trip.
//!
//! Pure: the caller passes all times.

use std::time::Duration;

use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The assumed rate of a link that has carried nothing yet, in bytes a second: 20 Mbit/s, the slowest link
/// that s3mount is made for.
const SLOWEST_LINK: u64 = 2_500_000;

/// A link that carries fewer bytes a second is slow: a usual window waits at it for more than [`LONG_QUEUE`].
const SLOW_LINK: u64 = 128 << 20;

/// A link at which GETs wait for longer than this is full.
pub(crate) const LONG_QUEUE: Duration = Duration::from_millis(500);

/// When the link carried less in a tick than its estimated rate, although GETs were in flight, the estimate falls by
/// this share of the difference.
const LINK_SHARE: u64 = 16;

/// A measurement takes no less than this: a scheduler's time slice takes some milliseconds.
const LEAST_TIME: Duration = Duration::from_millis(10);

/// Ahead of readers, the bytes that a slow link carries in this many round trips and [`QUEUE`] are in flight. So a
/// stream far from the store may climb as fast as its window does.
const ROUND_TRIPS: u32 = 7;

/// The bytes in flight end in bursts, and a reader takes a burst at once. So the link needs this much in flight to stay
/// busy. At 50 and 100 Mbit/s a stream then takes 1.1 to 1.2 times what the link takes, and no read of 1 MiB took more
/// than 3.5 s; with no bound it took up to 1.8 times as long, and reads took up to 5.6 s.
const QUEUE: Duration = Duration::from_secs(1);

/// So many bytes may always be in flight ahead of readers. A stream begins with them. A link of 20 Mbit/s carries them
/// in less than two seconds.
const LEAST_AHEAD_BYTES: u64 = 4 << 20;

#[derive(Debug, Default)]
pub(crate) struct Link {
    in_flight_bytes: AtomicU64,
    /// Bytes that came since the last tick.
    landed_bytes: AtomicU64,
    /// Bytes a second that came in the last seconds; 0 before the first GET.
    carried: AtomicU64,
    /// The rate that is believed, in bytes a second; 0 before the first GET.
    rate: AtomicU64,
    /// `rate` when GETs last waited long at the link, or the rate it has carried since if that is higher. 0 before any
    /// GET waited long.
    full: AtomicU64,
    /// How long the last two GETs took, in microseconds.
    last: [AtomicU64; 2],
    /// How long the shortest GET took, of any length, in microseconds. It is nearest to a round trip: longer GETs queue
    /// behind each other.
    shortest: AtomicU64,
    measurement: Mutex<Measurement>,
}

/// A measurement of the link's rate. Times are in seconds.
#[derive(Debug, Default)]
struct Measurement {
    /// The number of GETs in flight.
    gets: usize,
    began: f64,
    /// The bytes of GETs that have ended since, and the sum of each of them times the time that its GET took.
    landed: f64,
    landed_times: f64,
    /// The least bytes that have come since.
    arrived: f64,
}

impl Measurement {
    fn begin(&mut self, now: f64) {
        *self = Self { gets: self.gets, began: now, ..Self::default() };
    }

    fn on_sent(&mut self, now: f64) {
        if self.gets == 0 {
            self.begin(now);
        }
        self.gets += 1;
    }

    /// A GET of `bytes` has brought them. Returns the least rate at which bytes have come, or 0 if that is not known.
    fn on_landed(&mut self, bytes: f64, sent: f64, now: f64) -> f64 {
        let (took, elapsed) = ((now - sent).max(1e-6), now - self.began);
        self.landed += bytes;
        self.landed_times += bytes * took;
        self.arrived += bytes * elapsed.min(took) / took;
        if elapsed < LEAST_TIME.as_secs_f64() { 0.0 } else { self.arrived / elapsed }
    }

    /// Ends the measurement if it was long enough, and begins the next one. Returns the rate.
    fn end(&mut self, now: f64) -> Option<f64> {
        let elapsed = now - self.began;
        if self.landed > 0.0 && self.landed_times / self.landed > elapsed || elapsed <= 0.0 {
            return None;
        }
        if self.landed == 0.0 {
            return (self.gets > 0).then_some(0.0);
        }
        let rate = self.landed / elapsed;
        self.begin(now);
        Some(rate)
    }
}

/// Counts a GET as in flight while this lives.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    link: &'a Link,
    bytes: u64,
    sent: Duration,
}

impl InFlight<'_> {
    /// Notes that the GET has brought its bytes at the time `now`. Returns how long it took.
    pub(crate) fn on_landed(&self, now: Duration) -> Duration {
        let took = now.saturating_sub(self.sent);
        let (link, micros) = (self.link, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        link.landed_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        link.last[1].store(link.last[0].swap(micros, Ordering::Relaxed), Ordering::Relaxed);
        let (sent, now) = (self.sent.as_secs_f64(), now.as_secs_f64());
        let least = lock(&link.measurement).on_landed(self.bytes as f64, sent, now);
        link.rate.fetch_max(least as u64, Ordering::Relaxed);
        took
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.link.in_flight_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // At its end the model checker unwinds the tasks that are left, and none of them may take a lock.
        if cfg!(feature = "shuttle") && std::thread::panicking() {
            return;
        }
        lock(&self.link.measurement).gets -= 1;
    }
}

impl Link {
    /// Notes that a GET of `bytes` is sent at the time `now`.
    pub(crate) fn on_sent(&self, bytes: u64, now: Duration) -> InFlight<'_> {
        self.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
        lock(&self.measurement).on_sent(now.as_secs_f64());
        InFlight { link: self, bytes, sent: now }
    }

    /// Measures the rate. Call it once a second.
    pub(crate) fn tick(&self, now: Duration) {
        let is_busy = self.in_flight_bytes.load(Ordering::Relaxed) > 0;
        let landed = self.landed_bytes.swap(0, Ordering::Relaxed);
        let carried = self.carried.load(Ordering::Relaxed);
        self.carried.store(believed(carried, landed, is_busy), Ordering::Relaxed);
        let Some(measured) = lock(&self.measurement).end(now.as_secs_f64()) else { return };
        let measured = measured as u64;
        let (before, full) = (self.rate.load(Ordering::Relaxed), self.full.load(Ordering::Relaxed));
        let is_full = measured > 0 && self.queue() > LONG_QUEUE;
        let rate = if is_full {
            u64::midpoint(before, measured).max(measured)
        } else {
            believed(before, measured, true)
        };
        self.rate.store(rate, Ordering::Relaxed);
        if is_full || full > 0 && measured > full {
            self.full.store(rate, Ordering::Relaxed);
        }
    }

    /// How long a GET waits for earlier GETs: the time in which the link brings all bytes in flight. While streams
    /// ramp, more bytes are in flight than the link ever brought in a second, but GETs take no longer. So the wait is
    /// at most the shorter of the last two GETs.
    pub(crate) fn queue(&self) -> Duration {
        let last = self.last.each_ref().map(|micros| micros.load(Ordering::Relaxed));
        self.in_flight().min(Duration::from_micros(last[0].min(last[1])))
    }

    /// Whether others are in flight beside a GET of `bytes`.
    pub(crate) fn has_in_flight_beside(&self, bytes: u64) -> bool {
        self.in_flight_bytes.load(Ordering::Relaxed) > bytes
    }

    /// The time that the link takes for the bytes in flight.
    pub(crate) fn in_flight(&self) -> Duration {
        let link = self.slow().unwrap_or(self.carried.load(Ordering::Relaxed));
        let link = if link == 0 { SLOWEST_LINK } else { link };
        Duration::from_secs_f64(self.in_flight_bytes.load(Ordering::Relaxed) as f64 / link as f64)
    }

    /// The bytes that the link carries in this time. Zero before the first GET.
    pub(crate) fn carried(&self, time: Duration) -> u64 {
        (self.carried.load(Ordering::Relaxed) as f64 * time.as_secs_f64()) as u64
    }

    /// Notes how long the shortest GET took.
    pub(crate) fn set_shortest(&self, shortest: Duration) {
        self.shortest.store(u64::try_from(shortest.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The most bytes in flight ahead of readers on a slow link. `None` means no bound: where the shortest GET takes
    /// this long, the store is slow and not the link.
    pub(crate) fn most_ahead_bytes(&self) -> Option<u64> {
        let shortest = Duration::from_micros(self.shortest.load(Ordering::Relaxed));
        if shortest > LONG_QUEUE {
            return None;
        }
        let time = (shortest * ROUND_TRIPS + QUEUE).as_secs_f64();
        self.slow().map(|rate| ((rate as f64 * time) as u64).max(LEAST_AHEAD_BYTES))
    }

    /// The bytes a second that a slow link carries. `None` if the link is fast or unknown.
    pub(crate) fn slow(&self) -> Option<u64> {
        slow(&self.rate)
    }

    /// The bytes a second that a slow link carries, if GETs have waited long at it.
    pub(crate) fn full(&self) -> Option<u64> {
        slow(&self.full)
    }
}

/// The new estimate of a link's rate, from the old estimate `link` and the rate that it carried lately.
fn believed(link: u64, rate: u64, is_busy: bool) -> u64 {
    let fallen = if is_busy && link > rate { link - (link - rate) / LINK_SHARE } else { link };
    fallen.max(rate)
}

fn slow(link: &AtomicU64) -> Option<u64> {
    Some(link.load(Ordering::Relaxed)).filter(|rate| (1..SLOW_LINK).contains(rate))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Link;

    const MB: u64 = 1_000_000;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Sends GETs of 1 MB at `sent`, which all end `took` later.
    fn round(link: &Link, gets: usize, sent: f64, took: f64) {
        let gets: Vec<_> = (0..gets).map(|_| link.on_sent(MB, secs(sent))).collect();
        (1..took as usize).for_each(|second| link.tick(secs(sent + second as f64)));
        for get in &gets {
            assert_eq!(get.on_landed(secs(sent + took)), secs(sent + took) - secs(sent));
        }
        link.tick(secs(sent + took));
    }

    #[test]
    fn gets_that_share_a_slow_link_and_end_at_once_show_how_slow_it_is() {
        let link = Link::default();
        round(&link, 40, 0.0, 16.0);
        assert_eq!((link.slow(), link.full()), (Some(2_500_000), Some(2_500_000)));
        round(&link, 40, 20.0, 16.0);
        assert_eq!(link.slow(), Some(2_500_000), "seconds without a GET do not count");
        round(&link, 9, 100.0, 1.0);
        assert_eq!((link.slow(), link.full()), (Some(9_000_000), Some(9_000_000)), "it has become faster");
        round(&link, 200, 200.0, 1.0);
        assert_eq!((link.slow(), link.full()), (None, None), "it is not slow any more");
    }

    #[test]
    fn a_link_is_measured_as_it_is_however_its_gets_overlap() {
        // Each second ten GETs are sent; each takes as long as all others that are in flight.
        for behind in [0.1, 1.0, 5.0] {
            let link = Link::default();
            let mut gets: std::collections::VecDeque<_> = std::collections::VecDeque::new();
            for tenth in 0..600 {
                let now = f64::from(tenth) / 10.0;
                gets.push_back((now, link.on_sent(MB, secs(now))));
                while gets.front().is_some_and(|(sent, _)| now >= sent + behind - 1e-9) {
                    let (_, get) = gets.pop_front().expect("one is in flight");
                    get.on_landed(secs(now));
                }
                if tenth % 10 == 0 {
                    link.tick(secs(now));
                }
            }
            let rate = link.slow().expect("it is slow");
            assert!((9 * MB..=11 * MB).contains(&rate), "{rate} where each takes {behind} s");
        }
    }

    #[test]
    fn what_is_in_flight_ahead_grows_sevenfold_with_each_round_trip() {
        let link = Link::default();
        assert_eq!(link.most_ahead_bytes(), None, "nothing is known");
        link.set_shortest(secs(0.4));
        let (mut now, mut gets) = (0.0, 4);
        while let Some(most) = link.most_ahead_bytes().or((now == 0.0).then_some(4 * MB)) {
            let next = usize::try_from(most / MB).expect("few");
            assert!(now == 0.0 || next >= 7 * gets, "{next} after {gets}");
            gets = next;
            round(&link, gets, now, 0.4);
            now += 0.4;
        }
        assert!(now < 3.0, "{now}");
    }
}
