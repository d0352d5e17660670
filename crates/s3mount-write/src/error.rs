//! Why a write failed.

use std::sync::Arc;
use std::time::Duration;

use s3mount_object::ObjectError;

/// Why a call of a draft failed.
///
/// What is lost stays lost: after a write or a publication that failed, each later call but reads fails by
/// [`Failed`](Self::Failed) until the draft is discarded. So no `close` can tell of a success that was none.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The store refused a request, or did not answer it.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The bytes around a change are only in the store, in an upload that is not complete. They can't be had
    /// back from there.
    #[error("the bytes at {offset} were uploaded and are not kept: changing them needs a spool")]
    NotPatchable {
        /// Where the change begins.
        offset: u64,
    },
    /// The bytes to read are only in the store, in an upload that is not complete. This fails the read, and
    /// nothing else.
    #[error("the bytes at {offset} were uploaded and are not kept: reading them needs a spool")]
    NotReadable {
        /// Where these bytes begin.
        offset: u64,
    },
    /// Something failed before, and the draft can't be published any more.
    #[error("an earlier write failed: {0}")]
    Failed(#[source] Arc<WriteError>),
    /// No memory became free in time.
    #[error("no memory within {0:?}")]
    OutOfMemory(Duration),
    /// The spool has reached its limit or its disk is full, and no memory became free in time.
    #[error("the spool is full")]
    OutOfSpool,
    /// Bytes can't be read back from the spool.
    #[error("the spool can't be read")]
    Spool(#[source] std::io::Error),
    /// The file would be longer than an object can be.
    #[error("no object can be as long as {size} bytes")]
    TooLarge {
        /// The length that the file would have, in bytes.
        size: u64,
    },
    /// The draft was discarded.
    #[error("the file was given up")]
    Discarded,
    /// The store did not do what was asked for in time.
    #[error("not done within {0:?}")]
    TimedOut(Duration),
}
