//! The names of the bucket: those that are known, and the means to find out about others.
//!
//! - [`newest`]: of what pages show and what answers tell, the newest;
//! - [`unordered`]: look-ups in a store that lists in no order;
//! - [`refresh`]: lists folders that this mount writes to again before their pages expire;
//! - [`changes`]: what this mount writes, deletes and renames.

pub(crate) mod changes;
mod newest;
mod refresh;
mod unordered;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::Bucket;
use s3mount_cache::NameStore;
use s3mount_object::{ListObjects, ListPage};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::NamesConfig;
use crate::error::NamesError;
use crate::fact::{Asked, Fact};
use crate::list::requests::ListRequests;
use crate::list::shared::{ListingReader, SharedListings, Taken};
use crate::listener::ChangeListener;
use crate::lookup::allowance::PATIENCE;
use crate::lookup::limit::{LookupLimiter, LookupPermit};
use crate::lookup::timed_out::TimedOut;
use crate::name::{File, NameKind, NamedDraft, Stored, Target, just_before};
use crate::overlay::Overlay;
use crate::pages::kept::KeptNames;
use crate::pages::page::Page;
use crate::pages::snapshots::{Known, Limits, Outcome, Snapshots};
use crate::sync::{Mutex, spawn};

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
        let kept = names.filter(|_| !ttl.is_zero() && !config.allows_writes);
        let kept = kept.map(|store| KeptNames::new(store, config.mounted_at, config.is_immutable, runtime));
        let snapshots = Snapshots::new(limits);
        let requests = ListRequests::new(bucket, config.timeout, kept, runtime.clone());
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
        let Some(kept) = self.requests.kept() else { return Known::Unknown };
        let Some(page) = kept.page(prefix, name).await else { return Known::Unknown };
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
        if let Some(kept) = self.requests.kept() {
            kept.forget(prefix);
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
    /// asked for.
    pub async fn list(&self, prefix: &Arc<str>, first: Option<(ListPage, Asked)>) -> ListingReader {
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

    /// Asks the store for `name`, with one LIST whose page begins at the name. The page answers for a file
    /// and for a directory of this name, and for the names behind it.
    async fn find(self: &Arc<Self>, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        let is_ordered = self.requests.lists_in_order();
        match (self.snapshots.keeps_nothing(), is_ordered) {
            (true, true) => return self.find_alone(prefix, name).await,
            (true, false) => return self.find_unordered(prefix, name).await,
            (false, _) => {}
        }
        let _permit = match self.wait_for_permit(prefix, name).await? {
            Waited::Permitted(permit) => permit,
            Waited::Known(fact) => return Ok(fact),
        };
        if self.snapshots.on_miss(prefix, Instant::now()) {
            spawn(self.requests.runtime(), self.clone().list_whole(prefix.clone()));
        }
        if !is_ordered {
            return self.find_unordered(prefix, name).await;
        }
        match self.list_page(prefix, name).await? {
            Some(fact) => Ok(fact),
            // More than a page of names lies between the key and its directory.
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Lists the page that begins at `name`, and keeps it. Returns what it says of the name, if it does.
    async fn list_page(&self, prefix: &Arc<str>, name: &str) -> Result<Option<Fact<D>>, NamesError> {
        let after = just_before(name);
        let request = ListObjects {
            prefix: prefix.to_string(),
            delimiter: true,
            start_after: (!after.is_empty()).then(|| format!("{prefix}{after}")),
            ..ListObjects::default()
        };
        let sent = Instant::now();
        let listed = self.requests.list(request).await?;
        let asked = Asked::since(sent);
        let page = Page::new(prefix, &after, &listed, asked, &self.requests.hidden);
        let answer = page.answer(prefix, name);
        self.keep(prefix, page);
        Ok(answer.map(|target| self.answered(target, asked)))
    }

    /// Waits until a LIST may be sent for `name` alone, or the page of another LIST has answered.
    async fn wait_for_permit(&self, prefix: &Arc<str>, name: &str) -> Result<Waited<'_, D>, NamesError> {
        loop {
            let mut page_has_come = pin!(self.page_has_come.notified());
            let permit = tokio::select! {
                biased;
                permit = self.lookup_limiter.acquire(prefix) => Some(permit),
                () = &mut page_has_come => None,
            };
            if let Some(fact) = self.known(prefix, name) {
                return Ok(Waited::Known(fact));
            }
            let Some(permit) = permit else { continue };
            if self.snapshots.may_ask(prefix, Instant::now()) {
                return Ok(Waited::Permitted(permit));
            }
            drop(permit);
            // After a page, or after this time, the look-up tries again.
            let _ = tokio::time::timeout(PATIENCE, page_has_come).await;
        }
    }

    /// Asks the store for `name` when no pages are kept.
    async fn find_alone(&self, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        let request =
            ListObjects { prefix: format!("{prefix}{name}"), delimiter: true, ..ListObjects::default() };
        let sent = Instant::now();
        let listed = self.requests.list(request).await?;
        let asked = Asked::since(sent);
        match Page::new(prefix, "", &listed, asked, &self.requests.hidden).answer(prefix, name) {
            Some(target) => Ok(self.answered(target, asked)),
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Asks the store for the directory `name`, then for the key. This takes two requests, wherever the two
    /// lie.
    async fn find_exactly(&self, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        let sent = Instant::now();
        let first = |prefix| ListObjects { prefix, max_keys: Some(1), ..ListObjects::default() };
        let below = self.requests.list(first(format!("{prefix}{name}/"))).await?;
        let is_folder = !below.objects.is_empty();
        self.keep(prefix, Page::of_folder(name, is_folder, Asked::since(sent)));
        if is_folder {
            return Ok(self.answered(Some(Stored::Directory), Asked::since(sent)));
        }
        let mut listed = self.requests.list(first(format!("{prefix}{name}"))).await?;
        listed.next = None;
        let asked = Asked::since(sent);
        let target =
            Page::new(prefix, "", &listed, asked, &self.requests.hidden).answer(prefix, name).flatten();
        let file = if let Some(Stored::File(file)) = &target { Some(file) } else { None };
        self.keep(prefix, Page::of_one(name, file, asked));
        Ok(self.answered(target, asked))
    }

    /// Lists a whole directory, because look-ups in it have found no page. Stops where memory ends.
    async fn list_whole(self: Arc<Self>, prefix: Arc<str>) {
        let mut listing = Whole { namespace: &self, prefix: &prefix, outcome: Outcome::Failed };
        let (mut reader, mut bytes) = (self.list(&prefix, None).await, 0);
        loop {
            match self.next_page(&prefix, &mut reader).await {
                Ok(Some(taken)) => {
                    bytes += taken.page().bytes();
                    self.keep_taken(&prefix, taken);
                    self.snapshots.on_listed_page(&prefix, Instant::now());
                    self.page_has_come.notify_waiters();
                }
                Ok(None) => return listing.outcome = Outcome::Known,
                Err(NamesError::TooManyNames(_)) => return listing.outcome = Outcome::TooLarge,
                Err(error) => return tracing::debug!(%prefix, %error, "listing ahead failed"),
            }
            if bytes > self.snapshots.most_of_one() {
                return listing.outcome = Outcome::TooLarge;
            }
        }
    }
}

/// What a look-up may do after it has waited.
enum Waited<'a, D> {
    Permitted(LookupPermit<'a>),
    Known(Fact<D>),
}

/// A directory that is being listed whole, until this is dropped.
struct Whole<'a, D: NamedDraft> {
    namespace: &'a Namespace<D>,
    prefix: &'a str,
    outcome: Outcome,
}

impl<D: NamedDraft> Drop for Whole<'_, D> {
    fn drop(&mut self) {
        self.namespace.snapshots.listed(self.prefix, self.outcome, Instant::now());
        // Look-ups that waited for its pages may send requests now.
        self.namespace.page_has_come.notify_waiters();
    }
}
