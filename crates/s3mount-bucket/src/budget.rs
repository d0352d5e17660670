//! The budget of retries for all layers of a mount.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::RetryMetrics;

/// Retries that all requests of a mount may make at once, together.
const MOST_SAVED: f64 = 64.0;

/// Retries a second while no request succeeds. A store that is down gets no more than these from a mount.
const PER_SECOND: f64 = 10.0;

/// Retries that each success adds. So up to a third of all requests may fail before retries have to wait.
const PER_SUCCESS: f64 = 0.5;

/// The retries that a mount has left. Each request that succeeds earns a part of one.
#[derive(Debug)]
pub struct RetryBudget {
    saved: Mutex<Saved>,
    /// How many requests the client has sent again by itself.
    repeated: AtomicU64,
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
        Self { saved, repeated: AtomicU64::new(0), metrics: Arc::default() }
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

    /// Notes that the client has retried `repeated` requests by itself so far. They were retries like any others. It
    /// took them without asking, so other retries wait until these are earned. Returns how many of them are new.
    pub(crate) fn note_repeated(&self, repeated: u64) -> u64 {
        if repeated <= self.repeated.load(Ordering::Relaxed) {
            return 0;
        }
        let new = repeated.saturating_sub(self.repeated.fetch_max(repeated, Ordering::Relaxed));
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.retries = (saved.retries - new as f64).max(-MOST_SAVED);
        self.metrics.retries.add(new);
        new
    }

    /// Takes one retry out of the budget, if there is one.
    pub fn take(&self, now: Instant) -> bool {
        self.take_above(0.0, now)
    }

    /// Takes one retry for a request that no reader waits for, if that leaves readers more than half of the
    /// most that can be saved.
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
    use std::time::Duration;

    use tokio::time::Instant;

    use super::RetryBudget;

    #[test]
    fn what_the_client_repeats_by_itself_is_paid_for() {
        let (budget, now) = (RetryBudget::default(), Instant::now().into_std());
        for repeated in [10, 10, 30, 20] {
            budget.note_repeated(repeated);
        }
        assert_eq!(((0..100).filter(|_| budget.take(now)).count(), budget.metrics().retries.get()), (34, 64));
        budget.note_repeated(40);
        let later = |seconds| now + Duration::from_secs(seconds);
        assert!(!budget.take(later(1)), "ten are owed");
        assert!(budget.take(later(2)));
    }

    #[test]
    fn a_dead_store_is_asked_ten_times_a_second_and_one_that_recovers_as_often_as_it_likes() {
        let (budget, start) = (RetryBudget::default(), Instant::now().into_std());
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
