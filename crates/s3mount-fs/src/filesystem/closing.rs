//! Ends drafts: those that are closed are published.

use std::sync::Arc;

use super::Filesystem;
use super::writing::version_of;
use crate::FsError;
use crate::drafts::DraftFile;
use crate::namespace::changes::UNOPENED;
use crate::sync::spawn;
use crate::writes::OpenDraft;

impl Filesystem {
    /// Closes a handle of a draft.
    pub(super) fn release_draft(self: &Arc<Self>, open: &OpenDraft) {
        if open.how.writes && open.file.remove_writer(open.how.appends) {
            let draft = open.file.draft();
            let is_log = open.how.appends && draft.is_dirty() && !draft.has_failed();
            if let Some(delay) = self.append_delay().filter(|_| is_log && !open.file.is_unlinked()) {
                self.publish_later(&open.file, delay);
                return;
            }
            let (fs, file) = (self.clone(), open.file.clone());
            spawn(self.namespace.requests().runtime(), async move {
                let (prefix, name) = file.place();
                if let Err(error) = fs.end_closed_draft(file).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(key = format!("{prefix}{name}"), error, "what was written is lost");
                }
            });
        }
    }

    /// Publishes a draft that nobody writes to any more, and has its name stand for the version. What can't be
    /// published is given up. A draft that was opened for writing meanwhile goes on.
    ///
    /// # Errors
    /// Why it can't be published.
    pub(super) async fn end_draft(self: Arc<Self>, file: Arc<DraftFile>) -> Result<(), FsError> {
        let _name = self.hold_draft(&file).await;
        if file.is_unlinked() {
            file.draft().discard().await;
            return Ok(());
        }
        let published = loop {
            let Some(published) = file.publish_closed().await.transpose() else { return Ok(()) };
            // It may have got other attributes in the meantime.
            if published.is_err() || !file.draft().is_dirty() || file.has_writers() {
                break published;
            }
        };
        let (prefix, name) = file.place();
        match published {
            Ok(published) => {
                file.note_object(&published.object);
                let version = version_of(published);
                self.note_attr(&version, file.published_attr());
                if file.seal() {
                    // Who finds the version goes on with the draft.
                    if file.is_log() {
                        self.logs.keep(file.clone());
                    }
                    self.namespace.note_file(&prefix, &name, &version);
                } else if file.is_expecting() {
                    self.end_later(file.clone(), UNOPENED);
                }
                Ok(())
            }
            Err(error) => {
                if file.unlink() {
                    file.draft().discard().await;
                    self.namespace.forget_draft(&prefix, &name, &file);
                    // Another version may be there than the one that was to be replaced.
                    self.namespace.forget(&prefix, &name);
                }
                Err(error.into())
            }
        }
    }

    /// Ends all drafts, because the mount ends: those that are closed are published. Of one that is still open,
    /// its writer has not said that it is complete, and can't say so any more: it is given up. Returns how many
    /// are lost in either way.
    pub async fn end_writes(self: &Arc<Self>) -> usize {
        let mut lost = 0;
        for file in self.namespace.drafts() {
            let (prefix, name) = file.place();
            let key = format!("{prefix}{name}");
            if file.is_idle() || self.clone().end_closed(&file, &key).await {
                continue;
            }
            lost += 1;
        }
        lost
    }

    async fn end_closed(self: Arc<Self>, file: &Arc<DraftFile>, key: &str) -> bool {
        if file.has_writers() {
            tracing::error!(key, "the file was still open for writing, so it is not written");
            file.draft().discard().await;
            return false;
        }
        match self.end_draft(file.clone()).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(key, error = &error as &dyn std::error::Error, "what was written is lost");
                false
            }
        }
    }
}
