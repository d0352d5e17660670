//! The filesystem's types and fuser's: the one of the other.

use fuser::{FileAttr, FileHandle, FileType, Generation, INodeNo};
use s3mount_fs::{Attr, FileKind, Filesystem};

/// Each inode has one generation, because numbers are never used again.
pub(super) const GENERATION: Generation = Generation(0);

/// The filesystem's number of an inode.
pub(super) fn fs_inode(ino: INodeNo) -> s3mount_fs::InodeNo {
    s3mount_fs::InodeNo(ino.0)
}

/// The filesystem's number of an open file or directory.
pub(super) fn fs_handle(fh: FileHandle) -> s3mount_fs::FileHandle {
    s3mount_fs::FileHandle(fh.0)
}

/// The type that the kernel shows.
pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Directory => FileType::Directory,
        FileKind::File => FileType::RegularFile,
        FileKind::Link => FileType::Symlink,
    }
}

/// The attributes that the kernel shows. Owner and permissions come from the mount's flags.
pub(super) fn file_attr(attr: Attr, fs: &Filesystem) -> FileAttr {
    let config = fs.config();
    let (mode, nlink) = match attr.kind {
        FileKind::Directory => (config.dir_mode, 2),
        FileKind::File => (config.file_mode, 1),
        FileKind::Link => (0o777, 1),
    };
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: attr.mtime,
        mtime: attr.mtime,
        ctime: attr.mtime,
        crtime: attr.mtime,
        kind: file_type(attr.kind),
        perm: attr.mode.or_else(|| fs.mode(attr.ino, attr.kind)).unwrap_or(mode),
        nlink: if attr.is_unlinked { 0 } else { nlink },
        uid: attr.uid.unwrap_or(config.uid),
        gid: attr.gid.unwrap_or(config.gid),
        rdev: 0,
        // Programs take this as the size of their buffer. With a larger one, a random reader that reads
        // through a buffer fetches far more than it wants.
        blksize: 4096,
        flags: 0,
    }
}
