//! The durations of requests to the tier, and the time limits that follow. Pure: the caller passes times. The
//! store's latencies are learnt elsewhere, so neither spoils the other's.

use std::time::Duration;

use s3mount_object::LATE;

/// The estimate of the time that one request in a hundred exceeds rises by this share when a request exceeds it.
const RISE: f64 = 0.25;

/// It falls by this share when a request does not: 99 falls equal one rise.
const FALL: f64 = RISE / 99.0;

/// A request is given up after this many times what one in a hundred takes.
const GIVEN_UP: f64 = 4.0;

/// No short request is given up before this time: the first one on a new connection may need a handshake.
const SHORT_LEAST: Duration = Duration::from_secs(1);

/// No long GET is given up before this time. It is more than the 128 MiB that may be in flight take at
/// 1 Gbit/s.
const LONG_LEAST: Duration = Duration::from_secs(2);

/// A GET, a HEAD or a lease is given up after this time. A reader waits for it.
pub(crate) const LIMIT_MOST: Duration = Duration::from_secs(4);

/// The upload of a block is given up after this time. No reader waits for it.
pub(crate) const PUT_LIMIT_MOST: Duration = Duration::from_secs(30);

/// A mount waits at least this long for a block that another one has promised: as long as for a short request
/// to the tier. The other mount needs a GET of the source and an upload. With 250 ms, two mounts on a machine
/// that was busy with builds fetched 17 of 64 blocks twice, all of which came within half a second.
const WAIT_LEAST: Duration = Duration::from_secs(1);

/// And no longer than this, because the other mount may have ended.
const WAIT_MOST: Duration = Duration::from_secs(4);

/// As long as no promised block has come.
const WAIT_UNKNOWN: Duration = Duration::from_secs(2);

/// GETs of up to this many bytes are short.
const SHORT_BYTES: u64 = 1 << 20;

/// The time that one request in a hundred exceeds.
#[derive(Clone, Copy, Debug, Default)]
struct Slowest(Option<f64>);

impl Slowest {
    fn note(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.0 = Some(match self.0 {
            None => took * 2.0,
            Some(slowest) if took > slowest => {
                (slowest * (1.0 + RISE)).max(slowest + (took - slowest) / 16.0)
            }
            Some(slowest) => (slowest * (1.0 - FALL)).max(1e-4),
        });
    }

    fn times(self, factor: f64, unknown: Duration, least: Duration, most: Duration) -> Duration {
        self.0.map_or(unknown, |slowest| {
            Duration::try_from_secs_f64(slowest * factor).unwrap_or(most).clamp(least, most)
        })
    }
}

/// How long requests of each kind take.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    short_gets: Slowest,
    long_gets: Slowest,
    /// How long the last GET took.
    last_get: Duration,
    puts: Slowest,
    /// From the first look for a promised block until it is there.
    promises: Slowest,
    /// When a promised block came last.
    kept_at: Option<Duration>,
}

impl Patience {
    fn gets(&mut self, bytes: u64) -> &mut Slowest {
        if bytes <= SHORT_BYTES { &mut self.short_gets } else { &mut self.long_gets }
    }

    /// A GET of `bytes` took this long.
    pub(crate) fn note_get(&mut self, bytes: u64, took: Duration) {
        self.gets(bytes).note(took);
        self.last_get = took;
    }

    /// The upload of a block took this long.
    pub(crate) fn note_put(&mut self, took: Duration) {
        self.puts.note(took);
    }

    /// A promised block was there at `now`, after a wait that began at `began`.
    pub(crate) fn note_kept(&mut self, began: Duration, now: Duration) {
        self.promises.note(now.saturating_sub(began));
        self.kept_at = self.kept_at.max(Some(now));
    }

    /// Notes that a promised block did not come between `began` and `now`.
    pub(crate) fn note_broken(&mut self, began: Duration, now: Duration) {
        self.promises.note(now.saturating_sub(began));
    }

    /// Whether the last GET took so long that the source may be faster.
    pub(crate) fn is_slow(&self) -> bool {
        self.last_get > LATE
    }

    /// The time after which a GET of `bytes` is given up. Requests without a payload are GETs of no bytes.
    pub(crate) fn get_limit(&mut self, bytes: u64) -> Duration {
        let least = if bytes <= SHORT_BYTES { SHORT_LEAST } else { LONG_LEAST };
        self.gets(bytes).times(GIVEN_UP, LIMIT_MOST, least, LIMIT_MOST)
    }

    /// The time after which the upload of a block is given up.
    pub(crate) fn put_limit(&self) -> Duration {
        self.puts.times(GIVEN_UP, PUT_LIMIT_MOST, LIMIT_MOST, PUT_LIMIT_MOST)
    }

    /// Whether a wait for a promised block that began at `began` goes on until `until`. It does while promised blocks
    /// come: then the mounts that fetch them are slow, and not gone. After the last one that came, it goes on for twice
    /// as long as one in a hundred takes.
    pub(crate) fn waits(&self, began: Duration, until: Duration) -> bool {
        let since = self.kept_at.map_or(began, |kept_at| kept_at.max(began));
        until.saturating_sub(since) <= self.wait_limit() && until.saturating_sub(began) <= WAIT_MOST
    }

    fn wait_limit(&self) -> Duration {
        self.promises.times(2.0, WAIT_UNKNOWN, WAIT_LEAST, WAIT_MOST)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Patience, Slowest};

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn one_in_a_hundred_is_slower() {
        let mut slowest = Slowest::default();
        let mut random = 1u64;
        let mut slower = 0;
        for count in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let took = ms(10 + (random >> 33) % 1000);
            slower += u32::from(count > 10_000 && slowest.0.is_some_and(|most| took.as_secs_f64() > most));
            slowest.note(took);
        }
        assert!((300..=2000).contains(&slower), "{slower} of 90,000");
    }

    #[test]
    fn waits_stay_within_their_bounds() {
        let mut patience = Patience::default();
        assert_eq!((patience.wait_limit(), patience.get_limit(1)), (ms(2000), ms(4000)));
        (0..1000).for_each(|_| patience.note_kept(ms(0), ms(1)));
        (0..1000).for_each(|_| patience.note_get(1, ms(1)));
        assert_eq!((patience.wait_limit(), patience.get_limit(1)), (ms(1000), ms(1000)));
        assert_eq!(patience.get_limit(8 << 20), ms(4000), "nothing is known of long GETs");
        (0..1000).for_each(|_| patience.note_broken(ms(0), ms(800)));
        assert!((ms(1600)..ms(2200)).contains(&patience.wait_limit()), "{:?}", patience.wait_limit());
        (0..1000).for_each(|_| patience.note_broken(ms(0), ms(60_000)));
        assert_eq!(patience.wait_limit(), ms(4000));
        (0..100).for_each(|_| patience.note_put(ms(100)));
        assert_eq!(patience.put_limit(), ms(4000));
    }

    #[test]
    fn a_wait_goes_on_while_promised_blocks_come() {
        let mut patience = Patience::default();
        (0..1000).for_each(|_| patience.note_kept(ms(9900), ms(10_000)));
        let began = ms(20_000);
        assert!(patience.waits(began, ms(21_000)) && !patience.waits(began, ms(21_001)));
        for at in (20_500..23_500).step_by(500) {
            patience.note_kept(ms(at - 100), ms(at));
            assert!(patience.waits(began, ms(at + 999).min(ms(24_000))), "{at}");
            assert!(!patience.waits(began, ms(at + 1001)));
        }
        assert!(
            !patience.waits(began, ms(24_001)),
            "the block may have been promised by a mount that is gone"
        );
    }
}
