//! A draft that rests: somebody else has all of its bytes on a disk, and publishes it later.
//!
//! The draft needs no memory then: its bytes are read from there. The next change brings them back into memory first, because
//! what others have on the disk never changes.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use s3mount_object::{Condition, NewObject, ObjectId};

use super::Draft;
use crate::WriteError;
use crate::extents::{Content, Copy};
use crate::spool::Spool;
use crate::spool_disk::{Resting, RestingBytes};
use crate::state::DraftState;

/// All that is needed to publish a draft.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The key.
    pub key: String,
    /// What has to be true of the key.
    pub condition: Option<Condition>,
    /// What the object is to have beside its bytes.
    pub object: NewObject,
    /// When the file was changed last.
    pub modified: SystemTime,
    /// The bytes.
    pub bytes: Vec<Bytes>,
    /// How often the file had changed by then.
    changes: u64,
}

impl Draft {
    /// All that is needed to publish the draft. `None` for one that is published in another way than by one request with
    /// its bytes: it is longer than a part, an upload of it has begun, it has a version at another key, or it is a copy
    /// of a version as a whole.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn whole(&self) -> Result<Option<Whole>, WriteError> {
        let _turn = self.turn.lock().await;
        {
            let state = self.state();
            state.check()?;
            let has_other_key =
                state.published.as_ref().is_some_and(|(_, known)| known.object.key() != state.key);
            if state.upload.is_some() || has_other_key || state.whole_copy().is_some() {
                return Ok(None);
            }
        }
        let key = self.state().key.clone();
        if !self.is_small() || self.only_described_anew(&key).is_some() {
            return Ok(None);
        }
        let (size, changes) = (self.size(), self.state().changes);
        let bytes = match self.lying(0, size) {
            Some(bytes) => bytes,
            None => self.gather(0, size, true).await?,
        };
        let object = self.beside().await?;
        let state = self.state();
        let (condition, modified) = (state.condition.clone(), state.modified);
        Ok((state.changes == changes).then(|| Whole { key, condition, object, modified, bytes, changes }))
    }

    /// What has to be true of the file's key when it is published, and the key.
    pub fn target(&self) -> (String, Option<Condition>) {
        let state = self.state();
        (state.key.clone(), state.condition.clone())
    }

    /// A version of the file at another key is deleted, of which the file has no bytes.
    pub fn forget_version(&self, version: &ObjectId) {
        let mut state = self.state();
        state.published = state.published.take().filter(|(_, known)| known.object != *version);
    }

    /// Others have the bytes of `whole` from now on, and they can be read from there. Nothing happens if the draft has
    /// changed since.
    pub async fn rest(&self, whole: &Whole, bytes: Arc<dyn RestingBytes>) {
        let _turn = self.turn.lock().await;
        let _alone = self.spooling.write().await;
        let before = {
            let mut state = self.state();
            if state.changes != whole.changes || state.failed.is_some() {
                return;
            }
            state.rest();
            let file = Arc::new(Spool::none().count(Arc::new(Resting(bytes))));
            state.spool.replace(file)
        };
        self.end_line();
        if let Some(before) = before {
            before.spool().clone().give_back(before);
        }
    }

    /// Whether others have all bytes, as they are now.
    pub fn is_resting(&self) -> bool {
        self.state().is_resting
    }

    /// All bytes, to be sent to the store. What others keep of them must be as it was given to them.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub(super) async fn all_bytes(&self) -> Result<Vec<Bytes>, WriteError> {
        let size = self.size();
        let pieces = match self.lying(0, size) {
            Some(pieces) => Ok(pieces),
            // Who appends next finds them in memory.
            None => self.gather(0, size, true).await,
        };
        let resting = {
            let state = self.state();
            state.spool.clone().filter(|_| state.is_resting)
        };
        match (resting, pieces) {
            (Some(file), Ok(pieces)) if !file.are(&pieces) => Err(WriteError::Damaged),
            (Some(_), Err(WriteError::Spool(error))) => {
                tracing::error!(%error, "the disk of the outbox can't be read");
                Err(WriteError::Damaged)
            }
            (_, pieces) => pieces,
        }
    }

    /// Brings the first `size` bytes back into memory, because the draft is about to change. What is published from then on
    /// is not what others have: it does not have their number. The caller has the turn.
    pub(super) async fn wake(&self, size: u64) -> Result<(), WriteError> {
        if !self.is_resting() {
            return Ok(());
        }
        let end = size.min(self.size());
        let _pin = self.load(0, end).await?;
        let _alone = self.spooling.write().await;
        let file = {
            let mut state = self.state();
            state.wake();
            state.spool.take()
        };
        self.set_number(0);
        if let Some(file) = file {
            file.spool().clone().give_back(file);
        }
        Ok(())
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> DraftState<B> {
    /// All bytes are in the file that takes the place of the one of the spool.
    fn rest(&mut self) {
        let size = self.size();
        self.extents.freeze(0, size);
        let starts: Vec<u64> = self.extents.range(0, size).map(|(start, _)| start).collect();
        for start in starts {
            self.extents.change_at(start, |content| match content {
                Content::Frozen(bytes, _) => Content::Frozen(bytes, Copy::Spool),
                Content::Open(_) | Content::Zeros | Content::Source(_) | Content::Spool | Content::Stored => {
                    Content::Spool
                }
            });
        }
        self.is_resting = true;
    }

    /// No byte is in that file any more.
    fn wake(&mut self) {
        let starts: Vec<u64> = self.extents.range(0, self.size()).map(|(start, _)| start).collect();
        for start in starts {
            self.extents.change_at(start, |content| match content {
                Content::Frozen(bytes, Copy::Spool) => Content::Frozen(bytes, Copy::None),
                other => other,
            });
        }
        self.is_resting = false;
    }
}
