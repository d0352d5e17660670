//! Write-behind: files that a `close` leaves in the outbox, and that the store gets later.
//!
//! Such a file stays a draft until it is uploaded, so programs of this mount see it as they see any file that is being
//! written. Its bytes rest in the outbox. A draft that can't wait there, because it is long, or because the outbox is full,
//! is published by its `close`, as without write-behind.

use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use s3mount_metrics::json_string;
use s3mount_object::{Condition, ObjectId};
use s3mount_outbox::{Entry, EntryId, KeptBytes, Mark, OutboxMetrics, Waiting};
use s3mount_write::{Published, RestingBytes, WriteError};

use super::Filesystem;
use super::writing::version_of;
use crate::FsError;
use crate::behind::{Behind, InOutbox, LINGER, UPLOADS};
use crate::drafts::DraftFile;
use crate::drafts::life::Life;
use crate::sync::{lock, spawn};

/// The bytes of an entry.
#[derive(Debug)]
pub(super) struct OfEntry(pub(super) KeptBytes);

impl RestingBytes for OfEntry {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, into)
    }

    fn are(&self, pieces: &[Bytes]) -> bool {
        self.0.are(pieces)
    }
}

/// The number of an entry in the marks of its uploads.
fn in_marks(id: EntryId) -> u32 {
    id.0 as u32
}

/// What an upload has come to.
enum Uploaded {
    /// Nothing is left to do, or whoever has the file open will say more.
    Over,
    /// It may succeed later.
    Later(WriteError),
}

impl Filesystem {
    /// Whether closed files wait in an outbox.
    pub fn has_outbox(&self) -> bool {
        self.writing.behind.is_some()
    }

    /// Has the outbox take the changes of a draft. Returns false if the draft has to be published now. The caller holds
    /// its turn.
    ///
    /// # Errors
    /// The reason why it can't be published.
    pub(super) async fn leave_in_outbox(&self, file: &Arc<DraftFile>) -> Result<bool, FsError> {
        let Some(behind) = &self.writing.behind else { return Ok(false) };
        if file.waits() {
            // What has changed since is its name.
            return Ok(behind.outbox.commit().await.is_ok());
        }
        file.describe();
        let draft = file.draft();
        let Some(whole) = draft.whole().await.map_err(|error| self.failed(file, error))? else {
            return Ok(false);
        };
        let (family, given, before) = (behind.family, whole.clone(), file.in_outbox());
        let left = before.and_then(|entry| entry.left);
        let entry = move |id| Entry {
            key: given.key,
            condition: given.condition,
            object: given.object,
            leaves: None,
            modified: given.modified,
            // What a daemon before has made of the file, others may find at the store, too.
            mark: left.unwrap_or(Mark { family, file: in_marks(id) }),
        };
        match behind.outbox.put(entry, whole.bytes.clone(), before.map(|entry| entry.id)).await {
            Ok(kept) => {
                draft.set_number(left.map_or(in_marks(kept.id), |mark| mark.file));
                draft.rest(&whole, Arc::new(OfEntry(kept.bytes))).await;
                file.set_in_outbox(Some(InOutbox { id: kept.id, left, is_ending: false }));
                Ok(true)
            }
            Err(error) => {
                behind.tell(&error);
                Ok(false)
            }
        }
    }

    /// Ends the entry of a draft: the store has its changes, or nobody wants them any more.
    pub(super) fn end_in_outbox(&self, file: &DraftFile) {
        if let (Some(behind), Some(entry)) = (&self.writing.behind, file.set_in_outbox(None)) {
            behind.outbox.done(entry.id);
        }
    }

    /// Notes that a draft has failed. No daemon goes on with it. What the outbox has of it stays there: it is uploaded by
    /// itself, unless the store has refused it. Returns whether something is lost.
    pub(super) fn give_up_failed(&self, file: &DraftFile, error: &WriteError) -> bool {
        self.give_up_kept(file);
        let (Some(behind), Some(entry)) = (&self.writing.behind, file.set_in_outbox(None)) else {
            return true;
        };
        let key = file.draft().target().0;
        if entry.is_ending && error.is_conflict() {
            tracing::info!(key, "a file that was replaced or removed is not uploaded");
            behind.outbox.done(entry.id);
            return false;
        }
        if error.is_refusal() {
            behind.outbox.failed(entry.id, &error.to_string());
            tracing::error!(
                key,
                "the store does not take the file: it waits in the outbox until somebody decides (s3mount pending)"
            );
        } else {
            tracing::warn!(
                key,
                "what was written since the file was closed last is lost, and what was there then is uploaded"
            );
            lock(&behind.orphans).push(entry.id);
        }
        true
    }

