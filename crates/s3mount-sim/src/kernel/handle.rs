//! Files that the filesystem has open (`struct fuse_file`).

use std::sync::Arc;

use s3mount_fs::{FileHandle, InodeNo};

use super::daemon::Daemon;

/// A file that the filesystem has open, until this is dropped.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) ino: InodeNo,
    pub(super) number: FileHandle,
    pub(super) daemon: Arc<Daemon>,
}

impl Drop for Handle {
    /// `fuse_file_put`
    fn drop(&mut self) {
        self.daemon.release(self.ino, self.number);
    }
}
