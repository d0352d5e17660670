//! What an object has beside its bytes, which may be set while the file is written and after.

use s3mount_object::{
    Condition, CopySource, Description, ErrorKind, NewObject, ObjectId, UserMetadata, Written,
};

use super::Draft;
use crate::WriteError;
use crate::beside::in_place_of;
use crate::copies::MOST_COPIED;

impl Draft {
    /// Whether an upload in parts has begun. Its object has what was said before that.
    pub fn is_uploading(&self) -> bool {
        self.state().upload.is_some()
    }

    /// Says which text the object is to have beside its bytes at the next publication. This alone is no change of
    /// the file.
    pub fn set_metadata(&self, metadata: UserMetadata) {
        self.state().object.metadata = metadata;
    }

    /// The file is a new one: the object is to have this beside its bytes, and nothing of what it had.
    pub fn set_object(&self, object: NewObject) {
        let mut state = self.state();
        (state.object, state.unknown, state.has_kept_tags) = (object, None, false);
    }

    /// What the object has beside its bytes is to be as `version` has it, which the store has `found`, or is asked for
    /// before the next publication. `object` says how the bytes are stored, and stands for what the store does not tell.
    pub fn describe_as(&self, version: &ObjectId, found: Option<&Description>, object: NewObject) {
        let (object, unknown) = in_place_of(version, found, object);
        let mut state = self.state();
        (state.object, state.unknown, state.has_kept_tags) = (object, unknown, false);
    }

    /// Says which text the object is to have beside its bytes. If this differs from what was said before, the file
    /// has changed, and the next publication writes it, also where no byte has changed.
    pub fn change_metadata(&self, metadata: UserMetadata) {
        let mut state = self.state();
        if state.object.metadata != metadata {
            state.object.metadata = metadata;
            state.changes += 1;
            state.is_described_anew = true;
        }
    }

    /// The version that the store has at `key`, if nothing but the text beside the bytes differs from it.
    pub(super) fn only_described_anew(&self, key: &str) -> Option<ObjectId> {
        let state = self.state();
        let (_, published) = state.published.as_ref().filter(|_| state.is_described_anew)?;
        let size = state.size();
        let is_whole = published.size == size && published.object.key() == key;
        let place = state.source(0, size).filter(|_| is_whole)?;
        (place.offset == 0 && place.object == published.object).then_some(place.object)
    }

    /// Notes the tags of a version that is going to be copied in parts: such a copy has those that it is given.
    pub(super) async fn keep_tags(&self, version: &ObjectId) {
        if self.size() <= MOST_COPIED || self.state().object.tags.is_some() {
            return;
        }
        match self.shared.store.tags(version.key()).await {
            Ok(tags) => self.state().object.tags = tags,
            Err(error) => {
                tracing::warn!(key = version.key(), %error, "copied without tags, which can not be read");
            }
        }
    }

    /// Gives a version other text beside its bytes. The store copies it onto itself.
    pub(super) async fn describe_anew(&self, version: &ObjectId) -> Result<Written, WriteError> {
        let (size, object) = {
            let state = self.state();
            (state.size(), self.numbered(state.object.clone()))
        };
        if size > MOST_COPIED {
            // Several copies of pieces side by side take less time, and S3 copies no more than 5 GiB at once.
            let condition = Condition::Matches(version.etag().clone());
            return self.put_parts(version.key(), Some(&condition)).await;
        }
        let source = CopySource { bucket: None, object: version.clone() };
        // Who has replaced the version meanwhile keeps what he has written.
        let (store, key) = (&self.shared.store, version.key());
        let condition = Condition::Matches(version.etag().clone());
        match store.copy(&source, size, key, &object, Some(&condition)).await {
            Err(error) if *error.kind() == ErrorKind::Unsupported => {
                Ok(store.copy(&source, size, key, &object, None).await?)
            }
            copied => Ok(copied?),
        }
    }
}
