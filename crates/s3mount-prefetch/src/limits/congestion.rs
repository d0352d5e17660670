//! A bound on the bytes in flight ahead of readers, for a link that has become too slow for them.
//!
//! All GETs share the link. Where it becomes a hundred times slower, the bytes that were a tenth of a second's worth
//! take many seconds, and the GET that a reader waits for takes as long as all others. So a reader is *starved* when it
//! has waited for [`STARVED`], and no GET of the mount has brought its bytes meanwhile. Then, as TCP does after a
//! time-out, the mount begins anew: all GETs ahead are cancelled, and nothing may be in flight ahead of readers. A GET
//! that brings more than its readers wait for is replaced by a shorter one. The bound grows by the bytes of each GET
//! that took less than [`QUICK`], so it doubles with each round of quick GETs. It ends at [`FREE_BYTES`], or when no
//! reader was starved for [`FORGOTTEN`]. A link on which no reader is starved has no bound.
//!
//! Where each GET takes seconds, as from a store that answers late, these times are multiples of the mean.
//!
//! Pure: the caller passes all times.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// A reader is starved when no bytes came for this long. A store 700 ms away answers within it.
const STARVED: Duration = Duration::from_secs(3);

/// A GET that took less than this shows that the link carries more than the bytes in flight.
const QUICK: Duration = Duration::from_secs(1);

/// The bound is lifted when it has grown to this: the window of a single stream.
const FREE_BYTES: u64 = 64 << 20;

/// The bound ends when no reader was starved for this long.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// While nothing comes, one second GET is sent in this time: the connections may be dead, and a new one may not be.
const PROBE: Duration = Duration::from_secs(1);

/// Where there is no bound.
const UNBOUNDED: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Congestion {
    bound: AtomicU64,
    /// When a GET brought its bytes last, and when a reader was starved last, in microseconds.
    landed: AtomicU64,
    starved: AtomicU64,
    /// When a reader was first starved after the last GET that brought its bytes.
    began: AtomicU64,
    /// When a second GET was sent last to find out whether new connections bring more.
    probed: AtomicU64,
}

