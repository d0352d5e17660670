//! When a tier before the store is left alone. Pure: the caller passes times.
//!
//! Requests that fail, and answers that come late, fill a score, and good answers empty it. When the score is
//! full, nothing is asked for a while. Then one request goes out as a probe. If it fails, the next rest is
//! twice as long.

use std::time::Duration;

/// The score at which the rest begins. A bad answer is one.
const MOST: f64 = 5.0;

/// The longest rest: a tier that was away for hours is asked again within minutes.
const LONGEST_REST: Duration = Duration::from_secs(300);

/// A probe without an outcome after this time was given up by its reader. Another request may be the probe.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// How long an answer takes at least that is late: sixteen blocks of the shared tier at once take 0.7 s on two busy cores.
pub const LATE: Duration = Duration::from_secs(1);

/// An answer is late when it takes so many times what the source takes: such a tier is worse than none.
const TIMES_SOURCE: u32 = 4;

/// Where it is not known how long the source takes, an answer may take longer than [`LATE`] by the time that its bytes
/// take at this rate. In bytes a second, for one of as many reads as may be in flight: sixteen bring 1 Gbit/s then.
const SLOWEST: f64 = 10e6;

/// After what time `bytes` of a tier come late, for which the source takes `source`, if that is known.
pub fn late_after(bytes: u64, source: Option<Duration>) -> Duration {
    let by_itself = || LATE + Duration::from_secs_f64(bytes as f64 / SLOWEST);
    source.map_or_else(by_itself, |source| LATE.max(source * TIMES_SOURCE))
}

/// How a breaker judges.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// What a good answer takes from the score. Five bad answers fill it.
    pub good: f64,
    /// The first rest. It is longer than a request may take, so that the answers to requests from before the rest
    /// are not taken for the probe's.
    pub first_rest: Duration,
}

/// How bad an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error, or bytes that came late.
    Error,
    /// No answer in time. A reader has waited for it, so two of these are enough.
    Silence,
}

/// What an answer has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// The tier worked, and rests for this long now.
    Rests(Duration),
    /// The probe failed, and the tier goes on to rest for this long.
    RestsOn(Duration),
    /// The probe was answered.
    Works,
}

#[derive(Clone, Copy, Debug)]
enum BreakerState {
    Working,
    Resting { until: Duration },
    Probing { since: Duration },
}

/// Decides for requests of one kind whether they may be sent.
#[derive(Debug)]
pub struct Breaker {
    rule: Rule,
    state: BreakerState,
    score: f64,
    /// The last rest, and when it ended. The next one is twice as long if it comes soon after.
    rest: Duration,
    worked_since: Duration,
}

