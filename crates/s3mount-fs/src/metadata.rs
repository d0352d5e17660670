//! What stands for a name: from memory, or by asking the store.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use s3mount_object::{ListObjects, ListPage, ObjectClient, RetryBudget};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::gate::Gates;
use crate::inode::FileKind;
use crate::lister::Lister;
use crate::names::{Hidden, Target, just_before};
use crate::pace::Pace;
use crate::snapshot::{Known, Limits, Page, Snapshots};
use crate::store::Store;
use crate::walk::Walks;
use crate::{FsConfig, FsError};

/// Changes that wait to be told to the kernel, at most.
const MAX_CHANGES: usize = 4096;

/// A name of which a listing has told something else than what was known.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) prefix: Arc<str>,
    pub(crate) name: Box<str>,
}

/// The names of the bucket, as far as they are known, and how to find out.
#[derive(Debug)]
pub(crate) struct Metadata {
    store: Store,
    snapshots: Snapshots,
    pub(crate) hidden: Hidden,
    gates: Gates,
    pub(crate) walks: Walks,
    /// Names in pages that wait for their listing's turn.
    pub(crate) waiting: AtomicUsize,
    ttl: Duration,
    /// How long a caller waits, at most.
    limit: Duration,
    changes: mpsc::Sender<Change>,
    pub(crate) runtime: Handle,
}

impl Metadata {
    /// Nothing is known yet. What is asked ahead is asked on `runtime`, and retries are taken out of
    /// `budget`. Changes come out of the second.
    pub(crate) fn new(
        client: Arc<dyn ObjectClient>,
        budget: Arc<RetryBudget>,
        config: &FsConfig,
        runtime: &Handle,
    ) -> (Arc<Self>, mpsc::Receiver<Change>) {
        let (changes, changed) = mpsc::channel(MAX_CHANGES);
        let ttl = config.metadata_ttl.duration();
        let limits =
            Limits { ttl, negative_ttl: config.negative_metadata_ttl, bytes: config.metadata_limit_bytes };
        let metadata = Arc::new(Self {
            store: Store::new(client, budget, config.timeout),
            snapshots: Snapshots::new(limits),
            hidden: Hidden::default(),
            gates: Gates::default(),
            walks: Walks::new(ttl),
            waiting: AtomicUsize::new(0),
            ttl,
            limit: config.timeout,
            changes,
            runtime: runtime.clone(),
        });
        (metadata, changed)
    }

    /// Lets go of names that are not believed any more.
    pub(crate) fn expire(&self) {
        self.snapshots.expire(Instant::now());
        self.walks.expire();
    }

    /// LISTs that succeeded.
    pub(crate) fn lists(&self) -> u64 {
        self.store.lists()
    }

    /// Keys that can't be shown, counting repeats.
    pub(crate) fn hidden_keys(&self) -> u64 {
        self.hidden.get()
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
        self.snapshots.forget(prefix, name);
    }

    /// The first page of the directory `prefix`.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn first_page(&self, prefix: &str) -> Result<ListPage, FsError> {
        self.list(ListObjects { prefix: prefix.to_owned(), delimiter: true, ..ListObjects::default() }).await
    }

    /// Whatever is to be listed.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn list(&self, request: ListObjects) -> Result<ListPage, FsError> {
        self.store.list(request, false).await
    }

    /// Whatever is to be listed, and nobody waits for yet.
    ///
    /// # Errors
    /// The store's: also that it was asked too much.
    pub(crate) async fn list_ahead(&self, request: ListObjects) -> Result<ListPage, FsError> {
        self.store.list(request, true).await
    }

    /// How many LISTs the store bears that nobody waits for yet.
    pub(crate) fn pace(&self) -> &Arc<Pace> {
        self.store.pace()
    }

    /// Keeps a page, and tells of what has changed with it.
    pub(crate) fn keep(&self, prefix: &Arc<str>, page: Page) {
        for name in self.snapshots.note(prefix, page) {
            // When too many wait, these are found when what was told of them is believed no more.
            let _ = self.changes.try_send(Change { prefix: prefix.clone(), name });
        }
    }

    /// Asks the store for `name`: one LIST page that begins there. It answers for file and directory,
    /// and for the names behind.
    async fn find(self: &Arc<Self>, prefix: &Arc<str>, name: &str) -> Result<Target, FsError> {
        if self.snapshots.keeps_nothing() {
            return self.find_alone(prefix, name).await;
        }
        if self.snapshots.on_miss(prefix, Instant::now()) {
            self.runtime.spawn(self.clone().list_whole(prefix.clone()));
        }
        let (_pass, at_once) = self.gates.pass(prefix).await;
        // Who had to wait may have been answered meanwhile.
        if !at_once {
            match self.snapshots.get(prefix, name, Instant::now()) {
                Known::Found(target, _) => return Ok(target),
                Known::Absent => return Err(FsError::NotFound),
                Known::Unknown => {}
            }
        }
        let after = just_before(name);
        let request = ListObjects {
            prefix: prefix.to_string(),
            delimiter: true,
            start_after: (!after.is_empty()).then(|| format!("{prefix}{after}")),
            ..ListObjects::default()
        };
        let listed = self.list(request).await?;
        let page = Page::new(prefix, &after, &listed, Instant::now(), &self.hidden);
        let answer = page.answer(prefix, name);
        self.keep(prefix, page);
        match answer {
            Some(target) => target.ok_or(FsError::NotFound),
            // A page of names lies between the key and where its directory would be.
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Asks for `name` where nothing else is to be kept.
    async fn find_alone(&self, prefix: &str, name: &str) -> Result<Target, FsError> {
        let request =
            ListObjects { prefix: format!("{prefix}{name}"), delimiter: true, ..ListObjects::default() };
        let listed = self.list(request).await?;
        match Page::new(prefix, "", &listed, Instant::now(), &self.hidden).answer(prefix, name) {
            Some(target) => target.ok_or(FsError::NotFound),
            None => self.find_exactly(prefix, name).await,
        }
    }

    /// Asks for the directory `name`, then for the key: two requests, wherever they lie.
    async fn find_exactly(&self, prefix: &str, name: &str) -> Result<Target, FsError> {
        let first = |prefix| ListObjects { prefix, max_keys: Some(1), ..ListObjects::default() };
        let below = self.list(first(format!("{prefix}{name}/"))).await?;
        if !below.objects.is_empty() {
            return Ok(Target::Directory);
        }
        let mut at = self.list(first(format!("{prefix}{name}"))).await?;
        at.next = None;
        let page = Page::new(prefix, "", &at, Instant::now(), &self.hidden);
        page.answer(prefix, name).flatten().ok_or(FsError::NotFound)
    }

    /// Lists a directory in which names were missed, as far as there is memory for it.
    async fn list_whole(self: Arc<Self>, prefix: Arc<str>) {
        let (mut lister, mut bytes) = (Lister::new(&self, &prefix, false), 0);
        while bytes <= self.snapshots.most_of_one() {
            match lister.next().await {
                Ok(Some(page)) => {
                    bytes += page.bytes();
                    self.keep(&prefix, page);
                }
                Ok(None) => return,
                Err(error) => return tracing::debug!(%prefix, %error, "listing ahead failed"),
            }
        }
    }
}
