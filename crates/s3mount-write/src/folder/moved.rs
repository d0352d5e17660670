//! What became of a folder's objects.

use std::time::SystemTime;

use s3mount_object::{ObjectError, ObjectId};

use crate::copier::CopyError;

/// Why a folder could not be moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The store refused a request, or did not answer it.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The folder holds more objects than may be moved.
    #[error("more than {0} objects")]
    TooMany(usize),
    /// A key would be longer than S3 takes.
    #[error("the key {0:?} would be too long")]
    KeyTooLong(String),
    /// Another writer has written an object where a copy was to be made.
    #[error("an object is at {0:?} already")]
    Taken(String),
    /// The store lacks a copy that it reported as made.
    #[error("the copy at {0:?} is not there")]
    Lost(String),
    /// An object could not be copied in parts.
    #[error(transparent)]
    Parts(#[from] CopyError),
}

/// An object, and its copy at another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The object.
    pub from: ObjectId,
    /// Its copy.
    pub to: ObjectId,
    /// How many bytes it has.
    pub size: u64,
    /// When the object was written.
    pub modified: SystemTime,
    /// Whether a daemon before has deleted the object. Then the ETag of `from` is that of the copy, for want of its own.
    pub was_gone: bool,
}

impl Moved {
    /// The way back: the copy is the object, and the object its copy.
    #[must_use]
    pub fn back(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }
}