impl Breaker {
    /// One that judges by `rule`, for a tier that works.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            state: BreakerState::Working,
            score: 0.0,
            rest: Duration::ZERO,
            worked_since: Duration::ZERO,
        }
    }

    /// Whether the tier is left alone.
    pub fn rests(&self) -> bool {
        !matches!(self.state, BreakerState::Working)
    }

    /// Whether a request would be admitted now.
    pub fn would_admit(&self, now: Duration) -> bool {
        match self.state {
            BreakerState::Working => true,
            BreakerState::Resting { until } => now >= until,
            BreakerState::Probing { since } => now >= since + PROBE_LIMIT,
        }
    }

    /// Whether a request may be sent now. After a rest, the first request that asks is the probe.
    pub fn admit(&mut self, now: Duration) -> bool {
        let is_admitted = self.would_admit(now);
        if is_admitted && self.rests() {
            self.state = BreakerState::Probing { since: now };
        }
        is_admitted
    }

    /// A good answer came.
    pub fn on_good(&mut self, now: Duration) -> Change {
        self.score = (self.score - self.rule.good).max(0.0);
        match self.state {
            BreakerState::Working | BreakerState::Resting { .. } => Change::None,
            BreakerState::Probing { .. } => {
                (self.state, self.score, self.worked_since) = (BreakerState::Working, 0.0, now);
                Change::Works
            }
        }
    }

    /// The rest is over at once: what is asked instead is no better.
    pub fn end_rest(&mut self, now: Duration) {
        if self.rests() {
            (self.state, self.score, self.worked_since) = (BreakerState::Working, 0.0, now);
        }
    }

    /// A request failed, or its answer came late.
    pub fn on_bad(&mut self, fault: Fault, now: Duration) -> Change {
        self.score += match fault {
            Fault::Error => 1.0,
            Fault::Silence => MOST / 2.0,
        };
        let was_working = match self.state {
            BreakerState::Resting { .. } => return Change::None,
            BreakerState::Working if self.score < MOST => return Change::None,
            BreakerState::Working => true,
            BreakerState::Probing { .. } => false,
        };
        let is_soon = !was_working || now.saturating_sub(self.worked_since) < self.rest;
        let rest = if is_soon { self.rest * 2 } else { self.rule.first_rest };
        self.rest = rest.clamp(self.rule.first_rest, LONGEST_REST);
        self.state = BreakerState::Resting { until: now + self.rest };
        if was_working { Change::Rests(self.rest) } else { Change::RestsOn(self.rest) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Breaker, Change, Fault, LATE, Rule, late_after};

    const RULE: Rule = Rule { good: 0.5, first_rest: seconds(5) };

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_few_errors_among_good_answers_change_nothing() {
        let mut breaker = Breaker::new(RULE);
        for round in 0..1000 {
            assert_eq!(breaker.on_bad(Fault::Error, seconds(round)), Change::None);
            for _ in 0..3 {
                assert_eq!(breaker.on_good(seconds(round)), Change::None);
            }
        }
        assert!(breaker.admit(seconds(1000)) && !breaker.rests());
    }

    #[test]
    fn half_of_the_answers_bad_is_too_many() {
        let mut breaker = Breaker::new(RULE);
        let changes =
            (0..20).map(|_| (breaker.on_good(seconds(0)), breaker.on_bad(Fault::Error, seconds(0))));
        assert!(changes.into_iter().any(|(_, change)| matches!(change, Change::Rests(_))));
    }

    #[test]
    fn rests_double_up_to_five_minutes_and_one_probe_goes_out_after_each() {
        let (mut breaker, mut now) = (Breaker::new(RULE), seconds(100));
        assert_eq!(breaker.on_bad(Fault::Silence, now), Change::None);
        assert_eq!(breaker.on_bad(Fault::Silence, now), Change::Rests(seconds(5)));
        assert_eq!(breaker.on_bad(Fault::Silence, now), Change::None, "an answer from before the rest");
        for rest in [5, 10, 20, 40, 80, 160, 300, 300].map(seconds) {
            assert!(!breaker.admit(now + rest - Duration::from_millis(1)));
            now += rest;
            assert!(breaker.admit(now), "the probe after {rest:?}");
            assert!(!breaker.admit(now), "one probe only");
            assert_eq!(breaker.on_bad(Fault::Error, now), Change::RestsOn((rest * 2).min(seconds(300))));
        }
        now += seconds(300);
        assert!(breaker.admit(now));
        assert_eq!(breaker.on_good(now), Change::Works);
        assert!(breaker.admit(now) && breaker.admit(now), "all may ask again");
    }

    #[test]
    fn a_rest_soon_after_another_is_longer_and_one_much_later_is_not() {
        let mut breaker = Breaker::new(RULE);
        let fail = |breaker: &mut Breaker, now| {
            let _ = breaker.on_bad(Fault::Silence, now);
            breaker.on_bad(Fault::Silence, now)
        };
        let _ = fail(&mut breaker, seconds(0));
        assert!(breaker.admit(seconds(5)));
        assert_eq!(breaker.on_good(seconds(5)), Change::Works);
        assert_eq!(fail(&mut breaker, seconds(6)), Change::Rests(seconds(10)));
        assert!(breaker.admit(seconds(16)));
        assert_eq!(breaker.on_good(seconds(16)), Change::Works);
        assert_eq!(fail(&mut breaker, seconds(60)), Change::Rests(seconds(5)));
    }

    #[test]
    fn a_probe_that_was_given_up_is_followed_by_another() {
        let mut breaker = Breaker::new(RULE);
        let _ = breaker.on_bad(Fault::Silence, seconds(0));
        let _ = breaker.on_bad(Fault::Silence, seconds(0));
        assert!(breaker.admit(seconds(5)));
        assert!(!breaker.admit(seconds(14)));
        assert!(breaker.admit(seconds(15)));
    }

    #[test]
    fn five_in_a_row_are_too_many_where_a_good_answer_empties_the_score() {
        let mut breaker = Breaker::new(Rule { good: f64::MAX, first_rest: seconds(30) });
        let bad = |breaker: &mut Breaker| breaker.on_bad(Fault::Error, seconds(0));
        for _ in 0..100 {
            assert!((0..4).all(|_| bad(&mut breaker) == Change::None));
            assert_eq!(breaker.on_good(seconds(0)), Change::None);
        }
        assert!((0..4).all(|_| bad(&mut breaker) == Change::None));
        assert_eq!(bad(&mut breaker), Change::Rests(seconds(30)));
    }

    #[test]
    fn a_rest_that_is_ended_is_as_if_it_had_not_been() {
        let mut breaker = Breaker::new(RULE);
        let _ = breaker.on_bad(Fault::Silence, seconds(0));
        assert!(matches!(breaker.on_bad(Fault::Silence, seconds(0)), Change::Rests(_)));
        breaker.end_rest(seconds(1));
        assert!(!breaker.rests() && breaker.admit(seconds(1)) && breaker.admit(seconds(1)));
        assert_eq!(breaker.on_bad(Fault::Silence, seconds(1)), Change::None, "the score is empty");
    }

    #[test]
    fn no_answer_is_late_within_a_second() {
        let ms = Duration::from_millis;
        for bytes in [0, 1, 8 << 20] {
            assert_eq!((late_after(bytes, Some(ms(1))), late_after(bytes, Some(ms(250)))), (LATE, LATE));
            assert_eq!(late_after(bytes, Some(ms(500))), ms(2000));
            assert!(late_after(bytes, None) >= LATE);
        }
        assert_eq!(late_after(10_000_000, None), ms(2000));
    }
}
