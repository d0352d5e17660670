//! The writer: it makes drafts.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use s3mount_bucket::WritableBucket;
use s3mount_memory::{BufferPool, Share};
use s3mount_metrics::Registry;
use s3mount_object::{Condition, Description, NewObject, ObjectError, ObjectId};
use tokio::runtime::Handle;
use tokio::sync::{OwnedRwLockWriteGuard, Semaphore, watch};
use tokio::time::Instant;

use crate::beside::{Unknown, in_place_of};
use crate::old_keys::OldKeys;
use crate::reclaim::DraftReclaimer;
use crate::shared::{Shared, body_units};
use crate::spool::Spool;
use crate::spool_disk::Resting;
use crate::state::{DraftState, Keeping};
use crate::store::Store;
use crate::written::{WrittenNotes, WrittenVersions};
use crate::{
    Copier, Draft, Intent, KeptDraft, Noted, Ranges, RestingDraft, SpoolBytes, WriteConfig, WriteMetrics,
};

/// Makes drafts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Writer(Arc<Shared>);

impl Writer {
    /// A writer to `bucket`. Buffers come from `pool`. Parts are uploaded by tasks on `runtime`, which must have
    /// time enabled.
    pub fn new(
        bucket: impl Into<WritableBucket>,
        pool: BufferPool,
        config: WriteConfig,
        runtime: &Handle,
    ) -> Self {
        Self::with(bucket, pool, config, runtime, || {})
    }

    /// As [`new`](Self::new). When a draft waits for memory that readers have, `reclaim` makes them give it back.
    pub fn with(
        bucket: impl Into<WritableBucket>,
        pool: BufferPool,
        config: WriteConfig,
        runtime: &Handle,
        reclaim: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let metrics: Arc<WriteMetrics> = Arc::default();
        let (has_checksums, timeout) = (config.has_checksums, config.timeout);
        Self(Arc::new(Shared {
            store: Arc::new(Store::new(bucket.into(), metrics.clone(), has_checksums, timeout)),
            runtime: runtime.clone(),
            metrics,
            share: Share::new(pool, config.memory_bytes, config.task_bytes()),
            requests: Arc::new(Semaphore::new(config.max_requests)),
            bodies: Semaphore::new(body_units(&config)),
            reclaim_from_readers: Box::new(reclaim),
            spool: config.spool.clone().map(Spool::new),
            draft_reclaimer: DraftReclaimer::default(),
            config,
            noted: Mutex::default(),
            written: WrittenVersions::default(),
            old_keys: OldKeys::default(),
            has_told_lost: AtomicBool::new(false),
            has_told_unkept: AtomicBool::new(false),
            beginning: Arc::default(),
            aborting: watch::Sender::new(0),
            started: Instant::now(),
        }))
    }

    /// A new, empty file for `key`. `object` is what it is to have beside its bytes.
    pub fn create(&self, key: &str, object: NewObject) -> Arc<Draft> {
        self.add(key, (object, None), None)
    }

    /// A draft whose bytes are, to begin with, those of a version of `size` bytes. Nothing is fetched before
    /// it is needed. It may replace only that version, and keeps what that has beside its bytes. `object` says how
    /// the bytes are stored, and stands for what the store does not tell.
    pub fn edit(&self, version: &ObjectId, size: u64, object: NewObject) -> Arc<Draft> {
        let beside = in_place_of(version, None, object);
        self.add(version.key(), beside, Some((version.clone(), size)))
    }

    /// As [`edit`](Self::edit), where the store has described the version.
    pub fn edit_described(&self, version: &ObjectId, found: &Description, object: NewObject) -> Arc<Draft> {
        let beside = in_place_of(version, Some(found), object);
        self.add(version.key(), beside, Some((version.clone(), found.meta.size)))
    }

    fn add(
        &self,
        key: &str,
        beside: (NewObject, Option<Unknown>),
        source: Option<(ObjectId, u64)>,
    ) -> Arc<Draft> {
        let (object, unknown) = beside;
        self.begin(DraftState { object, unknown, ..DraftState::new(key, source, self.0.now()) })
    }

    fn begin(&self, state: DraftState) -> Arc<Draft> {
        let draft = Draft::new(self.0.clone(), state);
        self.0.draft_reclaimer.add(draft.weak());
        draft
    }

