//! Which versions the disk cache may evict: fill and hold, with ageing.
//!
//! A training job reads each object once an epoch. Then each hit spans the edge between two epochs, so no policy has
//! more hits in an epoch than objects fit. A policy that holds its objects and admits nothing more has that many. A
//! policy that evicts the least recently used object has none when the objects come in order, because each object
//! leaves just before its next use.
//!
//! Held objects must age, or the cache stays full of the objects of a job that has ended. Three rules say which objects
//! may be evicted:
//!
//! - *Idle.* The times between two uses of an object are noted, for hits and for misses. At a random moment, most
//!   objects wait in a long one of these times. So each time weighs as much as it is long, and uses that repeat within
//!   an epoch hardly count. An object that has been idle for somewhat longer than nearly all of these times may be
//!   evicted.
//! - *Other data.* When at least half of the uses are of objects that were never seen before, the jobs have moved to
//!   other data, and an *era* begins. While the era is open, every object that was not used in it may be evicted at
//!   once. Objects that the era brought are held. The era closes when most objects are known.
//! - *A faster job.* A job that comes back to its objects much sooner than others has more hits for the same space.
//!   When at least half of the uses are misses of such objects, an object that is idle for several times *their* time
//!   may be evicted.
//!
//! Evicting an object for another that is used as often costs one hit and brings one. So an era that opened wrongly
//! costs at most the hits of one epoch.
//!
//! Pure: its input is uses and times, its output is the time before which a last use is too long ago. Times are those
//! of the clock from which file systems take file times.

pub(crate) mod encoding;

use std::time::Duration;

/// The shortest time that is distinguished from zero.
const FIRST_BIN: Duration = Duration::from_secs(1);

/// How many bins double the time. An eighth of an octave is 9 % of the time.
const BINS_AN_OCTAVE: f64 = 8.0;

/// 24 octaves of seconds are 194 days.
const BINS: usize = 192;

/// This part of the waiting, by time, is in times between two uses that are not longer than the quantile. Of a
/// data set that is shuffled anew in each epoch, uses are up to two epochs apart, and this is 1.77 epochs.
const QUANTILE: f32 = 0.95;

/// An object is idle after the quantile times this: two epochs of a shuffled data set, with the bin's width.
const MARGIN: f64 = 1.1;

/// After this many times, the weights of all times fall by an eighth: the last 4,000 times count.
const DECAY_EVERY: u32 = 512;

/// The factor of one decay.
const DECAY: f32 = 7.0 / 8.0;

/// The ageing uses the times only when it knows this many.
const MIN_KNOWN: f32 = 32.0;

/// A time longer than this many times the limit weighs no more than that. So one reader of a very old object does not
/// move the limit, and a few do: the first uses after a weekend.
const MOST_WEIGHT: f64 = 16.0;

/// Objects are idle after this time while no time between two uses is known: a day, because many jobs run once a day.
const UNKNOWN_IDLE: Duration = Duration::from_secs(24 * 3600);

/// A file's time of last use may be too early by this part of the time between two uses, within the two bounds. Writing
/// it changes an inode on the disk, so not every use is written.
const GRAIN: f64 = 1.0 / 8.0;
const MIN_GRAIN: Duration = Duration::from_secs(60);
const MAX_GRAIN: Duration = Duration::from_secs(3600);

/// Uses of an object that follow each other within this time are one use, by several workers of a job.
const SAME_USE: Duration = Duration::from_secs(60);

/// A use after less than this part of the limit is *quick*: a repetition within an epoch, or a faster job's.
const QUICK: f64 = 1.0 / 16.0;

/// An object belongs to a faster job after this many quick uses in a row. Fewer are repetitions, after which the object
/// is not used before the next epoch.
const MIN_QUICK_USES: u8 = 3;

/// A faster job evicts objects that are idle for this many times the time between two uses of its own objects. The
/// longest of a round counts, which is nearly two of its epochs.
const FASTER: u32 = 4;

/// How many uses are looked at together. Fewer would be too few when a tenth of them are new, and many more
/// would be too many for data sets of 100 large objects.
const ROUND: u8 = 32;

/// An era begins when this many uses of a round are of objects that were never seen.
const OPENS: u8 = ROUND / 2;

/// An era closes when fewer uses of a round are of such objects.
const CLOSES: u8 = ROUND / 4;

/// One use of an object. One open counts as one use, however much is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Use {
    /// The object was not used for as long as uses are remembered.
    First,
    /// The object was used before.
    Again {
        /// How long ago.
        after: Duration,
        /// How many uses of the object in a row were quick, with this one.
        quick: u8,
        /// Whether the use was a hit.
        was_here: bool,
    },
}

/// The counts of a round.
#[derive(Clone, Debug, Default, PartialEq)]
struct Round {
    /// The time of its first use.
    start: Duration,
    uses: u8,
    firsts: u8,
    /// Misses of a faster job, and the longest time between two uses of these.
    faster: u8,
    faster_reuse: Duration,
}

