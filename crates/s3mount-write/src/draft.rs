//! One file that is being written.
//!
//! A draft's bytes are extents (`extents.rs`): in memory, in a version, in the spool, or only in the store. The file is
//! cut into parts (`part_layout.rs`), and `part_states.rs` knows which of these the store has. While a program writes
//! from the beginning to the end, each part is uploaded when the program has passed its end (`draft/upload.rs`). When
//! memory is short, bytes that are also elsewhere are dropped, the oldest first (`reclaim.rs`). Publication uploads what
//! is missing, and makes an object of it (`draft/publish.rs`).
//!
//! A task that changes or publishes the file holds the draft's turn, so changes come one after another. Readers come at
//! any time (`draft/read.rs`).
//!
//! **Lock order:** the turn, then `creating` or `gathering`, then `spooling`, then the state, then the list of drafts. The
//! state is never locked across a wait, and no other draft's state is locked meanwhile.

mod beside;
mod complete;
mod copy;
mod describe;
mod gather;
mod keep;
mod late;
mod load;
mod publish;
mod read;
mod reclaim;
pub(crate) mod rest;
mod settle;
mod spill;
mod upload;
mod write;

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::SystemTime;

use s3mount_memory::Line;
use s3mount_object::{Condition, ObjectId};
use tokio::sync::{RwLock, watch};

use crate::WriteError;
use crate::kept::KeptChanges;
use crate::part_layout::PartLayout;
use crate::shared::Shared;
use crate::state::DraftState;

/// One file that is being written. All its handles share it.
///
/// A draft that is dropped gives everything up that was not published.
#[derive(Debug)]
pub struct Draft {
    me: Weak<Draft>,
    shared: Arc<Shared>,
    state: Mutex<DraftState>,
    /// A task that changes or publishes the file holds it, in order of arrival: so each published version has all
    /// changes up to a moment, and no later ones.
    turn: tokio::sync::Mutex<()>,
    /// One task begins the upload, or asks the store for the object's metadata.
    creating: tokio::sync::Mutex<()>,
    /// One task gathers the bytes of a part at a time. It waits for their memory.
    gathering: tokio::sync::Mutex<()>,
    /// Held alone by the task that writes to the spool, and shared by those that bring bytes from there into memory.
    spooling: RwLock<()>,
    /// Counts the tasks that have ended. Callers that wait for a task watch it.
    ended: watch::Sender<u64>,
    /// How many bytes of the share its buffers take.
    held: Arc<AtomicU64>,
    /// The memory of the share that it was promised, to fill a part.
    line: Line,
    /// The number of that part.
    line_of: AtomicU32,
    /// The versions that the draft was made of, one after another, if the process before may have replaced the last one by
    /// a publication of this draft.
    late_of: Mutex<Vec<ObjectId>>,
    /// The file's number in the marks of its publications, or 0.
    number: AtomicU32,
    /// Who is told of each change.
    keeper: OnceLock<Arc<dyn KeptChanges>>,
}