    /// Goes on with what the outbox has of drafts that have failed.
    pub(super) fn resume_orphans(self: &Arc<Self>) {
        let Some(behind) = &self.writing.behind else { return };
        let orphans = std::mem::take(&mut *lock(&behind.orphans));
        if !orphans.is_empty() {
            let waiting = behind.outbox.waiting();
            let orphans = waiting.into_iter().filter(|waiting| orphans.contains(&waiting.id)).collect();
            let hidden = self.take_waiting(orphans);
            // Until the other file of the name is stored.
            lock(&behind.orphans).extend(hidden.iter().map(|waiting| waiting.id));
        }
    }

    /// Notes that a draft has another key, and leaves a version at the one before, which is to be deleted.
    pub(super) fn move_in_outbox(&self, file: &DraftFile, leaves: Option<&ObjectId>) {
        if let (Some(behind), Some(entry)) = (&self.writing.behind, file.in_outbox()) {
            let (key, condition) = file.draft().target();
            behind.outbox.moved(entry.id, &key, condition.as_ref(), leaves);
        }
    }

    /// A draft with changes gets the name of another one. Until the outbox has its changes, it keeps those of the other one:
    /// if the daemon dies before, that is there again.
    pub(super) fn inherit_in_outbox(&self, file: &DraftFile, replaced: &DraftFile) {
        if file.in_outbox().is_none() && file.life() == Life::Dirty {
            file.set_in_outbox(replaced.set_in_outbox(None));
        }
    }

    /// Tells the store by `telling` that the file of a draft is gone, or that another one has its name. If the daemon dies
    /// before the entry is over, the next one does not take that for a conflict.
    ///
    /// # Errors
    /// Those of `telling`; the disk's.
    pub(super) async fn while_ending<T>(
        &self,
        file: &DraftFile,
        telling: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        self.note_ending(file, true).await?;
        let told = telling.await;
        if told.is_err() {
            self.note_ending(file, false).await?;
        }
        told
    }

    /// Publishes by `publishing` what the outbox does not have of a draft. What it has is older: if the daemon dies, no other
    /// one puts that in the place of the new version. The caller says afterwards that the entry is over.
    pub(super) async fn in_place_of_entry<T>(
        &self,
        file: &DraftFile,
        publishing: impl Future<Output = Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        let (Some(behind), Some(entry)) = (&self.writing.behind, file.in_outbox().filter(|_| !file.waits()))
        else {
            return publishing.await;
        };
        behind.outbox.ending(entry.id, true);
        self.commit_outbox().await;
        let published = publishing.await;
        if published.is_err() {
            behind.outbox.ending(entry.id, false);
        }
        published
    }

    /// Makes durable what the outbox was told, if its disk takes that.
    pub(super) async fn commit_outbox(&self) {
        if let Some(behind) = &self.writing.behind
            && let Err(error) = behind.outbox.commit().await
        {
            behind.tell(&error);
        }
    }

    async fn note_ending(&self, file: &DraftFile, is_ending: bool) -> Result<(), FsError> {
        if let (Some(behind), Some(entry)) = (&self.writing.behind, file.in_outbox()) {
            behind.outbox.ending(entry.id, is_ending);
            behind.outbox.commit().await?;
        }
        Ok(())
    }

    /// Gives a draft whose changes the outbox has another key, and deletes the version at the one before, if the store has
    /// one. The caller holds its turn.
    ///
    /// # Errors
    /// Those of the store: then the draft stays where it is.
    pub(super) async fn rename_in_outbox(
        &self,
        file: &DraftFile,
        key: &str,
        condition: Condition,
    ) -> Result<(), FsError> {
        let (draft, leaves) = (file.draft(), file.stored());
        let before = draft.target();
        draft.rename(key, Some(condition)).await;
        self.move_in_outbox(file, leaves.as_ref());
        let Some(leaves) = leaves else { return Ok(()) };
        self.sync_names().await?;
        match self.writer()?.bucket().delete(&leaves).await {
            Ok(_) => {
                // The next daemon deletes nothing more there: it could be another file's version by then.
                self.move_in_outbox(file, None);
                file.forget_object();
                draft.forget_version(&leaves);
                Ok(())
            }
            Err(error) => {
                draft.rename(&before.0, before.1).await;
                self.move_in_outbox(file, None);
                Err(error.into())
            }
        }
    }

    /// Notes that all files that wait below a prefix have another one.
    pub(super) fn move_folder_in_outbox(&self, from: &str, to: &str) {
        if let Some(behind) = &self.writing.behind {
            behind.outbox.folder_moved(from, to);
        }
    }

