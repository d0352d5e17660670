//! The folder `.s3mount` at the root of a mount: what the daemon tells of itself, as files.
//!
//! It is not listed, and only the owner of the mount can look into it.

use serde::Serialize;

use crate::inode::{FileKind, InodeNo};

/// Name of the folder.
pub(crate) const NAME: &str = ".s3mount";

/// What is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The folder itself.
    Folder,
    /// The counters and gauges, as JSON.
    Stats,
    /// Takes hints of what will be read.
    Prefetch,
}

/// The first inode number that a directory or an object may have.
pub(crate) const FIRST_FREE: InodeNo = 16;

/// The files of the folder.
pub(crate) const FILES: [(&str, Control); 2] = [("prefetch", Control::Prefetch), ("stats", Control::Stats)];

impl Control {
    /// What the number stands for, if it is one of these.
    pub(crate) fn of(ino: InodeNo) -> Option<Self> {
        [Self::Folder, Self::Stats, Self::Prefetch].into_iter().find(|control| control.ino() == ino)
    }

    /// The file of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        FILES.into_iter().find(|(file, _)| *file == name).map(|(_, control)| control)
    }

    pub(crate) fn ino(self) -> InodeNo {
        match self {
            Control::Folder => 2,
            Control::Stats => 3,
            Control::Prefetch => 4,
        }
    }

    pub(crate) fn kind(self) -> FileKind {
        match self {
            Control::Folder => FileKind::Directory,
            Control::Stats | Control::Prefetch => FileKind::File,
        }
    }

    /// Permission bits: the owner's alone.
    pub(crate) fn mode(self) -> u16 {
        match self {
            Control::Folder => 0o500,
            Control::Stats => 0o400,
            Control::Prefetch => 0o200,
        }
    }
}

/// Counters since the mount, and gauges, as `.s3mount/stats` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FsStats {
    /// Reads answered or failed.
    pub reads: u64,
    /// Of these, the ones whose bytes were not there yet.
    pub waits: u64,
    /// Bytes asked for by readers.
    pub read_bytes: u64,
    /// GETs that succeeded.
    pub get_requests: u64,
    /// Bytes these brought.
    pub fetched_bytes: u64,
    /// Second GETs, sent because the first were slow.
    pub hedges: u64,
    /// Versions that were fetched in parts and had their checksum (`--verify whole`).
    pub objects_verified: u64,
    /// Versions that could not be compared with a checksum.
    pub objects_unverified: u64,
    /// Versions of which wrong bytes came.
    pub objects_corrupt: u64,
    /// GETs that brought wrong bytes, and were sent again before a reader got any of these.
    pub refetches: u64,
    /// LISTs that succeeded.
    pub list_requests: u64,
    /// Keys in listings that can't be shown, counting repeats.
    pub hidden_keys: u64,
    /// Memory that known names take, in bytes.
    pub metadata_bytes: usize,
    /// Hints that wait to be fetched.
    pub hints_queued: usize,
    /// Hints that are fetched ahead and not read yet.
    pub hints_ahead: usize,
    /// Hints that named nothing that can be fetched, or were too many.
    pub hints_refused: u64,
    /// Open files.
    pub open_files: usize,
    /// Open folders.
    pub open_folders: usize,
    /// Inodes that the kernel knows.
    pub inodes: usize,
    /// `--memory-limit`, in bytes.
    pub memory_limit_bytes: u64,
    /// What is taken of it now.
    pub memory_used_bytes: u64,
    /// The most that was ever taken.
    pub memory_peak_bytes: u64,
    /// Files that are known to be read at random through maps.
    pub random_map_files: usize,
    /// READs around faults that were refused, so that only the pages that are wanted are fetched.
    pub refused_readaheads: u64,
    /// Files that were opened around the page cache by `--direct-io auto`.
    pub direct_opens: u64,
    /// Kinds of files (a folder and an extension) that are all opened so now.
    pub direct_kinds: usize,
    /// How often a kind went back to the page cache because its readers asked for small pieces.
    pub direct_given_up_small_pieces: u64,
    /// The same, because it was mapped.
    pub direct_given_up_mapped: u64,
    /// The same, because several readers had the same file open at once.
    pub direct_given_up_shared: u64,
    /// The same, because files were read again that the page cache could hold.
    pub direct_given_up_again: u64,
}
