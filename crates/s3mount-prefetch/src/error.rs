//! Why a read failed.

use std::sync::Arc;
use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectError};

/// A failed read. Cheap to clone: every reader that waited for the same GET gets the same one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The store failed it, after retries where those could help.
    #[error(transparent)]
    Object(#[from] Arc<ObjectError>),
    /// No answer in time, retries included.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

impl ReadError {
    /// Whether the version that was opened is gone: deleted, or replaced by another.
    pub fn is_stale(&self) -> bool {
        match self {
            ReadError::Object(error) => matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::PreconditionFailed | ErrorKind::RangeNotSatisfiable
            ),
            ReadError::TimedOut(_) => false,
        }
    }
}
