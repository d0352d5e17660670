//! The limit on GETs in flight, adapted to the store's answers.
//!
//! A store that gets too many requests answers 503 or 429. The limit then falls by the share of the GETs in flight that
//! the store refused. Afterwards it grows by a fixed number each second: additive increase and multiplicative decrease,
//! as in TCP. When the store has refused nothing for a while, the limit doubles each second.
//!
//! The share is measured in time, not in answers. A refusal mostly takes a fifth of the time of a good answer, and the
//! next GET takes its place at once. Suppose that one GET of sixteen is too many, and is refused every 5 ms while the
//! others take 25 ms. Then a quarter of all answers are refusals.
//!
//! Pure: the caller passes all times, since any fixed moment.

use std::time::Duration;

use crate::limits::need::USUAL;

/// Answers are counted for this long before the limit changes, and until there are [`ANSWERS`] of them, but
/// not for longer than [`LONGEST_ROUND`].
const ROUND: Duration = Duration::from_millis(100);
const ANSWERS: u64 = 50;
const LONGEST_ROUND: Duration = Duration::from_secs(1);

/// This share of the answers may be refusals without a change: even a store with capacity to spare refuses
/// one request in some hundreds.
const TOLERATED: f64 = 0.02;

/// The factors on the limit: after a round in which a few requests were refused, and after one in which nearly all
/// were.
const LEAST_CUT: f64 = 0.95;
const MOST_CUT: f64 = 0.5;

/// How much the limit grows in a second, as a share of the limit at which requests were refused last. One
/// second after the smallest cut it is back at that limit, so few of the requests in between are refused.
const GROWTH: f64 = 0.05;

/// A store that has refused nothing for this long may have more capacity than before, so the limit doubles
/// each second. Growing by [`GROWTH`] alone would take minutes from a few GETs to hundreds.
const CALM: Duration = Duration::from_secs(10);

/// The limit on GETs in flight.
#[derive(Debug)]
pub(crate) struct Concurrency {
    most: f64,
    /// **Invariant:** at least 1, and at most `most`.
    limit: f64,
    /// The limit at the last refusal, or the number of GETs in flight then.
    ceiling: f64,
    round: Round,
    refused_at: Option<Duration>,
}

/// The answers since the limit changed.
#[derive(Debug, Default)]
struct Round {
    began: Duration,
    answered: u64,
    refused: u64,
    /// The time that all GETs took, and the time that the refused ones of them took.
    took: Duration,
    took_refused: Duration,
    /// Whether the limit made a GET wait.
    is_bound: bool,
    /// The most GETs that were in flight.
    busiest: usize,
}

