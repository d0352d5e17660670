//! The attributes of a file that is being written.

use std::time::SystemTime;

use s3mount_object::UserMetadata;
use s3mount_write::{Draft, forget_bytes};

use super::stored::{StoredAttr, seconds};

/// The attributes of a draft.
#[derive(Debug)]
pub(crate) struct DraftAttr {
    /// The attributes that were set, or those of its version.
    pub(crate) stored: StoredAttr,
    /// The time of change in `stored` is valid as long as the last change of the bytes was at this time.
    pub(crate) set_at: SystemTime,
    /// Other metadata of the object, which stays.
    pub(crate) others: UserMetadata,
    /// The attributes of the last publication.
    pub(crate) published: StoredAttr,
}

impl DraftAttr {
    /// The present attributes.
    pub(crate) fn current(&self, draft: &Draft) -> StoredAttr {
        let modified = draft.modified();
        let mtime = self.stored.mtime.filter(|_| modified == self.set_at);
        StoredAttr { mtime: mtime.or(Some(seconds(modified))), ..self.stored }
    }

    /// The metadata for the object.
    pub(crate) fn metadata(&self, draft: &Draft) -> (StoredAttr, UserMetadata) {
        let mut current = self.current(draft);
        if draft.is_uploading() && (self.stored.mtime.is_none() || draft.modified() != self.set_at) {
            // The object gets the attributes from the beginning of its upload, which had another time. The time alone
            // is not worth a copy: the store has the time of the upload.
            current.mtime = None;
        }
        let mut metadata = self.others.clone();
        if draft.modified() != self.set_at {
            forget_bytes(&mut metadata);
        }
        current.put_into(&mut metadata);
        (current, metadata)
    }
}
