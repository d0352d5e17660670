//! The number of GETs ahead of their readers that are worth having in flight.
//!
//! By Little's law, a rate needs as many GETs at once as the rate times the duration of a GET: 4,000 small files a
//! second at S3's latency need 120. But where the link or the processor is the limit, more GETs only wait for each
//! other, and hold memory meanwhile. The fastest GETs tell latency from queueing. A store delays one GET and answers
//! the next one at once. A queue delays all of them. So the limit grows as long as some of the GETs that were sent at
//! the limit take hardly longer than the shortest GET of the last minutes.
//!
//! Where the limit was always high, even the shortest GET has waited. So before each new measurement of it, the limit
//! returns to the usual number.
//!
//! Pure: the caller passes all times.

use std::time::Duration;

/// The limit that a mount begins with and returns to. From S3, 64 GETs at once carry 40 Gbit/s in large parts, or 1,600
/// small files a second.
pub(crate) const USUAL: usize = 64;

/// A GET tells about the limit only if, when it was sent, at most an eighth of the limit was unused.
const NEARLY: u64 = 8;

/// The limit doubles when in two successive rounds the queue was at most a fifth of the mean duration of a
/// GET. Of 64 first bytes from S3 (log-normal, sigma 0.5), the fastest comes an eighth of the mean later than
/// the fastest of thousands. While streams ramp, a queue builds up within one round.
const LEAST_QUEUE: f64 = 0.2;
const CALM_ROUNDS: u32 = 2;

/// Where the processor is the limit, some GETs find no queue, but most take longer. When GETs take [`LONGER`] times as
/// long as before the limit doubled, doubling it raised the rate by at most a seventh. Then half of the growth is taken
/// back, and the limit does not grow for [`SETTLED_ROUNDS`] rounds, which take some seconds.
const LONGER: f64 = 1.75;
const SETTLED_ROUNDS: u32 = 50;

/// The limit falls when the queue is more than a third of the mean duration: then 1.5 times as many GETs are in flight
/// as the rate needs. It falls to [`SLACK`] times the number that the rate needs.
const MOST_QUEUE: f64 = 0.33;
const SLACK: f64 = 1.25;

/// The limit on one kind of GETs ahead.
#[derive(Debug)]
pub(crate) struct Need {
    most: usize,
    /// **Invariant:** at least 1; at least [`USUAL`], unless `most` is less; at most `most`.
    limit: usize,
    /// How often the limit has changed.
    changes: u64,
    /// Rounds since the last change, and successive rounds without a queue.
    rounds: u32,
    calm_rounds: u32,
    /// If the last change doubled the limit: the duration of GETs before it, as a multiple of the shortest
    /// GET's.
    before: Option<f64>,
    /// For how many more rounds the limit does not grow.
    settled_rounds: u32,
    round: Round,
}

/// The answers of this round. A round ends when the number of answers reaches the limit.
#[derive(Debug, Default)]
struct Round {
    answered: usize,
    took: Duration,
    /// The sum of the durations of the shortest GETs of the same lengths.
    shortest: Duration,
    /// The least time by which an answered GET exceeded the shortest GET of its length.
    queue: Option<Duration>,
}

/// Marks a GET that was sent when the limit was nearly reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtLimit {
    changes: u64,
}

