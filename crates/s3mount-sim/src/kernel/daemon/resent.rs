//! What the adapter answers to requests that change names and come again: the daemon before may have done them.
//!
//! This is what `s3mount-fuse` answers, too.

use s3mount_fs::{Entry, FsError, InodeNo};

use super::service::Turn;

impl Turn {
    /// UNLINK, RMDIR: a name that is gone was removed by the daemon before.
    pub(super) fn removed(&self, result: Result<(), FsError>) -> Result<(), FsError> {
        match result {
            Err(FsError::NotFound) if self.is_resent => Ok(()),
            result => result,
        }
    }

    /// RENAME: where the old name is gone and the new one is there, the daemon before has done it.
    pub(super) async fn renamed(
        &self,
        result: Result<(), FsError>,
        from: (InodeNo, &str),
        to: (InodeNo, &str),
    ) -> Result<(), FsError> {
        let errno = result.as_ref().err().map(FsError::errno);
        let may_be_done = matches!(errno, Some(libc::ENOENT | libc::EEXIST | libc::ESTALE));
        if self.is_resent && may_be_done && !self.is_there(from).await? && self.is_there(to).await? {
            return Ok(());
        }
        result
    }

    /// MKDIR: a folder that is there was made by the daemon before.
    pub(super) async fn made(
        &self,
        result: Result<Entry, FsError>,
        (parent, name): (InodeNo, &str),
    ) -> Result<Entry, FsError> {
        match result {
            Err(FsError::Exists) if self.is_resent => self.fs().lookup(parent, name).await,
            result => result,
        }
    }

    async fn is_there(&self, (parent, name): (InodeNo, &str)) -> Result<bool, FsError> {
        match self.fs().lookup(parent, name).await {
            Ok(entry) => {
                self.fs().forget(entry.attr.ino, 1);
                Ok(true)
            }
            Err(FsError::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
