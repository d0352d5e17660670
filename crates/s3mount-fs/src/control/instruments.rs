//! The metrics of a mount, its events, and its waiting callers.

use std::fmt;
use std::sync::Arc;

use s3mount_metrics::{Listener, Recorder, Registry};
use tokio::time::Instant;

use super::Control;
use super::callers::Callers;
use crate::{FsError, FsMetrics};

/// Counts the LISTs of a mount that succeeded.
pub(crate) struct ListCount(pub(crate) Box<dyn Fn() -> u64 + Send + Sync>);

impl fmt::Debug for ListCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListCount").field(&(self.0)()).finish()
    }
}

/// The instruments of a mount.
#[derive(Debug, Default)]
pub(crate) struct Instruments {
    /// The metrics of this crate.
    pub(crate) metrics: Arc<FsMetrics>,
    /// All metrics.
    pub(crate) registry: Registry,
    /// Records events while a listener is there.
    pub(crate) recorder: Arc<Recorder>,
    /// Records changes of which the store tells, while a listener is there.
    pub(crate) changes: Arc<Recorder>,
    /// Returns the callers without an answer.
    pub(crate) callers: Callers,
    /// Set where the names' own requests are not the LISTs that were sent: an index may have answered them.
    pub(crate) lists: Option<ListCount>,
}

impl Instruments {
    pub(crate) fn new() -> Self {
        let instruments = Self::default();
        // `show` brings them up to date: the registry can't own the filesystem, which owns it.
        instruments.registry.add(instruments.metrics.clone(), || {});
        instruments
    }

    /// Begins to listen to what this file passes on.
    ///
    /// # Errors
    /// `TooManyListeners`.
    pub(crate) fn listen(&self, file: Control) -> Result<Listener, FsError> {
        let recorder = if file == Control::Changes { &self.changes } else { &self.recorder };
        recorder.listen(Instant::now().into_std()).ok_or(FsError::TooManyListeners)
    }
}
