//! The door itself: the client of one bucket, and the loop that each of its requests goes through.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectClient, ObjectError, ObjectWriter};
use tokio::time::Instant;

use crate::attempts::Backoff;
use crate::door::Door;
use crate::retries::Repeats;
use crate::{Class, Limits, Operation, Permit, RateMetrics, Rates, Retries, RetryBudget};

/// The default time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(60);

/// More requests at once than any client has connections for.
const UNLIMITED: usize = 1 << 16;

/// A bucket. Cheap to clone: all clones share its permits and the budget of its retries.
///
/// `C` sets the allowed operations: [`dyn ObjectClient`](ObjectClient) reads, [`dyn ObjectWriter`](ObjectWriter) writes
/// as well. [`reader`](Bucket::reader) takes the right to write away.
pub struct Bucket<C: ?Sized = dyn ObjectClient> {
    pub(crate) client: Arc<C>,
    pub(crate) door: Arc<Door>,
    timeout: Duration,
}

/// A bucket that may be written to.
pub type WritableBucket = Bucket<dyn ObjectWriter>;

/// A failed request, and whether its effect is unknown.
#[derive(Debug)]
pub struct Failure {
    /// The error of the last attempt.
    pub error: ObjectError,
    /// Whether the store may have carried out an earlier attempt.
    pub may_be_done: bool,
}

impl From<Failure> for ObjectError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl<C: ?Sized> Clone for Bucket<C> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), door: self.door.clone(), timeout: self.timeout }
    }
}

impl<C: ?Sized> fmt::Debug for Bucket<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A bucket of its own, with a budget of its own and without a bound on its requests: for tools and for tests.
impl<C: ObjectClient> From<Arc<C>> for Bucket {
    fn from(client: Arc<C>) -> Self {
        Bucket::new(client, UNLIMITED)
    }
}

impl From<Arc<dyn ObjectClient>> for Bucket {
    fn from(client: Arc<dyn ObjectClient>) -> Self {
        Bucket::new(client, UNLIMITED)
    }
}

impl<C: ObjectWriter> From<Arc<C>> for Bucket<dyn ObjectWriter> {
    fn from(client: Arc<C>) -> Self {
        Bucket::new(client, UNLIMITED)
    }
}

impl From<Arc<dyn ObjectWriter>> for Bucket<dyn ObjectWriter> {
    fn from(client: Arc<dyn ObjectWriter>) -> Self {
        Bucket::new(client, UNLIMITED)
    }
}

impl From<Bucket<dyn ObjectWriter>> for Bucket {
    fn from(bucket: Bucket<dyn ObjectWriter>) -> Self {
        bucket.reader()
    }
}

impl Bucket<dyn ObjectWriter> {
    /// The same bucket without the right to write.
    pub fn reader(&self) -> Bucket {
        Bucket { client: self.client.clone(), door: self.door.clone(), timeout: self.timeout }
    }
}

