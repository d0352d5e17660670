//! What a file keeps that was an object before: the store is asked for it before the first write.

use std::sync::atomic::Ordering;

use s3mount_bucket::MARK;
use s3mount_object::{ErrorKind, NewObject, ObjectError, ObjectId};

use super::Draft;
use crate::WriteError;
use crate::beside::{Unknown, forget_bytes, keep};

impl Draft {
    /// What the object is to have beside its bytes. The caller has no lock of the draft but the turn.
    pub(super) async fn beside(&self) -> Result<NewObject, WriteError> {
        let _one = self.creating.lock().await;
        self.beside_alone().await
    }

    /// As [`beside`](Self::beside), for a caller that holds `creating`: one task asks.
    pub(super) async fn beside_alone(&self) -> Result<NewObject, WriteError> {
        if let Some(Unknown::All(version)) = self.unknown() {
            let found = self.ask(&version).await?;
            let mut state = self.state();
            state.unknown = None;
            if let Some((mut object, tag_count)) = found {
                forget_bytes(&mut object.metadata);
                state.object = keep(object, state.object.clone());
                state.unknown = (tag_count > 0).then_some(Unknown::Tags(version));
            }
        }
        if let Some(Unknown::Tags(version)) = self.unknown() {
            let tags = self.ask_tags(&version).await?;
            let mut state = self.state();
            state.unknown = None;
            state.has_kept_tags = tags.is_some();
            state.object.tags = tags.or(state.object.tags.take());
        }
        let object = self.state().object.clone();
        Ok(self.numbered(object))
    }

    /// What an object is to have beside its bytes, with the file's number.
    pub(super) fn numbered(&self, mut object: NewObject) -> NewObject {
        let number = self.number.load(Ordering::Relaxed);
        if number != 0 {
            object.metadata.insert(MARK.to_owned(), format!("{number:08x}"));
        }
        object
    }

    fn unknown(&self) -> Option<Unknown> {
        self.state().unknown.clone()
    }

    /// What a version has beside its bytes, and how many tags. `None` if that can't be known. A version that was
    /// replaced, or deleted, is not written anew: the condition of the write says so.
    async fn ask(&self, version: &ObjectId) -> Result<Option<(NewObject, u32)>, WriteError> {
        match self.shared.store.bucket.describe(version.key()).await {
            Ok(found) if found.meta.etag == *version.etag() => Ok(Some((found.object, found.tag_count))),
            Ok(_) => Ok(None),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if *error.kind() == ErrorKind::Forbidden => {
                self.tell_lost(version.key(), &error, "metadata and headers are not kept");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn ask_tags(&self, version: &ObjectId) -> Result<Option<String>, WriteError> {
        match self.shared.store.tags(version.key()).await {
            Ok(tags) => Ok(tags),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if *error.kind() == ErrorKind::Forbidden => {
                self.tell_lost(version.key(), &error, "tags are not kept, because they may not be read");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a write that was refused may be made without the tags, which are the object's and nobody has asked
    /// for: who may write objects may not be allowed to write tags.
    pub(super) fn leaves_tags(&self, error: &ObjectError) -> bool {
        if *error.kind() != ErrorKind::Forbidden {
            return false;
        }
        let mut state = self.state();
        let has_kept = std::mem::take(&mut state.has_kept_tags);
        if has_kept {
            state.object.tags = None;
            let key = state.key.clone();
            drop(state);
            self.tell_lost(&key, error, "tags are not kept, if that is why a write was refused");
        }
        has_kept
    }

    /// Says once what changed files lose.
    fn tell_lost(&self, key: &str, error: &ObjectError, what: &str) {
        if self.shared.has_told_lost.swap(true, Ordering::Relaxed) {
            tracing::debug!(key, %error, "of a changed file, {what}");
        } else {
            tracing::warn!(key, %error, "of changed files, {what}");
        }
    }
}
