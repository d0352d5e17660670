//! The end of a mount.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedRwLockWriteGuard;
use tokio::time::timeout;

use super::Filesystem;
use super::open_file::OpenFile;
use crate::drafts::life::Life;

impl Filesystem {
    /// Publishes the files that were written and closed, and not published yet.
    pub async fn settle_writes(self: &Arc<Self>) {
        for file in self.namespace.drafts() {
            if !file.has_writers()
                && !file.waits()
                && let Err(error) = self.clone().end_draft(file.clone()).await
            {
                let (prefix, name) = file.place();
                tracing::error!(key = format!("{prefix}{name}"), %error, "the written bytes are lost");
            }
        }
        if let Some(writes) = &self.writing.writes {
            writes.writer.settled().await;
        }
    }

    /// Waits until no upload is under way that nobody could abort if this daemon ended, and keeps it so while the result
    /// lives. `None` where nothing is written.
    pub async fn stop_uploads(&self) -> Option<OwnedRwLockWriteGuard<()>> {
        match &self.writing.writes {
            Some(writes) => Some(writes.writer.stop_uploads().await),
            None => None,
        }
    }

    /// The keys of files that are open for writing, or whose bytes are not published, unless the next daemon can go on with
    /// them at any time.
    pub fn written_keys(&self) -> Vec<String> {
        let drafts = self.namespace.drafts();
        let written = drafts.iter().filter(|file| file.has_writers() || file.life() == Life::Dirty);
        let written = written.filter(|file| !file.is_kept());
        // Those without a name have none to be found by.
        let nameless: Vec<_> = self.files.filter_map(|file| match file {
            OpenFile::Draft(open) if open.writer.is_some() && open.file.is_unlinked() => {
                Some(open.file.clone())
            }
            _ => None,
        });
        let places = written.map(|file| file.place()).chain(nameless.iter().map(|file| file.place()));
        let mut keys: Vec<_> = places.map(|(prefix, name)| format!("{prefix}{name}")).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// As [`end_writes`](Self::end_writes), but takes no longer than `limit`. Files that the store has not accepted by
    /// then are lost, and each is logged.
    pub async fn end_writes_within(self: &Arc<Self>, limit: Duration) -> usize {
        if let Ok(lost) = timeout(limit, self.end_writes()).await {
            return lost;
        }
        self.tell_left();
        let drafts = self.namespace.drafts();
        let left = drafts.iter().filter(|file| !file.is_idle() && !file.waits());
        left.inspect(|file| {
            let (prefix, name) = file.place();
            let key = format!("{prefix}{name}");
            tracing::error!(
                key,
                ?limit,
                "the mount ends, and the store has not taken the file in time: it is lost"
            );
        })
        .count()
    }
}
