//! Files that were closed and wait in the outbox until the store has them: who uploads them, and when.

use std::sync::Arc;
use std::time::Duration;

use s3mount_outbox::{EntryId, Mark, Outbox, OutboxError, Waiting};
use s3mount_write::WriteError;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// How long a file waits before it is uploaded. Programs that rename what they have written, or write on, do so at once, and
/// then one request is enough.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// How many files are uploaded at once. At S3's 30 ms for a small object, 64 are 2,000 a second.
pub(crate) const UPLOADS: usize = 64;

/// The pauses between two attempts at one file, from the first to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The number in the marks of all writes of a mount whose outbox has this `left`. Daemons that finish what others have begun
/// have it in common, so that each knows what any of them has uploaded. Otherwise it is a `random` one.
pub fn family_of(left: &[Waiting], random: u64) -> u32 {
    left.first().map_or(random as u32, |waiting| waiting.entry.mark.family)
}

/// How urgent it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Urgency {
    /// How often somebody has asked for all uploads.
    hurries: u64,
    /// The mount ends: what the store does not take now is left to the next daemon.
    is_ending: bool,
    /// The mount ends, and an upload has failed because of the store or the network: the others would wait in vain.
    is_hopeless: bool,
}

/// The entry of a draft in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InOutbox {
    pub(crate) id: EntryId,
    /// Set if a daemon before has made the entry, which may have uploaded it.
    pub(crate) left: Option<Mark>,
    /// Whether the store may have been told that the file is gone, or that another one has its name.
    pub(crate) is_ending: bool,
}

/// A value that tasks wait for. It wakes them in the order in which they came, which tokio's `watch` does not.
#[derive(Debug, Default)]
struct Awaited<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Awaited<T> {
    fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut lock(&self.value));
        self.changed.notify_waiters();
    }

    async fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(&lock(&self.value)) {
                return;
            }
            changed.await;
        }
    }
}

/// The outbox of a mount, and its uploads.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) outbox: Outbox,
    /// The number in the marks of all writes of this daemon.
    pub(crate) family: u32,
    pub(crate) uploads: Semaphore,
    urgency: Awaited<Urgency>,
    /// How many files have a task that uploads them.
    tasks: Awaited<usize>,
    has_told: AtomicBool,
    /// Entries whose drafts have failed, though the store has not refused them.
    pub(crate) orphans: Mutex<Vec<EntryId>>,
    /// Whether uploads fail for a reason that may pass.
    is_stuck: AtomicBool,
}

/// A task that uploads a file lives.
#[derive(Debug)]
pub(crate) struct Task(Arc<Behind>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.tasks.change(|tasks| *tasks -= 1);
    }
}

impl Behind {
    pub(crate) fn new(outbox: Outbox, family: u32) -> Self {
        Self {
            outbox,
            family,
            uploads: Semaphore::new(UPLOADS),
            urgency: Awaited::default(),
            tasks: Awaited::default(),
            has_told: AtomicBool::new(false),
            orphans: Mutex::default(),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// Counts a task.
    pub(crate) fn begin(self: &Arc<Self>) -> Task {
        self.tasks.change(|tasks| *tasks += 1);
        Task(self.clone())
    }

    /// The pause after an attempt that came after `pause`.
    pub(crate) fn next_pause(pause: Option<Duration>) -> Duration {
        pause.map_or(PAUSES.0, |pause| (pause * 2).min(PAUSES.1))
    }

    /// Waits before an upload, unless somebody asks for it.
    pub(crate) async fn wait(&self, pause: Duration) {
        let hurries = lock(&self.urgency.value).hurries;
        let is_urgent = |urgency: &Urgency| urgency.hurries != hurries || urgency.is_ending;
        drop(timeout(pause, self.urgency.wait_for(is_urgent)).await);
    }

    /// Whether no attempt is made any more.
    pub(crate) fn is_hopeless(&self) -> bool {
        lock(&self.urgency.value).is_hopeless
    }

    /// An upload has succeeded, or was refused: the store answers.
    pub(crate) fn note_answer(&self) {
        if self.is_stuck.swap(false, Ordering::Relaxed) {
            tracing::info!("files are uploaded again");
        }
    }

    /// Whether the mount ends.
    pub(crate) fn is_ending(&self) -> bool {
        lock(&self.urgency.value).is_ending
    }

    /// The upload of `key` has failed for a reason that may pass. If it `is_last`, because it has begun when the mount was
    /// ending already, the others would fail, too. Returns whether there are no more attempts.
    pub(crate) fn note_failure(&self, key: &str, error: &WriteError, is_last: bool) -> bool {
        let error = error as &dyn std::error::Error;
        if self.is_stuck.swap(true, Ordering::Relaxed) {
            tracing::debug!(key, error, "a file can't be uploaded now, and waits on");
        } else {
            tracing::warn!(key, error, "files can't be uploaded now, and wait on");
        }
        if is_last {
            self.urgency.change(|urgency| urgency.is_hopeless = true);
        }
        self.is_hopeless()
    }

    /// Has all files uploaded now.
    pub(crate) fn hurry(&self) {
        self.urgency.change(|urgency| urgency.hurries += 1);
    }

    /// Waits until no file is being uploaded or waits for that.
    pub(crate) async fn idle(&self) {
        self.tasks.wait_for(|tasks| *tasks == 0).await;
    }

    /// Uploads all files now, because the mount ends. Leaves what can't be uploaded.
    pub(crate) async fn end(&self) {
        self.urgency.change(|urgency| urgency.is_ending = true);
        self.idle().await;
    }

    /// Says once that closed files do not wait in the outbox, and why.
    pub(crate) fn tell(&self, error: &OutboxError) {
        let is_full = matches!(error, OutboxError::Full);
        if is_full || self.has_told.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "a close waits for the store");
        } else {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "closes wait for the store, because the outbox takes no more"
            );
        }
    }
}
