//! Lists one directory. It returns the names in order, page by page. It sends as many LIST requests in parallel as
//! [`Split`] plans and the store allows.

use std::sync::Arc;

use s3mount_object::{ErrorKind, ListObjects, ListPage, ObjectError};
use tokio::time::Instant;

use crate::error::NamesError;
use crate::fact::Asked;
use crate::list::gathering::Gathering;
use crate::list::requests::ListRequests;
use crate::list::split::{Ask, Fault, Split};
use crate::pages::listing_cache::{KeptListing, Recorder};
use crate::pages::page::Page;
use crate::sync::{JoinError, JoinSet, Ordering};

/// The most names in pages that wait for their reader, in all listings: some 12 MiB. Beyond that, only the page that a
/// reader waits for is requested.
const MOST_WAITING: usize = 128 << 10;

/// A listing in progress. When it is dropped, its requests are cancelled.
#[derive(Debug)]
pub(crate) struct Lister {
    requests: Arc<ListRequests>,
    prefix: Arc<str>,
    split: Split,
    tasks: JoinSet<Landed>,
    /// How many names this listing has added to `waiting_names`.
    waiting: usize,
    /// The first page, if it was listed ahead, and when it was requested.
    first: Option<(ListPage, Asked)>,
    /// The kept listing on the disk, if it replaces this one.
    kept: Option<KeptListing>,
    /// Lists instead of `split`, if the store lists in no order.
    gathering: Option<Gathering>,
    /// Keeps this listing on the disk.
    recorder: Option<Recorder>,
}

/// The number of a piece, a page of it, and when the page was requested.
type Landed = (u32, Result<ListPage, NamesError>, Asked);

impl Lister {
    /// Lists the directory `prefix`. A `first` page that was listed ahead comes with the time of its request. If names
    /// never change, a kept listing on the disk replaces requests.
    pub(crate) async fn start(
        requests: &Arc<ListRequests>,
        prefix: &Arc<str>,
        first: Option<(ListPage, Asked)>,
    ) -> Self {
        let cache = requests.listing_cache();
        let kept = match cache {
            Some(cache) => cache.listing(prefix).await,
            None => None,
        };
        let recorder = cache.filter(|_| kept.is_none()).map(|cache| cache.recorder(prefix));
        let is_gathered = kept.is_none() && !requests.lists_in_order();
        let (first, gathering) = match is_gathered {
            true => (None, Some(Gathering::new(requests, prefix, first))),
            false => (first, None),
        };
        let mut lister = Self::behind(requests, prefix, "");
        (lister.kept, lister.gathering, lister.recorder, lister.first) = (kept, gathering, recorder, first);
        lister
    }

    /// Lists the names after the key `after` in the directory `prefix`, whose store lists in order.
    pub(crate) fn behind(requests: &Arc<ListRequests>, prefix: &Arc<str>, after: &str) -> Self {
        Self {
            requests: requests.clone(),
            prefix: prefix.clone(),
            split: Split::behind(prefix, after),
            tasks: JoinSet::new(),
            waiting: 0,
            first: None,
            kept: None,
            gathering: None,
            recorder: None,
        }
    }

    /// Whether all pages were returned.
    pub(crate) fn is_complete(&self) -> bool {
        match (&self.kept, &self.gathering) {
            (Some(kept), _) => kept.is_complete(),
            (None, Some(gathering)) => gathering.is_complete(),
            (None, None) => self.split.is_complete(),
        }
    }

    /// The next page. `None` at the end. A caller may drop this future and call again.
    ///
    /// # Errors
    /// Those of the store. An integrity error if the listing goes back or has no end.
    pub(crate) async fn next(&mut self) -> Result<Option<Page>, NamesError> {
        if let Some(kept) = &mut self.kept {
            return kept.next().map_err(|error| self.broken(error.to_string()));
        }
        if let Some(gathering) = &mut self.gathering {
            let page = gathering.next().await?;
            if let (Some(page), Some(recorder)) = (&page, &mut self.recorder) {
                recorder.keep(page);
            }
            return Ok(page);
        }
        if let Some((page, asked)) = self.first.take()
            && let Some(ask) = self.split.ask(0)
        {
            self.land((ask.piece, Ok(page), asked))?;
        }
        loop {
            while let Some(landed) = self.tasks.try_join_next() {
                self.join(landed)?;
            }
            let part = self.split.take();
            self.count();
            self.ask();
            if let (Some(page), Some(recorder)) = (&part, &mut self.recorder) {
                recorder.keep(page);
            }
            if part.is_some() || self.is_complete() {
                return Ok(part);
            }
            if let Some(landed) = self.tasks.join_next().await {
                self.join(landed)?;
            }
        }
    }

    /// Requests the page that the reader waits for, and later pages if there is room.
    fn ask(&mut self) {
        loop {
            let has_room = self.requests.waiting_names.load(Ordering::Relaxed) < MOST_WAITING;
            let throttle = self.requests.throttle();
            let permit = if has_room { throttle.permit() } else { None };
            let spare = if permit.is_some() { 1 + throttle.spare() } else { 0 };
            let Some(Ask { piece, is_first, start_after, continuation }) = self.split.ask(spare) else {
                return;
            };
            let request = ListObjects {
                prefix: self.prefix.to_string(),
                delimiter: true,
                start_after: (!start_after.is_empty()).then(|| format!("{}{start_after}", self.prefix)),
                continuation,
                ..ListObjects::default()
            };
            let (requests, sent) = (self.requests.clone(), Instant::now());
            let listing = async move {
                let _permit = permit.filter(|_| !is_first);
                let page =
                    if is_first { requests.list(request).await } else { requests.list_ahead(request).await };
                (piece, page, Asked::since(sent))
            };
            self.tasks.spawn_on(listing, self.requests.runtime());
        }
    }

    fn join(&mut self, landed: Result<Landed, JoinError>) -> Result<(), NamesError> {
        match landed {
            Ok(landed) => self.land(landed),
            // A task has panicked, and its piece is unknown.
            Err(_) => {
                self.tasks.abort_all();
                self.split.all_failed();
                Ok(())
            }
        }
    }

    fn land(&mut self, (piece, page, asked): Landed) -> Result<(), NamesError> {
        match page {
            Ok(page) => {
                let landed = self.split.landed(piece, page, asked, &self.requests.hidden);
                self.count();
                landed.map_err(|fault| self.fault(fault))
            }
            Err(error) => {
                let is_throttled =
                    matches!(&error, NamesError::Object(error) if *error.kind() == ErrorKind::Throttled);
                if self.split.failed(piece, is_throttled) { Err(error) } else { Ok(()) }
            }
        }
    }

    fn fault(&self, fault: Fault) -> NamesError {
        let why = match fault {
            Fault::GoesBack => "a page of the listing goes back behind the page before it",
            Fault::HasNoEnd => "the listing has no end",
        };
        self.broken(why.to_owned())
    }

    fn broken(&self, why: String) -> NamesError {
        let error = ObjectError::new(ErrorKind::Integrity, "ListObjectsV2", &self.prefix);
        NamesError::Object(error.with_source(why))
    }

    /// Updates the number of waiting names, in all listings.
    fn count(&mut self) {
        let before = std::mem::replace(&mut self.waiting, self.split.waiting());
        self.requests.waiting_names.fetch_add(self.waiting.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        self.requests.waiting_names.fetch_sub(self.waiting, Ordering::Relaxed);
    }
}
