//! Publishes what was appended to files, a while after they were closed.

use std::sync::Arc;
use std::time::Duration;

use super::Filesystem;
use crate::FsError;
use crate::drafts::DraftFile;
use crate::sync::spawn;

impl Filesystem {
    /// How long `close` of a file that was opened to append may leave it unpublished.
    pub(super) fn append_delay(&self) -> Option<Duration> {
        let delay = self.writes.as_ref().map(|writes| writes.append_delay);
        delay.filter(|delay| !delay.is_zero())
    }

    /// Publishes what was appended to a file, once the delay is over.
    pub(super) fn publish_later(self: &Arc<Self>, file: &Arc<DraftFile>, delay: Duration) {
        if !file.begin_delay() {
            return;
        }
        let (fs, file) = (self.clone(), file.clone());
        spawn(self.namespace.requests().runtime(), async move {
            tokio::time::sleep(delay).await;
            file.end_delay();
            if !fs.publish_delayed(&file).await {
                fs.publish_later(&file, delay);
            }
        });
    }

    /// Publishes a file whose delay is over. Returns false if that has to wait: somebody writes it anew.
    async fn publish_delayed(self: &Arc<Self>, file: &Arc<DraftFile>) -> bool {
        let result = if file.has_writers() {
            // Who has it open is told by the next call, should it fail.
            self.publish_open(file).await
        } else {
            self.clone().end_closed_draft(file.clone()).await.map(|()| true)
        };
        result.unwrap_or_else(|error| {
            let (prefix, name) = file.place();
            let key = format!("{prefix}{name}");
            tracing::error!(key, error = &error as &dyn std::error::Error, "what was appended is lost");
            if !file.has_writers() {
                self.logs.note_lost(key, error);
            }
            true
        })
    }

    async fn publish_open(&self, file: &DraftFile) -> Result<bool, FsError> {
        let _name = self.hold_draft(file).await;
        if file.is_unlinked() || !file.draft().is_dirty() {
            return Ok(true);
        }
        let Some(published) = file.publish_appended().await? else { return Ok(false) };
        file.note_object(&published.object);
        Ok(true)
    }
}
