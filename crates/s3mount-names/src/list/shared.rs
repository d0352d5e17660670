//! Programs that list one directory at the same time share one listing.
//!
//! A program that begins to read a directory joins the listing of another reader, if that is under way and began within
//! the last [`JOIN_WITHIN`]. The listing keeps its pages until the slowest reader has taken them. They use a part of
//! the memory for names. A reader that is too slow for that continues with another listing, after the last name that it
//! has.
//!
//! The first reader that needs the next page requests it: it holds the lister meanwhile, and the others wait for the
//! lister. When it is cancelled or gets an error, the next reader continues from there. If a request hangs, only one
//! reader waits for it: the others continue with another listing, once, which they share.
//!
//! **Invariant**: all that a reader has seen of a directory before it joins a listing comes from that listing, or was
//! requested before the listing began. So any other answer about the directory closes the listing to new readers, and
//! no shown name goes back to an older state.
//!
//! Locks: the map of all listings before the state of one.

mod listing;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use s3mount_object::ListPage;
use tokio::time::Instant;

pub use self::listing::Taken;
use self::listing::{Common, Next, Seat, SharedListing};
use crate::error::NamesError;
use crate::fact::Asked;
use crate::list::lister::Lister;
use crate::list::requests::ListRequests;
use crate::pages::page::Page;
use crate::sync::{AtomicUsize, Mutex, Ordering, lock};

/// The greatest age of a listing that a reader joins. Programs that begin together do so within much less. The names
/// that they see are older than their call by at most this time.
const JOIN_WITHIN: Duration = Duration::from_secs(1);

/// How long a reader waits for a page that another one requests. A LIST takes a fraction of this, even far from the
/// store.
const PATIENCE: Duration = Duration::from_secs(1);

/// All listings that readers may share.
#[derive(Debug)]
pub(crate) struct SharedListings {
    common: Arc<Common>,
    /// The listings of each directory that have readers, or had some lately. The newest is last.
    by_prefix: Mutex<HashMap<Arc<str>, Vec<Weak<SharedListing>>>>,
}

impl SharedListings {
    /// Answers are cached for `ttl`, so older listings are not joined. Pages that are kept for readers may take
    /// `most_bytes`.
    pub(crate) fn new(requests: Arc<ListRequests>, ttl: Duration, most_bytes: usize) -> Arc<Self> {
        let within = if requests.lists_in_order() { JOIN_WITHIN.min(ttl) } else { Duration::ZERO };
        let common = Common { requests, within, most_bytes, bytes: AtomicUsize::new(0) };
        Arc::new(Self { common: Arc::new(common), by_prefix: Mutex::default() })
    }

    /// Lists the directory `prefix`, or joins a listing of it. A `first` page that was listed ahead comes with the time
    /// of its request, and the listing is not shared.
    pub(crate) async fn read(
        self: &Arc<Self>,
        prefix: &Arc<str>,
        first: Option<(ListPage, Asked)>,
    ) -> ListingReader {
        let source = if first.is_some() || self.common.within.is_zero() {
            Source::Alone(Box::new(Lister::start(&self.common.requests, prefix, first).await))
        } else {
            Source::Shared(self.join(prefix, ""))
        };
        let (listings, prefix) = (self.clone(), prefix.clone());
        ListingReader {
            source,
            listings,
            prefix,
            behind: String::new(),
            patience: PATIENCE,
            is_complete: false,
        }
    }

    /// A seat at a listing of the names after this key.
    fn join(&self, prefix: &Arc<str>, behind: &str) -> Seat {
        let mut by_prefix = lock(&self.by_prefix);
        let listings = by_prefix.entry(prefix.clone()).or_default();
        listings.retain(|listing| listing.strong_count() > 0);
        let mut newest_first = listings.iter().rev().filter_map(Weak::upgrade);
        if let Some(seat) = newest_first.find_map(|listing| listing.join(behind)) {
            return seat;
        }
        let seat = SharedListing::begin(&self.common, prefix, behind);
        listings.push(Arc::downgrade(&seat.listing));
        seat
    }

    fn of(&self, prefix: &str) -> Vec<Arc<SharedListing>> {
        lock(&self.by_prefix).get(prefix).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Closes the listings of the directory `prefix` to new readers, because of another answer about it.
    pub(crate) fn close(&self, prefix: &str) {
        self.of(prefix).iter().for_each(|listing| listing.close());
    }

    /// As [`close`](Self::close), except for the listing `own`, which has the answer.
    fn close_others(&self, own: &Arc<SharedListing>) {
        let others = self.of(&own.prefix).into_iter().filter(|listing| !Arc::ptr_eq(listing, own));
        others.for_each(|listing| listing.close());
    }

    async fn next(
        &self,
        seat: &mut Seat,
        patience: Duration,
        keep: impl Fn(&Page),
    ) -> Result<Next, NamesError> {
        let listing = seat.listing.clone();
        let keep = |page: &Page| {
            self.close_others(&listing);
            keep(page);
        };
        seat.next(patience, keep).await
    }

    /// Closes the listings of directories at and below `prefix` to new readers.
    pub(crate) fn close_below(&self, prefix: &str) {
        let below = |of: &Arc<SharedListing>| of.prefix.starts_with(prefix);
        self.all().iter().filter(|of| below(of)).for_each(|listing| listing.close());
    }

    fn all(&self) -> Vec<Arc<SharedListing>> {
        lock(&self.by_prefix).values().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Drops pages that were kept for too long, and forgets listings without readers.
    pub(crate) fn expire(&self, now: Instant) {
        lock(&self.by_prefix).retain(|_, listings| {
            listings.retain(|listing| listing.strong_count() > 0);
            !listings.is_empty()
        });
        self.all().iter().for_each(|listing| listing.expire(now));
    }

    /// The memory of pages that are kept for readers, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.common.bytes.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum Source {
    Alone(Box<Lister>),
    Shared(Seat),
}

/// A reader of the listing of a directory.
#[derive(Debug)]
pub struct ListingReader {
    source: Source,
    listings: Arc<SharedListings>,
    prefix: Arc<str>,
    /// The last key of the pages that the reader has got.
    behind: String,
    /// How long the reader waits for another one.
    patience: Duration,
    is_complete: bool,
}

impl ListingReader {
    /// Whether the reader has got all pages.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The next page. `None` at the end. If readers share it, it was passed to `keep` once, before any of them got it.
    /// A caller may drop this future and call again.
    ///
    /// # Errors
    /// Those of the store. An integrity error if the listing goes back or has no end.
    pub(crate) async fn next(&mut self, keep: impl Fn(&Page)) -> Result<Option<Taken>, NamesError> {
        loop {
            let (taken, is_complete) = match &mut self.source {
                Source::Alone(lister) => {
                    let page = lister.next().await?;
                    (page.map(Taken::Own), lister.is_complete())
                }
                Source::Shared(seat) => match self.listings.next(seat, self.patience, &keep).await? {
                    Next::Page(taken, is_last) => (Some(taken), is_last),
                    Next::End => (None, true),
                    Next::Gone => {
                        // If all requests are slow, another listing is of no use.
                        self.patience = Duration::MAX;
                        self.source = Source::Shared(self.listings.join(&self.prefix, &self.behind));
                        continue;
                    }
                },
            };
            self.is_complete = is_complete;
            if let Some(upto) = taken.as_ref().and_then(|taken| taken.page().upto()) {
                upto.clone_into(&mut self.behind);
            }
            return Ok(taken);
        }
    }
}

#[cfg(test)]
mod tests;
