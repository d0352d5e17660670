//! How a request is made again, for every operation: a permit for each attempt, how long it may take, and when the
//! next may follow. [`Bucket`](crate::Bucket) writes the loop. Who needs something for each attempt that only the
//! caller has, a buffer or a permit, writes the same loop around it:
//!
//! ```text
//! let mut retries = bucket.retries(Operation::GetObject, key, bytes);
//! loop {
//!     let buffer = a_buffer().await;
//!     match retries.attempt(bucket.get_within(request, buffer)).await {
//!         Ok(answer) => return Ok(answer),
//!         Err(error) => retries.pause(error, || true).await?,
//!     }
//! }
//! ```

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectError};
use tokio::time::{Instant, sleep, timeout_at};

use crate::attempts::{Attempts, Backoff};
use crate::door::Door;
use crate::{Class, Operation};

/// A request that waits for the budget asks it again after this time.
const BUDGET_PAUSE: Duration = Duration::from_millis(500);

/// A request is not made again so shortly before its deadline.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// An attempt may go on for this time after the deadline. Who waits with the same deadline tells what was waited for.
const GRACE: Duration = Duration::from_millis(100);

/// Says how many requests a client has sent again by itself.
pub(crate) trait Repeats {
    fn repeated_requests(&self) -> u64;
}

/// The attempts at one request: how long each may take, and when the next may be made.
pub struct Retries<'a> {
    door: &'a Door,
    client: &'a (dyn Repeats + Sync),
    operation: Operation,
    target: &'a str,
    class: Class,
    /// The bytes that it moves, if they are known here.
    bytes: u64,
    attempts: Attempts,
    /// The deadline as it was when it was last asked for.
    deadline: Instant,
    /// Says the deadline of a request that others may join.
    joined: Option<&'a (dyn Fn() -> Instant + Send + Sync)>,
    /// Says after what time an answer is slow now.
    slow: Option<&'a (dyn Fn() -> Duration + Send + Sync)>,
    gave_way: bool,
}

