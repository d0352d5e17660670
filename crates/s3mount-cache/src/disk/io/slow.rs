//! Sends the reads of a slow disk to the source, which brings the same bytes much sooner.
//!
//! A throttled volume answers every read, but so late that it is worse than no disk. After five late reads in a row,
//! the disk rests for a while: it is neither read nor filled. Then one read is the probe. If it is late, the next rest
//! is twice as long.
//!
//! Which read is late depends on the time that the source takes. While that is unknown, a late read sends one GET to
//! measure it.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use s3mount_object::{Breaker, Change, Fault, Rule, late_after};

use crate::disk::clock::{Clock, SinceBoot};

/// One read that is not late shows that the disk is not slow: a late read may only have asked for more bytes than
/// usual.
const RULE: Rule = Rule { good: f64::MAX, first_rest: Duration::from_secs(30) };

/// Decides whether the disk or the source is read.
#[derive(Debug)]
pub(crate) struct Slowness {
    path: PathBuf,
    clock: Clock,
    state: Mutex<SlowReads>,
}

#[derive(Debug)]
struct SlowReads {
    breaker: Breaker,
    /// How long the last late read took.
    late: Duration,
    /// Whether a read was late since the last GET that measured the source.
    asks: bool,
}

/// The time after which a read of `bytes` is late. It is never shorter than for an unknown source: a spinning disk with
/// many readers takes more than a second for 8 MiB.
fn late(bytes: u64, source: Option<Duration>) -> Duration {
    late_after(bytes, None).max(late_after(bytes, source))
}

impl Slowness {
    pub(crate) fn new(path: PathBuf, clock: Clock) -> Self {
        let state = SlowReads { breaker: Breaker::new(RULE), late: Duration::ZERO, asks: false };
        Self { path, clock, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, SlowReads> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.clock.now().since(SinceBoot::default())
    }

    /// Whether the disk's known speed allows reads and writes now.
    pub(crate) fn may_ask(&self) -> bool {
        let now = self.now();
        self.lock().breaker.would_admit(now)
    }

    /// Whether a read may be sent now. The first read after a rest is the probe.
    pub(crate) fn admit(&self) -> bool {
        let now = self.now();
        self.lock().breaker.admit(now)
    }

    /// Whether the disk was slow, and every read since was late.
    pub(crate) fn rests(&self) -> bool {
        self.lock().breaker.rests()
    }

    /// Whether to ask the source for bytes that the disk holds, and for how long. If the time that the source takes is
    /// unknown, one read after a late one asks it.
    pub(crate) fn asks_source(&self, is_source_known: bool) -> Option<Duration> {
        let now = self.now();
        let mut state = self.lock();
        let asks = !state.breaker.would_admit(now) || (!is_source_known && std::mem::take(&mut state.asks));
        asks.then_some(state.late)
    }

    /// Ends the rest: the source is too slow for bytes that the disk holds.
    pub(crate) fn on_source_slow(&self) {
        let now = self.now();
        self.lock().breaker.end_rest(now);
    }

    /// Notes that a read of `bytes` took `took`. The source takes `source` for them, if that is known.
    pub(crate) fn note(&self, bytes: u64, took: Duration, source: Option<Duration>) {
        let (now, is_late) = (self.now(), took > late(bytes, source));
        let change = {
            let mut state = self.lock();
            if is_late {
                (state.late, state.asks) = (took, true);
                state.breaker.on_bad(Fault::Error, now)
            } else {
                state.breaker.on_good(now)
            }
        };
        let dir = self.path.display();
        match change {
            Change::None => {}
            Change::Rests(rest) => tracing::warn!(
                %dir, bytes, ?took, ?source, ?rest,
                "the disk of the cache is slow: reads go to the store for a while, which costs GETs; see whether its volume is throttled, or name a faster disk with --cache"
            ),
            Change::RestsOn(rest) => {
                tracing::debug!(%dir, bytes, ?took, ?rest, "the disk of the cache is still slow");
            }
            Change::Works => tracing::info!(%dir, "the disk of the cache is fast enough again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::Slowness;
    use crate::disk::clock::Clock;

    const MIB: u64 = 1 << 20;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    struct Disk {
        now: Arc<AtomicU64>,
        slow: Slowness,
    }

    impl Disk {
        fn new() -> Self {
            let now = Arc::new(AtomicU64::new(0));
            Self { slow: Slowness::new(PathBuf::from("/cache"), Clock::manual(1, now.clone())), now }
        }

        fn wait(&self, seconds: u64) {
            self.now.fetch_add(seconds * 1_000_000_000, Ordering::Relaxed);
        }

        fn reads(&self, count: usize, took: Duration, source: Option<Duration>) {
            (0..count).for_each(|_| self.slow.note(MIB, took, source));
        }
    }

    #[test]
    fn five_late_reads_in_a_row_are_too_many() {
        let (disk, fast) = (Disk::new(), Some(ms(20)));
        for _ in 0..10 {
            disk.reads(4, ms(1300), fast);
            disk.reads(1, ms(900), fast);
        }
        assert!(disk.slow.may_ask() && disk.slow.asks_source(true).is_none());
        disk.reads(5, ms(1300), fast);
        assert!(!disk.slow.may_ask() && !disk.slow.admit());
        assert_eq!(disk.slow.asks_source(true), Some(ms(1300)));
        disk.wait(29);
        assert!(!disk.slow.may_ask());
        disk.wait(1);
        assert!(disk.slow.may_ask() && disk.slow.rests() && disk.slow.admit());
        assert!(!disk.slow.admit() && !disk.slow.may_ask(), "one probe");
        disk.reads(1, ms(1300), fast);
        disk.wait(59);
        assert!(!disk.slow.may_ask(), "it rests for twice as long");
        disk.wait(1);
        assert!(disk.slow.admit());
        disk.reads(1, ms(5), fast);
        assert!(disk.slow.may_ask() && !disk.slow.rests());
    }

    #[test]
    fn a_disk_that_is_no_slower_than_the_source_is_not_slow() {
        let disk = Disk::new();
        disk.reads(100, ms(1300), Some(ms(400)));
        assert!(disk.slow.may_ask());
    }

    #[test]
    fn a_spinning_disk_is_not_slow() {
        let disk = Disk::new();
        disk.reads(100, ms(999), Some(ms(1)));
        // Sixteen readers of a disk of 125 MB/s.
        (0..100).for_each(|_| disk.slow.note(8 * MIB, ms(1074), Some(ms(50))));
        assert!(disk.slow.may_ask());
        assert_eq!(disk.slow.asks_source(false), None, "no GET measures the source");
    }

    #[test]
    fn one_get_asks_where_the_source_is_not_known() {
        let disk = Disk::new();
        assert_eq!(disk.slow.asks_source(false), None);
        disk.reads(1, ms(3000), None);
        assert_eq!(disk.slow.asks_source(true), None);
        assert_eq!(disk.slow.asks_source(false), Some(ms(3000)));
        assert_eq!(disk.slow.asks_source(false), None, "one");
    }

    #[test]
    fn a_source_that_is_no_faster_ends_the_rest() {
        let disk = Disk::new();
        disk.reads(5, ms(1300), None);
        assert!(!disk.slow.may_ask());
        disk.slow.on_source_slow();
        assert!(disk.slow.may_ask() && !disk.slow.rests());
    }
}
