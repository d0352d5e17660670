//! What all drafts of a writer share.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use s3mount_memory::{Share, UNIT_BYTES};
use s3mount_object::UploadId;
use tokio::runtime::Handle;
use tokio::sync::{RwLock, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use crate::old_keys::OldKeys;
use crate::part_layout::PartLayout;
use crate::reclaim::DraftReclaimer;
use crate::spool::Spool;
use crate::store::Store;
use crate::written::WrittenVersions;
use crate::{Noted, WriteConfig, WriteMetrics};

/// Memory beside the pool for a body of several pieces. `None`: the body is one piece.
pub(crate) type Room<'a> = Option<SemaphorePermit<'a>>;

/// How many units of the pool the client may take beside it, for bodies of several pieces.
pub(crate) fn body_units(config: &WriteConfig) -> usize {
    let units = usize::try_from(config.body_bytes).unwrap_or(usize::MAX) / UNIT_BYTES;
    units.clamp(1, u32::MAX as usize)
}

/// Makes readers give memory back.
pub(crate) type Reclaim = Box<dyn Fn() + Send + Sync>;

/// What all drafts share.
pub(crate) struct Shared {
    pub(crate) store: Arc<Store>,
    pub(crate) config: WriteConfig,
    pub(crate) runtime: Handle,
    pub(crate) metrics: Arc<WriteMetrics>,
    /// The memory of all drafts.
    pub(crate) share: Share,
    /// Limits the requests that move bytes.
    pub(crate) requests: Arc<Semaphore>,
    /// Limits the bodies of several pieces that these requests send, in units of the pool.
    pub(crate) bodies: Semaphore,
    pub(crate) reclaim_from_readers: Reclaim,
    pub(crate) spool: Option<Spool>,
    /// All drafts, which give memory back when others wait for it.
    pub(crate) draft_reclaimer: DraftReclaimer,
    /// The uploads that are under way, as the journal has them, by their ids.
    pub(crate) noted: Mutex<HashMap<String, Noted>>,
    pub(crate) written: WrittenVersions,
    pub(crate) old_keys: OldKeys,
    /// Whether the log has said that changed files lose something that their objects had.
    pub(crate) has_told_lost: AtomicBool,
    /// Whether the log has said that changed files are not kept.
    pub(crate) has_told_unkept: AtomicBool,
    /// Held by each upload that begins, until its id is in the journal.
    pub(crate) beginning: Arc<RwLock<()>>,
    /// How many uploads are being given up in the background.
    pub(crate) aborting: watch::Sender<usize>,
    pub(crate) started: Instant,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// The time of day.
    pub(crate) fn now(&self) -> SystemTime {
        self.config.started_at + self.started.elapsed()
    }

    fn noted(&self) -> MutexGuard<'_, HashMap<String, Noted>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The journal has an upload, which has begun.
    pub(crate) fn begun(&self, upload: &UploadId, noted: Noted) {
        self.noted().insert(upload.id.clone(), noted);
    }

    /// An upload has ended: the journal need not know it any more.
    pub(crate) fn ended(&self, upload: &UploadId) {
        let noted = self.noted().remove(&upload.id);
        if let Some(noted) = noted {
            noted.done();
        }
    }

    /// Gives an upload up, as far as the store lets it.
    pub(crate) async fn abort(&self, upload: &UploadId) {
        if self.store.abort(upload).await {
            self.ended(upload);
        }
    }

    /// Gives an upload up in the background, once `before` is over.
    pub(crate) fn abort_later(
        self: &Arc<Self>,
        upload: Arc<UploadId>,
        before: impl Future<Output = ()> + Send + 'static,
    ) {
        self.aborting.send_modify(|under_way| *under_way += 1);
        let shared = self.clone();
        self.runtime.spawn(async move {
            before.await;
            shared.abort(&upload).await;
            shared.aborting.send_modify(|under_way| *under_way -= 1);
        });
    }

    /// Waits until no upload is being given up in the background.
    pub(crate) async fn settled(&self) {
        // The sender is here, so it is not gone.
        let _ = self.aborting.subscribe().wait_for(|under_way| *under_way == 0).await;
    }

    /// Waits for memory beside the pool, if the client has to join the pieces of a body.
    pub(crate) async fn room(&self, pieces: &[Bytes]) -> Room<'_> {
        if pieces.len() < 2 {
            return None;
        }
        let len: usize = pieces.iter().map(Bytes::len).sum();
        let units = len.div_ceil(UNIT_BYTES).min(body_units(&self.config)) as u32;
        // The semaphore is never closed.
        self.bodies.acquire_many(units).await.ok()
    }

    /// The cuts of a file of `size` bytes whose upload begins now. Where there are many drafts for the memory,
    /// the parts are as short as S3 allows: then each draft can fill a part. A file that could hardly be that
    /// long has long parts for the bytes that it begins with, if these are `copied` inside the store.
    pub(crate) fn layout(&self, size: u64, copied: impl FnOnce() -> u64) -> PartLayout {
        let drafts = self.draft_reclaimer.len().max(1) as u64;
        let limit = self.share.limit_bytes();
        let is_short = limit / drafts < 2 * self.config.part_bytes;
        let WriteConfig { part_bytes, least_part_bytes: least, .. } = self.config;
        let (first, lens) = (if is_short { least } else { part_bytes }, least..=limit / 4);
        let layout = PartLayout::new(first, size, lens.clone());
        if size <= layout.most_bytes() / 2 {
            layout
        } else {
            PartLayout::copying(copied(), first, size, lens)
        }
    }

    pub(crate) fn refresh(&self) {
        self.metrics.drafts.set_len(self.draft_reclaimer.len());
        self.metrics.in_flight.set_len(self.config.max_requests - self.requests.available_permits());
        self.metrics.spool.set(self.spool.as_ref().map_or(0, Spool::used_bytes));
        self.metrics.memory.set(self.share.held_bytes());
    }
}
