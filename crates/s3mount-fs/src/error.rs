//! The errors of operations, and the errno of each.

use std::sync::Arc;
use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectError};
use s3mount_outbox::OutboxError;
use s3mount_prefetch::{ReadError, WarmError};
use s3mount_write::{CopyError, WriteError};

use crate::{FileHandle, InodeNo};
use s3mount_names::NamesError;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// Nothing has this name.
    #[error("no such file or directory")]
    NotFound,
    /// The kernel does not know this inode, or has forgotten it.
    #[error("unknown inode {0}")]
    UnknownInode(InodeNo),
    /// Nothing is open under this handle.
    #[error("unknown handle {0}")]
    BadHandle(FileHandle),
    /// The inode is a file, and the operation needs a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The inode is a directory, and the operation needs a file.
    #[error("is a directory")]
    IsDirectory,
    /// The mount writes no objects, or the name is reserved for the daemon.
    #[error("the mount is read-only")]
    ReadOnly,
    /// The mount may not do this to an existing object.
    #[error("the mount needs {0} for this")]
    NotAllowed(&'static str),
    /// The mount's events have the most listeners that they may have.
    #[error("the events of the mount have too many listeners")]
    TooManyListeners,
    /// The inode is no symbolic link.
    #[error("not a symbolic link")]
    NotLink,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// The folder is not empty.
    #[error("directory not empty")]
    NotEmpty,
    /// The name is too long for a file, or the key for an object.
    #[error("file name too long")]
    NameTooLong,
    /// The objects below a folder can only be copied one by one.
    #[error("objects below a folder are not renamed")]
    CrossDevice,
    /// What was written earlier could not be published after `close` had returned.
    #[error("what was written and closed before is not stored: {0}")]
    Lost(#[source] Arc<FsError>),
    /// The file waits in the outbox, and is not uploaded until somebody decides.
    #[error("it waits in the outbox until somebody decides (s3mount pending): {0}")]
    Undecided(String),
    /// The outbox can't make durable what it was told.
    #[error("the outbox")]
    Outbox(#[from] OutboxError),
    /// The daemon that had the file open is gone, and with it bytes of the file that only it had.
    #[error("the daemon that had the file open is gone, and the bytes that only it had with it")]
    LostDaemon,
    /// The bytes are not copied: the caller has to read and write them.
    #[error("not copied: read and write the bytes instead")]
    NotCopied,
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A copy inside the store failed.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The store failed a request for metadata.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The store did not answer a request for metadata in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The store lists in no order, and the names of the folder don't fit this much memory, in bytes.
    #[error("the names of the folder need more than {0} bytes to be sorted: raise --metadata-limit")]
    TooManyNames(usize),
    /// The filesystem does not serve this READ, because it would fill the kernel's page cache with more than its caller
    /// wants.
    #[error("refused: the kernel reads single pages instead")]
    Refused,
    /// The name of the inode has another version by now, or is gone.
    #[error("the name has another version now")]
    Outdated,
    /// The version that was opened is gone. Stores report that in several ways.
    #[error("the object was deleted or replaced")]
    Stale {
        /// The inode's directory and its name there, unless the kernel has forgotten the inode.
        parent_and_name: Option<(InodeNo, Arc<str>)>,
        /// The store's answer.
        source: ReadError,
    },
    /// A read of an object failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The disk cache can't keep a file.
    #[error(transparent)]
    Warm(WarmError),
    /// What was written to one of the daemon's own files is no number of bytes.
    #[error("not a number of bytes")]
    NotNumber,
}

impl From<NamesError> for FsError {
    fn from(error: NamesError) -> Self {
        match error {
            NamesError::NotFound => FsError::NotFound,
            NamesError::IsDirectory => FsError::IsDirectory,
            NamesError::Object(error) => FsError::Object(error),
            NamesError::TimedOut(limit) => FsError::TimedOut(limit),
            NamesError::TooManyNames(limit) => FsError::TooManyNames(limit),
        }
    }
}

impl From<WarmError> for FsError {
    fn from(error: WarmError) -> Self {
        match error {
            WarmError::Read(error) => FsError::Read(error),
            error @ (WarmError::NoCache | WarmError::LeftOut | WarmError::NoRoom) => FsError::Warm(error),
        }
    }
}

impl FsError {
    /// The errno that a caller of the kernel sees.
    pub fn errno(&self) -> i32 {
        match self {
            FsError::NotFound => libc::ENOENT,
            FsError::BadHandle(_) => libc::EBADF,
            FsError::NotDirectory => libc::ENOTDIR,
            FsError::IsDirectory => libc::EISDIR,
            FsError::ReadOnly => libc::EROFS,
            FsError::NotAllowed(_) => libc::EPERM,
            FsError::TooManyListeners => libc::EBUSY,
            FsError::NotLink | FsError::NotNumber => libc::EINVAL,
            FsError::Exists => libc::EEXIST,
            FsError::NotEmpty => libc::ENOTEMPTY,
            FsError::NameTooLong => libc::ENAMETOOLONG,
            FsError::TooManyNames(_) => libc::ENOMEM,
            FsError::CrossDevice => libc::EXDEV,
            FsError::Write(error) => errno_of_write(error),
            FsError::Copy(error) => errno_of_copy(error),
            FsError::Lost(_)
            | FsError::LostDaemon
            | FsError::Undecided(_)
            | FsError::Outbox(_)
            | FsError::Refused
            | FsError::Warm(WarmError::Read(_)) => libc::EIO,
            FsError::NotCopied | FsError::Warm(WarmError::NoCache) => libc::EOPNOTSUPP,
            FsError::Warm(WarmError::LeftOut) => libc::EPERM,
            FsError::Warm(WarmError::NoRoom) => libc::ENOSPC,
            FsError::Object(error) => errno_of(error.kind()),
            FsError::TimedOut(_) | FsError::Read(ReadError::TimedOut(_)) => libc::ETIMEDOUT,
            // The kernel looks the name up again.
            FsError::UnknownInode(_) | FsError::Outdated | FsError::Stale { .. } => libc::ESTALE,
            FsError::Read(ReadError::Object(error)) => errno_of(error.kind()),
            FsError::Read(
                ReadError::Corrupt { .. } | ReadError::CorruptPart { .. } | ReadError::Changed { .. },
            ) => libc::EIO,
        }
    }

    /// Whether the store sent wrong bytes. Then the kernel has to drop its pages of the file.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, FsError::Read(error) if error.is_corrupt())
    }

    /// Whether to log the error: its cause is trouble with the store, not the caller's request.
    pub fn is_trouble(&self) -> bool {
        match self {
            FsError::NotFound
            | FsError::NotDirectory
            | FsError::IsDirectory
            | FsError::ReadOnly
            | FsError::NotAllowed(_)
            | FsError::TooManyListeners
            | FsError::NotLink
            | FsError::Exists
            | FsError::NotEmpty
            | FsError::NameTooLong
            | FsError::CrossDevice
            | FsError::NotCopied
            // It was logged when it happened.
            | FsError::Write(WriteError::Failed(_))
            | FsError::Refused
            | FsError::LostDaemon
            // The kernel looks the name up again.
            | FsError::UnknownInode(_)
            | FsError::Outdated
            | FsError::NotNumber
            | FsError::Warm(_) => false,
            FsError::BadHandle(_)
            | FsError::Object(_)
            | FsError::TimedOut(_)
            | FsError::TooManyNames(_)
            | FsError::Stale { .. }
            | FsError::Lost(_)
            | FsError::Undecided(_)
            | FsError::Outbox(_)
            | FsError::Write(_)
            | FsError::Copy(_)
            | FsError::Read(_) => true,
        }
    }
}

fn errno_of_write(error: &WriteError) -> i32 {
    match error {
        // The version that the file was made of is gone.
        WriteError::Object(error) if *error.kind() == ErrorKind::NotFound => libc::ESTALE,
        WriteError::Object(error) => errno_of(error.kind()),
        WriteError::SourceGone(_) => libc::ESTALE,
        WriteError::NeedsSpool | WriteError::NotPatchable { .. } | WriteError::NotReadable { .. } => {
            libc::EINVAL
        }
        WriteError::Failed(first) => errno_of_write(first),
        WriteError::Discarded | WriteError::Spool(_) | WriteError::Damaged => libc::EIO,
        WriteError::OutOfMemory(_) => libc::ENOMEM,
        WriteError::OutOfSpool => libc::ENOSPC,
        WriteError::TooLarge { .. } => libc::EFBIG,
        WriteError::TimedOut(_) => libc::ETIMEDOUT,
    }
}

fn errno_of_copy(error: &CopyError) -> i32 {
    match error {
        CopyError::SourceChanged { .. } | CopyError::Taken { .. } => libc::ESTALE,
        CopyError::Differs { .. } => libc::EIO,
        CopyError::TooLong { .. } => libc::EFBIG,
        CopyError::Object(error) => errno_of(error.kind()),
    }
}

fn errno_of(kind: &ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::Forbidden
        | ErrorKind::NoCredentials
        | ErrorKind::StaleCredentials
        | ErrorKind::BadCredentials => libc::EACCES,
        ErrorKind::PreconditionFailed | ErrorKind::RangeNotSatisfiable | ErrorKind::Conflict => libc::ESTALE,
        ErrorKind::TooLarge => libc::EFBIG,
        ErrorKind::NoSpace => libc::ENOSPC,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Cancelled => libc::EINTR,
        // A program that gets ENOENT would make a new file.
        ErrorKind::NoSuchBucket
        | ErrorKind::NoEtag
        | ErrorKind::Archived
        | ErrorKind::WrongRegion(_)
        | ErrorKind::Throttled
        | ErrorKind::Server
        | ErrorKind::Network
        | ErrorKind::Tls
        | ErrorKind::Integrity
        | ErrorKind::Unsupported
        | ErrorKind::NoSuchUpload
        | ErrorKind::InvalidPart
        | ErrorKind::BadChecksum
        | ErrorKind::Rejected => libc::EIO,
    }
}