    /// Goes on with a draft that the process before has left. It has changed, and `condition` must hold for `key` when it
    /// is published. What it has beside its bytes is what [`edit`](Self::edit) says, or [`create`](Self::create). Its
    /// [keeper](Draft::keep) knows what is kept already, and is told only of what changes from now on. If the process before
    /// has published it at its end, the bucket has to [expect](s3mount_bucket::Bucket::expect_late) that.
    pub fn go_on(
        &self,
        key: &str,
        kept: KeptDraft,
        condition: Option<Condition>,
        object: NewObject,
    ) -> Arc<Draft> {
        let (object, unknown) = match &kept.base {
            Some((version, _)) => in_place_of(version, None, object),
            None => (object, None),
        };
        // Without a spool it is read from there, and no more is written.
        let spool = self.0.spool.clone();
        let spool = spool.unwrap_or_else(Spool::none);
        let base = kept.base.as_ref().map(|(version, _)| version.clone());
        let state = DraftState::of_kept(key, kept, &spool, self.0.now());
        let draft = self.begin(DraftState { object, unknown, condition, ..state });
        draft.expect_late(base);
        draft
    }

    /// Goes on with a draft that rests, as [`go_on`](Self::go_on).
    pub fn go_on_resting(
        &self,
        key: &str,
        resting: RestingDraft,
        condition: Option<Condition>,
        object: NewObject,
    ) -> Arc<Draft> {
        let RestingDraft { bytes, size, modified, replaced } = resting;
        let file: Arc<dyn SpoolBytes> = Arc::new(Resting(bytes));
        let (mut spooled, base) = (Ranges::default(), None);
        spooled.add(0, size);
        let kept = KeptDraft { file, base, base_bytes: 0, size, spooled };
        let state = DraftState::of_kept(key, kept, &Spool::none(), modified);
        let state =
            DraftState { is_resting: true, keeping: Keeping::Unchanged, in_file: Ranges::default(), ..state };
        let draft = self.begin(DraftState { object, condition, ..state });
        draft.expect_late(replaced);
        draft
    }

    /// Frees a key for another file. A file that had it before, and was renamed while it was written, may have bytes in
    /// an upload that can become an object nowhere else; these are moved inside the store. `except` is the draft that
    /// gets the key.
    pub async fn free(&self, key: &str, except: Option<&Arc<Draft>>) {
        let Some(draft) = self.0.old_keys.take(key) else { return };
        let is_same = |except: &Arc<Draft>| std::ptr::addr_eq(Arc::as_ptr(except), Arc::as_ptr(&draft));
        if !except.is_some_and(is_same) {
            draft.free(key.to_owned()).await;
        }
    }

    /// Copies objects inside the bucket. Its requests are counted and limited together with those of the drafts.
    pub fn copier(&self) -> Copier {
        Copier::of(self.0.clone())
    }

    /// The bucket that it writes to.
    pub fn bucket(&self) -> &WritableBucket {
        &self.0.store.bucket
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.0.store
    }

    /// Writes down in the journal what begins now.
    pub(crate) fn note(&self, intent: Intent) -> Noted {
        self.0.config.journal.note(self.0.now(), intent)
    }

    /// Whether a version was written here, as far as that is remembered. Of one that a program has written just now it
    /// is.
    pub fn has_written(&self, version: &ObjectId) -> bool {
        self.0.written.has(version)
    }

    /// Waits until the journal has the ids of all uploads that are under way, and keeps new ones from beginning. While
    /// the result lives, the process can end without leaving an upload that nobody can abort.
    pub async fn stop_uploads(&self) -> OwnedRwLockWriteGuard<()> {
        self.0.beginning.clone().write_owned().await
    }

    /// Has `notes` taken of the versions that are written here. To be called before the first.
    pub fn keep_written(&self, notes: Arc<dyn WrittenNotes>) {
        self.0.written.keep(notes);
    }

    /// Takes over a note of another process.
    pub fn note_written_before(&self, hash: u64) {
        self.0.written.insert(hash);
    }

    /// Notes that a version was written here, though not by a draft.
    pub fn note_written(&self, version: &ObjectId) {
        self.0.written.note(version);
    }

    /// All that the store says of the object at `key`.
    ///
    /// # Errors
    /// Those of the store, if retries don't help.
    pub async fn describe(&self, key: &str) -> Result<Description, ObjectError> {
        self.0.store.bucket.describe(key).await
    }

    /// Waits until no upload is being given up in the background.
    pub async fn settled(&self) {
        self.0.settled().await;
    }

    /// The metrics of all its drafts.
    pub fn metrics(&self) -> &WriteMetrics {
        &self.0.metrics
    }

    /// Shows its metrics in `registry`.
    pub fn register(&self, registry: &Registry) {
        let shared = self.0.clone();
        registry.add(self.0.metrics.clone(), move || shared.refresh());
    }
}
