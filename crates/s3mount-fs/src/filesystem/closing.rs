//! Publishes drafts, and ends closed ones.

use std::sync::Arc;

use s3mount_write::Published;

use super::Filesystem;
use super::writing::version_of;
use crate::FsError;
use crate::drafts::life::{Life, Step, Verdict};
use crate::drafts::writers::{Close, WriterId};
use crate::drafts::{DraftFile, Turn};
use crate::numbers::{FileHandle, InodeNo};
use crate::sync::spawn;
use crate::tree::inode::Node;
use crate::tree::tree_locks::NamesGuard;
use crate::writes::{Closer, OpenDraft};

impl Filesystem {
    /// Locks the name of a draft and its contents until the guards are dropped.
    pub(super) async fn hold_draft(&self, file: &DraftFile) -> (NamesGuard<'_>, Turn) {
        loop {
            let place = file.place();
            let names = self.writing.tree_locks.hold_place((&place.0, &place.1)).await;
            let turn = file.turn().await;
            if file.place() == place {
                return (names, turn);
            }
        }
    }

    /// Handles a process's close of a descriptor. The bytes that it has written are an object once this returns, unless
    /// another handle has changes that are not closed yet: then the file is published with these. A process that has
    /// only inherited the descriptor publishes nothing.
    ///
    /// # Errors
    /// The reason why it is no object, or an earlier error.
    pub async fn flush(self: Arc<Self>, handle: FileHandle, closer: impl Closer) -> Result<(), FsError> {
        self.check_lost(handle)?;
        let Some((ino, file, open)) = self.draft_of_handle(handle) else { return Ok(()) };
        let writer = open.as_ref().and_then(|open| open.writer);
        let is_last = || closer.has_another(ino) == Some(false);
        if file.close(writer, |thread| closer.is_of(thread), is_last) == Close::Nothing {
            return Ok(());
        }
        drop(closer);
        let appends = open.is_some_and(|open| open.how.appends);
        let is_log = appends && writer.is_some_and(|writer| file.has_only_appended(writer));
        let delay = self.append_delay().filter(|_| is_log);
        if let Some(delay) = delay.filter(|_| !file.draft().has_failed()) {
            file.note_closed(writer);
            self.note_said(&file, writer);
            self.publish_later(&file, delay);
            return Ok(());
        }
        self.publish_closed(&file, writer).await
    }

    /// Publishes the writes of a handle that is closed. While another handle has changes that are not closed yet, only
    /// saves the bytes.
    pub(super) async fn publish_closed(
        self: &Arc<Self>,
        file: &Arc<DraftFile>,
        writer: Option<WriterId>,
    ) -> Result<(), FsError> {
        let _held = self.hold_draft(file).await;
        match (file.verdict(Step::Publish), file.close(writer, |_| true, || true)) {
            // The handle has changed nothing, such as by a cut to the present length. Until the kernel releases it, no
            // caller has to wait for more writes of it.
            (Verdict::Skip, _) => {
                file.end_changes(writer);
                Ok(())
            }
            (Verdict::Go, Close::Nothing) => Ok(()),
            (Verdict::Go, Close::Keep) => {
                file.describe();
                file.draft().save().await.map_err(|error| self.failed(file, error))?;
                file.note_closed(writer);
                self.note_said(file, writer);
                Ok(())
            }
            // A failed draft returns its error.
            (Verdict::Fail | Verdict::LookAgain, _) => self.publish(file).await.map(drop),
            (Verdict::Go, Close::Publish) => {
                if !self.leave_in_outbox(file).await? {
                    return self.publish(file).await.map(drop);
                }
                file.note_closed(writer);
                self.upload_later(file);
                Ok(())
            }
        }
    }

    /// Publishes a draft. The caller holds its turn.
    ///
    /// # Errors
    /// The reason why it can't be published: then its name refers to the version in the store.
    pub(super) async fn publish(&self, file: &Arc<DraftFile>) -> Result<Published, FsError> {
        let published = self.in_place_of_entry(file, file.publish()).await;
        let published = published.map_err(|error| self.failed(file, error))?;
        file.note_published(&published.object);
        self.end_in_outbox(file);
        self.commit_outbox().await;
        if self.handover.is_some() {
            file.set_changing(false);
            file.ino().into_iter().for_each(|ino| self.inodes.record_published(ino));
            self.end_kept(file);
        }
        Ok(published)
    }

    /// Makes the writes to the file of a handle safe.
    ///
    /// # Errors
    /// The reason why they are not, or an earlier error.
    pub async fn fsync(self: Arc<Self>, handle: FileHandle) -> Result<(), FsError> {
        self.check_lost(handle)?;
        let Some((_, file, _)) = self.draft_of_handle(handle) else { return Ok(()) };
        let _held = self.hold_draft(&file).await;
        if file.verdict(Step::Publish) == Verdict::Skip {
            return Ok(());
        }
        if !self.writing.writes.as_ref().is_some_and(|writes| writes.publishes_on_fsync) {
            if self.leave_in_outbox(&file).await? {
                self.upload_later(&file);
                return Ok(());
            }
            file.describe();
            file.draft().sync().await.map_err(|error| self.failed(&file, error))?;
            if file.draft().is_dirty() {
                return Ok(());
            }
        }
        self.publish(&file).await.map(drop)
    }