impl fmt::Debug for Retries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retries").field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl<'a> Retries<'a> {
    /// For a request that is made again as often as the budget allows, and not after `deadline`. Its answer is slow
    /// after `slow`.
    pub(crate) fn new(
        door: &'a Door,
        client: &'a (dyn Repeats + Sync),
        operation: Operation,
        target: &'a str,
        slow: Duration,
        deadline: Instant,
    ) -> Self {
        let attempts = Attempts::new(slow, Backoff::new(door.random()));
        let class = operation.class();
        let (joined, slow, gave_way, bytes) = (None, None, false, 0);
        Self { door, client, operation, target, class, bytes, attempts, deadline, joined, slow, gave_way }
    }

    /// For a request that others may join, who have more time: when the deadline is over, `deadline` says what it is
    /// by then.
    #[must_use]
    pub fn joined(self, deadline: &'a (dyn Fn() -> Instant + Send + Sync)) -> Self {
        Self { joined: Some(deadline), ..self }
    }

    /// For a request whose answer may wait for those of others that are sent after it: when an attempt has taken its time,
    /// `slow` says once after what time an answer is slow by then.
    #[must_use]
    pub fn slow_by(self, slow: &'a (dyn Fn() -> Duration + Send + Sync)) -> Self {
        Self { slow: Some(slow), ..self }
    }

    /// For a request that moves `bytes`.
    #[must_use]
    pub(crate) fn moving(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Takes the permits of another class.
    #[must_use]
    pub fn of_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Makes one attempt, once there is a permit for it. An attempt that makes no progress for too long, or until
    /// just after the deadline, is dropped, which cancels its request and closes its connection.
    ///
    /// # Errors
    /// The error of the attempt; `TimedOut` when the attempt was given up, or got no permit before the deadline.
    pub async fn attempt<T>(
        &mut self,
        attempt: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let (operation, target, door) = (self.operation.name(), self.target, self.door);
        let late = |what: String| ObjectError::new(ErrorKind::TimedOut, operation, target).with_source(what);
        if !self.keep_to_rates().await {
            return Err(late("the rate of this mount left no room for it".to_owned()));
        }
        let Some(_permit) = self.in_time(door.limits.permit(self.class), Duration::ZERO, None).await else {
            return Err(late("no connection was free".to_owned()));
        };
        let sent = Instant::now();
        let result = self.in_time(attempt, GRACE, Some(sent)).await.unwrap_or_else(|| {
            door.budget.metrics().stalls.inc();
            Err(late(format!("stalled for {:?}", sent.elapsed())))
        });
        let repeated = door.budget.note_repeated(self.client.repeated_requests());
        if repeated > 0 {
            door.lines.owe(repeated).await;
        }
        if result.is_ok() {
            door.budget.earn();
        }
        result
    }

    /// Waits until the rates of the mount have room for an attempt. Returns whether they have before the deadline. What
    /// changes objects has as much more time. A GET waits later, by [`get_within`](crate::Bucket::get_within).
    async fn keep_to_rates(&mut self) -> bool {
        let (lines, began) = (&self.door.lines, Instant::now());
        match self.operation.class() {
            Class::Read | Class::Ahead => return true,
            Class::List => {
                return self.in_time(lines.before_request(), Duration::ZERO, None).await.is_some();
            }
            Class::Write => lines.before_body(self.bytes, self.operation == Operation::UploadPart).await,
            Class::Copy => lines.before_request().await,
        }
        self.deadline += began.elapsed();
        true
    }

    /// Waits for `future` until `grace` after the deadline. If it is an attempt that was `sent`, it has the time of one
    /// attempt.
    async fn in_time<F: Future>(
        &mut self,
        future: F,
        grace: Duration,
        sent: Option<Instant>,
    ) -> Option<F::Output> {
        let (mut future, mut slow) = (pin!(future), self.slow);
        loop {
            let (deadline, stalled_at) =
                (self.deadline + grace, sent.map(|sent| sent + self.attempts.limit()));
            let until = stalled_at.map_or(deadline, |stalled_at| stalled_at.min(deadline));
            if let Ok(output) = timeout_at(until, &mut future).await {
                return Some(output);
            }
            if Some(until) == stalled_at {
                // Once: where nothing comes at all, it seems to be ever slower.
                let is_only_slow = slow.take().is_some_and(|slow| self.attempts.extend(slow()));
                if !is_only_slow {
                    return None;
                }
            } else if self.is_over(Instant::now()) {
                return None;
            }
        }
    }

    /// Whether the deadline is over at `time`. It is asked for again where others may have joined.
    fn is_over(&mut self, time: Instant) -> bool {
        if time >= self.deadline
            && let Some(joined) = self.joined
        {
            self.deadline = joined();
        }
        time >= self.deadline
    }

    /// The deadline of the last attempt. Who has joined since may have more time.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the request was given up because nobody waited for it.
    pub fn gave_way(&self) -> bool {
        self.gave_way
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
        let (pause, now) = (self.attempts.next_pause(), Instant::now());
        if !error.is_retryable() || self.is_over(now + pause) && self.is_over(now + LEAST_PAUSE) {
            return Err(error);
        }
        // The last attempts come before the deadline, and not a pause of seconds before it.
        let pause = pause.min((self.deadline - now) / 2);
        tracing::warn!(error = &error as &dyn Error, ?pause, "a request failed, trying again");
        sleep(pause).await;
        loop {
            let now = Instant::now();
            if !is_wanted() {
                self.gave_way = !self.door.budget.take_spare(now.into_std());
                return if self.gave_way { Err(error) } else { Ok(()) };
            }
            if self.door.budget.take(now.into_std()) {
                return Ok(());
            }
            if self.is_over(now + BUDGET_PAUSE) {
                return Err(error);
            }
            sleep(BUDGET_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    use s3mount_object::{ErrorKind, ObjectError};
    use s3mount_testkit::MemoryClient;
    use tokio::time::Instant;

    use crate::{Bucket, Operation};

    fn failure(kind: ErrorKind) -> ObjectError {
        ObjectError::new(kind, "HeadObject", "k")
    }

    fn bucket() -> Bucket {
        Bucket::from(Arc::new(MemoryClient::new())).with_timeout(Duration::from_secs(60))
    }

    /// Runs a request whose attempts all fail with `kind`; returns how many were made, and the seconds.
    async fn attempts(bucket: &Bucket, kind: ErrorKind, is_wanted: bool) -> (u32, u64) {
        let mut retries = bucket.retries(Operation::HeadObject, "k", 0);
        let (made, start) = (Cell::new(0), Instant::now());
        loop {
            made.set(made.get() + 1);
            let attempt = async { Err::<(), _>(failure(kind.clone())) };
            let error = retries.attempt(attempt).await.expect_err("it fails");
            if retries.pause(error, || is_wanted).await.is_err() {
                return (made.get(), start.elapsed().as_secs());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_until_the_deadline_and_the_rest_once() {
        let bucket = bucket();
        assert_eq!(attempts(&bucket, ErrorKind::Forbidden, true).await, (1, 0));
        let (made, seconds) = attempts(&bucket, ErrorKind::Throttled, true).await;
        assert!((18..32).contains(&made) && (59..=60).contains(&seconds), "{made} in {seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_draw_on_one_budget_and_leave_half_of_it_to_readers() {
        let bucket = bucket();
        let (budget, now) = (bucket.budget(), Instant::now().into_std());
        while budget.take_spare(now) {}
        assert_eq!(attempts(&bucket, ErrorKind::Network, false).await.0, 1, "nothing to spare");
        assert_eq!((0..100).filter(|_| budget.take(now)).count(), 32, "for readers there is");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_attempt_is_given_up_and_the_next_has_more_time() {
        let bucket = bucket();
        let mut retries = bucket.retries(Operation::HeadObject, "k", 0);
        for seconds in [8, 16, 32] {
            let start = Instant::now();
            let stall = std::future::pending::<Result<(), ObjectError>>();
            let error = retries.attempt(stall).await.expect_err("it stalls");
            assert_eq!((error.kind(), start.elapsed().as_secs()), (&ErrorKind::TimedOut, seconds));
            retries.pause(error, || true).await.expect("there is time");
        }
        let stall = std::future::pending::<Result<(), ObjectError>>();
        let start = Instant::now();
        retries.attempt(stall).await.expect_err("it stalls");
        assert!(start.elapsed() < Duration::from_secs(4), "no attempt goes on past the deadline");
        let metrics = bucket.budget().metrics();
        assert_eq!((metrics.stalls.get(), metrics.retries.get()), (4, 3));
    }

    /// What is sent after a GET takes its share of the link, too.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_is_not_given_up_while_others_are_slow_as_well() {
        for (later, seconds) in [(1, 5), (3, 12), (9, 36)] {
            let (bucket, start) = (bucket(), Instant::now());
            let slow =
                || Duration::from_secs(if start.elapsed() > Duration::from_secs(2) { later } else { 1 });
            let until = start + Duration::from_secs(60);
            let retries = bucket.retries_until(Operation::GetObject, "k", slow(), until);
            let mut retries = retries.slow_by(&slow);
            let stall = std::future::pending::<Result<(), ObjectError>>();
            retries.attempt(stall).await.expect_err("it stalls");
            assert_eq!(start.elapsed().as_secs(), seconds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_joins_a_request_has_it_go_on_for_them() {
        let (bucket, start) = (bucket(), Instant::now());
        let slow = Duration::from_secs(10);
        let first = start + Duration::from_secs(20);
        let joined = || start + Duration::from_secs(30);
        let mut retries = bucket.retries_until(Operation::GetObject, "k", slow, first).joined(&joined);
        let answer = async {
            tokio::time::sleep(Duration::from_secs(25)).await;
            Ok(())
        };
        retries.attempt(answer).await.expect("it goes on beyond the first deadline");
        let stall = std::future::pending::<Result<(), ObjectError>>();
        let error = retries.attempt(stall).await.expect_err("it stalls");
        assert!((30..=31).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        retries.pause(error, || true).await.expect_err("nobody has time left");
        assert_eq!((retries.deadline(), retries.gave_way()), (joined(), false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_budget_is_not_waited_for_past_the_deadline() {
        let bucket = bucket().with_timeout(Duration::from_secs(2));
        let start = Instant::now();
        while bucket.budget().take(start.into_std()) {}
        let budget = bucket.budget().clone();
        let eaten = async move {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                while budget.take(Instant::now().into_std()) {}
            }
        };
        tokio::select! {
            (made, seconds) = attempts(&bucket, ErrorKind::Server, true) => {
                assert!(made <= 2 && seconds <= 2, "{made} in {seconds} s");
            }
            () = eaten => {}
        }
    }
}