impl Need {
    /// At most `most` GETs are in flight.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self {
            most,
            limit: most.min(USUAL),
            changes: 0,
            rounds: 0,
            calm_rounds: 0,
            before: None,
            settled_rounds: 0,
            round: Round::default(),
        }
    }

    /// Returns the limit to the usual number, because the shortest GET is measured anew. If the link carries more, the
    /// limit doubles again round by round.
    pub(crate) fn restart(&mut self) {
        (self.settled_rounds, self.round) = (0, Round::default());
        self.change(self.most.min(USUAL), None);
    }

    /// The number of GETs that are worth having in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Notes that a GET is sent. With it, `used` of the `most` allowed units are in flight. Returns a mark if the GET's
    /// duration will tell about the limit.
    pub(crate) fn on_sent(&self, used: u64, most: u64) -> Option<AtLimit> {
        (used >= most - most / NEARLY).then_some(AtLimit { changes: self.changes })
    }

    /// Notes that a GET that was sent at the limit took `took`. The shortest GET of its length took `shortest`.
    pub(crate) fn on_answer(&mut self, sent: AtLimit, took: Duration, shortest: Duration) {
        // A GET that was sent before the last change says nothing about the new limit.
        if sent.changes != self.changes {
            return;
        }
        let queue = took.saturating_sub(shortest);
        self.round.queue = Some(self.round.queue.map_or(queue, |least| least.min(queue)));
        self.round.answered += 1;
        self.round.took += took;
        self.round.shortest += shortest;
        if self.round.answered < self.limit {
            return;
        }
        let Round { answered, took, shortest, queue } = std::mem::take(&mut self.round);
        let (took, shortest) = (took.as_secs_f64().max(1e-6), shortest.as_secs_f64().max(1e-6));
        let queued = queue.unwrap_or_default().as_secs_f64() * answered as f64;
        self.on_round(took / shortest, queued / took);
    }

    /// Ends a round, whose GETs took `took` times as long as the shortest ones, and spent the share `queued` of their
    /// time in a queue.
    fn on_round(&mut self, took: f64, queued: f64) {
        self.rounds += 1;
        self.calm_rounds = if queued <= LEAST_QUEUE { self.calm_rounds + 1 } else { 0 };
        self.settled_rounds = self.settled_rounds.saturating_sub(1);
        let least = USUAL.min(self.most);
        if self.rounds == CALM_ROUNDS && self.before.is_some_and(|before| took > before * LONGER) {
            self.settled_rounds = SETTLED_ROUNDS;
            self.change((self.limit - self.limit / 4).max(least), None);
        } else if self.calm_rounds >= CALM_ROUNDS && self.settled_rounds == 0 {
            self.change((self.limit * 2).min(self.most), Some(took));
        } else if queued > MOST_QUEUE {
            let asked_for = self.limit as f64 * (1.0 - queued);
            self.change(((asked_for * SLACK) as usize).clamp(least, self.most), None);
        }
    }

    fn change(&mut self, limit: usize, before: Option<f64>) {
        if limit != self.limit {
            (self.limit, self.before) = (limit, before);
            (self.changes, self.rounds, self.calm_rounds) = (self.changes + 1, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use s3mount_testkit::Sequence;

    use super::{Need, USUAL};

    /// S3's time to the first byte, in seconds: the median, and the least of thousands.
    const MEDIAN: f64 = 0.025;
    const LEAST: f64 = 0.005;

    /// Runs `rounds` rounds, each with as many GETs in flight as allowed, of a store whose link brings `rate`
    /// GETs a second. Returns the limits.
    fn run(need: &mut Need, rounds: usize, rate: f64) -> Vec<usize> {
        let sequence = Sequence::new();
        let round = |_| {
            let (limit, at_limit) = (need.limit(), need.on_sent(1, 1).expect("at the limit"));
            let queued = limit as f64 / rate;
            for _ in 0..limit {
                let took = (MEDIAN * (0.5 * sequence.normal()).exp()).max(LEAST).max(queued);
                need.on_answer(at_limit, Duration::from_secs_f64(took), Duration::from_secs_f64(LEAST));
            }
            need.limit()
        };
        (0..rounds).map(round).collect()
    }

    #[test]
    fn it_doubles_while_the_store_takes_no_longer() {
        let mut need = Need::new(512);
        let limits = run(&mut need, 8, 1e6);
        assert_eq!((limits[0], limits[1], limits[7]), (64, 128, 512), "{limits:?}");
        assert_eq!(*run(&mut Need::new(100), 8, 1e6).last().expect("one"), 100);
        assert_eq!(run(&mut Need::new(8), 8, 1e6), [8; 8]);
    }

    #[test]
    fn it_is_about_what_the_rate_asks_for() {
        for rate in [100.0, 1000.0, 2000.0, 4000.0, 8000.0] {
            let settled = &run(&mut Need::new(512), 100, rate)[20..];
            let (asked, usual) = (rate * MEDIAN, USUAL as f64);
            let (least, most) = (settled.iter().min().expect("one"), settled.iter().max().expect("one"));
            assert!(
                *least as f64 >= (0.8 * asked).min(usual) && *most as f64 <= (3.0 * asked).max(usual),
                "{rate}: {least} to {most}, {asked} asked for"
            );
        }
    }

    #[test]
    fn it_comes_back_when_others_fill_the_link() {
        let mut need = Need::new(512);
        run(&mut need, 8, 1e6);
        assert_eq!(run(&mut need, 8, 500.0)[7], USUAL);
    }

    #[test]
    fn only_what_was_sent_at_the_limit_as_it_is_now_counts() {
        let mut need = Need::new(512);
        assert_eq!(need.on_sent(48, 56), None);
        let early = need.on_sent(49, 56).expect("at the limit");
        run(&mut need, 2, 1e6);
        assert_eq!(need.limit(), 128);
        for _ in 0..1000 {
            need.on_answer(early, Duration::from_secs(1), Duration::ZERO);
        }
        assert_eq!(need.limit(), 128);
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(
            most in 0usize..2000,
            rounds in proptest::collection::vec((0u64..1000, 0u64..1000), 0..20),
        ) {
            let mut need = Need::new(most);
            for (took, shortest) in rounds {
                for _ in 0..need.limit() {
                    let sent = need.on_sent(0, 0).expect("at the limit");
                    need.on_answer(sent, Duration::from_millis(took), Duration::from_millis(shortest));
                }
                prop_assert!((most.clamp(1, USUAL)..=most.max(1)).contains(&need.limit()));
            }
        }
    }
}