impl Concurrency {
    /// A limit of `most` GETs, which falls when the store refuses some.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1) as f64;
        Self { most, limit: most, ceiling: most, round: Round::default(), refused_at: None }
    }

    /// The number of GETs that may be in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Notes that the limit made a GET wait, so a higher limit would help.
    pub(crate) fn on_wait(&mut self) {
        self.round.is_bound = true;
    }

    /// Notes that a GET sent at `sent` has come back at `now`, refused or not. Meanwhile the store has answered
    /// `refused` requests with "slow down", counting all GETs and the client's retries. `running` GETs were in flight,
    /// including this one.
    pub(crate) fn on_answer(
        &mut self,
        sent: Duration,
        now: Duration,
        refused: u64,
        was_refused: bool,
        running: usize,
    ) {
        self.round.busiest = running.max(self.round.busiest);
        self.round.answered += 1;
        self.round.took += now.saturating_sub(sent);
        // A GET that was sent before the last change says nothing about the new limit.
        if sent >= self.round.began {
            self.round.refused += refused;
            self.round.took_refused += if was_refused { now.saturating_sub(sent) } else { Duration::ZERO };
        }
        let took = now.saturating_sub(self.round.began);
        if took < ROUND || self.round.answered < ANSWERS && took < LONGEST_ROUND {
            return;
        }
        if self.round.refused as f64 > self.round.answered as f64 * TOLERATED {
            self.ceiling = self.limit.min(self.round.busiest.max(USUAL) as f64);
            let share = self.round.took_refused.as_secs_f64() / self.round.took.as_secs_f64().max(1e-6);
            self.limit = (self.ceiling * (1.0 - share).clamp(MOST_CUT, LEAST_CUT)).max(1.0);
            self.refused_at = Some(now);
        } else if self.round.is_bound {
            let is_calm = self.refused_at.is_none_or(|at| now.saturating_sub(at) >= CALM);
            // A longer round had few GETs to learn from.
            let seconds = took.min(LONGEST_ROUND).as_secs_f64();
            let growth = if is_calm { self.limit } else { self.ceiling * GROWTH };
            self.limit = (self.limit + growth * seconds).min(self.most);
        }
        self.round = Round { began: now, ..Round::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Concurrency;

    /// Answers GETs for `seconds`, as many at once as the limit allows, each after 25 ms, by a store that takes `rate`
    /// a second. Returns how many requests a second were sent, and how many of them were refused.
    fn run(concurrency: &mut Concurrency, now: &mut Duration, rate: f64, seconds: u32) -> (f64, f64) {
        let (step, until) = (Duration::from_millis(25), *now + Duration::from_secs(seconds.into()));
        let (mut asked, mut refused, mut tokens) = (0, 0, 0.0_f64);
        while *now < until {
            tokens = (tokens + rate * step.as_secs_f64()).min(rate / 10.0);
            let sent = *now;
            *now += step;
            for _ in 0..concurrency.limit() {
                concurrency.on_wait();
                let is_refused = tokens < 1.0;
                tokens -= if is_refused { 0.0 } else { 1.0 };
                (asked, refused) = (asked + 1, refused + u32::from(is_refused));
                concurrency.on_answer(sent, *now, is_refused.into(), is_refused, concurrency.limit());
            }
        }
        (f64::from(asked) / f64::from(seconds), f64::from(refused) / f64::from(seconds))
    }

    #[test]
    fn it_settles_where_the_store_refuses_few() {
        for rate in [200.0, 500.0, 3500.0] {
            let (mut concurrency, mut now) = (Concurrency::new(512), Duration::ZERO);
            run(&mut concurrency, &mut now, rate, 5);
            let (asked, refused) = run(&mut concurrency, &mut now, rate, 60);
            let good = (asked - refused) / rate;
            assert!(good >= 0.9 && refused <= 0.05 * asked, "{rate}: {good:.3}, {refused:.1} of {asked:.1}");
        }
    }

    #[test]
    fn it_recovers_when_the_store_does() {
        let (mut concurrency, mut now) = (Concurrency::new(512), Duration::ZERO);
        run(&mut concurrency, &mut now, 10.0, 5);
        assert_eq!(concurrency.limit(), 1);
        run(&mut concurrency, &mut now, 1e6, 20);
        assert_eq!(concurrency.limit(), 512);
    }

    #[test]
    fn a_refusal_now_and_then_changes_nothing() {
        let (mut concurrency, ms) = (Concurrency::new(64), Duration::from_millis);
        for answer in 1..100_000 {
            let is_refused = answer % 300 == 0;
            concurrency.on_answer(ms(answer), ms(answer + 25), is_refused.into(), is_refused, 64);
        }
        assert_eq!(concurrency.limit(), 64);
    }

    #[test]
    fn it_stays_where_it_is_while_nobody_needs_more() {
        let mut concurrency = Concurrency::new(64);
        let ms = Duration::from_millis;
        concurrency.on_answer(ms(1), ms(1000), 1, true, 1);
        let limit = concurrency.limit();
        assert!(limit < 64);
        for turn in 1..1000 {
            concurrency.on_answer(ms(1000 * turn), ms(1000 * turn + 25), 0, false, 1);
        }
        assert_eq!(concurrency.limit(), limit);
    }
}
