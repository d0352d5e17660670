//! How long GETs take when nothing is in their way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Classes of lengths: up to 64 KiB, up to 128 KiB, and so on.
const CLASSES: usize = 16;
const FIRST_CLASS: u32 = u32::ilog2(64 << 10);

/// A minimum that is not confirmed rises by this part each tick of the housekeeper: a store that
/// has become slower is believed after a minute.
const DRIFT: u64 = 64;

/// The shortest durations of GETs seen, by their length. The shortest, not the mean: that one has
/// the waiting in it that too many GETs at once bring upon themselves, and would call for more.
#[derive(Debug)]
pub(crate) struct Latencies([AtomicU64; CLASSES]);

impl Default for Latencies {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(u64::MAX)))
    }
}

fn class(bytes: u64) -> usize {
    (bytes.max(1).next_power_of_two().ilog2().saturating_sub(FIRST_CLASS) as usize).min(CLASSES - 1)
}

impl Latencies {
    /// A GET of `bytes` took this long.
    pub(crate) fn note(&self, bytes: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0[class(bytes)].fetch_min(micros, Ordering::Relaxed);
    }

    /// How long a GET of `bytes` takes at least. Where none was that long yet, as if a longer one
    /// took longer in proportion, which is the most it can; no time where there was none at all.
    pub(crate) fn of(&self, bytes: u64) -> Duration {
        let known = self.0[..=class(bytes)].iter().rev().map(|micros| micros.load(Ordering::Relaxed));
        let nearest = known.enumerate().find(|(_, micros)| *micros != u64::MAX);
        nearest.map_or(Duration::ZERO, |(shorter, micros)| Duration::from_micros(micros << shorter))
    }

    /// Lets the minima rise; to be called once a second.
    pub(crate) fn age(&self) {
        for micros in &self.0 {
            let older = |micros: u64| (micros != u64::MAX).then(|| micros + micros / DRIFT);
            // Only one thread ages, and a lower minimum that comes between is as good.
            let _ = micros.try_update(Ordering::Relaxed, Ordering::Relaxed, older);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Latencies;

    #[test]
    fn the_shortest_of_each_length_counts_and_ages() {
        let latencies = Latencies::default();
        let ms = Duration::from_millis;
        assert_eq!(latencies.of(8 << 20), Duration::ZERO);
        for millis in [30, 25, 60] {
            latencies.note(1 << 20, ms(millis));
        }
        assert_eq!(latencies.of(1 << 20), ms(25));
        assert_eq!(latencies.of(8 << 20), ms(200), "in proportion to a shorter one");
        assert_eq!(latencies.of(64 << 10), Duration::ZERO);
        latencies.note(8 << 20, ms(100));
        assert_eq!((latencies.of(8 << 20), latencies.of(5 << 20)), (ms(100), ms(100)));
        for _ in 0..60 {
            latencies.age();
        }
        assert!((ms(45)..ms(65)).contains(&latencies.of(1 << 20)), "{:?}", latencies.of(1 << 20));
    }
}
