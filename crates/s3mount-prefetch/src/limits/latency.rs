//! The shortest and the usual duration of GETs, and the bytes that the link carries.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Classes of lengths: up to 64 KiB, up to 128 KiB, and so on.
const CLASSES: usize = 16;
const FIRST_CLASS: u32 = u32::ilog2(64 << 10);

/// A minimum that no GET confirms rises by 1/64 each tick of the housekeeper. So it takes a minute until a
/// store that has become slower is believed.
const DRIFT: u64 = 64;

/// The shortest GET is remembered for one or two periods of this many ticks. So a single unusually quick answer is
/// forgotten, and a store that has become slower is believed.
const PERIOD_TICKS: u64 = 600;

/// One GET has a weight of a sixteenth in the mean. A GET that took more than three times the mean counts as three
/// times the mean.
const MEAN_SHARE: u64 = 16;
const MEAN_MOST: u64 = 3;

/// A GET is slow when it takes this many times the mean. With S3's spread (log-normal, sigma 0.5) that is one
/// in a hundred of the small GETs, and next to none of the large ones.
const SLOW: u32 = 3;

/// No GET is slow before this: where GETs take a millisecond, the scheduler alone may add ten.
const SLOW_AT_LEAST: Duration = Duration::from_millis(50);

/// A GET is slow after this time if no GET of its length has come back yet.
const SLOW_UNKNOWN: Duration = Duration::from_secs(2);

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

/// Durations of the GETs of one class of lengths, in microseconds; `u64::MAX` before the first GET.
#[derive(Debug)]
struct Class {
    /// The shortest GETs of this period and of the one before.
    least_long: [AtomicU64; 2],
    /// The shortest recent GET.
    least_lately: AtomicU64,
    mean: AtomicU64,
}

/// The durations of GETs by their length, and the bytes in flight.
#[derive(Debug)]
pub(crate) struct Latencies {
    classes: [Class; CLASSES],
    in_flight_bytes: AtomicU64,
    /// Bytes that came since the last tick.
    landed_bytes: AtomicU64,
    /// Bytes of GETs that came since the last check for a slow link, and the sum of these bytes times the milliseconds
    /// that each GET took.
    spread_bytes: AtomicU64,
    spread_byte_millis: AtomicU64,
    /// Ticks since that check in which GETs were in flight.
    busy_ticks: AtomicU64,
    /// Bytes a second that the link brought, spread over the time that the GETs took.
    spread_link: AtomicU64,
    /// Bytes a second that all GETs together brought; 0 before the first GET.
    link: AtomicU64,
    /// `spread_link` when GETs last waited long at the link, or the rate it has carried since if that is higher. 0
    /// before any GET waited long.
    full_link: AtomicU64,
    /// How long the last two GETs took, in microseconds.
    last: [AtomicU64; 2],
    ticks: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Self {
        let unknown = || AtomicU64::new(u64::MAX);
        Self {
            classes: std::array::from_fn(|_| Class {
                least_long: [unknown(), unknown()],
                least_lately: unknown(),
                mean: unknown(),
            }),
            in_flight_bytes: AtomicU64::new(0),
            landed_bytes: AtomicU64::new(0),
            spread_bytes: AtomicU64::new(0),
            spread_byte_millis: AtomicU64::new(0),
            busy_ticks: AtomicU64::new(0),
            spread_link: AtomicU64::new(0),
            link: AtomicU64::new(0),
            full_link: AtomicU64::new(0),
            last: [AtomicU64::new(0), AtomicU64::new(0)],
            ticks: AtomicU64::new(0),
        }
    }
}

/// Counts a GET as in flight while this lives.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a Latencies, u64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight_bytes.fetch_sub(self.1, Ordering::Relaxed);
    }
}

fn class(bytes: u64) -> usize {
    (bytes.max(1).next_power_of_two().ilog2().saturating_sub(FIRST_CLASS) as usize).min(CLASSES - 1)
}

