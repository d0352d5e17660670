//! Bytes that a draft takes from versions: noted when a program copies, and copied inside the store when the draft
//! is published.

use s3mount_object::{ByteRange, Condition, CopySource, ErrorKind, NewObject, ObjectId, Written};

use super::Draft;
use crate::WriteError;
use crate::extents::Place;

impl Draft {
    /// Whether a range of a version had better be taken by [`copy_from`](Self::copy_from) than be written. Pieces
    /// that are too short to be copied inside the store, and are no whole file, are not.
    pub fn suits_copy(&self, version: &ObjectId, range: ByteRange, offset: u64) -> bool {
        let state = self.state();
        let place = Place { object: version.clone(), offset: range.start() };
        let begins_file = offset == 0 && range.start() == 0 && state.size() == 0;
        begins_file
            || range.len() >= self.shared.config.least_part_bytes
            || state.is_continued(&place, offset)
    }

    /// Takes `range` of a version of `size` bytes at `offset`, instead of what the file has there. Nothing is
    /// fetched or copied before the draft is published, and reads until then go to the version.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn copy_from(
        &self,
        version: &ObjectId,
        size: u64,
        range: ByteRange,
        offset: u64,
    ) -> Result<(), WriteError> {
        let _turn = self.turn.lock().await;
        if range.len() > 0 {
            self.wake(u64::MAX).await?;
        }
        self.take(version, size, range, offset).map_err(|error| self.fail(error))?;
        if range.len() > 0 {
            self.give_up_keeping();
        }
        Ok(())
    }

    fn take(&self, version: &ObjectId, size: u64, range: ByteRange, offset: u64) -> Result<(), WriteError> {
        let now = self.shared.now();
        let end = offset.checked_add(range.len()).ok_or(WriteError::TooLarge { size: u64::MAX })?;
        let mut state = self.state();
        state.check()?;
        if range.len() == 0 {
            return Ok(());
        }
        let place = Place { object: version.clone(), offset: range.start() };
        let copied = || match state.copied_head() {
            head if offset == head && (head == 0 || state.is_continued(&place, offset)) => end,
            head => head.min(offset),
        };
        self.check_change(&state, (offset, end), state.size().max(end), copied)?;
        state.copied = Some((version.clone(), size));
        state.copy(place, range.len(), offset, now);
        Ok(())
    }

    /// Publishes a file that is a copy of `source` by one CopyObject. `None` if the store can't do that, or if the copy
    /// might have the ETag that an earlier write waits for.
    pub(super) async fn put_copy(
        &self,
        source: &ObjectId,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<Option<Written>, WriteError> {
        let size = self.size();
        if self.shared.store.bucket.must_be_parts(key, size) {
            return Ok(None);
        }
        let from = CopySource { bucket: None, object: source.clone() };
        // A copy in parts has no tags of the source's, so this one has none either.
        let object = self.beside().await?;
        let tags = Some(object.tags.clone().unwrap_or_default());
        let object = NewObject { tags, ..object };
        let copied = {
            // The semaphore is never closed.
            let _permit = self.shared.requests.acquire().await;
            self.shared.store.copy(&from, size, key, &object, condition).await
        };
        let written = match copied {
            Ok(written) => written,
            Err(error) if *error.kind() == ErrorKind::Unsupported => return Ok(None),
            // The condition of the key did not hold, or that of the source.
            Err(error) => {
                let is_refused = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PreconditionFailed);
                let is_gone = is_refused && self.shared.store.is_gone(source).await;
                return Err(if is_gone { WriteError::SourceGone(error) } else { error.into() });
            }
        };
        self.give_up_upload();
        Ok(Some(written))
    }
}
