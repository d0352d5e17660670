//! Publication: a draft becomes an object.

use std::sync::Arc;

use s3mount_object::{Condition, ErrorKind, ObjectChecksum, ObjectError, ObjectId, Written};

use super::upload::Taken;
use super::{Draft, Still};
use crate::WriteError;
use crate::copies::{MOST_COPIED, Piece, plan};
use crate::state::Published;

/// What is published, and where.
#[derive(Clone, Debug)]
struct Target {
    key: String,
    condition: Option<Condition>,
    /// How often the file has changed by now.
    changes: u64,
}

impl Draft {
    /// Waits until the store has all bytes, so that they outlive the mount. A file of up to a part is
    /// published. Of a longer one, all parts are in the store; the object shows when it is published.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn sync(&self) -> Result<(), WriteError> {
        {
            let _turn = self.turn.lock().await;
            self.state().check()?;
            if !self.is_small() {
                return self.upload_all(false).await.map_err(|error| self.fail(error));
            }
        }
        self.publish().await.map(drop)
    }

    /// Has the store take the bytes of a file of more than a part, as [`sync`](Self::sync) does. Nothing is published:
    /// a shorter file stays in memory.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn save(&self) -> Result<(), WriteError> {
        let _turn = self.turn.lock().await;
        self.state().check()?;
        if self.is_small() {
            return Ok(());
        }
        self.upload_all(false).await.map_err(|error| self.fail(error))
    }

    /// Waits until the object shows all bytes. Returns the version that is published now; nothing is written
    /// if that is up to date.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn publish(&self) -> Result<Published, WriteError> {
        let _turn = self.turn.lock().await;
        self.publish_alone(|_| true).await
    }

    /// As [`publish`](Self::publish), for a draft whose bytes are safe elsewhere: after an error that
    /// [may pass](WriteError::may_pass), it stays as it is.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn try_publish(&self) -> Result<Published, WriteError> {
        let _turn = self.turn.lock().await;
        self.publish_alone(|error| !error.may_pass()).await
    }

    /// Publishes while it is its turn. The draft fails by an error that `is_final`.
    async fn publish_alone(&self, is_final: impl Fn(&WriteError) -> bool) -> Result<Published, WriteError> {
        // What the version has beside its bytes is asked of the one that is there.
        self.find_late().await;
        let mut target = {
            let state = self.state();
            state.check()?;
            if let Some((changes, published)) = &state.published
                && *changes == state.changes
            {
                return Ok(published.clone());
            }
            Target { key: state.key.clone(), condition: state.condition.clone(), changes: state.changes }
        };
        let mut published = self.publish_at(&target).await;
        if matches!(published, Err(WriteError::SourceGone(_))) && self.find_late().await.is_some() {
            target.condition = self.state().condition.clone();
            published = self.publish_at(&target).await;
        }
        let published = published.map_err(|error| if is_final(&error) { self.fail(error) } else { error })?;
        self.forget_late();
        self.end_line();
        self.shared.metrics.published.inc();
        self.shared.written.note(&published.object);
        Ok(published)
    }

    async fn publish_at(&self, target: &Target) -> Result<Published, WriteError> {
        self.idle().await;
        let begun = self.state().upload.clone();
        if let Some(begun) = begun.filter(|begun| begun.upload.key != target.key && !self.is_small()) {
            // The file got another key while it was uploaded. It is completed where it was begun, and becomes
            // the source of what is published under the new key.
            let old = Target { key: begun.upload.key.clone(), condition: begun.condition, changes: u64::MAX };
            let written = self.put_parts(&old.key, old.condition.as_ref()).await?;
            self.rebase(&old, written);
        }
        let before = self.state().published.as_ref().map(|(_, published)| published.object.clone());
        // What the upload under an earlier key lacks is said with what is published now.
        self.state().is_described_late = false;
        let mut still = None;
        let written = match self.only_described_anew(&target.key) {
            Some(version) => {
                self.keep_tags(&version).await;
                self.describe_anew(&version).await?
            }
            None => {
                let (written, alone) = self.put(&target.key, target.condition.as_ref()).await?;
                still = alone;
                written
            }
        };
        let is_described_late = std::mem::take(&mut self.state().is_described_late);
        let mut published = self.rebase(target, written);
        drop(still);
        if is_described_late {
            let written = self.describe_anew(&published.object).await?;
            published = self.rebase(target, written);
        }
        self.drop_spool().await;
        if let Some(before) = before.filter(|before| before.key() != target.key) {
            self.shared.store.bucket.delete(&before).await?;
        }
        Ok(published)
    }

    /// Makes an object of the file in the way that suits it. Where that was one request, no part may be uploaded until the
    /// draft is that version.
    async fn put(
        &self,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<(Written, Option<Still<'_>>), WriteError> {
        let copy = self.state().whole_copy().filter(|source| source.key() != key);
        if let Some(source) = copy.filter(|_| self.size() <= MOST_COPIED) {
            let still = self.still().await;
            if let Some(written) = self.put_copy(&source, key, condition).await? {
                return Ok((written, Some(still)));
            }
        }
        // An upload that the bucket began by itself would be in no journal.
        if self.is_small() && !self.shared.store.bucket.must_be_parts(key, self.size()) {
            let (written, still) = self.put_whole(key, condition).await?;
            Ok((written, Some(still)))
        } else {
            Ok((self.put_parts(key, condition).await?, None))
        }
    }

    /// The file is the version `written` now.
    fn rebase(&self, target: &Target, written: Written) -> Published {
        let mut state = self.state();
        let object = ObjectId::new(&target.key, written.etag);
        let published = Published { size: state.size(), modified: state.modified, object };
        state.rebase(&published, target.changes);
        // It may have got another key meanwhile, and what it may replace there.
        if state.key == target.key {
            state.condition = Some(Condition::Matches(published.object.etag().clone()));
        }
        published
    }

    /// Whether one request can publish the file: it is no longer than a part, and all bytes can be had.
    pub(super) fn is_small(&self) -> bool {
        let state = self.state();
        let most = state.layout.map_or(self.shared.config.part_bytes, |layout| layout.first());
        state.size() <= most && state.stored(0, state.size()).is_none()
    }

    /// Publishes by one PutObject.
    async fn put_whole(
        &self,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<(Written, Still<'_>), WriteError> {
        let size = self.size();
        let pieces = self.all_bytes().await?;
        // Until then, memory that others wait for may be had by uploading a part.
        let still = self.still().await;
        let object = self.beside().await?;
        let (body, written) = {
            let _permit = self.shared.requests.acquire().await;
            let (body, _room) = self.body(pieces).await;
            let bucket = &self.shared.store.bucket;
            let written = match bucket.put(key, &body, &object, condition).await {
                Err(error) if self.leaves_tags(&error) => {
                    bucket.put(key, &body, &self.beside().await?, condition).await
                }
                written => written,
            };
            (body, written?)
        };
        compare(key, body.checksum(), &written)?;
        self.shared.metrics.uploaded_bytes.add(size);
        self.give_up_upload();
        Ok((written, still))
    }

    /// Waits until no task uploads a part, and lets none begin.
    async fn still(&self) -> Still<'_> {
        let still = Still::new(self);
        self.idle().await;
        still
    }

    /// Gives the upload up that another publication has made needless.
    pub(super) fn give_up_upload(&self) {
        let upload = self.state().upload.take();
        if let Some(begun) = upload {
            self.shared.abort_later(begun.upload, async {});
        }
    }

    /// Waits until the store has all parts. With `has_copies`, also those that are copied inside the store.
    pub(super) async fn upload_all(&self, has_copies: bool) -> Result<(), WriteError> {
        let Some(me) = self.me.upgrade() else { return Ok(()) };
        let most_copied = self.most_copied();
        loop {
            let missing = {
                let mut state = self.state();
                state.check()?;
                let layout = self.layout(&state);
                state.layout = Some(layout);
                plan(&state, layout, most_copied)
            };
            let mut is_done = true;
            for piece in missing {
                is_done &= !match piece {
                    // The file goes on where it ends.
                    Piece::Upload(part) if !has_copies && part.end > self.size() => {
                        me.clone().start_by(part, Taken::Copied)
                    }
                    Piece::Copy(..) if !has_copies => false,
                    piece => me.clone().start_piece(piece),
                };
            }
            is_done &= self.state().part_states.claimed() == 0;
            self.idle().await;
            self.state().check()?;
            if is_done {
                return Ok(());
            }
        }
    }

    /// The most bytes that a part may have that is copied inside the store. A directory bucket, which lists in no
    /// order, wants the numbers of all parts without a gap.
    pub(super) fn most_copied(&self) -> u64 {
        if self.shared.store.bucket.lists_in_order() { MOST_COPIED } else { 0 }
    }

    /// Has the store get a part, unless a task is at it. Returns whether one was started.
    pub(super) fn start_piece(self: Arc<Self>, piece: Piece) -> bool {
        match piece {
            Piece::Upload(part) => self.start(part),
            Piece::Copy(part, object, range) => self.start_copy(part, object, range),
        }
    }

    /// Waits until no task uploads a part.
    pub(super) async fn idle(&self) {
        let mut ended = self.ended.subscribe();
        while self.state().part_states.claimed() > 0 {
            // The sender is this draft's, so it is not gone.
            let _ = ended.changed().await;
        }
    }
}

/// Compares the checksum that the store keeps with that of what was sent.
pub(super) fn compare(key: &str, sent: Option<ObjectChecksum>, written: &Written) -> Result<(), WriteError> {
    match (sent, written.checksum) {
        (Some(sent), Some(kept)) if sent.algorithm == kept.algorithm && sent != kept => {
            let error = ObjectError::new(ErrorKind::BadChecksum, "PutObject", key);
            Err(error.with_source(format!("sent {sent}, and the store has {kept}")).into())
        }
        _ => Ok(()),
    }
}
