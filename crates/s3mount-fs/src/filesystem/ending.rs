//! The end of a mount.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Filesystem;

impl Filesystem {
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
