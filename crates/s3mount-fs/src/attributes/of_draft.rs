//! The attributes of a file that is being written.

use std::time::SystemTime;

use s3mount_object::UserMetadata;
use s3mount_write::{Draft, forget_bytes};

use super::stored::{StoredAttr, seconds};

/// The attributes of a draft.
#[derive(Debug)]
pub(crate) struct DraftAttr {
    /// Those that were set, or that its version has.
    pub(crate) stored: StoredAttr,
    /// The time of change that `stored` says holds as long as the bytes were changed at this time last.
    pub(crate) set_at: SystemTime,
    /// Other text beside the object, which stays.
    pub(crate) others: UserMetadata,
    /// What was said at the last publication.
    pub(crate) published: StoredAttr,
}

impl DraftAttr {
    /// The attributes now.
    pub(crate) fn current(&self, draft: &Draft) -> StoredAttr {
        let modified = draft.modified();
        let mtime = self.stored.mtime.filter(|_| modified == self.set_at);
        StoredAttr { mtime: mtime.or(Some(seconds(modified))), ..self.stored }
    }

    /// The text for the object.
    pub(crate) fn metadata(&self, draft: &Draft) -> (StoredAttr, UserMetadata) {
        let mut current = self.current(draft);
        if draft.is_uploading() && (self.stored.mtime.is_none() || draft.modified() != self.set_at) {
            // The object gets what was said when its upload began, and that was not this time. Another time is not
            // worth a copy: the store has the time of the upload.
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
