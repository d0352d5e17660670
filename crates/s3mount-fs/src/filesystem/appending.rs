//! Publishes appended bytes, some time after the files were closed.

use std::sync::Arc;
use std::time::Duration;

use super::Filesystem;
use crate::FsError;
use crate::drafts::DraftFile;
use crate::drafts::life::{Step, Verdict};
use crate::sync::spawn;

impl Filesystem {
    /// How long `close` may leave a file unpublished that was opened to append.
    pub(super) fn append_delay(&self) -> Option<Duration> {
        // With write-behind, each close is quick, and loses nothing.
        if self.has_outbox() {
            return None;
        }
        let delay = self.writing.writes.as_ref().map(|writes| writes.append_delay);
        delay.filter(|delay| !delay.is_zero())
    }

    /// Publishes the appended bytes of a file after the delay.
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

    /// Publishes a file whose delay is over. Returns false if that has to wait, because a program writes it anew.
    async fn publish_delayed(self: &Arc<Self>, file: &Arc<DraftFile>) -> bool {
        let result = if file.has_writers() {
            self.publish_open(file).await
        } else {
            self.clone().end_closed_draft(file.clone()).await.map(|()| true)
        };
        result.unwrap_or_else(|error| {
            let (prefix, name) = file.place();
            let key = format!("{prefix}{name}");
            tracing::error!(key, error = &error as &dyn std::error::Error, "the appended bytes are lost");
            self.writing.logs.note_lost(key, error);
            true
        })
    }

    async fn publish_open(&self, file: &Arc<DraftFile>) -> Result<bool, FsError> {
        let _held = self.hold_draft(file).await;
        match file.verdict(Step::Publish) {
            // If it has failed, the next call of a program that has it open returns the error.
            Verdict::Skip | Verdict::Fail | Verdict::LookAgain => Ok(true),
            Verdict::Go if file.is_half_written() => Ok(false),
            Verdict::Go => self.publish(file).await.map(|_| true),
        }
    }
}