/// Statistics of the uses of a cache's objects, shared by all mounts of the cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ageing {
    /// The sum of the times between two uses in seconds, by the time's logarithm.
    weights: [f32; BINS],
    /// How many times are known. It decays as the weights do.
    known: f32,
    since_decay: u32,
    round: Round,
    /// When the last era began, and whether it is open.
    era: Duration,
    is_era_open: bool,
    /// The time between two uses of a faster job's objects, while these are missed.
    faster_reuse: Option<Duration>,
}

impl Default for Ageing {
    fn default() -> Self {
        Self {
            weights: [0.0; BINS],
            known: 0.0,
            since_decay: 0,
            round: Round::default(),
            era: Duration::ZERO,
            is_era_open: false,
            faster_reuse: None,
        }
    }
}

impl Ageing {
    /// Notes that an object is used at `now`.
    pub(crate) fn note(&mut self, used: Use, now: Duration) {
        let mut faster = None;
        if let Use::Again { after, quick, was_here } = used {
            if after < SAME_USE {
                return;
            }
            let is_quick = after < self.quick();
            self.learn(after);
            if is_quick {
                if was_here || quick < MIN_QUICK_USES {
                    return;
                }
                faster = Some(after);
            }
        }
        self.count(used == Use::First, faster, now);
    }

    /// Counts a use for the rounds that tell whether the jobs have changed.
    fn count(&mut self, is_first: bool, faster: Option<Duration>, now: Duration) {
        let round = &mut self.round;
        if round.uses == 0 {
            round.start = now;
        }
        round.uses += 1;
        round.firsts += u8::from(is_first);
        round.faster += u8::from(faster.is_some());
        round.faster_reuse = round.faster_reuse.max(faster.unwrap_or_default());
        if round.firsts >= OPENS && !self.is_era_open {
            // At once, not at the round's end: a data set may have few objects.
            (self.is_era_open, self.era) = (true, round.start);
            *round = Round::default();
            return;
        }
        if round.uses < ROUND {
            return;
        }
        let round = std::mem::take(round);
        self.is_era_open &= round.firsts >= CLOSES;
        let is_faster = round.faster >= if self.faster_reuse.is_some() { CLOSES } else { OPENS };
        self.faster_reuse = is_faster.then_some(round.faster_reuse);
    }

    /// Notes that another mount begins, mostly for another job. Data that was not seen before then begins a new era,
    /// even if all earlier data was new, too.
    pub(crate) fn begin(&mut self) {
        self.is_era_open = false;
        self.round = Round::default();
    }

    /// Objects whose last use was before this time may be evicted.
    pub(crate) fn oldest_kept(&self, now: Duration) -> Duration {
        let faster = self.faster_reuse.map(|reuse| reuse * FASTER + self.grain());
        let idle = faster.map_or(self.idle(), |faster| faster.min(self.idle()));
        let oldest = now.saturating_sub(idle);
        if self.is_era_open { oldest.max(self.era.min(now)) } else { oldest }
    }

    /// Whether the jobs have just changed, so that objects may be evicted now that could not be before.
    pub(crate) fn has_changed(&self) -> bool {
        self.is_era_open || self.faster_reuse.is_some()
    }

    /// Whether to write a use at `now` to a file whose recorded last use is `used`. A recorded time in the future comes
    /// from a clock that was wrong.
    pub(crate) fn is_time_stale(&self, used: Duration, now: Duration) -> bool {
        let is_before_era = self.is_era_open && used < self.era;
        is_before_era || used > now || now - used >= self.grain()
    }

    /// How long an object is held without a use.
    pub(crate) fn idle(&self) -> Duration {
        if self.known < MIN_KNOWN {
            return UNKNOWN_IDLE;
        }
        self.reuse_time().mul_f64(MARGIN) + self.grain()
    }

    /// A use after less than this is quick.
    pub(crate) fn quick(&self) -> Duration {
        self.idle().mul_f64(QUICK).max(SAME_USE)
    }

    /// The time within which nearly all objects are used again. Zero while none is known.
    pub(crate) fn reuse_time(&self) -> Duration {
        let beyond = self.weights.iter().sum::<f32>() * (1.0 - QUANTILE);
        let mut sum = 0.0;
        let bin = self.weights.iter().rposition(|weight| {
            sum += weight;
            sum > beyond
        });
        bin.map_or(Duration::ZERO, |bin| FIRST_BIN.mul_f64(f64::exp2((bin + 1) as f64 / BINS_AN_OCTAVE)))
    }

    fn grain(&self) -> Duration {
        self.reuse_time().mul_f64(GRAIN).clamp(MIN_GRAIN, MAX_GRAIN)
    }

    fn learn(&mut self, after: Duration) {
        let octaves = (after.as_secs_f64() / FIRST_BIN.as_secs_f64()).max(1.0).log2();
        let bin = ((octaves * BINS_AN_OCTAVE) as usize).min(BINS - 1);
        self.weights[bin] += after.min(self.idle().mul_f64(MOST_WEIGHT)).as_secs_f32();
        self.known += 1.0;
        self.since_decay += 1;
        if self.since_decay == DECAY_EVERY {
            self.since_decay = 0;
            self.known *= DECAY;
            self.weights.iter_mut().for_each(|weight| *weight *= DECAY);
        }
    }
}
