//! The metrics of a mount, its events, and its waiting callers.

use std::sync::Arc;

use s3mount_metrics::{Listener, Recorder, Registry};
use tokio::time::Instant;

use super::Control;
use super::callers::Callers;
use crate::{FsError, FsMetrics};

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