impl Draft {
    pub(crate) fn new(shared: Arc<Shared>, state: DraftState) -> Arc<Self> {
        let line = shared.share.line();
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            shared,
            state: Mutex::new(state),
            turn: tokio::sync::Mutex::default(),
            creating: tokio::sync::Mutex::default(),
            gathering: tokio::sync::Mutex::default(),
            spooling: RwLock::default(),
            ended: watch::Sender::new(0),
            held: Arc::default(),
            line,
            line_of: AtomicU32::default(),
            late_of: Mutex::default(),
            number: AtomicU32::default(),
            keeper: OnceLock::new(),
        })
    }

    /// A reference that does not keep it.
    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    fn state(&self) -> MutexGuard<'_, DraftState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn late_of(&self) -> MutexGuard<'_, Vec<ObjectId>> {
        self.late_of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cuts of the file, which are fixed once an upload has begun.
    fn layout(&self, state: &DraftState) -> PartLayout {
        state.layout.unwrap_or_else(|| self.shared.layout(state.size(), || state.copied_head()))
    }

    /// The length of the file, in bytes.
    pub fn size(&self) -> u64 {
        self.state().size()
    }

    /// When the file was changed last.
    pub fn modified(&self) -> SystemTime {
        self.state().modified
    }

    /// Whether the file or its key has changed since it was published last. A new, empty file has.
    pub fn is_dirty(&self) -> bool {
        self.state().is_dirty()
    }

    /// The version that has the file's bytes as they are now, and its length in bytes. `None` if the file has
    /// changed since it was published.
    pub fn version(&self) -> Option<(ObjectId, u64)> {
        let state = self.state();
        let (_, published) = state.published.as_ref().filter(|_| !state.is_dirty())?;
        Some((published.object.clone(), published.size))
    }

    /// Gives the file the key under which it shows from now on. `condition` must hold for that key when the file is
    /// published.
    ///
    /// The next publication shows the file there. If a version of the draft is at an earlier key, that publication
    /// deletes it. An upload is bound to its key: one to an earlier key is given up, and what it has is uploaded again,
    /// so that nothing is written where others may have a file by now. If bytes are in that upload and nowhere else,
    /// the publication completes it at its key, as its condition allows, and moves it. A caller that needs the old key
    /// before that asks the writer to [free](crate::Writer::free) it. Waits for changes and publications that are under
    /// way.
    pub async fn rename(&self, key: &str, condition: Option<Condition>) {
        let _turn = self.turn.lock().await;
        {
            let mut state = self.state();
            (state.key, state.condition) = (key.to_owned(), condition);
            state.changes += 1;
        }
        self.forget_late();
        self.give_up_keeping();
        self.leave_old_upload();
    }

    /// Gives up the upload to an earlier key, if nothing needs it.
    fn leave_old_upload(&self) {
        self.note_old_key();
        let left = self.state().leave_old_upload();
        if let Some(begun) = left {
            tracing::debug!(key = begun.upload.key, "uploaded anew, because the file has another key");
            self.shared.abort_later(begun.upload, async {});
        }
    }

    /// The version `from`, which this draft may be made of, gets another key by `moving`, which returns what it is there.
    /// From then on the file has that key, may replace only that version, and takes its bytes from there. Waits for changes
    /// and uploads that are under way. No others begin before the bytes are known to be at their new place: they would
    /// look for them at the old one.
    ///
    /// # Errors
    /// Those of `moving`: then the file stays as it is.
    pub async fn follow<E>(
        &self,
        from: &ObjectId,
        moving: impl Future<Output = Result<ObjectId, E>>,
    ) -> Result<ObjectId, E> {
        let _turn = self.turn.lock().await;
        let still = Still::new(self);
        self.idle().await;
        self.give_up_kept();
        let to = moving.await?;
        self.state().follow(from, &to);
        drop(still);
        self.leave_old_upload();
        Ok(to)
    }

    /// Says what has to be true of the key at the first publication. Each later one replaces only what the one
    /// before wrote.
    pub fn set_condition(&self, condition: Option<Condition>) {
        self.state().condition = condition;
    }

    /// Whether a failure keeps the file from being published.
    pub fn has_failed(&self) -> bool {
        self.state().failed.is_some()
    }

    /// Keeps `error` for all later calls.
    fn fail(&self, error: WriteError) -> WriteError {
        let mut state = self.state();
        if let WriteError::Failed(_) = error {
            return error;
        }
        if state.failed.is_none() && !state.is_discarded {
            self.shared.metrics.failed.inc();
            tracing::warn!(key = state.key, %error, "a file could not be written");
        }
        self.line.give_back();
        let failed = state.failed.get_or_insert_with(|| Arc::new(error)).clone();
        drop(state);
        self.give_up_kept();
        WriteError::Failed(failed)
    }

    /// Gives everything up: memory, spool, and the upload at the store, which is aborted in the background.
    pub async fn discard(&self) {
        let upload = {
            let mut state = self.state();
            state.is_discarded = true;
            state.failed.get_or_insert_with(|| Arc::new(WriteError::Discarded));
            state.extents.resize(0);
            self.line.give_back();
            state.upload.take()
        };
        self.drop_spool().await;
        if let Some(begun) = upload {
            let mut ended = self.ended.subscribe();
            let me = self.me.upgrade();
            self.shared.abort_later(begun.upload, async move {
                // A part that arrives after the end of its upload stays there for ever.
                if let Some(draft) = me {
                    let _ = ended.wait_for(|_| draft.state().part_states.claimed() == 0).await;
                }
            });
        }
    }
}

/// No task begins to upload a part of a draft while this lives.
struct Still<'a>(&'a Draft);

impl<'a> Still<'a> {
    fn new(draft: &'a Draft) -> Self {
        draft.state().is_moving = true;
        Self(draft)
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.0.state().is_moving = false;
        if self.0.shared.draft_reclaimer.is_wanted() {
            self.0.shared.draft_reclaimer.reclaim(self.0);
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(begun) = state.upload.take() {
            self.shared.abort_later(begun.upload, async {});
        }
    }
}
