//! The objects below a prefix, in the order of their keys, page by page. Of a store that lists in no order, all
//! objects are listed at once and sorted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::{Attempts, Retries, RetryBudget};
use s3mount_crt::CrtClient;
use s3mount_object::{ListObjects, ListedObject, ObjectClient, ObjectError};

/// A page may take this long before it is asked for again.
const SLOW: Duration = Duration::from_secs(4);

/// A listing that goes on as its objects are taken.
pub(super) struct Listing {
    client: Arc<CrtClient>,
    retry_budget: Arc<RetryBudget>,
    prefix: String,
    objects: VecDeque<ListedObject>,
    next: Option<String>,
    is_complete: bool,
}

impl Listing {
    pub(super) fn new(client: Arc<CrtClient>, retry_budget: Arc<RetryBudget>, prefix: String) -> Self {
        Self { client, retry_budget, prefix, objects: VecDeque::new(), next: None, is_complete: false }
    }

    /// The key of an object, from the end of the prefix on.
    pub(super) fn rest<'a>(&self, object: &'a ListedObject) -> &'a str {
        object.key.strip_prefix(&self.prefix).unwrap_or(&object.key)
    }

    /// The next object, which stays.
    pub(super) async fn peek(&mut self) -> Result<Option<&ListedObject>, ObjectError> {
        while self.objects.is_empty() && !self.is_complete {
            self.fetch().await?;
            if !self.client.lists_in_order() {
                while !self.is_complete {
                    self.fetch().await?;
                }
                self.objects.make_contiguous().sort_unstable_by(|a, b| a.key.cmp(&b.key));
            }
        }
        Ok(self.objects.front())
    }

    /// Takes the next object.
    pub(super) async fn next(&mut self) -> Result<Option<ListedObject>, ObjectError> {
        self.peek().await?;
        Ok(self.objects.pop_front())
    }

    async fn fetch(&mut self) -> Result<(), ObjectError> {
        let request = ListObjects {
            prefix: self.prefix.clone(),
            continuation: self.next.take(),
            ..ListObjects::default()
        };
        let deadline = tokio::time::Instant::now() + super::TIMEOUT;
        let mut retries = Retries::new(&self.retry_budget, Attempts::new(SLOW, 0), deadline);
        let page = loop {
            let listed = self.client.list_objects(request.clone());
            match retries.attempt("ListObjectsV2", &self.prefix, listed).await {
                Ok(page) => break page,
                Err(error) => retries.pause(error, || true).await?,
            }
        };
        self.objects.extend(page.objects);
        self.next = page.next;
        self.is_complete = self.next.is_none();
        Ok(())
    }
}