impl Default for Congestion {
    fn default() -> Self {
        let [landed, starved, began, probed] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { bound: AtomicU64::new(UNBOUNDED), landed, starved, began, probed }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Congestion {
    /// The bytes that may be in flight ahead of readers; `None` means no bound.
    pub(crate) fn bound(&self) -> Option<u64> {
        Some(self.bound.load(Ordering::Relaxed)).filter(|bound| *bound != UNBOUNDED)
    }

    /// A GET has brought `bytes` at the time `now`, and took `took`. GETs of its length take
    /// `mean` in the mean.
    pub(crate) fn on_landed(&self, bytes: u64, took: Duration, mean: Duration, now: Duration) {
        self.landed.fetch_max(micros(now), Ordering::Relaxed);
        if took < QUICK.max(mean * 3 / 2)
            && let Some(bound) = self.bound()
        {
            let grown = bound + bytes;
            // When two GETs land at once, the bound may grow by only one of them.
            self.bound.store(if grown < FREE_BYTES { grown } else { UNBOUNDED }, Ordering::Relaxed);
        }
    }

    /// Whether a GET has brought its bytes since `time`.
    pub(crate) fn has_landed_since(&self, time: Duration) -> bool {
        self.landed.load(Ordering::Relaxed) > micros(time)
    }

    /// Whether the last starvation began after `time`: when a reader was first starved after a GET had brought its
    /// bytes. So a GET that was sent because of the starvation goes on.
    pub(crate) fn has_begun_since(&self, time: Duration) -> bool {
        self.began.load(Ordering::Relaxed) > micros(time)
    }

    /// A reader has waited for `waited` at the time `now`, for a GET that takes `mean` in the mean. Returns whether the
    /// reader is starved, once in [`STARVED`]: then the caller cancels what is in flight ahead.
    pub(crate) fn on_wait(&self, waited: Duration, mean: Duration, now: Duration) -> bool {
        let limit = STARVED.max(mean * 2);
        let last = self.landed.load(Ordering::Relaxed).max(self.starved.load(Ordering::Relaxed));
        let is_starved = waited >= limit && micros(now) >= last.saturating_add(micros(limit));
        if is_starved {
            if self.began.load(Ordering::Relaxed) <= self.landed.load(Ordering::Relaxed) {
                self.began.store(micros(now), Ordering::Relaxed);
            }
            self.starved.store(micros(now), Ordering::Relaxed);
            self.bound.store(0, Ordering::Relaxed);
        }
        is_starved
    }

    /// Whether a second GET may be sent at the time `now` although nothing comes.
    pub(crate) fn may_probe(&self, now: Duration) -> bool {
        let (now, probed) = (micros(now), self.probed.load(Ordering::Relaxed));
        let order = Ordering::Relaxed;
        now >= probed.saturating_add(micros(PROBE))
            && self.probed.compare_exchange(probed, now, order, order).is_ok()
    }

    /// Called by the housekeeper once a second, at the time `now`.
    pub(crate) fn tick(&self, now: Duration) {
        if micros(now) >= self.starved.load(Ordering::Relaxed).saturating_add(micros(FORGOTTEN)) {
            self.bound.store(UNBOUNDED, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Congestion;

    const MIB: u64 = 1 << 20;
    /// A short GET of a store nearby.
    const SHORT: Duration = Duration::from_millis(25);

    #[test]
    fn only_a_reader_to_whom_nothing_comes_is_starved() {
        let (congestion, seconds) = (Congestion::default(), Duration::from_secs);
        congestion.on_landed(MIB, seconds(5), SHORT, seconds(10));
        assert!(!congestion.on_wait(seconds(5), SHORT, seconds(12)), "something came two seconds ago");
        assert!(!congestion.on_wait(seconds(2), SHORT, seconds(14)), "it has not waited for long");
        assert!(!congestion.on_wait(seconds(3), seconds(2), seconds(14)), "each GET takes two seconds");
        assert_eq!(congestion.bound(), None);
        assert!(congestion.on_wait(seconds(3), SHORT, seconds(14)));
        assert_eq!(congestion.bound(), Some(0));
        assert!(!congestion.on_wait(seconds(5), SHORT, seconds(16)), "once in three seconds");
        assert!(congestion.on_wait(seconds(6), SHORT, seconds(17)));
        assert!(congestion.has_begun_since(seconds(13)) && !congestion.has_begun_since(seconds(14)));
        congestion.on_landed(MIB, seconds(5), SHORT, seconds(18));
        assert!(congestion.on_wait(seconds(9), SHORT, seconds(21)));
        assert!(congestion.has_begun_since(seconds(20)));
    }

    #[test]
    fn quick_gets_end_the_bound_and_slow_ones_leave_it() {
        let (congestion, seconds) = (Congestion::default(), Duration::from_secs);
        assert!(congestion.on_wait(seconds(3), SHORT, seconds(3)));
        congestion.on_landed(MIB, seconds(2), SHORT, seconds(4));
        assert_eq!(congestion.bound(), Some(0), "the link carries no more");
        assert!(congestion.has_landed_since(seconds(3)) && !congestion.has_landed_since(seconds(4)));
        congestion.on_landed(MIB / 2, seconds(2), seconds(2), seconds(4));
        assert_eq!(congestion.bound(), Some(MIB / 2), "no GET takes less than two seconds");
        for landed in 1..64 {
            congestion.on_landed(MIB, SHORT, SHORT, seconds(4));
            assert_eq!(congestion.bound(), Some(landed * MIB + MIB / 2));
        }
        congestion.on_landed(MIB, SHORT, SHORT, seconds(4));
        assert_eq!(congestion.bound(), None);
    }

    #[test]
    fn the_bound_is_forgotten_when_no_reader_is_starved_for_a_minute() {
        let (congestion, seconds) = (Congestion::default(), Duration::from_secs);
        assert!(congestion.on_wait(seconds(3), SHORT, seconds(10)));
        (11..70).for_each(|now| congestion.tick(seconds(now)));
        assert_eq!(congestion.bound(), Some(0));
        congestion.tick(seconds(70));
        assert_eq!(congestion.bound(), None);
    }

    #[test]
    fn one_probe_is_sent_each_second() {
        let congestion = Congestion::default();
        let probes = (0..40).filter(|tenth| congestion.may_probe(Duration::from_millis(1000 + tenth * 100)));
        assert_eq!(probes.count(), 4);
    }
}
