//! What stands for a name: from memory, or by asking the store.
//!
//! - [`names`]: which keys can be file names, and what a LIST page says of a directory;
//! - [`snapshot`]: what listings have told of directories, packed, with its age;
//! - [`lookup_limit`]: few look-ups of one directory ask the store at a time;
//! - [`lookup_allowance`]: fewer do while the directory is listed whole;
//! - [`lister`]: the pages of one directory, listed side by side;
//! - [`split`]: the pieces that it is cut into, and where;
//! - [`list_requests`]: LIST with retries and a deadline;
//! - [`pace`]: how many LISTs the store bears that nobody waits for yet.

pub(crate) mod list_requests;
pub(crate) mod lister;
pub(crate) mod lookup_allowance;
pub(crate) mod lookup_limit;
pub(crate) mod names;
pub(crate) mod pace;
pub(crate) mod page;
pub(crate) mod snapshots;
pub(crate) mod split;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use s3mount_object::{ListObjects, ObjectClient};
use s3mount_requests::RetryBudget;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::list_requests::ListRequests;
use self::lister::Lister;
use self::lookup_allowance::PATIENCE;
use self::lookup_limit::{Gates, Pass};
use self::names::{File, Target, just_before};
use self::page::Page;
use self::snapshots::{Known, Limits, Outcome, Snapshots};
use crate::attr::FileKind;
use crate::inode::InodeTable;
use crate::sync::spawn;
use crate::{FsConfig, FsError};

/// LISTs of one directory at a time, on behalf of look-ups. Two thousand names of twenty thousand,
/// asked for by 32 threads, took 141 LISTs without a bound and take some 80 with this one; a lower
/// one would be slower in large directories.
const AT_ONCE: usize = 8;

/// The names of the bucket, as far as they are known, and how to find out.
#[derive(Debug)]
pub(crate) struct Namespace {
    requests: Arc<ListRequests>,
    snapshots: Snapshots,
    gates: Gates,
    /// Told when a page of a directory that is listed whole has come.
    page_has_come: Notify,
    ttl: Duration,
    /// How long a caller waits, at most.
    limit: Duration,
    root: Arc<str>,
    inodes: Arc<InodeTable>,
}

impl Namespace {
    /// Nothing is known yet. What is asked ahead is asked on `runtime`, and retries are taken out of
    /// `budget`. Names that have changed outdate their `inodes`.
    pub(crate) fn new(
        client: Arc<dyn ObjectClient>,
        budget: Arc<RetryBudget>,
        config: &FsConfig,
        inodes: Arc<InodeTable>,
        runtime: &Handle,
    ) -> Arc<Self> {
        let ttl = config.metadata_ttl.duration();
        let limits =
            Limits { ttl, negative_ttl: config.negative_metadata_ttl, bytes: config.metadata_limit_bytes };
        Arc::new(Self {
            requests: Arc::new(ListRequests::new(client, budget, config.timeout, runtime.clone())),
            snapshots: Snapshots::new(limits),
            gates: Gates::new(AT_ONCE),
            page_has_come: Notify::new(),
            ttl,
            limit: config.timeout,
            root: Arc::from(&*config.prefix),
            inodes,
        })
    }

    /// Lets go of names that are not believed any more.
    pub(crate) fn expire(&self) {
        self.snapshots.expire(Instant::now());
    }

    /// How long a fresh answer is believed.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Its LIST requests.
    pub(crate) fn requests(&self) -> &Arc<ListRequests> {
        &self.requests
    }