impl Latencies {
    /// Notes that a GET of `bytes` is sent.
    pub(crate) fn on_sent(&self, bytes: u64) -> InFlight<'_> {
        self.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
        InFlight(self, bytes)
    }

    /// Notes that a GET of `bytes` took this long.
    pub(crate) fn note(&self, bytes: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.landed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.spread_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.spread_byte_millis.fetch_add(bytes.saturating_mul(micros / 1000), Ordering::Relaxed);
        self.last[1].store(self.last[0].swap(micros, Ordering::Relaxed), Ordering::Relaxed);
        let class = &self.classes[class(bytes)];
        class.least_long[0].fetch_min(micros, Ordering::Relaxed);
        class.least_lately.fetch_min(micros, Ordering::Relaxed);
        // When two GETs change the mean at once, one change is lost. The result is still a mean.
        let mean = match class.mean.load(Ordering::Relaxed) {
            u64::MAX => micros,
            mean => mean - mean / MEAN_SHARE + micros.min(mean.saturating_mul(MEAN_MOST)) / MEAN_SHARE,
        };
        class.mean.store(mean, Ordering::Relaxed);
    }

    /// The time after which a GET of `bytes` is so much slower than its peers that a second one may be faster.
    pub(crate) fn slow_after(&self, bytes: u64) -> Duration {
        match self.classes[class(bytes)].mean.load(Ordering::Relaxed) {
            u64::MAX => SLOW_UNKNOWN,
            mean => (Duration::from_micros(mean) * SLOW).max(SLOW_AT_LEAST),
        }
    }

    /// The time after which a GET of `bytes` may have stalled. It is longer than [`slow_after`](Self::slow_after) while
    /// the link brings other bytes in flight. A GET is given up after a multiple of this.
    pub(crate) fn stalls_after(&self, bytes: u64) -> Duration {
        self.slow_after(bytes).max(self.in_flight() / 2)
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
    fn in_flight(&self) -> Duration {
        let link = self.slow_link().unwrap_or(self.link.load(Ordering::Relaxed));
        let link = if link == 0 { SLOWEST_LINK } else { link };
        Duration::from_secs_f64(self.in_flight_bytes.load(Ordering::Relaxed) as f64 / link as f64)
    }

    /// The bytes that the link carries in this time. Zero before the first GET.
    pub(crate) fn carried(&self, time: Duration) -> u64 {
        (self.link.load(Ordering::Relaxed) as f64 * time.as_secs_f64()) as u64
    }

    /// The shortest recent duration of a GET of `bytes`. A window needs the shortest time, not the mean: the mean
    /// includes the waiting that too many GETs at once cause, and would ask for even more of them. If no GET had that
    /// length yet, the duration of a smaller GET is scaled in proportion, which is the most that the larger one can
    /// take. Zero if there was no GET at all.
    pub(crate) fn least_lately(&self, bytes: u64) -> Duration {
        self.nearest(bytes, |class| class.least_lately.load(Ordering::Relaxed))
    }

    /// The shortest duration of a GET of `bytes` over a long time. A link that is always busy does not show in recent
    /// GETs how fast it can be.
    pub(crate) fn least_long(&self, bytes: u64) -> Duration {
        let least =
            |[now, before]: &[AtomicU64; 2]| now.load(Ordering::Relaxed).min(before.load(Ordering::Relaxed));
        self.nearest(bytes, |class| least(&class.least_long))
    }

    /// The usual duration of a GET of `bytes`, scaled in the same way.
    pub(crate) fn mean(&self, bytes: u64) -> Duration {
        self.nearest(bytes, |class| class.mean.load(Ordering::Relaxed))
    }

    fn nearest(&self, bytes: u64, micros: impl Fn(&Class) -> u64) -> Duration {
        let classes = self.classes[..=class(bytes)].iter().rev();
        let nearest = classes.map(micros).enumerate().find(|(_, micros)| *micros != u64::MAX);
        nearest.map_or(Duration::ZERO, |(shorter, micros)| Duration::from_micros(micros << shorter))
    }

    /// Lets the minima rise, and updates the rate of the link. Call it once a second. Returns whether a new period
    /// begins, in which the shortest GET is measured anew.
    pub(crate) fn age(&self) -> bool {
        let (link, landed) =
            (self.link.load(Ordering::Relaxed), self.landed_bytes.swap(0, Ordering::Relaxed));
        let is_busy = self.in_flight_bytes.load(Ordering::Relaxed) > 0;
        self.link.store(believed(link, landed, is_busy), Ordering::Relaxed);
        self.measure_slow_link();
        for Class { least_lately, .. } in &self.classes {
            let older = |micros: u64| (micros != u64::MAX).then(|| micros + micros / DRIFT);
            // Only one thread calls this, and a lower minimum that a GET brings meanwhile is as valid.
            let _ = least_lately.try_update(Ordering::Relaxed, Ordering::Relaxed, older);
        }
        let begins = (self.ticks.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(PERIOD_TICKS);
        if begins {
            for Class { least_long: [now, before], .. } in &self.classes {
                before.store(now.swap(u64::MAX, Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        begins
    }

    /// Measures whether the link is slow, once a second.
    ///
    /// The bytes of a GET count when it ends, but they came throughout. Many GETs that share a slow link all end within
    /// the same second, after many seconds. So the bytes are divided by the ticks that their GETs took.
    fn measure_slow_link(&self) {
        let (spread, link) =
            (self.spread_bytes.load(Ordering::Relaxed), self.spread_link.load(Ordering::Relaxed));
        let is_busy = self.in_flight_bytes.load(Ordering::Relaxed) > 0;
        if spread == 0 && !is_busy {
            self.busy_ticks.store(0, Ordering::Relaxed);
            return;
        }
        let ticks = self.busy_ticks.fetch_add(1, Ordering::Relaxed) + 1;
        if spread > 0 && self.spread_byte_millis.load(Ordering::Relaxed) / spread > ticks * 1000 {
            return;
        }
        let rate = spread / ticks;
        if spread > 0 {
            // Bytes that land meanwhile count in the next measurement.
            self.spread_bytes.fetch_sub(spread, Ordering::Relaxed);
            self.spread_byte_millis.store(0, Ordering::Relaxed);
            self.busy_ticks.store(0, Ordering::Relaxed);
        }
        let now = believed(link, rate, is_busy);
        self.spread_link.store(now, Ordering::Relaxed);
        let full = self.full_link.load(Ordering::Relaxed);
        if spread > 0 && self.queue() > LONG_QUEUE || full > 0 && rate > full {
            self.full_link.store(now, Ordering::Relaxed);
        }
    }

    /// The bytes a second that a slow link carries. `None` if the link is fast or unknown.
    pub(crate) fn slow_link(&self) -> Option<u64> {
        slow(&self.spread_link)
    }

    /// The bytes a second that a slow link carries, if GETs have waited long at it.
    pub(crate) fn full_link(&self) -> Option<u64> {
        slow(&self.full_link)
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

    use super::{Latencies, PERIOD_TICKS};

    #[test]
    fn slow_is_thrice_the_mean() {
        let latencies = Latencies::default();
        let ms = Duration::from_millis;
        assert_eq!(latencies.slow_after(1), ms(2000));
        for _ in 0..100 {
            latencies.note(1, ms(40));
        }
        assert!((ms(115)..=ms(120)).contains(&latencies.slow_after(1)), "{:?}", latencies.slow_after(1));
        latencies.note(1, ms(5000));
        assert!(latencies.slow_after(1) < ms(140), "one says little");
        for _ in 0..100 {
            latencies.note(1, ms(2));
        }
        assert_eq!(latencies.slow_after(1), ms(50));
    }

    #[test]
    fn what_is_in_flight_is_waited_for_before_a_get_has_stalled() {
        let latencies = Latencies::default();
        let (seconds, mb) = (Duration::from_secs, 1_000_000);
        let sent: Vec<_> = (0..20).map(|_| latencies.on_sent(mb)).collect();
        assert_eq!(latencies.stalls_after(mb), seconds(4), "at 20 Mbit/s, as long as nothing is known");
        (0..5).for_each(|_| latencies.note(mb, Duration::from_millis(100)));
        latencies.age();
        assert_eq!(latencies.stalls_after(mb), seconds(2), "twenty in flight, five a second");
        drop(sent);
        assert_eq!(latencies.stalls_after(mb), latencies.slow_after(mb));
        for _ in 0..1000 {
            latencies.age();
        }
        let sent: Vec<_> = (0..20).map(|_| latencies.on_sent(mb)).collect();
        assert_eq!(latencies.stalls_after(mb), seconds(2), "who was idle carries as much as before");
        (0..1000).for_each(|_| {
            latencies.note(mb, Duration::from_millis(100));
            latencies.age();
        });
        assert!(latencies.stalls_after(mb) > seconds(9), "one a second");
        drop(sent);
    }

    #[test]
    fn gets_that_share_a_slow_link_and_end_at_once_show_how_slow_it_is() {
        let latencies = Latencies::default();
        for _ in 0..2 {
            let sent: Vec<_> = (0..40).map(|_| latencies.on_sent(1_000_000)).collect();
            (0..15).for_each(|_| assert!(!latencies.age()));
            (0..40).for_each(|_| latencies.note(1_000_000, Duration::from_secs(16)));
            latencies.age();
            assert_eq!(latencies.slow_link(), Some(2_500_000));
            drop(sent);
        }
        assert_eq!(latencies.full_link(), Some(2_500_000));
        (0..5).for_each(|_| assert!(!latencies.age()));
        latencies.note(9_000_000, Duration::from_millis(900));
        latencies.age();
        assert_eq!(latencies.slow_link(), Some(9_000_000), "seconds without a GET do not count");
        assert_eq!(latencies.full_link(), Some(9_000_000), "it has become faster");
        latencies.note(200 << 20, Duration::from_millis(900));
        latencies.age();
        assert_eq!((latencies.slow_link(), latencies.full_link()), (None, None), "it is not slow any more");
    }

    #[test]
    fn the_shortest_of_all_is_forgotten_after_two_periods() {
        let (latencies, ms) = (Latencies::default(), Duration::from_millis);
        latencies.note(1, ms(4));
        for period in 0..2 {
            for tick in 1..=PERIOD_TICKS {
                latencies.note(1, ms(25));
                assert_eq!(latencies.least_long(1), ms(4), "{period}");
                assert_eq!(latencies.age(), tick == PERIOD_TICKS);
            }
        }
        assert_eq!(latencies.least_long(1), ms(25));
    }

    #[test]
    fn the_shortest_of_each_length_counts_and_ages() {
        let latencies = Latencies::default();
        let ms = Duration::from_millis;
        assert_eq!(latencies.least_lately(8 << 20), Duration::ZERO);
        for millis in [30, 25, 60] {
            latencies.note(1 << 20, ms(millis));
        }
        assert_eq!(latencies.least_lately(1 << 20), ms(25));
        assert_eq!(latencies.least_lately(8 << 20), ms(200), "in proportion to a shorter one");
        assert_eq!(latencies.least_lately(64 << 10), Duration::ZERO);
        latencies.note(8 << 20, ms(100));
        assert_eq!((latencies.least_lately(8 << 20), latencies.least_lately(5 << 20)), (ms(100), ms(100)));
        for _ in 0..60 {
            latencies.age();
        }
        assert!(
            (ms(45)..ms(65)).contains(&latencies.least_lately(1 << 20)),
            "{:?}",
            latencies.least_lately(1 << 20)
        );
    }
}
