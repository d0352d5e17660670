//! Requests that the daemon before may have done without telling anybody.
//!
//! The kernel sends a request again that the daemon before has read and not answered. Most requests may be done twice. To
//! make, remove or rename a name may not: the second time it fails, because the first time it did not.

use std::sync::Arc;

use super::Filesystem;
use crate::FsError;
use crate::attr::{Entry, FileKind};
use crate::attributes::stored::StoredAttr;
use crate::names::Target;
use crate::numbers::InodeNo;
use crate::tree::inode::Node;
use crate::tree::inode::renamed::Renamed;
use crate::writes::Place;
use s3mount_names::{File, NamesError};

impl Filesystem {
    /// As [`unlink`](Self::unlink), where the file may have been removed for this caller already.
    ///
    /// # Errors
    /// Those of `unlink`, except for a name that is gone.
    pub async fn unlink_again(self: &Arc<Self>, parent: InodeNo, name: &str) -> Result<(), FsError> {
        unless_gone(self.unlink(parent, name).await)
    }

    /// As [`rmdir`](Self::rmdir), where the folder may have been removed for this caller already.
    ///
    /// # Errors
    /// Those of `rmdir`, except for a name that is gone.
    pub async fn rmdir_again(self: &Arc<Self>, parent: InodeNo, name: &str) -> Result<(), FsError> {
        unless_gone(self.rmdir(parent, name).await)
    }

    /// As [`mkdir`](Self::mkdir), where the folder may have been made for this caller already.
    ///
    /// # Errors
    /// Those of `mkdir`, except for a folder that is there.
    pub async fn mkdir_again(
        self: &Arc<Self>,
        parent: InodeNo,
        name: &str,
        attr: StoredAttr,
    ) -> Result<Entry, FsError> {
        let made = self.mkdir(parent, name, attr).await;
        self.unless_made(made, parent, name, FileKind::Directory).await
    }

    /// As [`symlink`](Self::symlink), where the link may have been made for this caller already.
    ///
    /// # Errors
    /// Those of `symlink`, except for a link that is there.
    pub async fn symlink_again(
        self: &Arc<Self>,
        parent: InodeNo,
        name: &str,
        target: &[u8],
        attr: StoredAttr,
    ) -> Result<Entry, FsError> {
        let made = self.symlink(parent, name, target, attr).await;
        self.unless_made(made, parent, name, FileKind::Link).await
    }

    async fn unless_made(
        &self,
        made: Result<Entry, FsError>,
        parent: InodeNo,
        name: &str,
        kind: FileKind,
    ) -> Result<Entry, FsError> {
        match made {
            Err(FsError::Exists) => {
                let entry = self.lookup(parent, name).await?;
                if entry.attr.kind == kind {
                    return Ok(entry);
                }
                self.forget(entry.attr.ino, 1);
                Err(FsError::Exists)
            }
            made => made,
        }
    }

    /// As [`rename`](Self::rename), where the file or folder may have been renamed for this caller already.
    ///
    /// # Errors
    /// Those of `rename`, except where only the new name is there.
    pub async fn rename_again(
        self: &Arc<Self>,
        from: Place<'_>,
        to: Place<'_>,
        keeps_target: bool,
    ) -> Result<(), FsError> {
        let error = match self.rename(from, to, keeps_target).await {
            // The store may also tell it later, where it was still doing what the daemon before has sent.
            Err(error) if matches!(error.errno(), libc::ENOENT | libc::ESTALE) => error,
            renamed => return renamed,
        };
        let prefix = self.inodes.prefix(from.parent)?;
        if !matches!(self.namespace.get(&prefix, from.name).await, Err(NamesError::NotFound)) {
            return Err(error);
        }
        let prefix = self.inodes.prefix(to.parent)?;
        let target = match self.namespace.get(&prefix, to.name).await {
            Ok((target, _)) => target,
            Err(_) => return Err(error),
        };
        let known = self.inodes.newest(from.parent, from.name).and_then(|ino| self.inodes.node(ino));
        let renamed = match (&known, &target) {
            (Some(Node::Directory(_)) | None, Target::Directory) => Renamed::Folder,
            (Some(Node::File(before)), Target::File(now)) if is_copy(before, now) => {
                Renamed::Version(before, now.object.etag())
            }
            // The kernel has forgotten the inode, or never knew it.
            (None, Target::File(_)) => return Ok(()),
            _ => return Err(error),
        };
        self.inodes.rename((from.parent, from.name), (to.parent, to.name), renamed);
        Ok(())
    }
}

/// Whether `now` may be a copy of `before` that was made later. The ETag of an object of several parts is another one.
fn is_copy(before: &File, now: &File) -> bool {
    let is_same = before.object.etag() == now.object.etag();
    is_same || (before.size == now.size && before.mtime <= now.mtime)
}

fn unless_gone(removed: Result<(), FsError>) -> Result<(), FsError> {
    match removed {
        Err(FsError::NotFound) => Ok(()),
        removed => removed,
    }
}
