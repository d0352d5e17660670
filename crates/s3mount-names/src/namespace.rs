//! The names of the bucket: those that are known, and the means to find out about others.
//!
//! - [`look_up`]: asks the store for names;
//! - [`newest`]: of what pages show and what answers tell, the newest;
//! - [`unordered`]: look-ups in a store that lists in no order;
//! - [`refresh`]: lists folders that this mount writes to again before their pages expire;
//! - [`changes`]: what this mount writes, deletes and renames.

pub(crate) mod changes;
mod look_up;
mod newest;
mod refresh;
mod unordered;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::Bucket;
use s3mount_cache::NameStore;
use s3mount_object::ListPage;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::NamesConfig;
use crate::error::NamesError;
use crate::fact::{Asked, Fact};
use crate::list::requests::ListRequests;
use crate::list::shared::{ListingReader, SharedListings, Taken};
use crate::listener::ChangeListener;
use crate::lookup::limit::LookupLimiter;
use crate::lookup::timed_out::TimedOut;
use crate::name::{File, NameKind, NamedDraft, Stored, Target};
use crate::overlay::Overlay;
use crate::pages::listing_cache::ListingCache;
use crate::pages::page::Page;
use crate::pages::snapshots::{Known, Limits, Snapshots};
use crate::sync::Mutex;

/// How many LIST requests look-ups may have in flight in one directory. When 32 threads looked up 2,000 of
/// 20,000 names, this took 141 LISTs without a bound, and takes some 80 with this one. A lower bound would be
/// slower in large directories.
const AT_ONCE: usize = 8;

/// Pages that are kept for slow readers of listings may take this part of the memory for names: one of so many. With the
/// default limit of 128 MiB, that is a listing of 170,000 names.
const LISTINGS_SHARE: usize = 8;

/// The names of the bucket: those that are known, and the means to find out about others.
#[derive(Debug)]
pub struct Namespace<D> {
    requests: Arc<ListRequests>,
    listings: Arc<SharedListings>,
    snapshots: Snapshots,
    lookup_limiter: LookupLimiter,
    /// Notified when a page has come of a directory that is being listed whole.
    page_has_come: Notify,
    /// The directories that are being listed again before their pages expire.
    refreshing: Mutex<HashSet<Arc<str>>>,
    ttl: Duration,
    negative_ttl: Duration,
    /// The longest time that a caller waits.
    limit: Duration,
    root: Arc<str>,
    listener: ChangeListener,
    overlay: Overlay<D>,
    timed_out: TimedOut,
}

impl<D: NamedDraft> Namespace<D> {
    /// A namespace that knows nothing yet. Background listings run on `runtime`. Listings are kept in `names`. When an answer shows that names have changed, `listener` is told.
    pub fn new(
        bucket: Bucket,
        config: &NamesConfig,
        names: Option<NameStore>,
        listener: ChangeListener,
        runtime: &Handle,
    ) -> Arc<Self> {
        let NamesConfig { ttl, negative_ttl, .. } = *config;
        let limits = Limits { ttl, negative_ttl, bytes: config.limit_bytes };
        // What is kept on the disk would not know what this mount writes.
        let store = names.filter(|_| !ttl.is_zero() && !config.allows_writes);
        let cache =
            store.map(|store| ListingCache::new(store, config.mounted_at, config.is_immutable, runtime));
        let snapshots = Snapshots::new(limits);
        let requests = ListRequests::new(bucket, config.timeout, cache, runtime.clone());
        let requests = Arc::new(requests.with_most_gathered(snapshots.most_of_one()));
        Arc::new(Self {
            listings: SharedListings::new(requests.clone(), ttl, snapshots.most_bytes() / LISTINGS_SHARE),
            requests,
            snapshots,
            lookup_limiter: LookupLimiter::new(AT_ONCE),
            page_has_come: Notify::new(),
            refreshing: Mutex::default(),
            ttl,
            negative_ttl,
            limit: config.timeout,
            root: Arc::from(&*config.root),
            listener,
            overlay: Overlay::default(),
            timed_out: TimedOut::default(),
        })
    }

