//! Mounts that are asked something, and may never answer: their daemon may be stopped.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use anyhow::anyhow;
use nix::errno::Errno;
use nix::sys::statvfs::{Statvfs, statvfs};

use crate::shares::Use;

/// How long a mount may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What Prometheus waits for, and some time to send it: 10 s by default.
const METRICS_PATIENCE: Duration = Duration::from_secs(5);

/// A mount's own page of metrics.
const METRICS: &str = ".s3mount/metrics";

/// The metrics of files that are being written, of open files, and of uploads that are under way.
const DRAFTS: &str = "s3mount_drafts";
const OPEN_FILES: &str = "s3mount_open_files";
const UPLOADS: &str = "s3mount_uploads_in_flight";

/// How long a mount may take to say how much memory it has: all of them are asked each second.
const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// A mount's own file for its memory.
const MEMORY: &str = ".s3mount/memory";

/// What a mount answers to who asks how full it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Stats(Statvfs),
    Error(Errno),
    /// Its daemon is gone, and no other will come.
    Dead,
    /// Its daemon is stopped, or hangs.
    Silence,
}

/// What a mount answers to who asks about its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemoryAnswer {
    Use(Use),
    /// Its limit stays as it was when it was mounted.
    Fixed,
    /// Its daemon is gone, and no other will come.
    Dead,
    /// Its daemon is stopped, or hangs.
    Silence,
}

/// The most threads that wait for one mount. Kubernetes asks each minute, and a stopped daemon may stay so for days.
const MAX_WAITING: usize = 4;

/// Asks mounts. Who gets no answer in time leaves a thread behind that waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Arc<Mutex<HashMap<PathBuf, usize>>>);

/// Whether a call fails so because the daemon is gone, and no other will come.
fn is_gone(error: Errno) -> bool {
    // The second is for who was waiting when it went.
    matches!(error, Errno::ENOTCONN | Errno::ECONNABORTED)
}

impl Asked {
    /// How full the mount at `folder` is.
    pub(crate) fn stats(&self, folder: &Path) -> Answer {
        match self.ask(folder, PATIENCE, statvfs) {
            Some(Ok(stats)) => Answer::Stats(stats),
            Some(Err(error)) if is_gone(error) => Answer::Dead,
            Some(Err(error)) => Answer::Error(error),
            None => Answer::Silence,
        }
    }

    /// Whether the daemon of the mount at `folder` is gone, and no other will come.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) fn is_dead(&self, folder: &Path) -> anyhow::Result<bool> {
        match self.stats(folder) {
            Answer::Dead => Ok(true),
            Answer::Silence => Err(anyhow!(
                "the daemon of the mount at {} does not answer: it is stopped, or it hangs",
                folder.display()
            )),
            Answer::Stats(_) | Answer::Error(_) => Ok(false),
        }
    }

    /// The metrics of the mount at `folder`, as text of Prometheus, if it answers.
    pub(crate) fn metrics(&self, folder: &Path) -> Option<String> {
        self.ask(folder, METRICS_PATIENCE, |folder| fs::read_to_string(folder.join(METRICS)))?.ok()
    }

    /// Whether the mount at `folder` may have something that is not in the bucket. It keeps files for a while that were
    /// closed, and are in the bucket, unless it `delays` that. One that does not answer may have anything.
    pub(crate) fn may_have_unwritten(&self, folder: &Path, delays: bool) -> bool {
        let Some(page) = self.metrics(folder) else { return true };
        let is_zero = |name: &str| {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok();
            page.lines().find_map(value) == Some(0)
        };
        !is_zero(DRAFTS) && (delays || !is_zero(OPEN_FILES) || !is_zero(UPLOADS))
    }

    /// What the mount at `folder` says of its memory. It says nothing while it has something else to answer: that may be
    /// a limit which it has yet to take.
    pub(crate) fn memory(&self, folder: &Path) -> MemoryAnswer {
        if self.waiting().contains_key(folder) {
            return MemoryAnswer::Silence;
        }
        let read = self.ask(folder, MEMORY_PATIENCE, |folder| fs::read(folder.join(MEMORY)));
        match read.map(|read| read.map(|text| serde_json::from_slice(&text))) {
            Some(Ok(Ok(shown))) => MemoryAnswer::Use(shown),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => MemoryAnswer::Fixed,
            Some(Err(error)) if error.raw_os_error().map(Errno::from_raw).is_some_and(is_gone) => {
                MemoryAnswer::Dead
            }
            Some(Ok(Err(_)) | Err(_)) | None => MemoryAnswer::Silence,
        }
    }

    /// Tells the mount at `folder` its limit, in bytes. One that does not take it is asked again in a second.
    pub(crate) fn set_memory(&self, folder: &Path, limit: u64) {
        let told = self.ask(folder, MEMORY_PATIENCE, move |folder| {
            let mut file = fs::File::options().write(true).open(folder.join(MEMORY))?;
            file.write_all(limit.to_string().as_bytes())
        });
        if let Some(Err(error)) = told {
            tracing::debug!(%error, folder = %folder.display(), "a mount does not take its memory limit");
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        folder: &Path,
        patience: Duration,
        question: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Option<T> {
        let mut waiting = self.waiting();
        let count = waiting.entry(folder.to_owned()).or_default();
        if *count == MAX_WAITING {
            return None;
        }
        *count += 1;
        drop(waiting);
        let (tell, told) = mpsc::channel();
        let (asked, folder) = (self.clone(), folder.to_owned());
        std::thread::spawn(move || {
            let answer = question(&folder);
            let mut waiting = asked.waiting();
            if let Some(count) = waiting.get_mut(&folder) {
                *count -= 1;
                if *count == 0 {
                    waiting.remove(&folder);
                }
            }
            drop(waiting);
            let _ = tell.send(answer);
        });
        told.recv_timeout(patience).ok()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<PathBuf, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
