//! What can go wrong with a list, and with its index.

use std::io;
use std::path::Path;

use s3mount_object::ObjectError;

/// Why there are no names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListedError {
    /// What is in the list is wrong.
    #[error("{place}: {what}")]
    Wrong {
        /// The file, and the line or the row in it.
        place: String,
        /// What is wrong there, and what to do.
        what: String,
    },
    /// A file can't be read or written.
    #[error("cannot {action}")]
    File {
        /// What was tried, with which file.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The store did not give the list.
    #[error("cannot read {place}")]
    Store {
        /// The URL of the object.
        place: String,
        /// Why it failed.
        source: ObjectError,
    },
    /// The file of an index is not what was written.
    #[error("the index is damaged: {0}")]
    Damaged(&'static str),
}

impl ListedError {
    /// What is in the list is wrong, at `place`.
    pub(crate) fn wrong(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Wrong { place: place.into(), what: what.into() }
    }

    /// Turns the error of an action on a file into one that names both: `"read"` and the path.
    pub(crate) fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let action = format!("{action} {}", path.display());
        move |source| Self::File { action, source }
    }
}
