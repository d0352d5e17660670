//! How a request is made again, for every operation: how long an attempt may take, and when the next may
//! follow. What an attempt needs (a buffer, a turn) is the caller's, so the caller writes the loop:
//!
//! ```text
//! loop {
//!     match retries.attempt("ListObjectsV2", prefix, client.list_objects(...)).await {
//!         Ok(page) => return Ok(page),
//!         Err(error) => retries.pause(error, || true).await?,
//!     }
//! }
//! ```

use std::error::Error;
use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectError};
use tokio::time::{Instant, sleep, timeout};

use crate::{Attempts, RetryBudget};

/// A request that waits for the budget asks it again after this time.
const BUDGET_PAUSE: Duration = Duration::from_millis(500);

/// The attempts at one request: how long each may take, and when the next may be made.
#[derive(Debug)]
pub struct Retries<'a> {
    budget: &'a RetryBudget,
    attempts: Attempts,
    deadline: Instant,
}

impl<'a> Retries<'a> {
    /// For a request that is made again as often as `budget` allows, and not after `deadline`.
    pub fn new(budget: &'a RetryBudget, attempts: Attempts, deadline: Instant) -> Self {
        Self { budget, attempts, deadline }
    }

    /// Makes one attempt. An attempt that makes no progress for too long is dropped, which cancels
    /// its request and closes its connection.
    ///
    /// # Errors
    /// The error of the attempt; `TimedOut` when the attempt was given up.
    pub async fn attempt<T>(
        &self,
        operation: &'static str,
        target: &str,
        attempt: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let limit = self.attempts.limit();
        let result = timeout(limit, attempt).await.unwrap_or_else(|_| {
            self.budget.metrics().stalls.inc();
            Err(ObjectError::new(ErrorKind::TimedOut, operation, target)
                .with_source(format!("stalled for {limit:?}")))
        });
        if result.is_ok() {
            self.budget.earn();
        }
        result
    }

    /// Waits until a request that failed with `error` may be made again. When the pause is over, `is_wanted`
    /// says whether a reader waits for the request. If none does, the request takes only a retry that readers
    /// can spare, and gives up if there is none.
    ///
    /// # Errors
    /// `error`, when the request may not be made again.
    pub async fn pause(
        &mut self,
        error: ObjectError,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), ObjectError> {
        let pause = self.attempts.next_pause();
        if !error.is_retryable() || Instant::now() + pause >= self.deadline {
            return Err(error);
        }
        tracing::warn!(error = &error as &dyn Error, ?pause, "a request failed, trying again");
        sleep(pause).await;
        loop {
            let now = Instant::now().into_std();
            if !is_wanted() {
                return if self.budget.take_spare(now) { Ok(()) } else { Err(error) };
            }
            if self.budget.take(now) {
                return Ok(());
            }
            sleep(BUDGET_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use s3mount_object::{ErrorKind, ObjectError};
    use tokio::time::Instant;

    use super::Retries;
    use crate::{Attempts, RetryBudget};

    fn failure(kind: ErrorKind) -> ObjectError {
        ObjectError::new(kind, "GetObject", "k")
    }

    fn retries(budget: &RetryBudget, seconds: u64) -> Retries<'_> {
        let attempts = Attempts::new(Duration::ZERO, 0);
        Retries::new(budget, attempts, Instant::now() + Duration::from_secs(seconds))
    }

    /// Runs a request whose attempts all fail with `kind`; returns how many were made, and the seconds.
    async fn attempts(budget: &RetryBudget, kind: ErrorKind, is_wanted: bool) -> (u32, u64) {
        let (mut retries, made, start) = (retries(budget, 60), Cell::new(0), Instant::now());
        loop {
            made.set(made.get() + 1);
            let attempt = async { Err::<(), _>(failure(kind.clone())) };
            let error = retries.attempt("GetObject", "k", attempt).await.expect_err("it fails");
            if retries.pause(error, || is_wanted).await.is_err() {
                return (made.get(), start.elapsed().as_secs());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_until_the_deadline_and_the_rest_once() {
        let budget = RetryBudget::default();
        assert_eq!(attempts(&budget, ErrorKind::Forbidden, true).await, (1, 0));
        let (made, seconds) = attempts(&budget, ErrorKind::Throttled, true).await;
        assert!((15..25).contains(&made) && (50..=60).contains(&seconds), "{made} in {seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_draw_on_one_budget_and_leave_half_of_it_to_readers() {
        let budget = RetryBudget::default();
        let now = Instant::now().into_std();
        while budget.take_spare(now) {}
        assert_eq!(attempts(&budget, ErrorKind::Network, false).await.0, 1, "nothing to spare");
        assert_eq!((0..100).filter(|_| budget.take(now)).count(), 32, "for readers there is");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_attempt_is_given_up_and_the_next_has_more_time() {
        let budget = RetryBudget::default();
        let mut retries = retries(&budget, 60);
        for seconds in [5, 10, 20] {
            let start = Instant::now();
            let stall = std::future::pending::<Result<(), ObjectError>>();
            let error = retries.attempt("GetObject", "k", stall).await.expect_err("it stalls");
            assert_eq!((error.kind(), start.elapsed().as_secs()), (&ErrorKind::TimedOut, seconds));
            retries.pause(error, || true).await.expect("there is time");
        }
        assert_eq!((budget.metrics().stalls.get(), budget.metrics().retries.get()), (3, 3));
    }
}
