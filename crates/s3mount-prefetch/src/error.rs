//! Why a read failed.

use std::sync::Arc;
use std::time::Duration;

use s3mount_object::{ByteRange, ErrorKind, ObjectChecksum, ObjectError};

/// A failed read. Cheap to clone: every reader that waited for the same GET gets the same error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The store returned an error, after retries where retries could help.
    #[error(transparent)]
    Object(#[from] Arc<ObjectError>),
    /// No answer came within the read time-out, retries included.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// All bytes of the object have been fetched, and their checksum differs from the store's.
    #[error("the object has the checksum {came}, and the store keeps {kept}")]
    Corrupt {
        /// The checksum that the store keeps.
        kept: ObjectChecksum,
        /// The checksum of the bytes that came.
        came: ObjectChecksum,
    },
    /// All bytes of one part of the upload have been fetched, and their checksum differs from the store's.
    #[error("part {part}, {range}, has the checksum {came}, and the store keeps {kept}")]
    CorruptPart {
        /// The part's number; the first one has 1.
        part: usize,
        /// The part's byte range.
        range: ByteRange,
        /// The checksum that the store keeps.
        kept: ObjectChecksum,
        /// The checksum of the bytes that came.
        came: ObjectChecksum,
    },
    /// A range of the object was fetched twice, with different bytes.
    #[error("a range had the checksum {then}, and has {now}")]
    Changed {
        /// The checksum of the bytes that came first.
        then: ObjectChecksum,
        /// The checksum of the bytes that came now.
        now: ObjectChecksum,
    },
}

impl ReadError {
    /// Whether the version that was opened is gone: deleted, or replaced by another.
    pub fn is_stale(&self) -> bool {
        match self {
            ReadError::Object(error) => matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::PreconditionFailed | ErrorKind::RangeNotSatisfiable
            ),
            ReadError::TimedOut(_)
            | ReadError::Corrupt { .. }
            | ReadError::CorruptPart { .. }
            | ReadError::Changed { .. } => false,
        }
    }

    /// Whether bytes of the version were wrong, and readers may have seen them.
    pub fn is_corrupt(&self) -> bool {
        match self {
            ReadError::Corrupt { .. } | ReadError::CorruptPart { .. } | ReadError::Changed { .. } => true,
            ReadError::Object(_) | ReadError::TimedOut(_) => false,
        }
    }
}
