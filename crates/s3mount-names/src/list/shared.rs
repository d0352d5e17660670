//! Programs that list one directory at the same time share one listing.
//!
//! Who begins to read a directory joins the listing that another reader has begun, if that is under way and began
//! within the last [`JOIN_WITHIN`]. Its pages are kept until the slowest reader has taken them. They take a part of
//! the memory for names. Who is too slow for that goes on with another listing, behind the last name that it has.
//!
//! Who needs the next page first brings it: it holds the lister meanwhile, and the others wait for the lister. When it is
//! cancelled or gets an error, the next of them goes on where it was. Where a request hangs, only one reader waits for it:
//! the others go on with another listing, once, which they share.
//!
//! **Invariant**: what a reader has seen of a directory before it joins a listing comes from that listing, or was asked
//! for before the listing began. So anything else that is learnt of the directory ends the joining, and no name that was
//! shown goes back.
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

/// How old a listing may be that a reader joins. Programs that begin together do so within much less. What they are
/// shown is older than their call by this much at most.
const JOIN_WITHIN: Duration = Duration::from_secs(1);

/// How long a reader waits for a page that another one brings. A LIST takes a fraction of this, also far away.
const PATIENCE: Duration = Duration::from_secs(1);

/// All listings that readers may share.
#[derive(Debug)]
pub(crate) struct SharedListings {
    common: Arc<Common>,
    /// The listings of each directory that have readers, or had some lately. The last one is the newest.
    by_prefix: Mutex<HashMap<Arc<str>, Vec<Weak<SharedListing>>>>,
}

impl SharedListings {
    /// Answers are believed for `ttl`, so listings that are older are not joined. Pages that are kept for readers may
    /// take `most_bytes`.
    pub(crate) fn new(requests: Arc<ListRequests>, ttl: Duration, most_bytes: usize) -> Arc<Self> {
        let within = if requests.lists_in_order() { JOIN_WITHIN.min(ttl) } else { Duration::ZERO };
        let common = Common { requests, within, most_bytes, bytes: AtomicUsize::new(0) };
        Arc::new(Self { common: Arc::new(common), by_prefix: Mutex::default() })
    }

    /// Lists the directory `prefix`, or joins a listing of it. If its `first` page was listed ahead, it comes with the
    /// time at which it was asked for, and nobody shares the listing.
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

    /// A seat at a listing of the names behind this key.
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

    /// Nobody joins the listings of the directory `prefix` any more, because something else was learnt of it.
    pub(crate) fn close(&self, prefix: &str) {
        self.of(prefix).iter().for_each(|listing| listing.close());
    }

    /// As [`close`](Self::close), but for the listing `own` from which it was learnt.
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

    /// Nobody joins the listings of directories at and below `prefix` any more.
    pub(crate) fn close_below(&self, prefix: &str) {
        let below = |of: &Arc<SharedListing>| of.prefix.starts_with(prefix);
        self.all().iter().filter(|of| below(of)).for_each(|listing| listing.close());
    }

    fn all(&self) -> Vec<Arc<SharedListing>> {
        lock(&self.by_prefix).values().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Drops pages that were kept for too long, and forgets listings that nobody reads any more.
    pub(crate) fn expire(&self, now: Instant) {
        lock(&self.by_prefix).retain(|_, listings| {
            listings.retain(|listing| listing.strong_count() > 0);
            !listings.is_empty()
        });
        self.all().iter().for_each(|listing| listing.expire(now));
    }

    /// What the pages take that are kept for readers, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.common.bytes.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum Source {
    Alone(Box<Lister>),
    Shared(Seat),
}

/// One who reads the listing of a directory.
#[derive(Debug)]
pub struct ListingReader {
    source: Source,
    listings: Arc<SharedListings>,
    prefix: Arc<str>,
    /// The last key of the pages that it has got.
    behind: String,
    /// How long it waits for another reader.
    patience: Duration,
    is_complete: bool,
}

impl ListingReader {
    /// Whether it has got all pages.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The next page. `None` at the end. If others share it, it was handed to `keep` once, before anybody got it. A
    /// caller may drop this future and call again.
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
                        // Where all requests are slow, it is of no use to go on once more.
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
