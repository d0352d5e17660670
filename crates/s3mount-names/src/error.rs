//! The errors of names.

use std::time::Duration;

use s3mount_object::ObjectError;

/// Why a name can't be looked up.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// Nothing has this name.
    #[error("no such file or directory")]
    NotFound,
    /// The name is a directory, and a file was asked for.
    #[error("is a directory")]
    IsDirectory,
    /// The store failed a request.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The store did not answer a request in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The store lists in no order, and the names of the directory don't fit this much memory, in bytes.
    #[error("the names of the folder need more than {0} bytes to be sorted")]
    TooManyNames(usize),
}
