//! Metadata requests, with retries and a deadline.

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use s3mount_object::{Attempts, ErrorKind, ListObjects, ListPage, ObjectClient, ObjectError, RetryBudget};
use tokio::time::{Instant, sleep, timeout};

use crate::FsError;

/// When the answer to a LIST is slow: S3 takes 60 ms mostly, and seconds after many were deleted.
const SLOW: Duration = Duration::from_secs(2);

/// How often a LIST that may not be tried again yet asks whether it may.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The store as far as the filesystem asks it for metadata.
#[derive(Debug)]
pub(crate) struct Store {
    client: Arc<dyn ObjectClient>,
    limit: Duration,
    lists: AtomicU64,
    retries: RetryBudget,
}

impl Store {
    /// A request that has no answer after `limit` fails.
    pub(crate) fn new(client: Arc<dyn ObjectClient>, limit: Duration) -> Self {
        Self { client, limit, lists: AtomicU64::new(0), retries: RetryBudget::default() }
    }

    /// LISTs that succeeded.
    pub(crate) fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    /// One page of names.
    ///
    /// # Errors
    /// The store's, once retries don't help; a time-out.
    pub(crate) async fn list(&self, request: ListObjects) -> Result<ListPage, FsError> {
        let deadline = Instant::now() + self.limit;
        timeout(self.limit, self.attempts(request, deadline))
            .await
            .unwrap_or(Err(FsError::TimedOut(self.limit)))
    }

    async fn attempts(&self, request: ListObjects, deadline: Instant) -> Result<ListPage, FsError> {
        let place = (request.prefix.as_str(), &request.continuation, &request.start_after);
        let mut attempts = Attempts::new(SLOW, RandomState::new().hash_one(place));
        loop {
            // One that is given up is cancelled, and its connection closed.
            let error = match timeout(attempts.limit(), self.client.list_objects(request.clone())).await {
                Ok(Ok(page)) => {
                    self.lists.fetch_add(1, Ordering::Relaxed);
                    self.retries.earn();
                    return Ok(page);
                }
                Ok(Err(error)) => error,
                Err(_) => ObjectError::new(ErrorKind::TimedOut, "ListObjectsV2", &request.prefix)
                    .with_source(format!("stalled for {:?}", attempts.limit())),
            };
            let pause = attempts.next_pause();
            if !error.is_retryable() || Instant::now() + pause >= deadline {
                return Err(error.into());
            }
            tracing::warn!(error = &error as &dyn Error, ?pause, "LIST failed, trying again");
            sleep(pause).await;
            while !self.retries.take(std::time::Instant::now()) {
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}
