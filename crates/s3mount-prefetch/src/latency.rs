//! How long GETs take: when nothing is in their way, and mostly.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Classes of lengths: up to 64 KiB, up to 128 KiB, and so on.
const CLASSES: usize = 16;
const FIRST_CLASS: u32 = u32::ilog2(64 << 10);

/// A minimum that is not confirmed rises by this part each tick of the housekeeper: a store that
/// has become slower is believed after a minute.
const DRIFT: u64 = 64;

/// What one GET adds to the mean, as a part of it; those far beyond it count as this many of it.
const MEAN_SHARE: u64 = 16;
const MEAN_MOST: u64 = 3;

/// A GET that takes this many times as long as they mostly do is slow. With S3's spread (log-normal,
/// sigma 0.5) that is one of a hundred small ones, and next to none of the large.
const SLOW: u32 = 3;

/// Nothing is slow before this: where GETs take a millisecond, a scheduler's whim takes ten.
const SLOW_AT_LEAST: Duration = Duration::from_millis(50);

/// What is slow where no GET of such a length has come back yet.
const SLOW_UNKNOWN: Duration = Duration::from_secs(2);

/// Microseconds of the GETs of one class of lengths; `u64::MAX` before the first.
#[derive(Debug)]
struct Class {
    shortest: AtomicU64,
    mean: AtomicU64,
}

/// How long GETs take, by their length.
#[derive(Debug)]
pub(crate) struct Latencies([Class; CLASSES]);

impl Default for Latencies {
    fn default() -> Self {
        let unknown = || AtomicU64::new(u64::MAX);
        Self(std::array::from_fn(|_| Class { shortest: unknown(), mean: unknown() }))
    }
}

fn class(bytes: u64) -> usize {
    (bytes.max(1).next_power_of_two().ilog2().saturating_sub(FIRST_CLASS) as usize).min(CLASSES - 1)
}

impl Latencies {
    /// A GET of `bytes` took this long.
    pub(crate) fn note(&self, bytes: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = &self.0[class(bytes)];
        class.shortest.fetch_min(micros, Ordering::Relaxed);
        // Where two add to it at once, one of them is lost: it is a mean all the same.
        let mean = match class.mean.load(Ordering::Relaxed) {
            u64::MAX => micros,
            mean => mean - mean / MEAN_SHARE + micros.min(mean.saturating_mul(MEAN_MOST)) / MEAN_SHARE,
        };
        class.mean.store(mean, Ordering::Relaxed);
    }

    /// When a GET of `bytes` is so much slower than its peers that another may be faster.
    pub(crate) fn slow_after(&self, bytes: u64) -> Duration {
        match self.0[class(bytes)].mean.load(Ordering::Relaxed) {
            u64::MAX => SLOW_UNKNOWN,
            mean => (Duration::from_micros(mean) * SLOW).max(SLOW_AT_LEAST),
        }
    }

    /// How long a GET of `bytes` takes at least. The shortest of them, not the mean, tells what a
    /// window needs: the mean has the waiting in it that too many at once bring upon themselves, and
    /// would call for more. Where none was that long yet, as if a longer one took longer in
    /// proportion, which is the most it can; no time where there was none at all.
    pub(crate) fn of(&self, bytes: u64) -> Duration {
        let classes = self.0[..=class(bytes)].iter().rev();
        let known = classes.map(|class| class.shortest.load(Ordering::Relaxed));
        let nearest = known.enumerate().find(|(_, micros)| *micros != u64::MAX);
        nearest.map_or(Duration::ZERO, |(shorter, micros)| Duration::from_micros(micros << shorter))
    }

    /// Lets the minima rise; to be called once a second.
    pub(crate) fn age(&self) {
        for Class { shortest, .. } in &self.0 {
            let older = |micros: u64| (micros != u64::MAX).then(|| micros + micros / DRIFT);
            // Only one thread ages, and a lower minimum that comes between is as good.
            let _ = shortest.try_update(Ordering::Relaxed, Ordering::Relaxed, older);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Latencies;

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
