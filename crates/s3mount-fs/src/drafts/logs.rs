//! Logs: files that programs open, append a few bytes to, and close again and again.
//!
//! The draft of such a file is kept for a while after it has become a version. The next appender continues it: its
//! bytes are in memory, unless another reader or draft needed that, so nothing is fetched. With a delay, `close` does
//! not wait either, and one publication has all bytes appended meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use s3mount_object::ObjectId;
use tokio::time::Instant;

use crate::FsError;
use crate::drafts::DraftFile;
use crate::sync::{Mutex, lock};
use s3mount_names::File;

/// The most drafts that are kept after they have become versions. Each writer of TensorBoard has one file.
const MOST_KEPT: usize = 16;

/// How long they are kept. Writers of logs append again within seconds, or a minute.
const KEPT: Duration = Duration::from_secs(120);

/// How long the metadata of a kept draft's object is cached. Others may change it without a new version.
const BELIEVED: Duration = Duration::from_secs(1);

/// The most errors that no program has got yet.
const MOST_LOST: usize = 1024;

/// The logs of a mount.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// Drafts that have become versions, and when, the oldest first.
    kept: Mutex<VecDeque<(Instant, Arc<DraftFile>)>>,
    /// The keys of files whose last bytes were lost, because they could not be published after `close` had returned.
    lost: Mutex<BTreeMap<String, Arc<FsError>>>,
}

impl Logs {
    /// Keeps a draft that becomes a version, for the next appender. Returns the drafts that it displaces. Dropping
    /// these gives memory back: hold no lock then.
    pub(crate) fn keep(&self, file: Arc<DraftFile>) -> Vec<Arc<DraftFile>> {
        let mut kept = lock(&self.kept);
        let same = kept.iter().position(|(_, known)| Arc::ptr_eq(known, &file));
        let mut gone: Vec<_> = same.and_then(|at| kept.remove(at)).into_iter().collect();
        kept.push_back((Instant::now(), file));
        if kept.len() > MOST_KEPT {
            gone.extend(kept.pop_front());
        }
        gone.into_iter().map(|(_, file)| file).collect()
    }

    /// Takes out the draft that has become `version`, which is a draft again from now on.
    pub(crate) fn take(&self, version: &File) -> Option<Arc<DraftFile>> {
        let mut kept = lock(&self.kept);
        kept.retain(|(since, _)| since.elapsed() < KEPT);
        let at = kept.iter().position(|(_, file)| file.revive(&version.object))?;
        kept.remove(at).map(|(_, file)| file)
    }

    /// Whether the draft of `version` is kept, and its metadata must be asked for again.
    pub(crate) fn is_to_be_described(&self, version: &ObjectId) -> bool {
        let kept = lock(&self.kept);
        kept.iter()
            .any(|(since, file)| since.elapsed() >= BELIEVED && file.object().as_ref() == Some(version))
    }

    /// Removes and returns the draft of `version`, because the version's metadata has changed. Dropping it gives memory
    /// back: hold no lock then.
    pub(crate) fn forget(&self, version: &ObjectId) -> Option<Arc<DraftFile>> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|(_, file)| file.object().as_ref() == Some(version))?;
        kept.remove(at).map(|(_, file)| file)
    }

    /// Drops drafts that were kept for `KEPT` without an append.
    pub(crate) fn expire(&self) {
        let mut kept = lock(&self.kept);
        let old = kept.partition_point(|(since, _)| since.elapsed() >= KEPT);
        let expired: Vec<_> = kept.drain(..old).collect();
        drop(kept);
        // This gives memory back: hold no lock here.
        drop(expired);
    }

    /// Notes that bytes of a key are lost. The next open of the key gets the error.
    pub(crate) fn note_lost(&self, key: String, error: FsError) {
        let mut lost = lock(&self.lost);
        if lost.len() < MOST_LOST {
            lost.insert(key, Arc::new(error));
        }
    }

    /// Returns the error once, if bytes of a key are lost.
    ///
    /// # Errors
    /// `Lost`, if bytes are lost.
    pub(crate) fn check(&self, key: &str) -> Result<(), FsError> {
        lock(&self.lost).remove(key).map_or(Ok(()), |error| Err(FsError::Lost(error)))
    }

    /// Somebody has decided what becomes of it: nobody is told any more.
    pub(crate) fn forget_lost(&self, key: &str) {
        lock(&self.lost).remove(key);
    }
}
