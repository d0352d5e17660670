//! Marker objects for folders. Their keys end in `/`, and they have no bytes.

use s3mount_object::{Condition, ErrorKind, NewObject};
use s3mount_write::WriteError;

use super::Filesystem;
use crate::FsError;
use crate::attributes::stored::{StoredAttr, seconds};

/// The media type by which other programs recognise such objects.
const FOLDER: &str = "application/x-directory";

impl Filesystem {
    /// Makes an object for each new folder, so that other mounts see it while it is empty.
    #[must_use]
    pub fn with_folder_markers(mut self) -> Self {
        self.writing.has_folder_markers = true;
        self
    }

    /// Writes the marker of a new folder, if folders have any.
    pub(super) async fn put_marker(&self, key: &str, attr: StoredAttr) -> Result<(), FsError> {
        if !self.writing.has_folder_markers {
            return Ok(());
        }
        let mut object = NewObject { content_type: Some(FOLDER.to_owned()), ..self.new_object("") };
        if let Some(attrs) = &self.attributes.kept {
            StoredAttr { mtime: Some(seconds(attrs.now())), ..attr }.put_into(&mut object.metadata);
        }
        let draft = self.writer()?.create(key, object);
        draft.set_condition(Some(Condition::Absent));
        match draft.publish().await {
            Err(WriteError::Failed(error)) if is_there(&error) => Err(FsError::Exists),
            published => Ok(published.map(drop)?),
        }
    }
}

fn is_there(error: &WriteError) -> bool {
    matches!(error, WriteError::Object(error) if *error.kind() == ErrorKind::PreconditionFailed)
}
