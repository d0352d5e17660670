//! The names of the bucket: the known ones, and the means to look up others.
//!
//! - [`look_up`]: asks the store for names;
//! - [`newest`]: chooses the newest of pages and answers;
//! - [`unordered`]: look-ups in a store that lists in no order;
//! - [`refresh`]: lists folders to which this mount writes again before their pages expire;
//! - [`told`]: changes of which the store tells by itself;
//! - [`changes`]: the writes, deletions and renames of this mount.

pub(crate) mod changes;
mod look_up;
mod newest;
mod refresh;
pub(crate) mod told;
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
use crate::recently_told::RecentlyTold;
use crate::sync::Mutex;

/// How many LIST requests look-ups may have in flight in one directory. When 32 threads looked up 2,000 of
/// 20,000 names, this took 141 LISTs without a bound, and takes some 80 with this one. A lower bound would be
/// slower in large directories.
const AT_ONCE: usize = 8;

/// Pages that are kept for slow readers of listings may take one part in this many of the memory for names. With the
/// default limit of 128 MiB, that is a listing of 170,000 names.
const LISTINGS_SHARE: usize = 8;

/// The names of the bucket: the known ones, and the means to look up others.
#[derive(Debug)]
pub struct Namespace<D> {
    requests: Arc<ListRequests>,
    listings: Arc<SharedListings>,
    snapshots: Snapshots,
    lookup_limiter: LookupLimiter,
    /// Notified when a page of a directory that is being listed whole has come.
    page_has_come: Notify,
    /// The directories that are being listed again before their pages expire.
    refreshing: Mutex<HashSet<Arc<str>>>,
    ttl: Duration,
    negative_ttl: Duration,
    /// Whether the store tells of changes.
    is_told: bool,
    recently_told: RecentlyTold,
    /// The longest time that a caller waits.
    limit: Duration,
    root: Arc<str>,
    listener: ChangeListener,
    overlay: Overlay<D>,
    timed_out: TimedOut,
}

impl<D: NamedDraft> Namespace<D> {
    /// An empty namespace. Background listings run on `runtime`. Listings are kept in `names`. Calls `listener` when an
    /// answer shows that names have changed.
    pub fn new(
        bucket: Bucket,
        config: &NamesConfig,
        names: Option<NameStore>,
        listener: ChangeListener,
        runtime: &Handle,
    ) -> Arc<Self> {
        let NamesConfig { ttl, negative_ttl, .. } = *config;
        let limits = Limits { ttl, negative_ttl, bytes: config.limit_bytes };
        // Kept listings on the disk would lack the writes of this mount.
        let store = names.filter(|_| !ttl.is_zero() && !config.allows_writes && !config.is_told);
        let cache =
            store.map(|store| ListingCache::new(store, config.started_at, config.is_immutable, runtime));
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
            is_told: config.is_told,
            recently_told: RecentlyTold::default(),
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
        self.recently_told.expire(now, self.limit * 4);
        self.snapshots.leave_room(changes + self.listings.bytes());
    }

    /// How long a fresh answer is cached.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The sender of LIST requests.
    pub fn requests(&self) -> &Arc<ListRequests> {
        &self.requests
    }

    /// How much memory the known names take, in bytes, including those that this mount has changed.
    pub fn bytes(&self) -> usize {
        self.snapshots.bytes() + self.snapshots.room_left()
    }

    /// What `name` in the directory `prefix` refers to, and how long that may be cached.
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

