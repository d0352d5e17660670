//! A bound on the bytes in flight ahead of readers, for a link that has become too slow for them.
//!
//! All GETs share the link. Where it becomes a hundred times slower, the bytes that were a tenth of a second's worth
//! take many seconds, and the GET that a reader waits for takes as long as all others. So a reader is *starved* when it
//! has waited for [`STARVED`], and no GET of the mount has brought its bytes meanwhile. Then, as TCP does after a
//! time-out, the mount begins anew: all GETs ahead are cancelled, and nothing may be in flight ahead of readers. A GET
//! that brings more than its readers wait for is replaced by a shorter one. The bound grows by the bytes of each GET
//! that took less than [`QUICK`], so it doubles with each round of quick GETs. It ends at [`FREE_BYTES`]. A link on
//! which no reader is starved has no bound.
//!
//! Pure: the caller passes all times.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// A reader is starved after this time in which nothing came. A store 700 ms away answers within it.
pub(crate) const STARVED: Duration = Duration::from_secs(3);

/// A GET that took less shows that the link carries what is in flight, and more.
const QUICK: Duration = Duration::from_secs(1);

/// The bound ends when it has grown to this: the window of a stream that is alone.
const FREE_BYTES: u64 = 64 << 20;

/// Where there is no bound.
const UNBOUNDED: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Congestion {
    bound: AtomicU64,
    /// When a GET brought its bytes last, and when a reader was starved last, in microseconds.
    landed: AtomicU64,
    starved: AtomicU64,
    /// When a reader was starved first after the last GET that brought its bytes.
    began: AtomicU64,
}

impl Default for Congestion {
    fn default() -> Self {
        let [landed, starved, began] = [const { AtomicU64::new(0) }; 3];
        Self { bound: AtomicU64::new(UNBOUNDED), landed, starved, began }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Congestion {
    /// How many bytes may be in flight ahead of readers. Unset where there is no bound.
    pub(crate) fn bound(&self) -> Option<u64> {
        Some(self.bound.load(Ordering::Relaxed)).filter(|bound| *bound != UNBOUNDED)
    }

    /// A GET has brought `bytes` at the time `now`, and took `took`.
    pub(crate) fn on_landed(&self, bytes: u64, took: Duration, now: Duration) {
        self.landed.fetch_max(micros(now), Ordering::Relaxed);
        if took < QUICK
            && let Some(bound) = self.bound()
        {
            let grown = bound + bytes;
            // Where two GETs land at once, it grows by one of them.
            self.bound.store(if grown < FREE_BYTES { grown } else { UNBOUNDED }, Ordering::Relaxed);
        }
    }

    /// Whether a GET has brought its bytes since `time`.
    pub(crate) fn has_landed_since(&self, time: Duration) -> bool {
        self.landed.load(Ordering::Relaxed) > micros(time)
    }

    /// Whether readers have been starved since some time after `time`, and for the first time since a GET brought its
    /// bytes. So a GET that was sent because of that goes on.
    pub(crate) fn has_begun_since(&self, time: Duration) -> bool {
        self.began.load(Ordering::Relaxed) > micros(time)
    }

    /// A reader has waited for `waited` at the time `now`. Returns whether it is starved, once in [`STARVED`]: then the
    /// caller cancels what is in flight ahead.
    pub(crate) fn on_wait(&self, waited: Duration, now: Duration) -> bool {
        let last = self.landed.load(Ordering::Relaxed).max(self.starved.load(Ordering::Relaxed));
        let is_starved = waited >= STARVED && micros(now) >= last.saturating_add(micros(STARVED));
        if is_starved {
            if self.began.load(Ordering::Relaxed) <= self.landed.load(Ordering::Relaxed) {
                self.began.store(micros(now), Ordering::Relaxed);
            }
            self.starved.store(micros(now), Ordering::Relaxed);
            self.bound.store(0, Ordering::Relaxed);
        }
        is_starved
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Congestion;

    const MIB: u64 = 1 << 20;

    #[test]
    fn only_a_reader_to_whom_nothing_comes_is_starved() {
        let (congestion, seconds) = (Congestion::default(), Duration::from_secs);
        congestion.on_landed(MIB, seconds(5), seconds(10));
        assert!(!congestion.on_wait(seconds(5), seconds(12)), "something came two seconds ago");
        assert!(!congestion.on_wait(seconds(2), seconds(14)), "it has not waited for long");
        assert_eq!(congestion.bound(), None);
        assert!(congestion.on_wait(seconds(3), seconds(14)));
        assert_eq!(congestion.bound(), Some(0));
        assert!(!congestion.on_wait(seconds(5), seconds(16)), "once in three seconds");
        assert!(congestion.on_wait(seconds(6), seconds(17)));
        assert!(congestion.has_begun_since(seconds(13)) && !congestion.has_begun_since(seconds(14)));
        congestion.on_landed(MIB, seconds(5), seconds(18));
        assert!(congestion.on_wait(seconds(9), seconds(21)) && congestion.has_begun_since(seconds(20)));
    }

    #[test]
    fn quick_gets_end_the_bound_and_slow_ones_leave_it() {
        let (congestion, seconds) = (Congestion::default(), Duration::from_secs);
        assert!(congestion.on_wait(seconds(3), seconds(3)));
        congestion.on_landed(MIB, seconds(2), seconds(4));
        assert_eq!(congestion.bound(), Some(0), "the link carries no more");
        assert!(congestion.has_landed_since(seconds(3)) && !congestion.has_landed_since(seconds(4)));
        let quick = Duration::from_millis(20);
        for landed in 1..64 {
            congestion.on_landed(MIB, quick, seconds(4));
            assert_eq!(congestion.bound(), Some(landed * MIB));
        }
        congestion.on_landed(MIB, quick, seconds(4));
        assert_eq!(congestion.bound(), None);
    }
}
