//! Why a write failed.

use std::sync::Arc;
use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectError};

/// Why a call of a draft failed.
///
/// Losses are final: after a failed write or publication, each later call except reads fails with
/// [`Failed`](Self::Failed) until the draft is discarded. So no `close` can report a false success.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The store refused a request, or did not answer it.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The version that bytes are copied from is no more: somebody has replaced or deleted the object.
    #[error("the object that bytes are copied from was replaced or deleted")]
    SourceGone(#[source] ObjectError),
    /// The bytes around a change are only in the store, in an upload that is not complete. They can't be had
    /// back from there.
    #[error("the bytes at {offset} were uploaded and are not kept: changing them needs --write-spool")]
    NotPatchable {
        /// Where the change begins.
        offset: u64,
    },
    /// The bytes to read are only in the store, in an upload that is not complete. This fails the read, and
    /// nothing else.
    #[error("the bytes at {offset} were uploaded and are not kept: reading them needs --write-spool")]
    NotReadable {
        /// Where these bytes begin.
        offset: u64,
    },
    /// A file that is not written from front to back does not fit the memory, and there is no spool.
    #[error("a file that is not written from front to back does not fit the memory: it needs --write-spool")]
    NeedsSpool,
    /// Something failed before, and the draft can't be published any more.
    #[error("an earlier write failed: {0}")]
    Failed(#[source] Arc<WriteError>),
    /// No memory became free within this time.
    #[error("no memory within {0:?}")]
    OutOfMemory(Duration),
    /// The spool has reached its limit or its disk is full, and no memory became free in time.
    #[error("the spool is full")]
    OutOfSpool,
    /// Bytes can't be read back from the spool.
    #[error("the spool can't be read")]
    Spool(#[source] std::io::Error),
    /// The bytes that others keep of the file can't be read, or are not those that they were given.
    #[error("the bytes that wait on the disk are damaged")]
    Damaged,
    /// The file would be longer than 10,000 parts that fit the memory.
    #[error(
        "{size} bytes need more parts than S3 takes: longer parts need a larger --memory-limit or --write-part-size"
    )]
    TooLarge {
        /// The length that the file would have, in bytes.
        size: u64,
    },
    /// The draft was discarded.
    #[error("the file was given up")]
    Discarded,
    /// The store did not finish within this time.
    #[error("not done within {0:?}")]
    TimedOut(Duration),
}

impl WriteError {
    /// Whether the store has another version at the key than the one that may be replaced, or none.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Object(error) => {
                matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::NotFound)
            }
            Self::Failed(first) => first.is_conflict(),
            Self::SourceGone(_) => true,
            _ => false,
        }
    }

    /// Whether the store has refused what was sent, for a reason that stays, or what is to be sent is damaged.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Object(_) => !self.may_pass(),
            Self::Failed(first) => first.is_refusal(),
            Self::SourceGone(_) | Self::Damaged => true,
            _ => false,
        }
    }

    /// Whether the same publication may succeed later, with nothing changed but the store, the network, the
    /// credentials, or the memory that is free.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Object(error) => match error.kind() {
                ErrorKind::NoCredentials
                | ErrorKind::BadCredentials
                | ErrorKind::StaleCredentials
                | ErrorKind::Throttled
                | ErrorKind::Server
                | ErrorKind::Network
                | ErrorKind::Tls
                | ErrorKind::TimedOut
                | ErrorKind::Integrity
                | ErrorKind::Cancelled
                | ErrorKind::Conflict
                | ErrorKind::NoSuchUpload
                | ErrorKind::InvalidPart
                | ErrorKind::BadChecksum => true,
                ErrorKind::NotFound
                | ErrorKind::NoSuchBucket
                | ErrorKind::Forbidden
                | ErrorKind::PreconditionFailed
                | ErrorKind::RangeNotSatisfiable
                | ErrorKind::NoEtag
                | ErrorKind::Archived
                | ErrorKind::WrongRegion(_)
                | ErrorKind::Unsupported
                | ErrorKind::TooLarge
                | ErrorKind::NoSpace
                | ErrorKind::Rejected => false,
            },
            Self::OutOfMemory(_) | Self::TimedOut(_) => true,
            Self::SourceGone(_)
            | Self::NotPatchable { .. }
            | Self::NotReadable { .. }
            | Self::NeedsSpool
            | Self::Failed(_)
            | Self::OutOfSpool
            | Self::Spool(_)
            | Self::Damaged
            | Self::TooLarge { .. }
            | Self::Discarded => false,
        }
    }

    /// The error of a request for the bytes of a version.
    pub(crate) fn of_source(error: ObjectError) -> Self {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::PreconditionFailed | ErrorKind::RangeNotSatisfiable => {
                Self::SourceGone(error)
            }
            _ => Self::Object(error),
        }
    }
}
