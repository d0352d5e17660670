//! Requests that the daemon before may have done without telling anybody.
//!
//! The kernel sends a request again that the daemon before has read and not answered. Most requests may be done twice. To
//! make, remove or rename a name may not: the second time it fails, because the first time it did not.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::Filesystem;
use super::open_file::{OpenFile, Opened};
use crate::FsError;
use crate::attr::{Entry, FileKind};
use crate::attributes::stored::StoredAttr;
use crate::drafts::DraftFile;
use crate::names::Target;
use crate::numbers::InodeNo;
use crate::sync::lock;
use crate::tree::inode::Node;
use crate::tree::inode::renamed::Renamed;
use crate::writes::{Opener, Place};
use s3mount_names::{File, NamesError};
use s3mount_object::{ErrorKind, ObjectId};

impl Filesystem {
    /// As [`unlink`](Self::unlink), where the file may have been removed for this caller already.
    ///
    /// # Errors
    /// Those of `unlink`, except for a name that is gone.
    pub async fn unlink_again(self: &Arc<Self>, parent: InodeNo, name: &str) -> Result<(), FsError> {
        let removed = self.unlink(parent, name).await;
        if matches!(removed, Err(FsError::NotFound)) {
            // Who has the file open sees that it has no name.
            self.inodes.note_removed(parent, name);
        }
        unless_gone(removed)
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
        if self.go_on_renaming(from, to).await? {
            return Ok(());
        }
        let error = match self.rename(from, to, keeps_target).await {
            // The store may also tell it later, where it was still doing what the daemon before has sent.
            Err(error) if matches!(error.errno(), libc::ENOENT | libc::ESTALE) => error,
            // The daemon before has made the copy, and has not deleted the object that it is of.
            Err(FsError::Exists) if keeps_target && self.is_copied(from, to).await => {
                return self.rename(from, to, false).await;
            }
            renamed => return renamed,
        };
        let error = match self.is_copied_onto_draft(from, to).await {
            false => error,
            true => match self.rename(from, to, keeps_target).await {
                // It has deleted the object, too.
                Err(error) if matches!(error.errno(), libc::ENOENT | libc::ESTALE) => error,
                renamed => return renamed,
            },
        };
        let prefix = self.inodes.prefix(from.parent)?;
        match self.namespace.get(&prefix, from.name).await {
            Err(NamesError::NotFound) => {}
            // A program has it open to write, so this daemon goes on with it.
            Ok((Target::Draft(file), _)) if self.draft_was_renamed(&file, from, to).await => return Ok(()),
            _ => return Err(error),
        }
        let prefix = self.inodes.prefix(to.parent)?;
        let mut target = match self.namespace.get(&prefix, to.name).await {
            Ok((target, _)) => target,
            Err(_) => return Err(error),
        };
        if let Target::Draft(file) = &target {
            // A file was being written that had this name before, and this daemon goes on with it.
            match self.renamed_onto(file).await {
                Some(now) => target = Target::File(now),
                // It has the name by the notes of the daemon before, because it was renamed.
                None if self.inodes.newest(from.parent, from.name).is_none() => return Ok(()),
                None => return Err(error),
            }
        }
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

impl Filesystem {
    /// Whether two names have the same bytes.
    async fn is_copied(&self, from: Place<'_>, to: Place<'_>) -> bool {
        let (Ok(before), Ok(now)) = (self.inodes.prefix(from.parent), self.inodes.prefix(to.parent)) else {
            return false;
        };
        let found = (self.namespace.get(&before, from.name).await, self.namespace.get(&now, to.name).await);
        let (Ok((Target::File(source), _)), Ok((Target::File(copy), _))) = found else { return false };
        if source.size != copy.size {
            return false;
        }
        if source.object.etag() == copy.object.etag() {
            return true;
        }
        // Not every ETag follows from the bytes.
        let Ok(writer) = self.writer() else { return false };
        let sum = async |key: &str| writer.describe(key).await.ok()?.checksum;
        let sums = (sum(source.object.key()).await, sum(copy.object.key()).await);
        matches!(sums, (Some(source), Some(copy)) if source == copy)
    }

    /// Whether the daemon before has made the copy of a rename onto a file that is open to write. It may have deleted the
    /// object that it is of, too. The draft of that file has no name any more then: the store has no version that it knows.
    async fn is_copied_onto_draft(&self, from: Place<'_>, to: Place<'_>) -> bool {
        let (Ok(before), Ok(now)) = (self.inodes.prefix(from.parent), self.inodes.prefix(to.parent)) else {
            return false;
        };
        let source = match self.namespace.get(&before, from.name).await {
            Ok((Target::File(file), _)) => Some(file),
            Ok((Target::Draft(file), _)) => file.whole_version(),
            Ok((Target::Directory, _)) | Err(_) => None,
        };
        let target = self.namespace.get(&now, to.name).await;
        let (Some(source), Ok((Target::Draft(replaced), _))) = (source, target) else { return false };
        let Some(copy) = self.other_object(&replaced).await else { return false };
        // What this mount has written may be replaced, whatever it is.
        if !self.is_written_here(copy.object.key()).await && !is_copy(&source, &copy) {
            return false;
        }
        self.take_name(&replaced, &copy).await;
        true
    }

    /// The inode, and the handle, that the daemon before has opened for this very request, which comes again.
    pub(super) fn opened_before(self: &Arc<Self>, opener: &Opener) -> Option<(InodeNo, Opened)> {
        let handle = lock(&self.writing.opened_before).remove(&opener.request)?;
        let Some(OpenFile::Draft(open)) = self.files.get(handle) else {
            // The kernel does not know of it.
            self.release(handle);
            return None;
        };
        let opened = Opened::draft(handle, open.how, open.is_cached);
        Some((open.ino, Opened { was_open: true, ..opened }))
    }

    /// What the daemon before has made for this very request, which comes again.
    pub(super) fn created_before(
        self: &Arc<Self>,
        parent: InodeNo,
        (prefix, name): (&str, &str),
        opener: &Opener,
    ) -> Option<(Entry, Opened)> {
        let (ino, opened) = self.opened_before(opener)?;
        let Some(Node::Draft(file)) = self.inodes.node(ino) else { return None };
        let given = self.inodes.look_up(parent, prefix, name, &Target::Draft(file.clone()))?;
        if given.ino != ino {
            self.inodes.forget(given.ino, 1);
            return None;
        }
        let attr = file.attr(ino);
        Some((Entry { attr, name_ttl: attr.ttl }, opened))
    }

    /// Whether the object of a draft without changes lies at its new name by now. The draft goes on there then.
    async fn draft_was_renamed(&self, file: &Arc<DraftFile>, from: Place<'_>, to: Place<'_>) -> bool {
        let (Some(version), Ok(writer)) = (file.whole_version(), self.writer()) else { return false };
        let (Ok(before), Ok(now)) = (self.inodes.prefix(from.parent), self.inodes.prefix(to.parent)) else {
            return false;
        };
        let gone = writer.describe(&format!("{before}{}", from.name)).await;
        let key = format!("{now}{}", to.name);
        let found = writer.describe(&key).await;
        let (Err(gone), Ok(found)) = (gone, found) else { return false };
        if *gone.kind() != ErrorKind::NotFound || found.meta.size != version.size {
            return false;
        }
        let turn = file.turn().await;
        let object = ObjectId::new(&key, found.meta.etag);
        let moving = std::future::ready(Ok::<_, Infallible>(object.clone()));
        let Ok(_) = file.draft().follow(&version.object, moving).await;
        self.namespace.note_gone(&before, from.name);
        file.rename(&now, to.name, Some(&object), None);
        self.namespace.note_draft(&now, to.name, file);
        self.inodes.rename((from.parent, from.name), (to.parent, to.name), Renamed::Draft(file));
        drop(turn);
        true
    }

    /// The object to which the name of a draft has been given. The draft has no name then. `None` if the store has no other
    /// object there than the draft's own.
    async fn renamed_onto(&self, file: &Arc<DraftFile>) -> Option<File> {
        let found = self.other_object(file).await?;
        self.take_name(file, &found).await;
        Some(found)
    }

    /// What the store has under the name of a draft, if that is not the draft's own.
    async fn other_object(&self, file: &DraftFile) -> Option<File> {
        let (prefix, name) = file.place();
        let key = format!("{prefix}{name}");
        let writer = self.writer().ok()?;
        let found = writer.describe(&key).await.ok()?.meta;
        let object = ObjectId::new(key.as_str(), found.etag);
        let is_own = file.object().as_ref() == Some(&object)
            || writer.bucket().late_version(&key).await.ok()?.as_ref() == Some(&object);
        (!is_own).then_some(File { object, size: found.size, mtime: found.last_modified })
    }

    /// Takes its name from a draft, because another object has it now.
    async fn take_name(&self, file: &Arc<DraftFile>, other: &File) {
        let (prefix, name) = file.place();
        tracing::debug!(key = other.object.key(), "a file has lost its name by a rename that comes again");
        let turn = file.turn().await;
        self.unlink_draft(file);
        self.namespace.forget_draft(&prefix, &name, file);
        self.namespace.forget(&prefix, &name);
        if let Some(ino) = file.ino() {
            self.inodes.detach(ino);
        }
        drop(turn);
        self.discard_unused(file).await;
    }
}

/// Whether `now` may be a copy of `before` that was made later. The ETag of an object of several parts is another one.
fn is_copy(before: &File, now: &File) -> bool {
    let is_same = before.object.etag() == now.object.etag();
    // A store may tell whole seconds.
    is_same || (before.size == now.size && before.mtime < now.mtime + Duration::from_secs(1))
}

fn unless_gone(removed: Result<(), FsError>) -> Result<(), FsError> {
    match removed {
        Err(FsError::NotFound) => Ok(()),
        removed => removed,
    }
}
