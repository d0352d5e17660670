//! When a failed request is tried again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::RetryMetrics;

/// First pause before a request is tried again; it doubles up to [`MAX_PAUSE`]. S3 asks for
/// exponential back-off from a fraction of a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The first attempt at a request is given up after this time, if its peers take no longer; each
/// further one after twice the time of the one before. The CRT itself needs 31 s to see a stall.
const STALLED: Duration = Duration::from_secs(5);

/// Retries that may be made at once, by all requests of a mount together.
const MOST_SAVED: f64 = 64.0;

/// Retries a second when nothing succeeds: what a dead store hears of a mount, whatever reads it.
const PER_SECOND: f64 = 10.0;

/// What a success adds. So up to a third of all requests may fail before retries have to wait.
const PER_SUCCESS: f64 = 0.5;

/// How one request is tried again.
#[derive(Debug)]
pub struct Attempts {
    pause: Duration,
    stalled: Duration,
    seed: u64,
}

impl Attempts {
    /// The first attempt. `slow` is when an answer is slow for what is asked; `seed` differs between
    /// requests that may fail together, so that they do not come back together.
    pub fn new(slow: Duration, seed: u64) -> Self {
        Self { pause: FIRST_PAUSE, stalled: STALLED.max(slow * 4), seed }
    }

    /// How long this attempt may take.
    pub fn limit(&self) -> Duration {
        self.stalled
    }

    /// The pause before the next attempt: between half of the back-off and all of it.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        (self.pause, self.stalled) = ((pause * 2).min(MAX_PAUSE), self.stalled * 2);
        self.seed = self.seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let spread = u32::try_from(self.seed >> 54).unwrap_or(0);
        pause / 2 + pause * spread / 2048
    }
}

/// What all retries of a mount share: requests that succeed earn them.
#[derive(Debug)]
pub struct RetryBudget {
    saved: Mutex<Saved>,
    metrics: Arc<RetryMetrics>,
}

#[derive(Debug)]
struct Saved {
    retries: f64,
    at: Option<Instant>,
}

impl Default for RetryBudget {
    fn default() -> Self {
        let saved = Mutex::new(Saved { retries: MOST_SAVED, at: None });
        Self { saved, metrics: Arc::default() }
    }
}

impl RetryBudget {
    /// What is counted of retries.
    pub fn metrics(&self) -> &Arc<RetryMetrics> {
        &self.metrics
    }

    /// A request has succeeded.
    pub fn earn(&self) {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.retries = (saved.retries + PER_SUCCESS).min(MOST_SAVED);
    }

    /// Takes one retry out of the budget, if there is one.
    pub fn take(&self, now: Instant) -> bool {
        self.take_above(0.0, now)
    }

    /// Takes one retry for a request that nobody waits for, if readers are left more than half of what
    /// can be saved.
    pub fn take_spare(&self, now: Instant) -> bool {
        self.take_above(MOST_SAVED / 2.0, now)
    }

    fn take_above(&self, rest: f64, now: Instant) -> bool {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = saved.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        saved.at = Some(now);
        saved.retries = (saved.retries + passed.as_secs_f64() * PER_SECOND).min(MOST_SAVED);
        let is_enough = saved.retries >= rest + 1.0;
        if is_enough {
            saved.retries -= 1.0;
            self.metrics.retries.inc();
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Attempts, RetryBudget};

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread() {
        let mut attempts = Attempts::new(Duration::ZERO, 7);
        let mut backoff = Duration::from_millis(50);
        for _ in 0..12 {
            let pause = attempts.next_pause();
            assert!(pause >= backoff / 2 && pause <= backoff, "{pause:?} of {backoff:?}");
            backoff = (backoff * 2).min(Duration::from_secs(5));
        }
        let first = |seed| Attempts::new(Duration::ZERO, seed).next_pause();
        let mut pauses: Vec<_> = (0..100).map(first).collect();
        pauses.sort_unstable();
        pauses.dedup();
        assert!(pauses.len() > 80, "{} of a hundred differ", pauses.len());
    }

    #[test]
    fn attempts_get_more_time_each() {
        let mut attempts = Attempts::new(Duration::from_secs(3), 0);
        assert_eq!(attempts.limit(), Duration::from_secs(12));
        attempts.next_pause();
        assert_eq!(attempts.limit(), Duration::from_secs(24));
        assert_eq!(Attempts::new(Duration::from_millis(50), 0).limit(), Duration::from_secs(5));
    }

    #[test]
    fn a_dead_store_is_asked_ten_times_a_second_and_one_that_recovers_as_often_as_it_likes() {
        let (budget, start) = (RetryBudget::default(), Instant::now());
        let asked = |seconds: std::ops::Range<u64>| {
            (seconds.start * 100..seconds.end * 100)
                .filter(|step| budget.take(start + Duration::from_millis(step * 10)))
                .count()
        };
        assert_eq!(asked(0..1), 64 + 9);
        assert!((590..=600).contains(&asked(1..61)));
        for _ in 0..1000 {
            budget.earn();
        }
        assert!((64..=75).contains(&asked(61..62)), "no more is saved");
    }
}
