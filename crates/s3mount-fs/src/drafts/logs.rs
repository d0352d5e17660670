//! Logs: files that programs open, append a few bytes to, and close again and again.
//!
//! The draft of such a file is kept for a while after it has become a version. Who appends next goes on with it: its
//! bytes are in memory, unless somebody else needed that, so nothing is fetched. With a delay, `close` does not wait
//! either, and one publication has what was appended meanwhile.

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

/// How long they are kept. Writers of logs come back within seconds, or a minute.
const KEPT: Duration = Duration::from_secs(120);

/// How long it is believed what the object of a kept draft has beside its bytes. Others may change that, and the version
/// stays the same.
const BELIEVED: Duration = Duration::from_secs(1);

/// The most errors that nobody has been told yet.
const MOST_LOST: usize = 1024;

/// The logs of a mount.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// Drafts that have become versions, and when, the oldest first.
    kept: Mutex<VecDeque<(Instant, Arc<DraftFile>)>>,
    /// The keys of files whose last bytes could not be published after their `close` had returned.
    lost: Mutex<BTreeMap<String, Arc<FsError>>>,
}

impl Logs {
    /// Keeps a draft that becomes a version, for who appends next. Returns those that go for it. To drop them gives
    /// memory back: no lock may be held then.
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

    /// The draft that has become `version`, which is a draft again from now on.
    pub(crate) fn take(&self, version: &File) -> Option<Arc<DraftFile>> {
        let mut kept = lock(&self.kept);
        kept.retain(|(since, _)| since.elapsed() < KEPT);
        let at = kept.iter().position(|(_, file)| file.revive(&version.object))?;
        kept.remove(at).map(|(_, file)| file)
    }

    /// Whether a draft is kept that has become `version`, and the store is to be asked again what that has beside its
    /// bytes.
    pub(crate) fn is_to_be_described(&self, version: &ObjectId) -> bool {
        let kept = lock(&self.kept);
        kept.iter()
            .any(|(since, file)| since.elapsed() >= BELIEVED && file.object().as_ref() == Some(version))
    }

    /// Keeps the draft no more that has become `version`: what that has beside its bytes has changed. Returns it: to drop
    /// it gives memory back, and no lock may be held then.
    pub(crate) fn forget(&self, version: &ObjectId) -> Option<Arc<DraftFile>> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|(_, file)| file.object().as_ref() == Some(version))?;
        kept.remove(at).map(|(_, file)| file)
    }

    /// Drops the drafts that nobody has come back to in time.
    pub(crate) fn expire(&self) {
        let mut kept = lock(&self.kept);
        let old = kept.partition_point(|(since, _)| since.elapsed() >= KEPT);
        let expired: Vec<_> = kept.drain(..old).collect();
        drop(kept);
        // This gives memory back: no lock may be held.
        drop(expired);
    }

    /// Notes that bytes of a key are lost, for who opens it next.
    pub(crate) fn note_lost(&self, key: String, error: FsError) {
        let mut lost = lock(&self.lost);
        if lost.len() < MOST_LOST {
            lost.insert(key, Arc::new(error));
        }
    }

    /// Tells once that bytes of a key are lost.
    ///
    /// # Errors
    /// `Lost`, if they are.
    pub(crate) fn check(&self, key: &str) -> Result<(), FsError> {
        lock(&self.lost).remove(key).map_or(Ok(()), |error| Err(FsError::Lost(error)))
    }
}
