//! The shortest and the usual duration of GETs.

use std::time::Duration;

use crate::limits::link::Link;
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

/// Durations of the GETs of one class of lengths, in microseconds; `u64::MAX` before the first GET.
#[derive(Debug)]
struct Class {
    /// The shortest GETs of this period and of the one before.
    least_long: [AtomicU64; 2],
    /// The shortest recent GET.
    least_lately: AtomicU64,
    mean: AtomicU64,
}

/// The durations of GETs by their length, and the link that they share.
#[derive(Debug)]
pub(crate) struct Latencies {
    classes: [Class; CLASSES],
    pub(crate) link: Link,
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
            link: Link::default(),
            ticks: AtomicU64::new(0),
        }
    }
}

fn class(bytes: u64) -> usize {
    (bytes.max(1).next_power_of_two().ilog2().saturating_sub(FIRST_CLASS) as usize).min(CLASSES - 1)
}

impl Latencies {
    /// Notes that a GET of `bytes` took this long.
    pub(crate) fn note(&self, bytes: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = &self.classes[class(bytes)];
        if class.least_long[0].fetch_min(micros, Ordering::Relaxed) > micros {
            self.link.set_shortest(self.shortest());
        }
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
        self.slow_after(bytes).max(self.link.in_flight() / 2)
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
    pub(crate) fn age(&self, now: Duration) -> bool {
        self.link.tick(now);
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
            self.link.set_shortest(self.shortest());
        }
        begins
    }

    /// The shortest GET of any length over a long time; zero before the first.
    fn shortest(&self) -> Duration {
        let long = self.classes.iter().flat_map(|class| &class.least_long);
        let least = long.map(|micros| micros.load(Ordering::Relaxed)).min();
        Duration::from_micros(least.filter(|micros| *micros != u64::MAX).unwrap_or(0))
    }
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
        let (link, seconds, mb) = (&latencies.link, Duration::from_secs, 1_000_000);
        let send = |gets, at| (0..gets).map(|_| link.on_sent(mb, seconds(at))).collect::<Vec<_>>();
        let sent = send(20, 0);
        assert_eq!(latencies.stalls_after(mb), seconds(4), "at 20 Mbit/s, as long as nothing is known");
        drop(sent);
        for get in send(5, 0) {
            get.on_landed(seconds(1));
        }
        latencies.note(mb, Duration::from_millis(100));
        latencies.age(seconds(1));
        let sent = send(20, 1);
        assert_eq!(latencies.stalls_after(mb), seconds(2), "twenty in flight, five a second");
        drop(sent);
        assert_eq!(latencies.stalls_after(mb), latencies.slow_after(mb));
        for _ in 0..1000 {
            latencies.age(Duration::ZERO);
        }
        assert_eq!(latencies.stalls_after(mb), latencies.slow_after(mb));
        let sent = send(20, 1000);
        assert_eq!(latencies.stalls_after(mb), seconds(2), "who was idle carries as much as before");
        drop(sent);
        for second in 1000..1100 {
            for get in send(1, second) {
                get.on_landed(seconds(second + 1));
            }
            latencies.age(seconds(second + 1));
        }
        let sent = send(20, 1100);
        assert!(latencies.stalls_after(mb) > seconds(9), "one a second");
        drop(sent);
    }

    #[test]
    fn the_shortest_of_all_is_forgotten_after_two_periods() {
        let (latencies, ms) = (Latencies::default(), Duration::from_millis);
        latencies.note(1, ms(4));
        for period in 0..2 {
            for tick in 1..=PERIOD_TICKS {
                latencies.note(1, ms(25));
                assert_eq!(latencies.least_long(1), ms(4), "{period}");
                assert_eq!(latencies.age(Duration::ZERO), tick == PERIOD_TICKS);
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
            latencies.age(Duration::ZERO);
        }
        assert!(
            (ms(45)..ms(65)).contains(&latencies.least_lately(1 << 20)),
            "{:?}",
            latencies.least_lately(1 << 20)
        );
    }
}
