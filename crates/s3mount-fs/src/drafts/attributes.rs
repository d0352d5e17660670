//! The attributes of a draft, on mounts that keep them.
//!
//! The request that publishes the bytes also writes the attributes. So a program that sets them before it closes the
//! file, or right after, causes no request.

use std::sync::Arc;
use std::time::SystemTime;

use s3mount_object::{NewObject, UserMetadata};
use s3mount_write::{Draft, Published, WriteError};

use super::DraftFile;
use crate::attributes::of_draft::DraftAttr;
use crate::attributes::stored::{AttrChange, StoredAttr};

impl DraftFile {
    /// Makes the draft keep attributes, at first these, beside `others`.
    pub(crate) fn keep_attr(&self, stored: StoredAttr, others: UserMetadata) {
        let mut state = self.lock();
        let set_at = state.draft.modified();
        let attr = DraftAttr { stored, set_at, others, published: stored };
        let mut metadata = attr.others.clone();
        stored.put_into(&mut metadata);
        // An upload may begin before any other attribute is known.
        state.draft.set_metadata(metadata);
        state.attr = Some(attr);
    }

    /// Notes that the file was emptied to be written anew: of its metadata, it keeps only its attributes.
    pub(crate) fn begin_anew(&self, object: NewObject) {
        let mut state = self.lock();
        let draft = state.draft.clone();
        draft.set_object(object);
        if let Some(attr) = &mut state.attr {
            attr.others.clear();
            draft.set_metadata(attr.metadata(&draft).1);
        }
    }

    /// Its attributes now, if the mount keeps them.
    pub(super) fn stored_attr(&self, draft: &Draft) -> Option<StoredAttr> {
        Some(self.lock().attr.as_ref()?.current(draft))
    }

    /// The attributes with which it was published, if the mount keeps them.
    pub(crate) fn published_attr(&self) -> Option<StoredAttr> {
        Some(self.lock().attr.as_ref()?.published)
    }

    /// Applies attributes that a program sets at the time `now`.
    pub(crate) fn change_attr(&self, change: AttrChange, now: SystemTime) {
        let mut state = self.lock();
        let draft: Arc<Draft> = state.draft.clone();
        let Some(attr) = &mut state.attr else { return };
        let current = attr.current(&draft);
        if change.mtime.is_some() || attr.stored.mtime.is_some() {
            attr.set_at = draft.modified();
            attr.stored.mtime = current.mtime;
        }
        let changed = change.applied_to(attr.stored, now);
        if changed == attr.stored {
            return;
        }
        attr.stored = changed;
        let (_, metadata) = attr.metadata(&draft);
        draft.change_metadata(metadata);
    }

    /// Sets the metadata of the object for its next publication.
    pub(crate) fn describe(&self) {
        let mut state = self.lock();
        let draft = state.draft.clone();
        if let Some(attr) = state.attr.as_mut().filter(|_| draft.is_dirty()) {
            let (current, metadata) = attr.metadata(&draft);
            draft.set_metadata(metadata);
            attr.published = current;
        }
    }

    /// Publishes the draft with its attributes.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub(crate) async fn publish(&self) -> Result<Published, WriteError> {
        self.describe();
        self.draft().publish().await
    }
}
