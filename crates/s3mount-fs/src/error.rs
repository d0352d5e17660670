//! What an operation can fail with, and which errno that is.

use std::sync::Arc;
use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectError};
use s3mount_prefetch::ReadError;

use crate::{FileHandle, InodeNo};

/// A failed operation.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// There is nothing of this name.
    #[error("no such file or directory")]
    NotFound,
    /// The kernel names an inode that it was not given, or has given back.
    #[error("unknown inode {0}")]
    UnknownInode(InodeNo),
    /// The kernel names a handle that it was not given, or has given back.
    #[error("unknown handle {0}")]
    BadHandle(FileHandle),
    /// A file where a directory is needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory where a file is needed.
    #[error("is a directory")]
    IsDirectory,
    /// The mount never writes.
    #[error("the mount is read-only")]
    ReadOnly,
    /// The store failed a request for metadata.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The store gave no answer about metadata in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// A READ that only fills the kernel's page cache is not wanted in this size.
    #[error("refused: the kernel asks for what is wanted of it")]
    Refused,
    /// The name of the inode stands for something else by now.
    #[error("the name stands for another version")]
    Outdated,
    /// The version that was opened is gone, whichever way the store says so.
    #[error("the object was deleted or replaced")]
    Stale {
        /// The directory and the name that it was found under, unless the kernel has forgotten the inode.
        place: Option<(InodeNo, Arc<str>)>,
        /// What the store said.
        source: ReadError,
    },
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl FsError {
    /// The errno that a caller of the kernel sees.
    pub fn errno(&self) -> i32 {
        match self {
            FsError::NotFound => libc::ENOENT,
            FsError::UnknownInode(_) | FsError::BadHandle(_) => libc::EBADF,
            FsError::NotDirectory => libc::ENOTDIR,
            FsError::IsDirectory => libc::EISDIR,
            FsError::ReadOnly => libc::EROFS,
            FsError::Refused => libc::EIO,
            FsError::Object(error) => errno_of(error.kind()),
            FsError::TimedOut(_) | FsError::Read(ReadError::TimedOut(_)) => libc::ETIMEDOUT,
            FsError::Outdated | FsError::Stale { .. } => libc::ESTALE,
            FsError::Read(ReadError::Object(error)) => errno_of(error.kind()),
            FsError::Read(
                ReadError::Corrupt { .. } | ReadError::CorruptPart { .. } | ReadError::Changed { .. },
            ) => libc::EIO,
        }
    }

    /// Whether wrong bytes of the file came, so that what the kernel holds of it has to go.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, FsError::Read(error) if error.is_corrupt())
    }

    /// Whether it tells of trouble with the store, which belongs into the log, and not of what
    /// the caller did.
    pub fn is_trouble(&self) -> bool {
        match self {
            FsError::NotFound
            | FsError::NotDirectory
            | FsError::IsDirectory
            | FsError::ReadOnly
            | FsError::Refused
            | FsError::Outdated => false,
            FsError::UnknownInode(_)
            | FsError::BadHandle(_)
            | FsError::Object(_)
            | FsError::TimedOut(_)
            | FsError::Stale { .. }
            | FsError::Read(_) => true,
        }
    }
}

fn errno_of(kind: &ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound | ErrorKind::NoSuchBucket => libc::ENOENT,
        ErrorKind::Forbidden
        | ErrorKind::NoCredentials
        | ErrorKind::StaleCredentials
        | ErrorKind::BadCredentials => libc::EACCES,
        ErrorKind::PreconditionFailed | ErrorKind::RangeNotSatisfiable => libc::ESTALE,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Cancelled => libc::EINTR,
        ErrorKind::NoEtag
        | ErrorKind::Archived
        | ErrorKind::WrongRegion(_)
        | ErrorKind::Throttled
        | ErrorKind::Server
        | ErrorKind::Network
        | ErrorKind::Tls
        | ErrorKind::Integrity
        | ErrorKind::Rejected => libc::EIO,
    }
}
