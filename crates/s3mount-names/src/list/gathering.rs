//! Lists a directory of a store that lists in no order.
//!
//! All pages are requested one after another, and their names are sorted. So readers of the listing get the same pages
//! in the same order as from any other store. The whole directory is in memory until its last name was read.

use std::sync::Arc;

use s3mount_object::{ErrorKind, ListObjects, ListPage, ObjectError};
use tokio::time::Instant;

use crate::error::NamesError;
use crate::fact::Asked;
use crate::list::requests::ListRequests;
use crate::pages::page::Page;
use crate::pages::sorted::Sorted;
use crate::sync::Ordering;

/// A directory whose names are gathered, and then returned in order.
#[derive(Debug)]
pub(super) struct Gathering {
    requests: Arc<ListRequests>,
    prefix: Arc<str>,
    pages: Vec<Page>,
    /// The memory of the pages, in bytes. The sum of all listings includes it.
    bytes: usize,
    /// When the pages were requested: no name is newer than the request of the first.
    asked: Option<Asked>,
    continuation: Option<String>,
    /// The first page, if it was listed ahead, and when it was requested.
    first: Option<(ListPage, Asked)>,
    sorted: Option<Sorted>,
}

impl Gathering {
    pub(super) fn new(
        requests: &Arc<ListRequests>,
        prefix: &Arc<str>,
        first: Option<(ListPage, Asked)>,
    ) -> Self {
        Self {
            requests: requests.clone(),
            prefix: prefix.clone(),
            pages: Vec::new(),
            bytes: 0,
            asked: None,
            continuation: None,
            first,
            sorted: None,
        }
    }

    /// Whether all pages were returned.
    pub(super) fn is_complete(&self) -> bool {
        self.sorted.as_ref().is_some_and(Sorted::is_complete)
    }

    /// The next page. `None` at the end. A caller may drop this future and call again: the gathered pages stay.
    ///
    /// # Errors
    /// Those of the store. `TooManyNames`. An integrity error if the listing has no end.
    pub(super) async fn next(&mut self) -> Result<Option<Page>, NamesError> {
        loop {
            if let Some(sorted) = &mut self.sorted {
                let page = sorted.next();
                if sorted.is_complete() {
                    self.count(0);
                }
                return Ok(page);
            }
            self.gather().await?;
        }
    }

    /// Requests one more page. After the last, sorts the names.
    async fn gather(&mut self) -> Result<(), NamesError> {
        let (listed, asked) = match self.first.take() {
            Some(first) => first,
            None => {
                let request = ListObjects {
                    prefix: self.prefix.to_string(),
                    delimiter: true,
                    continuation: self.continuation.clone(),
                    ..ListObjects::default()
                };
                let sent = Instant::now();
                (self.requests.list(request).await?, Asked::since(sent))
            }
        };
        if listed.next.is_some() && listed.next == self.continuation {
            let error = ObjectError::new(ErrorKind::Integrity, "ListObjectsV2", &self.prefix);
            return Err(NamesError::Object(error.with_source("the listing has no end")));
        }
        let asked = self.asked.map_or(asked, |first| Asked { sent: first.sent, ..asked });
        self.asked = Some(asked);
        let page = Page::between(&self.prefix, "", None, &listed, asked, &self.requests.hidden);
        let gathered = self.count(self.bytes + page.bytes());
        self.pages.push(page);
        let limit = self.requests.most_gathered();
        if gathered > limit {
            // The program may keep the folder open, so this frees the memory.
            (self.pages, self.asked, self.continuation) = (Vec::new(), None, None);
            self.count(0);
            return Err(NamesError::TooManyNames(limit));
        }
        match listed.next {
            Some(next) => self.continuation = Some(next),
            None => self.sorted = Some(Sorted::new(std::mem::take(&mut self.pages), asked)),
        }
        Ok(())
    }

    /// Sets the bytes of this listing. Returns those of all listings.
    fn count(&mut self, bytes: usize) -> usize {
        let (before, total) = (std::mem::replace(&mut self.bytes, bytes), &self.requests.gathered_bytes);
        let change = bytes.wrapping_sub(before);
        total.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.count(0);
    }
}
