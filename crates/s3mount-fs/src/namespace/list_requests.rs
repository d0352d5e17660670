//! Sends LIST requests, with retries and a deadline, and holds what all listings of a mount share.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::{Attempts, Retries, RetryBudget};
use s3mount_object::{ErrorKind, ListObjects, ListPage, ObjectClient, ObjectMeta};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::kept::KeptNames;
use super::names::Hidden;
use super::pace::Pace;
use crate::FsError;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// After this time the answer to a LIST is slow. S3 mostly takes 60 ms, and seconds after many keys were
/// deleted.
const SLOW: Duration = Duration::from_secs(2);

/// Sends the LIST requests of a mount.
#[derive(Debug)]
pub(crate) struct ListRequests {
    client: Arc<dyn ObjectClient>,
    /// How long a request may take, including its retries. Then it fails.
    limit: Duration,
    succeeded: AtomicU64,
    budget: Arc<RetryBudget>,
    pace: Arc<Pace>,
    /// The listings on the disk, if the mount has a disk cache.
    kept: Option<KeptNames>,
    /// The runtime for requests that nobody waits for yet.
    runtime: Handle,
    /// Keys in pages that are hidden.
    pub(crate) hidden: Hidden,
    /// How many names wait in pages for their turn, in all listings.
    pub(crate) waiting_names: AtomicUsize,
    /// What the names take that are gathered to be sorted, in all listings, in bytes. See
    /// [`gathering`](super::gathering).
    pub(crate) gathered_bytes: AtomicUsize,
    most_gathered: usize,
}

impl ListRequests {
    /// Sends requests through `client`. A request fails if it has no answer after `limit`. The mount's
    /// `budget` bounds retries. Listings are `kept` on the disk.
    pub(crate) fn new(
        client: Arc<dyn ObjectClient>,
        budget: Arc<RetryBudget>,
        limit: Duration,
        kept: Option<KeptNames>,
        runtime: Handle,
    ) -> Self {
        Self {
            client,
            limit,
            succeeded: AtomicU64::new(0),
            budget,
            pace: Arc::default(),
            kept,
            runtime,
            hidden: Hidden::default(),
            waiting_names: AtomicUsize::new(0),
            gathered_bytes: AtomicUsize::new(0),
            most_gathered: usize::MAX,
        }
    }

    /// Names that are gathered may take this much memory, in bytes.
    pub(crate) fn with_most_gathered(self, most_gathered: usize) -> Self {
        Self { most_gathered, ..self }
    }

    /// How much memory names may take that are gathered, in bytes.
    pub(crate) fn most_gathered(&self) -> usize {
        self.most_gathered
    }

    /// Whether the store lists in the order of keys.
    pub(crate) fn lists_in_order(&self) -> bool {
        self.client.lists_in_order()
    }

    /// How many requests succeeded.
    pub(crate) fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// The listings on the disk, if the mount has a disk cache.
    pub(crate) fn kept(&self) -> Option<&KeptNames> {
        self.kept.as_ref()
    }

    /// The bound on requests that nobody waits for yet.
    pub(crate) fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// The runtime for requests that nobody waits for yet.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The first page of the directory `prefix`.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    pub(crate) async fn first_page(&self, prefix: &str) -> Result<ListPage, FsError> {
        self.list(ListObjects { prefix: prefix.to_owned(), delimiter: true, ..ListObjects::default() }).await
    }

    /// Requests a page that somebody waits for.
    ///
    /// # Errors
    /// Those of the store, if retries don't help. `TimedOut`.
    pub(crate) async fn list(&self, request: ListObjects) -> Result<ListPage, FsError> {
        self.in_time(self.attempts(request, false)).await
    }

    /// Requests a page that nobody waits for yet. It is not tried again if the store throttles it.
    ///
    /// # Errors
    /// Those of [`list`](Self::list), and that the store throttles.
    pub(crate) async fn list_ahead(&self, request: ListObjects) -> Result<ListPage, FsError> {
        self.in_time(self.attempts(request, true)).await
    }

    /// What is at `key`, if anything is.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    pub(crate) async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, FsError> {
        let mut retries = self.retries(key);
        let head = async {
            loop {
                match retries.attempt("HeadObject", key, self.client.head_object(key)).await {
                    Ok(meta) => return Ok(Some(meta)),
                    Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(None),
                    Err(error) => retries.pause(error, || true).await?,
                }
            }
        };
        self.in_time(head).await
    }

    /// The attempts at a request that begins now. What it `asks_for` varies its pauses.
    fn retries(&self, asks_for: impl Hash) -> Retries<'_> {
        #[expect(clippy::disallowed_methods, reason = "the pauses of many mounts must differ")]
        let seed = RandomState::new().hash_one(asks_for);
        Retries::new(&self.budget, Attempts::new(SLOW, seed), Instant::now() + self.limit)
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, FsError>>) -> Result<T, FsError> {
        timeout(self.limit, answer).await.unwrap_or(Err(FsError::TimedOut(self.limit)))
    }

    async fn attempts(&self, request: ListObjects, is_ahead: bool) -> Result<ListPage, FsError> {
        let mut retries = self.retries((&request.prefix, &request.continuation, &request.start_after));
        loop {
            let list = self.client.list_objects(request.clone());
            match retries.attempt("ListObjectsV2", &request.prefix, list).await {
                Ok(page) => {
                    self.succeeded.fetch_add(1, Ordering::Relaxed);
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
