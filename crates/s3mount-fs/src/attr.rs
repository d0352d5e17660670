//! Attributes of inodes.

use std::time::{Duration, SystemTime};

use crate::numbers::InodeNo;
use s3mount_names::NameKind;

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
}

impl From<NameKind> for FileKind {
    fn from(kind: NameKind) -> Self {
        match kind {
            NameKind::Directory => FileKind::Directory,
            NameKind::File => FileKind::File,
        }
    }
}

/// How long the kernel may cache the attributes of an inode that refers to one version of an object, to a directory, or
/// to one of the daemon's own files. They do not change, so the kernel may cache them as long as it knows the inode.
pub(crate) const FIXED_ATTR_TTL: Duration = Duration::from_secs(86_400);

/// The attributes that `stat` shows, without those that all inodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode.
    pub ino: InodeNo,
    /// Its type.
    pub kind: FileKind,
    /// The size in bytes. A directory has 0.
    pub size: u64,
    /// When this version was written. For a directory, when the bucket was mounted.
    pub mtime: SystemTime,
    /// Permission bits, if they differ from those of all other files or directories.
    pub mode: Option<u16>,
    /// The owner, if it differs from that of all other files.
    pub uid: Option<u32>,
    /// The group, if it differs from that of all other files.
    pub gid: Option<u32>,
    /// How long the kernel may cache these attributes.
    pub ttl: Duration,
    /// Whether its name has another inode by now, or is gone: it has no link.
    pub is_unlinked: bool,
}

impl Attr {
    /// The attributes of an inode that has a name, and the permissions and the owner of all others of its kind.
    pub fn new(ino: InodeNo, kind: FileKind, (size, mtime): (u64, SystemTime), ttl: Duration) -> Self {
        Self { ino, kind, size, mtime, mode: None, uid: None, gid: None, ttl, is_unlinked: false }
    }
}

/// The answer to a LOOKUP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The attributes of the name's inode.
    pub attr: Attr,
    /// How long the kernel may cache that the name has this inode.
    pub name_ttl: Duration,
}
