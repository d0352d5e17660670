//! Metadata requests, with retries and a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use s3mount_object::{ListObjects, ListPage, ObjectClient};
use tokio::time::{Instant, sleep, timeout};

use crate::FsError;

/// First pause before a LIST is tried again; it doubles up to [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// The store as far as the filesystem asks it for metadata.
#[derive(Debug)]
pub(crate) struct Store {
    client: Arc<dyn ObjectClient>,
    limit: Duration,
    lists: AtomicU64,
}

impl Store {
    /// A request that has no answer after `limit` fails.
    pub(crate) fn new(client: Arc<dyn ObjectClient>, limit: Duration) -> Self {
        Self { client, limit, lists: AtomicU64::new(0) }
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
        let mut backoff = FIRST_BACKOFF;
        loop {
            let error = match self.client.list_objects(request.clone()).await {
                Ok(page) => {
                    self.lists.fetch_add(1, Ordering::Relaxed);
                    return Ok(page);
                }
                Err(error) => error,
            };
            if !error.is_retryable() || Instant::now() + backoff >= deadline {
                return Err(error.into());
            }
            tracing::warn!(%error, ?backoff, "LIST failed, trying again");
            sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }
}