    /// Memory that known names take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.snapshots.bytes()
    }

    /// What `name` in the directory `prefix` stands for, and how long that is believed.
    ///
    /// # Errors
    /// `NotFound`, or the store's.
    pub(crate) async fn get(
        self: &Arc<Self>,
        prefix: &Arc<str>,
        name: &str,
    ) -> Result<(Target, Duration), FsError> {
        match self.snapshots.get(prefix, name, Instant::now()) {
            Known::Found(target, ttl) => Ok((target, ttl)),
            Known::Absent => Err(FsError::NotFound),
            Known::Unknown => Ok((self.in_time(self.find(prefix, name)).await?, self.ttl)),
        }
    }

    /// The file that `name` in the directory `prefix` stands for.
    ///
    /// # Errors
    /// `IsDirectory` for a directory, and those of [`get`](Self::get).
    pub(crate) async fn find_file(self: &Arc<Self>, prefix: &Arc<str>, name: &str) -> Result<File, FsError> {
        match self.get(prefix, name).await?.0 {
            Target::File(file) => Ok(file),
            Target::Directory => Err(FsError::IsDirectory),
        }
    }

    /// The prefix of the keys that the mount shows: empty, or ending in `/`.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Has what a caller of the kernel waits for end in time, whatever it is: requests one after another,
    /// and places in queues.
    ///
    /// # Errors
    /// `TimedOut`, or its own.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        tokio::time::timeout(self.limit, answer).await.unwrap_or(Err(FsError::TimedOut(self.limit)))
    }

    /// Up to `count` files, or sub-directories, behind the key `after` in the directory `prefix`, as far
    /// as they are known.
    pub(crate) fn following(&self, prefix: &str, after: &str, count: usize, kind: FileKind) -> Vec<Box<str>> {
        self.snapshots.following(prefix, after, count, kind, Instant::now())
    }

    /// Bytes of the files in the directory `prefix` with this extension, as far as they are known, and not
    /// much more than `most_bytes`.
    pub(crate) fn file_bytes(&self, prefix: &str, extension: &str, most_bytes: u64) -> u64 {
        self.snapshots.file_bytes(prefix, extension, most_bytes)
    }

    /// Forgets what is known of `name`: it has turned out wrong.
    pub(crate) fn forget(&self, prefix: &str, name: &str) {
        self.snapshots.forget(prefix, name, Instant::now());
    }

    /// Keeps a page, and outdates the inodes of the names that have changed with it.
    pub(crate) fn keep(&self, prefix: &Arc<str>, page: Page) {
        let changed = self.snapshots.note(prefix, page);
        if !changed.is_empty() {
            self.inodes.outdate(&self.root, prefix, &changed);
        }
    }

    /// Asks the store for `name`: one LIST page that begins there. It answers for file and directory,
    /// and for the names behind.
    async fn find(self: &Arc<Self>, prefix: &Arc<str>, name: &str) -> Result<Target, FsError> {
        if self.snapshots.keeps_nothing() {
            return self.find_alone(prefix, name).await;
        }
        let _pass = match self.wait_for_pass(prefix, name).await? {
            Waited::Pass(pass) => pass,
            Waited::Found(target) => return Ok(target),
        };
        if self.snapshots.on_miss(prefix, Instant::now()) {
            spawn(self.requests.runtime(), self.clone().list_whole(prefix.clone()));
        }
        let after = just_before(name);
        let request = ListObjects {
            prefix: prefix.to_string(),
            delimiter: true,
            start_after: (!after.is_empty()).then(|| format!("{prefix}{after}")),
            ..ListObjects::default()
        };
        let at = Instant::now();
        let listed = self.requests.list(request).await?;
        let page = Page::new(prefix, &after, &listed, at, &self.requests.hidden);
        let answer = page.answer(prefix, name);
        self.keep(prefix, page);
        match answer {
            Some(target) => target.ok_or(FsError::NotFound),
            // A page of names lies between the key and where its directory would be.
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Waits until a LIST may be sent for `name` alone, or the page of another LIST has answered.
    async fn wait_for_pass(&self, prefix: &Arc<str>, name: &str) -> Result<Waited<'_>, FsError> {
        loop {
            let mut page_has_come = pin!(self.page_has_come.notified());
            let pass = tokio::select! {
                biased;
                pass = self.gates.pass(prefix) => Some(pass),
                () = &mut page_has_come => None,
            };
            match self.snapshots.get(prefix, name, Instant::now()) {
                Known::Found(target, _) => return Ok(Waited::Found(target)),
                Known::Absent => return Err(FsError::NotFound),
                Known::Unknown => {}
            }
            let Some(pass) = pass else { continue };
            if self.snapshots.may_ask(prefix, tokio::time::Instant::now()) {
                return Ok(Waited::Pass(pass));
            }
            drop(pass);
            // A page, or another chance to ask: either way the look-up goes round once more.
            let _ = tokio::time::timeout(PATIENCE, page_has_come).await;
        }
    }

    /// Asks for `name` where nothing else is to be kept.
    async fn find_alone(&self, prefix: &str, name: &str) -> Result<Target, FsError> {
        let request =
            ListObjects { prefix: format!("{prefix}{name}"), delimiter: true, ..ListObjects::default() };
        let listed = self.requests.list(request).await?;
        match Page::new(prefix, "", &listed, Instant::now(), &self.requests.hidden).answer(prefix, name) {
            Some(target) => target.ok_or(FsError::NotFound),
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Asks for the directory `name`, then for the key: two requests, wherever they lie.
    async fn find_exactly(&self, prefix: &str, name: &str) -> Result<Target, FsError> {
        let first = |prefix| ListObjects { prefix, max_keys: Some(1), ..ListObjects::default() };
        let below = self.requests.list(first(format!("{prefix}{name}/"))).await?;
        if !below.objects.is_empty() {
            return Ok(Target::Directory);
        }
        let mut at = self.requests.list(first(format!("{prefix}{name}"))).await?;
        at.next = None;
        let page = Page::new(prefix, "", &at, Instant::now(), &self.requests.hidden);
        page.answer(prefix, name).flatten().ok_or(FsError::NotFound)
    }

    /// Lists a directory in which names were missed, as far as there is memory for it.
    async fn list_whole(self: Arc<Self>, prefix: Arc<str>) {
        let mut listing = Whole { namespace: &self, prefix: &prefix, outcome: Outcome::Failed };
        let (mut lister, mut bytes) = (Lister::new(&self.requests, &prefix, None), 0);
        loop {
            match lister.next().await {
                Ok(Some(page)) => {
                    bytes += page.bytes();
                    self.keep(&prefix, page);
                    self.snapshots.on_listed_page(&prefix, tokio::time::Instant::now());
                    self.page_has_come.notify_waiters();
                }
                Ok(None) => return listing.outcome = Outcome::Known,
                Err(error) => return tracing::debug!(%prefix, %error, "listing ahead failed"),
            }
            if bytes > self.snapshots.most_of_one() {
                return listing.outcome = Outcome::TooLarge;
            }
        }
    }
}

/// Who has waited may ask, or need not.
enum Waited<'a> {
    Pass(Pass<'a>),
    Found(Target),
}

/// A directory that is being listed whole, until this is dropped.
struct Whole<'a> {
    namespace: &'a Namespace,
    prefix: &'a str,
    outcome: Outcome,
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        self.namespace.snapshots.listed(self.prefix, self.outcome, Instant::now());
        // Those who waited for its pages may ask by themselves now.
        self.namespace.page_has_come.notify_waiters();
    }
}
