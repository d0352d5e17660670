//! The end of a mount.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Filesystem;
use crate::drafts::life::Life;

impl Filesystem {
    /// Publishes the files that were written and closed, and not published yet.
    pub async fn settle_writes(self: &Arc<Self>) {
        for file in self.namespace.drafts() {
            if !file.has_writers()
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

    /// The keys of files that are open for writing, or whose bytes are not published, unless the next daemon can go on with
    /// them at any time.
    pub fn written_keys(&self) -> Vec<String> {
        let drafts = self.namespace.drafts();
        let written = drafts.iter().filter(|file| file.has_writers() || file.life() == Life::Dirty);
        let written = written.filter(|file| !file.is_kept());
        let keys = written.map(|file| file.place()).map(|(prefix, name)| format!("{prefix}{name}"));
        keys.collect()
    }

    /// As [`end_writes`](Self::end_writes), but takes no longer than `limit`. Files that the store has not accepted by
    /// then are lost, and each is logged.
    pub async fn end_writes_within(self: &Arc<Self>, limit: Duration) -> usize {
        if let Ok(lost) = timeout(limit, self.end_writes()).await {
            return lost;
        }
        let drafts = self.namespace.drafts();
        let left = drafts.iter().filter(|file| !file.is_idle());
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