    /// Uploads all of these files that wait. The caller holds their names.
    ///
    /// # Errors
    /// Why one can't be uploaded.
    pub(super) async fn upload_all(self: &Arc<Self>, files: &[Arc<DraftFile>]) -> Result<(), FsError> {
        let waiting: Vec<_> = files.iter().filter(|file| file.waits()).cloned().collect();
        let one = |file: Arc<DraftFile>| async move {
            match self.upload(&file, true).await {
                Uploaded::Over => Ok(()),
                Uploaded::Later(error) => Err(FsError::from(error)),
            }
        };
        stream::iter(waiting).map(one).buffer_unordered(UPLOADS).try_for_each(|()| ready(Ok(()))).await
    }

    /// Looks whether the daemon before has uploaded a draft that waits, before the draft loses its name. What is found is the
    /// version that the store has of it. The caller holds its turn.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn find_uploaded(&self, file: &DraftFile) -> Result<(), FsError> {
        let Some(InOutbox { left: Some(mark), .. }) = file.in_outbox() else { return Ok(()) };
        let (bucket, (key, condition)) = (self.writer()?.bucket(), file.draft().target());
        expect(bucket, &key, mark, condition.as_ref());
        if let Some(version) = bucket.late_version(&key).await? {
            file.note_object(&version);
        }
        Ok(())
    }

    /// Has a draft that waits uploaded, unless a task does so already.
    pub(super) fn upload_later(self: &Arc<Self>, file: &Arc<DraftFile>) {
        self.upload_after(file, LINGER);
    }

    pub(super) fn upload_after(self: &Arc<Self>, file: &Arc<DraftFile>, pause: Duration) {
        let Some(behind) = self.writing.behind.clone() else { return };
        if !file.begin_delay() {
            return;
        }
        let (fs, file) = (self.clone(), file.clone());
        // It counts from now on.
        let task = behind.begin();
        spawn(self.namespace.requests().runtime(), async move {
            let _task = task;
            let (mut pause, mut failed) = (pause, None);
            loop {
                behind.wait(pause).await;
                if behind.is_hopeless() {
                    return;
                }
                // The semaphore is never closed.
                let _permit = behind.uploads.acquire().await;
                file.end_delay();
                let is_last = behind.is_ending();
                // A task that waits takes little memory.
                match Box::pin(fs.upload(&file, false)).await {
                    Uploaded::Over => {
                        behind.note_answer();
                        break;
                    }
                    Uploaded::Later(error) => {
                        if behind.note_failure(&file.draft().target().0, &error, is_last)
                            || !file.begin_delay()
                        {
                            return;
                        }
                        pause = Behind::next_pause(failed);
                        failed = Some(pause);
                    }
                }
            }
            if behind.outbox.is_to_be_committed() {
                fs.commit_outbox().await;
            }
        });
    }

    /// Uploads a draft, and makes its name refer to the version, unless it is open for writing. The caller may hold its name.
    async fn upload(self: &Arc<Self>, file: &Arc<DraftFile>, is_held: bool) -> Uploaded {
        let uploaded = {
            let _held = match is_held {
                true => (None, file.turn().await),
                false => {
                    let (name, turn) = self.hold_draft(file).await;
                    (Some(name), turn)
                }
            };
            match file.life() {
                Life::Failed | Life::Unlinked | Life::Sealed | Life::GivenUp => Uploaded::Over,
                // Whoever writes it closes it, or syncs it again.
                Life::Dirty | Life::Clean if file.is_half_written() && !file.waits() => Uploaded::Over,
                Life::Dirty | Life::Clean => match self.try_publish(file).await {
                    Ok(published) => {
                        if !file.has_writers() {
                            self.seal(file, &version_of(published));
                        }
                        Uploaded::Over
                    }
                    Err(error) if file.draft().has_failed() => {
                        // It tells whoever opens the name next.
                        let _ = self.failed(file, error);
                        Uploaded::Over
                    }
                    Err(error) => Uploaded::Later(error),
                },
            }
        };
        self.discard_unused(file).await;
        uploaded
    }

    /// Publishes a draft, which stays as it is after an error that may pass. The caller holds its turn.
    async fn try_publish(&self, file: &Arc<DraftFile>) -> Result<Published, WriteError> {
        if let (Some(InOutbox { left: Some(mark), .. }), Ok(writer)) = (file.in_outbox(), self.writer()) {
            let (key, condition) = file.draft().target();
            expect(writer.bucket(), &key, mark, condition.as_ref());
        }
        file.describe();
        let published = match file.waits() {
            true => file.draft().try_publish().await?,
            false => self.in_place_of_entry(file, file.draft().publish()).await?,
        };
        file.note_published(&published.object);
        self.end_in_outbox(file);
        Ok(published)
    }

    /// How much waits.
    pub(super) fn in_outbox(&self) -> OutboxMetrics {
        self.writing.behind.as_ref().map(|behind| behind.outbox.metrics()).unwrap_or_default()
    }

    /// The text of `.s3mount/pending`.
    pub(super) fn show_pending(&self) -> String {
        let OutboxMetrics { entries, bytes, failed, disk_bytes } = self.in_outbox();
        let waiting = self.writing.behind.as_ref().map(|behind| behind.outbox.waiting()).unwrap_or_default();
        let pid = std::process::id();
        let shown = waiting.iter().map(|Waiting { id, entry, size, failed, .. }| {
            let (key, failed) = (json_string(&entry.key), failed.as_deref().map(json_string));
            let failed = failed.as_deref().unwrap_or("null");
            format!("{{\"id\": {id}, \"key\": {key}, \"bytes\": {size}, \"failed\": {failed}}}")
        });
        let shown = shown.collect::<Vec<_>>().join(",\n  ");
        let damage = self.writing.behind.as_ref().map(|behind| behind.outbox.damage()).unwrap_or_default();
        let damage =
            damage.iter().map(|damage| json_string(&damage.to_string())).collect::<Vec<_>>().join(", ");
        format!(
            "{{\"pid\": {pid}, \"files\": {entries}, \"bytes\": {bytes}, \"failed\": {failed}, \"disk_bytes\": {disk_bytes}, \
             \"damage\": [{damage}], \"waiting\": [\n  {shown}\n]}}\n"
        )
    }

    /// Does what a program writes to `.s3mount/pending`: `upload`, `retry ID` or `drop ID`.
    pub(super) fn decide_in_outbox(self: &Arc<Self>, data: &[u8]) -> Result<(), FsError> {
        let Some(behind) = &self.writing.behind else { return Err(FsError::ReadOnly) };
        let text = str::from_utf8(data).map_err(|_| FsError::NotNumber)?.trim_ascii();
        if text == "upload" {
            behind.hurry();
            return Ok(());
        }
        let (word, id) = text.split_once(' ').ok_or(FsError::NotNumber)?;
        let id = EntryId(id.parse().map_err(|_| FsError::NotNumber)?);
        let found = behind.outbox.find(id).filter(|waiting| waiting.failed.is_some());
        let refused = found.ok_or(FsError::NotFound)?;
        match word {
            "drop" => {
                self.writing.logs.forget_lost(&refused.entry.key);
                behind.outbox.done(id);
            }
            "retry" => {
                let key = refused.entry.key.clone();
                if !self.take_waiting(vec![Waiting { failed: None, ..refused }]).is_empty() {
                    return Err(FsError::Exists);
                }
                self.writing.logs.forget_lost(&key);
                behind.outbox.retry(id);
            }
            _ => return Err(FsError::NotNumber),
        }
        Ok(())
    }

    /// Uploads all files that wait, and waits for that.
    pub async fn flush_outbox(&self) {
        if let Some(behind) = &self.writing.behind {
            behind.hurry();
            behind.idle().await;
        }
    }

    /// Uploads all files that wait now, because the mount ends, and says what is left to the next one.
    pub(super) async fn end_outbox(&self) {
        let Some(behind) = &self.writing.behind else { return };
        behind.end().await;
        self.tell_left();
        self.commit_outbox().await;
        behind.outbox.tidy();
    }

    /// Says what is left to the next mount.
    pub(super) fn tell_left(&self) {
        let left = self.in_outbox();
        if left.entries > 0 {
            let (files, bytes) = (left.entries, left.bytes);
            tracing::warn!(files, bytes, "files wait in the outbox: the next mount with it uploads them");
        }
    }

    /// Waits until renames and deletions of files that wait survive a power cut.
    ///
    /// # Errors
    /// The disk's.
    pub async fn sync_names(&self) -> Result<(), FsError> {
        match &self.writing.behind {
            Some(behind) => behind.outbox.commit().await.map_err(FsError::Outbox),
            None => Ok(()),
        }
    }
}

/// An earlier daemon may have uploaded the entry with this mark.
pub(super) fn expect(
    bucket: &s3mount_bucket::WritableBucket,
    key: &str,
    mark: Mark,
    condition: Option<&Condition>,
) {
    bucket.expect_late(key, (mark.family, mark.file), condition.and_then(Condition::etag));
}