    /// Drops pages that have expired.
    pub fn expire(&self) {
        let now = Instant::now();
        self.snapshots.expire(now);
        // A listing takes several LISTs, and its last page may wait for its reader.
        let changes = self.overlay.expire(now, self.limit * 4, self.snapshots.most_bytes() / 4);
        self.listings.expire(now);
        self.snapshots.leave_room(changes + self.listings.bytes());
    }

    /// How long a fresh answer is believed.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The sender of LIST requests.
    pub fn requests(&self) -> &Arc<ListRequests> {
        &self.requests
    }

    /// How much memory the known names take, in bytes, with those that this mount has changed.
    pub fn bytes(&self) -> usize {
        self.snapshots.bytes() + self.snapshots.room_left()
    }

    /// What `name` in the directory `prefix` stands for, and how long that may be believed.
    ///
    /// # Errors
    /// `NotFound`, or an error of the store.
    pub async fn get(
        self: &Arc<Self>,
        prefix: &Arc<str>,
        name: &str,
    ) -> Result<(Target<D>, Duration), NamesError> {
        let fact = self.ask(prefix, name).await?;
        Ok((fact.target.ok_or(NamesError::NotFound)?, fact.left))
    }

    /// What is known of `name` in the directory `prefix`: the newest of what this mount has made of the name, what pages
    /// show, and what the store answers. This is where answers become facts.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn ask(self: &Arc<Self>, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        if let Some(target) = self.overlay.get(prefix, name, self.ttl) {
            return Ok(self.own_fact(Some(target)));
        }
        let now = Instant::now();
        let known = self.snapshots.get(prefix, name, now);
        if let Known::Absent(left) = known {
            self.refresh(prefix, name, left);
        }
        let mut fact = self.fact(known, now);
        if fact.is_none() {
            fact = self.fact(self.get_kept(prefix, name).await, now);
        }
        let fact = match fact {
            Some(fact) => fact,
            None => {
                if self.timed_out.has(prefix, name) {
                    return Err(NamesError::TimedOut(self.limit));
                }
                let found = self.in_time(self.find_newest(prefix, name)).await.inspect_err(|error| {
                    if matches!(error, NamesError::TimedOut(_)) {
                        self.timed_out.note(prefix, name);
                    }
                })?;
                // A page that was requested later may have come before this answer, or one that differs.
                let now = Instant::now();
                match self.snapshots.get(prefix, name, now) {
                    Known::InDoubt => Fact { left: Duration::ZERO, ..found },
                    Known::Unknown if self.is_overtaken(prefix, name, &found) => {
                        Fact { left: Duration::ZERO, ..found }
                    }
                    known => self.fact(known, now).unwrap_or(found),
                }
            }
        };
        let newer = self.overlay.since(prefix, name, fact.at);
        Ok(newer.map_or(fact, |newer| self.own_fact(newer)))
    }

    /// What this mount has made of a name.
    fn own_fact(&self, target: Option<Target<D>>) -> Fact<D> {
        let left = if matches!(target, Some(Target::Draft(_))) { Duration::ZERO } else { self.ttl };
        Fact { target, at: Instant::now(), left }
    }

    /// What pages show of a name, if they do.
    fn known(&self, prefix: &str, name: &str) -> Option<Fact<D>> {
        let now = Instant::now();
        self.fact(self.snapshots.get(prefix, name, now), now)
    }

    /// What pages showed of a name not before `now`, as a fact.
    fn fact(&self, known: Known, now: Instant) -> Option<Fact<D>> {
        let (target, left, ttl) = match known {
            Known::Found(stored, left) => (Some(stored.into()), left, self.ttl),
            Known::Absent(left) => (None, left, self.negative_ttl),
            Known::InDoubt | Known::Unknown => return None,
        };
        Some(Fact { target, at: now.checked_sub(ttl.saturating_sub(left)).unwrap_or(now), left })
    }

    /// What the store has answered to a request.
    fn answered(&self, stored: Option<Stored>, asked: Asked) -> Fact<D> {
        let target = stored.map(Target::from);
        Fact { target, at: asked.sent, left: self.ttl.saturating_sub(asked.came - asked.sent) }
    }

    /// What the listing on the disk says of `name`. What newer pages do not cover of its page is kept in
    /// memory from now on.
    async fn get_kept(&self, prefix: &Arc<str>, name: &str) -> Known {
        let Some(cache) = self.requests.listing_cache() else { return Known::Unknown };
        let Some(page) = cache.page(prefix, name).await else { return Known::Unknown };
        self.listings.close(prefix);
        self.listener.tell(prefix, &self.snapshots.fill(prefix, name, page));
        self.snapshots.get(prefix, name, Instant::now())
    }

    /// The file that `name` in the directory `prefix` stands for.
    ///
    /// # Errors
    /// `IsDirectory` for a directory, and those of [`get`](Self::get).
    pub async fn find_file(self: &Arc<Self>, prefix: &Arc<str>, name: &str) -> Result<File, NamesError> {
        match self.get(prefix, name).await?.0 {
            Target::File(file) => Ok(file),
            Target::Directory => Err(NamesError::IsDirectory),
            // There is no version to fetch yet.
            Target::Draft(_) => Err(NamesError::NotFound),
        }
    }

    /// The prefix of the keys that the mount shows. It is empty, or ends in `/`.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Waits for `answer`, but no longer than a caller may wait. The limit is for all of it: requests that
    /// are sent one after another, and the time in queues.
    ///
    /// # Errors
    /// `TimedOut`, or the error of `answer`.
    pub async fn in_time<T, E: From<NamesError>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let timed_out = |_| Err(NamesError::TimedOut(self.limit).into());
        tokio::time::timeout(self.limit, answer).await.unwrap_or_else(timed_out)
    }

    /// The names of up to `count` files, or subdirectories, behind the key `after` in the directory `prefix`.
    /// Only names that are known without a gap are returned.
    pub fn following(&self, prefix: &str, after: &str, count: usize, kind: NameKind) -> Vec<Box<str>> {
        self.snapshots.following(prefix, after, count, kind, Instant::now())
    }

    /// The sum of the sizes of all known files in the directory `prefix` with this extension. It stops soon
    /// after `most_bytes`.
    pub fn file_bytes(&self, prefix: &str, extension: &str, most_bytes: u64) -> u64 {
        self.snapshots.file_bytes(prefix, extension, most_bytes)
    }

    /// Forgets what is known of `name`, because a read has shown it wrong.
    pub fn forget(&self, prefix: &str, name: &str) {
        self.listings.close(prefix);
        self.listener.tell(prefix, &self.snapshots.forget(prefix, name, Instant::now()));
        if let Some(cache) = self.requests.listing_cache() {
            cache.forget(prefix);
        }
    }

    /// Keeps a page, where nothing newer is known. If it shows that names have changed, the listener is told.
    pub(crate) fn keep(&self, prefix: &Arc<str>, page: Page) {
        // Who joined a listing from here on could be shown less than this page shows.
        self.listings.close(prefix);
        self.note(prefix, page);
    }

    fn note(&self, prefix: &Arc<str>, page: Page) {
        let page = self.overlay.apply(prefix, page);
        self.listener.tell(prefix, &self.snapshots.note(prefix, page));
    }

    /// A reader of the directory `prefix`. If its `first` page was listed ahead, it comes with the time at which it was
    /// asked for. The page is not used if something newer is known of the directory: it may lack names that were shown.
    pub async fn list(&self, prefix: &Arc<str>, first: Option<(ListPage, Asked)>) -> ListingReader {
        let first = first.filter(|(_, asked)| !self.snapshots.knows_since(prefix, asked.sent));
        self.listings.read(prefix, first).await
    }

    /// The next page of the directory `prefix`, for this reader. `None` at the end. Whoever gets it hands it back to
    /// [`keep_taken`](Self::keep_taken).
    ///
    /// # Errors
    /// Those of the store. An integrity error if the listing goes back or has no end.
    pub async fn next_page(
        &self,
        prefix: &Arc<str>,
        reader: &mut ListingReader,
    ) -> Result<Option<Taken>, NamesError> {
        reader.next(|page| self.note(prefix, page.clone())).await
    }

    /// Keeps a page that a reader has got, if no reader has kept it.
    pub fn keep_taken(&self, prefix: &Arc<str>, taken: Taken) {
        match taken {
            Taken::Own(page) => self.keep(prefix, page),
            Taken::Shared(_) => {}
        }
    }
}
