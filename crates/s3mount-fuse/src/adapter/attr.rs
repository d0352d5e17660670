//! Attributes of files and directories, and of the mount.

use fuser::{INodeNo, ReplyAttr, ReplyData, ReplyStatfs, Request};
use s3mount_fs::{Attr, Filesystem, FsError};

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
    pub(super) fn on_getattr(&self, req: &Request, ino: INodeNo, reply: ReplyAttr) {
        let request = self.pending(Operation::Getattr);
        let tell = move |fs: &Filesystem, reply: ReplyAttr, found: Result<Attr, FsError>| match found {
            Ok(attr) => {
                reply.attr(&attr.ttl, &file_attr(attr, fs));
                request.done();
            }
            Err(error) => reply.error(request.errno(ino, &error)),
        };
        if self.fs.knows_attributes(fs_inode(ino)) {
            return tell(&self.fs, reply, self.fs.getattr(fs_inode(ino)));
        }
        let (fs, reply) = (self.fs.clone(), self.share(reply));
        self.answer(req, None, &reply.clone(), async move {
            let found = fs.ask_attributes(fs_inode(ino)).await;
            if let Some(reply) = reply.take() {
                tell(&fs, reply, found);
            }
        });
    }

    pub(super) fn on_readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let (fs, request) = (self.fs.clone(), self.pending(Operation::Readlink));
        let reply = self.share(reply);
        self.answer(req, None, &reply.clone(), async move {
            let target = fs.readlink(fs_inode(ino)).await;
            let Some(reply) = reply.take() else { return };
            match target {
                Ok(target) => {
                    reply.data(&target);
                    request.done();
                }
                Err(error) => reply.error(request.errno(ino, &error)),
            }
        });
    }

    /// Tells of a mount that has no room left, or, if objects may be written, of an empty one.
    pub(super) fn on_statfs(&self, reply: ReplyStatfs) {
        let blocks = MOUNT_BYTES / u64::from(BLOCK_BYTES);
        let is_free = self.fs.allows_writes();
        let free = |all| if is_free { all } else { 0 };
        let files = u64::from(u32::MAX);
        reply.statfs(
            blocks,
            free(blocks),
            free(blocks),
            files,
            free(files),
            BLOCK_BYTES,
            MAX_NAME_BYTES,
            BLOCK_BYTES,
        );
    }
}