    /// The fact about `name` in the directory `prefix`: the newest of this mount's changes, the pages, and an answer of
    /// the store. Answers become facts here.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn ask(self: &Arc<Self>, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        if let Some(target) = self.overlay.get(prefix, name, self.stored_ttl()) {
            return Ok(self.own_fact(Some(target)));
        }
        let now = Instant::now();
        let known = self.snapshots.get(prefix, name, now);
        if let Known::Absent(left) = known {
            self.refresh(prefix, name, left);
        }
        let mut fact = self.fact((prefix, name), known, now);
        if fact.is_none() {
            fact = self.fact((prefix, name), self.get_kept(prefix, name).await, now);
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
                // A later page, or one that differs, may have come before this answer.
                let now = Instant::now();
                match self.snapshots.get(prefix, name, now) {
                    Known::InDoubt => Fact { left: Duration::ZERO, ..found },
                    Known::Unknown if self.is_overtaken(prefix, name, &found) => {
                        Fact { left: Duration::ZERO, ..found }
                    }
                    known => self.fact((prefix, name), known, now).unwrap_or(found),
                }
            }
        };
        let newer = self.overlay.since(prefix, name, fact.at);
        Ok(self.unless_doubted(prefix, name, newer.map_or(fact, |newer| self.own_fact(newer))))
    }

    /// The fact of this mount's own change of a name.
    fn own_fact(&self, target: Option<Target<D>>) -> Fact<D> {
        let left = if matches!(target, Some(Target::Draft(_))) { Duration::ZERO } else { self.ttl };
        Fact { target, at: Instant::now(), left }
    }

    /// The fact that pages show of a name, if they do.
    fn known(&self, prefix: &str, name: &str) -> Option<Fact<D>> {
        let now = Instant::now();
        self.fact((prefix, name), self.snapshots.get(prefix, name, now), now)
    }

    /// Turns the known state of `name` in the directory `prefix`, as pages showed it at `now` or later, into a fact.
    fn fact(&self, (prefix, name): (&str, &str), known: Known, now: Instant) -> Option<Fact<D>> {
        let (target, left, ttl) = match known {
            Known::Found(stored, left) => (Some(stored.into()), left, self.ttl),
            Known::Absent(left) => (None, left, self.negative_ttl),
            Known::InDoubt | Known::Unknown => return None,
        };
        let at = now.checked_sub(ttl.saturating_sub(left)).unwrap_or(now);
        Some(Fact { target, at: self.newest_page(prefix, name).map_or(at, |newest| newest.max(at)), left })
    }

    /// Turns an answer of the store into a fact.
    fn answered(&self, stored: Option<Stored>, asked: Asked) -> Fact<D> {
        let target = stored.map(Target::from);
        Fact { target, at: asked.sent, left: self.ttl.saturating_sub(asked.came - asked.sent) }
    }

    /// The state of `name` in the kept listing on the disk. The parts of its page that no newer page covers are kept in
    /// memory from now on.
    async fn get_kept(&self, prefix: &Arc<str>, name: &str) -> Known {
        let Some(cache) = self.requests.listing_cache() else { return Known::Unknown };
        let Some(page) = cache.page(prefix, name).await else { return Known::Unknown };
        self.listings.close(prefix);
        self.listener.tell(prefix, &self.snapshots.fill(prefix, name, page));
        self.snapshots.get(prefix, name, Instant::now())
    }

    /// The file that `name` in the directory `prefix` refers to.
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

    /// Waits for `answer`, but no longer than a caller may wait. The limit covers everything: requests that are sent
    /// one after another, and the time in queues.
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

    /// The names of up to `count` files, or subdirectories, after the key `after` in the directory `prefix`. Returns
    /// only names that are known without a gap.
    pub fn following(&self, prefix: &str, after: &str, count: usize, kind: NameKind) -> Vec<Box<str>> {
        self.snapshots.following(prefix, after, count, kind, Instant::now())
    }

    /// The sum of the sizes of all known files in the directory `prefix` with this extension. It stops soon
    /// after `most_bytes`.
    pub fn file_bytes(&self, prefix: &str, extension: &str, most_bytes: u64) -> u64 {
        self.snapshots.file_bytes(prefix, extension, most_bytes)
    }

    /// Forgets `name`, because a read has shown it wrong.
    pub fn forget(&self, prefix: &str, name: &str) {
        self.listings.close(prefix);
        self.listener.tell(prefix, &self.snapshots.forget(prefix, name, Instant::now()));
        if let Some(cache) = self.requests.listing_cache() {
            cache.forget(prefix);
        }
    }

    /// Keeps the parts of a page for which nothing newer is known. Calls the listener if it shows that names have
    /// changed.
    pub(crate) fn keep(&self, prefix: &Arc<str>, page: Page) {
        // A reader that joined a listing from here on could miss names that this page shows.
        self.listings.close(prefix);
        self.note(prefix, page);
    }

    fn note(&self, prefix: &Arc<str>, page: Page) {
        let page = self.overlay.apply(prefix, page);
        self.listener.tell(prefix, &self.snapshots.note(prefix, page));
    }

    /// A reader of the directory `prefix`. A `first` page that was listed ahead comes with the time of its request. It
    /// is not used if anything newer is known of the directory: it may lack names that were shown.
    pub async fn list(&self, prefix: &Arc<str>, first: Option<(ListPage, Asked)>) -> ListingReader {
        let first = first.filter(|(_, asked)| !self.snapshots.knows_since(prefix, asked.sent));
        self.listings.read(prefix, first).await
    }

    /// The next page of the directory `prefix`, for this reader. `None` at the end. The caller passes the page back to
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
