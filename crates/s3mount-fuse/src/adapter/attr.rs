//! Attributes of files and directories, and of the mount.

use fuser::{Errno, INodeNo, ReplyAttr, ReplyStatfs};

use super::Adapter;
use super::convert::{file_attr, fs_inode};
use crate::metrics::Operation;

/// Size of a block in what `statfs` tells, in bytes.
const BLOCK_BYTES: u32 = 4096;

/// Size of the mount in what `statfs` tells, in bytes: a petabyte. A bucket has no size.
const MOUNT_BYTES: u64 = 1 << 50;

/// The longest name of a file, in bytes.
const MAX_NAME_BYTES: u32 = 255;

impl Adapter {
    pub(super) fn on_getattr(&self, ino: INodeNo, reply: ReplyAttr) {
        let request = self.pending(Operation::Getattr);
        match self.fs.getattr(fs_inode(ino)) {
            Ok(attr) => {
                reply.attr(&attr.ttl, &file_attr(attr, self.fs.config()));
                request.done();
            }
            Err(error) => reply.error(request.errno(ino, &error)),
        }
    }

    /// Changes nothing. It succeeds for the files that take hints, because the shell's `>` truncates the file
    /// that it opens.
    pub(super) fn on_setattr(&self, ino: INodeNo, reply: ReplyAttr) {
        match self.fs.getattr(fs_inode(ino)) {
            Ok(attr) if self.fs.is_writable(fs_inode(ino)) => {
                reply.attr(&attr.ttl, &file_attr(attr, self.fs.config()));
            }
            _ => reply.error(Errno::EROFS),
        }
    }

    /// Tells of a mount that has no room left.
    pub(super) fn on_statfs(reply: ReplyStatfs) {
        let blocks = MOUNT_BYTES / u64::from(BLOCK_BYTES);
        reply.statfs(blocks, 0, 0, u64::from(u32::MAX), 0, BLOCK_BYTES, MAX_NAME_BYTES, BLOCK_BYTES);
    }
}
