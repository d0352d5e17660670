//! Attributes of inodes.

use std::time::{Duration, SystemTime};

use crate::numbers::InodeNo;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// How long the kernel may believe the attributes of an inode that stands for one version of an object, for a
/// directory, or for a file of the daemon's own: they do not change, so they hold as long as it knows the inode.
pub(crate) const FIXED_ATTR_TTL: Duration = Duration::from_secs(86_400);

/// What `stat` tells, as far as it differs from inode to inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode.
    pub ino: InodeNo,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// When this version was written; for a directory, when it was mounted.
    pub mtime: SystemTime,
    /// Permission bits, where they are not those of all files or directories.
    pub mode: Option<u16>,
    /// How long the kernel may believe these attributes.
    pub ttl: Duration,
}

/// A name and what it stands for, as the kernel is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its attributes.
    pub attr: Attr,
    /// How long the kernel may believe that the name stands for this inode.
    pub name_ttl: Duration,
}
