//! Metadata requests, with retries and a deadline.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use s3mount_object::{ErrorKind, ListObjects, ListPage, ObjectClient};
use s3mount_requests::{Attempts, Retries, RetryBudget};
use tokio::time::{Instant, timeout};

use crate::FsError;
use crate::namespace::pace::Pace;

/// When the answer to a LIST is slow: S3 takes 60 ms mostly, and seconds after many were deleted.
const SLOW: Duration = Duration::from_secs(2);

/// The store as far as the filesystem asks it for metadata.
#[derive(Debug)]
pub(crate) struct Store {
    client: Arc<dyn ObjectClient>,
    limit: Duration,
    lists: AtomicU64,
    budget: Arc<RetryBudget>,
    pace: Arc<Pace>,
}

impl Store {
    /// A request that has no answer after `limit` fails. Retries are taken out of the mount's `budget`.
    pub(crate) fn new(client: Arc<dyn ObjectClient>, budget: Arc<RetryBudget>, limit: Duration) -> Self {
        Self { client, limit, lists: AtomicU64::new(0), budget, pace: Arc::default() }
    }

    /// LISTs that succeeded.
    pub(crate) fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    /// How many LISTs it bears that nobody waits for yet.
    pub(crate) fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// One page of names. Where nobody waits for it yet (`is_ahead`), it is not tried again once the store
    /// has asked for fewer requests.
    ///
    /// # Errors
    /// The store's, once retries don't help; a time-out.
    pub(crate) async fn list(&self, request: ListObjects, is_ahead: bool) -> Result<ListPage, FsError> {
        let deadline = Instant::now() + self.limit;
        timeout(self.limit, self.attempts(request, is_ahead, deadline))
            .await
            .unwrap_or(Err(FsError::TimedOut(self.limit)))
    }

    async fn attempts(
        &self,
        request: ListObjects,
        is_ahead: bool,
        deadline: Instant,
    ) -> Result<ListPage, FsError> {
        let place = (request.prefix.as_str(), &request.continuation, &request.start_after);
        let attempts = Attempts::new(SLOW, RandomState::new().hash_one(place));
        let mut retries = Retries::new(&self.budget, attempts, deadline);
        loop {
            let list = self.client.list_objects(request.clone());
            match retries.attempt("ListObjectsV2", &request.prefix, list).await {
                Ok(page) => {
                    self.lists.fetch_add(1, Ordering::Relaxed);
                    self.pace.on_success();
                    return Ok(page);
                }
                Err(error) if *error.kind() == ErrorKind::Throttled => {
                    self.pace.on_throttled();
                    if is_ahead {
                        return Err(error.into());
                    }
                    retries.pause(error, || true).await?;
                }
                Err(error) => retries.pause(error, || true).await?,
            }
        }
    }
}