    /// Closes a handle of a draft.
    pub(super) fn release_draft(self: &Arc<Self>, open: &OpenDraft) {
        let file = &open.file;
        self.resume_orphans();
        let is_last = open.writer.is_some_and(|writer| file.remove_writer(writer));
        if is_last && file.waits() {
            self.upload_later(file);
            return;
        }
        if is_last {
            let is_log = open.how.appends && file.life() == Life::Dirty;
            if let Some(delay) = self.append_delay().filter(|_| is_log) {
                self.publish_later(file, delay);
                return;
            }
        }
        if !is_last && file.verdict(Step::Discard) != Verdict::Go {
            return;
        }
        self.end_closed_later(file.clone());
    }

    /// Publishes a draft that no program has open to write any more. Nobody waits for it.
    pub(super) fn end_closed_later(self: &Arc<Self>, file: Arc<DraftFile>) {
        let fs = self.clone();
        spawn(self.namespace.requests().runtime(), async move {
            let (prefix, name) = file.place();
            if let Err(error) = fs.clone().end_closed_draft(file).await {
                let key = format!("{prefix}{name}");
                if fs.is_written_here(&key).await {
                    let _ = fs.writing.logs.check(&key);
                    tracing::info!(key, %error, "a rename has replaced the file, and what waited to be written goes with it");
                    return;
                }
                tracing::error!(key, error = &error as &dyn std::error::Error, "the written bytes are lost");
                fs.writing.logs.note_lost(key, error);
            }
        });
    }

    /// Whether a daemon before may have replaced the file at `key` without telling this one: a write of this mount is
    /// there.
    pub(super) async fn is_written_here(&self, key: &str) -> bool {
        let Some(handover) = self.handover.as_ref().filter(|handover| handover.is_taken_over()) else {
            return false;
        };
        let Ok(writer) = self.writer() else { return false };
        writer.bucket().is_of_family(key, handover.family_before()).await.unwrap_or(false)
    }

    /// Closes a handle that was opened to read a version, and has followed the inode since.
    pub(super) fn release_follower(self: &Arc<Self>, ino: InodeNo) {
        if let Some(Node::Draft(file)) = self.inodes.node(ino)
            && file.verdict(Step::Discard) == Verdict::Go
        {
            let fs = self.clone();
            spawn(self.namespace.requests().runtime(), async move { fs.discard_unused(&file).await });
        }
    }

    /// Publishes a draft without writers, and makes its name refer to the version. Gives up a draft that can't be
    /// published. A draft that was opened for writing meanwhile stays one.
    ///
    /// # Errors
    /// Why it can't be published.
    pub(super) async fn end_draft(self: Arc<Self>, file: Arc<DraftFile>) -> Result<(), FsError> {
        let ended = {
            let _held = self.hold_draft(&file).await;
            match file.life() {
                Life::Failed | Life::Unlinked | Life::Sealed | Life::GivenUp => Ok(()),
                Life::Dirty | Life::Clean if file.has_writers() => Ok(()),
                Life::Dirty | Life::Clean => {
                    let published = self.publish(&file).await;
                    published.map(|published| {
                        self.seal(&file, &version_of(published));
                    })
                }
            }
        };
        self.discard_unused(&file).await;
        ended
    }

    /// Makes the name of a draft refer to its version at once, if it has no writers and no unpublished changes. Returns
    /// whether it did. The caller may have `held` the name.
    pub(super) async fn end_idle(&self, file: &Arc<DraftFile>, held: Option<&NamesGuard<'_>>) -> bool {
        let _held = match held {
            Some(_) => (None, file.turn().await),
            None => {
                let (name, turn) = self.hold_draft(file).await;
                (Some(name), turn)
            }
        };
        if file.verdict(Step::Seal) != Verdict::Go || file.has_writers() {
            return false;
        }
        match self.publish(file).await {
            Ok(published) => self.seal(file, &version_of(published)),
            Err(_) => false,
        }
    }

    /// Ends all drafts, because the mount ends. Publishes closed drafts, drafts of which a `close` has succeeded, and
    /// drafts that only appenders have open. Gives up other open drafts: their writers have not closed them, and can't
    /// any more. Returns how many drafts are lost in either way.
    pub async fn end_writes(self: &Arc<Self>) -> usize {
        let mut lost = 0;
        self.end_outbox().await;
        for file in self.namespace.drafts() {
            if matches!(file.life(), Life::Dirty | Life::Clean)
                && !file.is_idle()
                && !file.waits()
                && !self.end_open(&file).await
            {
                lost += 1;
            }
        }
        // A draft that is given up leaves no upload behind.
        if let Some(writes) = &self.writing.writes {
            writes.writer.settled().await;
        }
        lost
    }

    /// Ends one draft, because the mount ends. Returns whether it is stored.
    async fn end_open(self: &Arc<Self>, file: &Arc<DraftFile>) -> bool {
        let (prefix, name) = file.place();
        let key = format!("{prefix}{name}");
        if file.is_half_written() && !file.has_closed() {
            tracing::error!(key, "the file was still open for writing, so it is not written");
            file.draft().discard().await;
            return false;
        }
        let ended = if file.has_writers() {
            if file.is_half_written() {
                tracing::warn!(
                    key,
                    "the file is written as it is: one program has closed it, and another has not"
                );
            }
            let _held = self.hold_draft(file).await;
            if file.verdict(Step::Publish) == Verdict::Skip {
                Ok(())
            } else {
                self.publish(file).await.map(drop)
            }
        } else {
            self.clone().end_draft(file.clone()).await
        };
        if let Err(error) = &ended {
            tracing::error!(key, error = error as &dyn std::error::Error, "the written bytes are lost");
        }
        ended.is_ok()
    }
}