impl<C: ?Sized> Bucket<C> {
    /// The bucket of `client`, which has `max_connections` connections. So many requests are under way at most.
    pub fn new(client: Arc<C>, max_connections: usize) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the pauses and the marks of many mounts must differ")]
        let seed = RandomState::new().hash_one(0_u8);
        Self::seeded(client, max_connections, seed)
    }

    /// As [`new`](Self::new). All random numbers follow from `seed`, which no other mount of the bucket may use.
    pub fn seeded(client: Arc<C>, max_connections: usize, seed: u64) -> Self {
        Self { client, door: Arc::new(Door::new(Limits::new(max_connections), seed)), timeout: TIMEOUT }
    }

    /// The next of a sequence of numbers that differs from bucket to bucket, and from mount to mount.
    pub fn random(&self) -> u64 {
        self.door.random()
    }

    /// The pauses of a request that the caller retries by itself.
    pub fn backoff(&self) -> Backoff {
        Backoff::new(self.random())
    }

    /// A call may take `timeout`, all its attempts together. One that moves many bytes has longer.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// All requests of this bucket and of its clones keep to these rates.
    #[must_use]
    pub fn with_rates(self, rates: Rates) -> Self {
        self.door.lines.set(rates);
        self
    }

    /// What is counted of the rates.
    pub fn rate_metrics(&self) -> &Arc<RateMetrics> {
        &self.door.lines.metrics
    }

    /// How long the GETs that wait for a rate now will take until all of them are sent.
    pub fn gets_wait(&self) -> Duration {
        self.door.lines.gets_wait()
    }

    /// The same bucket for a call that began earlier, and may take until `deadline`.
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        self.clone().with_timeout(deadline.saturating_duration_since(Instant::now()))
    }

    /// How long a call may take that moves no bytes.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The budget of all retries.
    pub fn budget(&self) -> &Arc<RetryBudget> {
        &self.door.budget
    }

    /// The permits of all requests.
    pub fn limits(&self) -> &Arc<Limits> {
        &self.door.limits
    }

    /// A permit for one request of `class` beside another, if there is one now.
    pub fn try_permit(&self, class: Class) -> Option<Permit> {
        self.door.limits.try_permit(class)
    }
}

impl<C: ObjectClient + ?Sized> Repeats for Bucket<C> {
    fn repeated_requests(&self) -> u64 {
        self.client.repeated_requests()
    }
}

impl<C: ObjectClient + ?Sized> Bucket<C> {
    /// The attempts at a request about `target`, a key or a prefix, that begins now and is for `bytes` bytes.
    pub fn retries<'a>(&'a self, operation: Operation, target: &'a str, bytes: u64) -> Retries<'a> {
        let slow = operation.slow_after(bytes);
        // Two attempts find the time for the bytes.
        let timeout = self.timeout.max((slow - operation.slow_after(0)) * 8);
        // An attempt that stalls leaves time for another.
        self.retries_until(operation, target, slow.min(timeout / 8), Instant::now() + timeout).moving(bytes)
    }

    /// As [`retries`](Self::retries), for an answer that is slow after `slow`, and until `deadline`.
    pub fn retries_until<'a>(
        &'a self,
        operation: Operation,
        target: &'a str,
        slow: Duration,
        deadline: Instant,
    ) -> Retries<'a> {
        Retries::new(&self.door, self, operation, target, slow, deadline)
    }

    /// Makes a request until it succeeds, fails for good, or its time is over.
    ///
    /// # Errors
    /// That of the last attempt.
    pub(crate) async fn send<T, F>(
        &self,
        operation: Operation,
        (target, bytes): (&str, u64),
        attempt: impl Fn() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ObjectError>>,
    {
        self.send_noting(operation, (target, bytes), attempt, &mut false).await
    }

    /// As [`send`](Self::send), and notes in `is_unknown` whether an attempt may have been done although it failed.
    pub(crate) async fn send_noting<T, F>(
        &self,
        operation: Operation,
        (target, bytes): (&str, u64),
        attempt: impl Fn() -> F,
        is_unknown: &mut bool,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ObjectError>>,
    {
        let mut retries = self.retries(operation, target, bytes);
        loop {
            let error = match retries.attempt(attempt()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            *is_unknown |= !operation.is_safe_to_repeat() && error.may_be_done();
            let is_conflict = *error.kind() == ErrorKind::Conflict;
            if is_conflict && operation == Operation::CompleteMultipartUpload {
                // After this answer, S3 wants the whole upload anew.
                return Err(Failure { error, may_be_done: *is_unknown });
            }
            // Another write of the key is under way, and over soon.
            let error = if is_conflict { error.with_kind(ErrorKind::Server) } else { error };
            if let Err(error) = retries.pause(error, || true).await {
                let error = if is_conflict { error.with_kind(ErrorKind::Conflict) } else { error };
                return Err(Failure { error, may_be_done: *is_unknown });
            }
        }
    }
}
