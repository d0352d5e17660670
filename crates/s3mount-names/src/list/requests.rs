//! Sends LIST requests, with retries and a deadline, and holds the state that all listings of a mount share.

use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::Bucket;
use s3mount_object::{ErrorKind, ListObjects, ListPage, ObjectError, ObjectMeta};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::error::NamesError;
use crate::list::throttle::ListThrottle;
use crate::name::Hidden;
use crate::pages::listing_cache::ListingCache;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Sends the LIST requests of a mount.
#[derive(Debug)]
pub struct ListRequests {
    /// The bucket limits the time of a request, including its retries.
    bucket: Bucket,
    succeeded: AtomicU64,
    throttle: Arc<ListThrottle>,
    /// The listings on the disk, if the mount has a disk cache.
    listing_cache: Option<ListingCache>,
    /// The runtime for requests ahead of their readers.
    runtime: Handle,
    /// Keys in pages that are hidden.
    pub(crate) hidden: Hidden,
    /// How many names wait in pages for their reader, in all listings.
    pub(crate) waiting_names: AtomicUsize,
    /// The memory of names that are gathered to be sorted, in all listings, in bytes. See
    /// [`gathering`](super::gathering).
    pub(crate) gathered_bytes: AtomicUsize,
    most_gathered: usize,
}

impl ListRequests {
    /// Sends requests to `bucket`. A request fails if it has no answer after `limit`. Whole listings are kept in
    /// `listing_cache`.
    pub fn new(
        bucket: Bucket,
        limit: Duration,
        listing_cache: Option<ListingCache>,
        runtime: Handle,
    ) -> Self {
        Self {
            bucket: bucket.with_timeout(limit),
            succeeded: AtomicU64::new(0),
            throttle: Arc::default(),
            listing_cache,
            runtime,
            hidden: Hidden::default(),
            waiting_names: AtomicUsize::new(0),
            gathered_bytes: AtomicUsize::new(0),
            most_gathered: usize::MAX,
        }
    }

    /// Sets the most memory that gathered names may take, in bytes.
    pub(crate) fn with_most_gathered(self, most_gathered: usize) -> Self {
        Self { most_gathered, ..self }
    }

    /// The most memory that gathered names may take, in bytes.
    pub(crate) fn most_gathered(&self) -> usize {
        self.most_gathered
    }

    /// Whether the store lists in the order of keys.
    pub(crate) fn lists_in_order(&self) -> bool {
        self.bucket.lists_in_order()
    }

    /// How many requests succeeded.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// How many keys in pages were hidden. A key that is listed again counts again.
    pub fn hidden_keys(&self) -> u64 {
        self.hidden.get()
    }

    /// The listings on the disk, if the mount has a disk cache.
    pub fn listing_cache(&self) -> Option<&ListingCache> {
        self.listing_cache.as_ref()
    }

    /// The bound on requests ahead of their readers.
    pub(crate) fn throttle(&self) -> &Arc<ListThrottle> {
        &self.throttle
    }

    /// The runtime for requests ahead of their readers.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The first page of the directory `prefix`.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    pub async fn first_page(&self, prefix: &str) -> Result<ListPage, NamesError> {
        self.list(ListObjects { prefix: prefix.to_owned(), delimiter: true, ..ListObjects::default() }).await
    }

    /// Requests a page that a reader waits for.
    ///
    /// # Errors
    /// Those of the store, if retries don't help. `TimedOut`.
    pub async fn list(&self, request: ListObjects) -> Result<ListPage, NamesError> {
        self.in_time(self.attempts(request, false)).await
    }

    /// Requests a page ahead of its reader. Does not retry if the store throttles it.
    ///
    /// # Errors
    /// Those of [`list`](Self::list), and throttling by the store.
    pub(crate) async fn list_ahead(&self, request: ListObjects) -> Result<ListPage, NamesError> {
        self.in_time(self.attempts(request, true)).await
    }

    /// The object at `key`, if there is one.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    pub(crate) async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, NamesError> {
        self.in_time(self.bucket.head(key)).await
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, NamesError> {
        let limit = self.bucket.timeout();
        match timeout(limit, answer).await {
            // The last attempt may end at the same moment.
            Ok(Err(error)) if *error.kind() == ErrorKind::TimedOut => Err(NamesError::TimedOut(limit)),
            Ok(answer) => Ok(answer?),
            Err(_) => Err(NamesError::TimedOut(limit)),
        }
    }

    async fn attempts(&self, request: ListObjects, is_ahead: bool) -> Result<ListPage, ObjectError> {
        let goes_on = |error: &ObjectError| {
            let is_throttled = *error.kind() == ErrorKind::Throttled;
            if is_throttled {
                self.throttle.on_throttled();
            }
            !(is_throttled && is_ahead)
        };
        let page = self.bucket.list_while(&request, goes_on).await?;
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        self.throttle.on_success();
        Ok(page)
    }
}
