//! Says what a command waits for, when nothing comes for long.
//!
//! A daemon that is stopped answers nothing, and the kernel has who asks wait. A store may be as slow as that, so the
//! command waits on, and its user decides.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::terminal::shown;

/// How long nothing may come before the user is told.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far a command has come. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<ProgressState>);

#[derive(Debug, Default)]
struct ProgressState {
    /// The number of answers that have come.
    steps: AtomicU64,
    /// What was asked for last.
    asked: Mutex<PathBuf>,
}

/// Looks at a command's progress until it is dropped.
#[derive(Debug)]
#[must_use = "it looks until it is dropped"]
pub struct Watcher {
    /// The thread notices when this is dropped.
    _end: Sender<()>,
}

impl Progress {
    /// Something is asked for now.
    pub fn ask(&self, path: &Path) {
        path.clone_into(&mut self.0.asked.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Something has come.
    pub fn step(&self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// From now on, `tell` is called once each time that nothing has come for long.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn watch(&self, tell: impl Fn(&str) + Send + 'static) -> std::io::Result<Watcher> {
        let (end, ended) = mpsc::channel();
        let progress = self.clone();
        std::thread::Builder::new().name("patience".into()).spawn(move || {
            let (mut before, mut is_told) = (0, false);
            while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let steps = progress.0.steps.load(Ordering::Relaxed);
                let is_still = steps == before;
                if is_still && !is_told {
                    tell(&progress.explanation());
                }
                (before, is_told) = (steps, is_still);
            }
        })?;
        Ok(Watcher { _end: end })
    }

    fn explanation(&self) -> String {
        let asked = shown(&self.0.asked.lock().unwrap_or_else(PoisonError::into_inner));
        format!(
            "nothing has come from {asked} for {PATIENCE:?}: the store is slow, or the daemon of the mount is stopped \
             (ps shows its state as T); waiting on, until Ctrl-C"
        )
    }
}
