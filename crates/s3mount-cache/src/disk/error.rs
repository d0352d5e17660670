//! Why a directory can't be used as a cache.

use std::io;
use std::path::PathBuf;

/// Why a directory can't be used as a cache. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// An operation failed.
    #[error(
        "cannot {operation} {path:?} for the disk cache: {source}; choose another --cache DIR, or make this one accessible"
    )]
    Io {
        /// What was to be done.
        operation: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The path is not a directory.
    #[error("--cache {0:?} is not a directory; give the path of a directory, or of one that can be created")]
    NotADirectory(PathBuf),
    /// Neither the directory exists nor the one above it.
    #[error("--cache {0:?} does not exist, and neither does the directory above it; create that first")]
    NoParent(PathBuf),
    /// The directory belongs to another user.
    #[error(
        "--cache {path:?} belongs to user {owner}, and this process runs as user {user}; give a directory of that user"
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// The user who owns it.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Other users may read or write the directory.
    #[error(
        "--cache {path:?} is open to other users (mode {mode:o}), who could read the bucket's data; run `chmod 700 {}`",
        path.display()
    )]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The directory holds something else.
    #[error("--cache {0:?} is not empty and is not a cache of s3mount; give an empty directory")]
    NotOurs(PathBuf),
    /// The directory is a cache of another layout.
    #[error(
        "--cache {path:?} has the layout {layout:?}, which this version of s3mount does not know; give another directory, or delete this one"
    )]
    Layout {
        /// The directory.
        path: PathBuf,
        /// What its marker file says.
        layout: String,
    },
    /// The directory is a cache of an unknown layout.
    #[error(
        "--cache {path:?} is a cache whose marker file is damaged; delete {marker:?}, and it is used again"
    )]
    Marker {
        /// The directory.
        path: PathBuf,
        /// Its marker file.
        marker: PathBuf,
    },
    /// No directory was given.
    #[error("no directory was given for the disk cache; give one with --cache DIR")]
    NoDirectory,
}

impl DiskError {
    pub(crate) fn io(operation: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), source }
    }
}
