//! Reads files that this mount writes or renames. The reads follow the inode, from a version to a draft and to the next
//! version.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_object::ObjectId;
use s3mount_prefetch::ReadError;
use s3mount_write::WriteError;
use tokio::time::timeout;

use super::Filesystem;
use super::open_file::{OpenFile, ReadAt};
use crate::FsError;
use crate::drafts::DraftFile;
use crate::drafts::cuts::Cutting;
use crate::numbers::InodeNo;
use crate::open::reader_slot::ReaderSlot;
use crate::sync::spawn;
use crate::tree::inode::Node;

/// The most times that a READ begins again because its file was renamed.
const MOST_AGAIN: u32 = 16;

/// The object that a READ has tried.
#[derive(Debug)]
struct Tried {
    ino: InodeNo,
    object: ObjectId,
    /// The count of this mount's renames when the inode referred to this object.
    renames: u64,
}

impl Filesystem {
    /// Notes that a file is set to `size` bytes. If that makes it shorter, drop the guard once the kernel has the
    /// answer.
    pub fn cutting(&self, ino: InodeNo, size: u64) -> Option<Cutting> {
        let is_cut = self.inodes.attr(ino).is_some_and(|attr| size < attr.size);
        is_cut.then(|| self.writing.cuts.begin(ino))
    }

    /// Answers a READ that fills the page cache, of a file that is or was written while it is open.
    pub(super) fn fill_written<R>(self: &Arc<Self>, read: ReadAt, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let ReadAt { handle, offset, len, .. } = read;
        let ino = match self.files.get(handle) {
            Some(OpenFile::Object(open)) => open.ino,
            Some(OpenFile::Draft(open)) => open.ino,
            _ => return self.read(handle, offset, len, reply),
        };
        let fs = self.clone();
        self.read(handle, offset, len, move |result| match result {
            Ok(bytes) if bytes.len() < len && fs.writing.cuts.has(ino) => {
                let runtime = fs.namespace.requests().runtime().clone();
                spawn(&runtime, async move {
                    drop(timeout(fs.config.timeout, fs.writing.cuts.settled(ino)).await);
                    fs.read(handle, offset, len, reply);
                });
            }
            result => reply(result),
        });
    }

    /// Reads the present version or draft of an inode. `slot` keeps the reader of the handle from one READ to the next.
    /// If the kernel does not know the inode, reads `file`.
    pub(super) fn read_followed<R>(
        self: &Arc<Self>,
        (ino, file): (InodeNo, Option<&Arc<DraftFile>>),
        slot: &ReaderSlot,
        read: ReadAt,
        reply: R,
    ) where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let renames = self.inodes.renames();
        let version = match self.inodes.node(ino) {
            Some(Node::Draft(file)) => return self.spawn_read(file, read, reply),
            Some(Node::File(version)) => version,
            Some(Node::Directory(_)) | None => {
                return match file {
                    Some(file) => self.spawn_read(file.clone(), read, reply),
                    // Its name was removed, and the folder that it was in, too.
                    None => reply(Err(FsError::UnknownInode(ino))),
                };
            }
        };
        let reader = slot.of(&version, &self.prefetcher);
        let (fs, again) = (self.clone(), slot.clone());
        reader.read(read.offset, read.len, move |result| match result {
            Ok(bytes) => reply(Ok(bytes)),
            Err(source) if source.is_stale() => {
                let runtime = fs.namespace.requests().runtime().clone();
                let tried = Tried { ino, object: version.object, renames };
                spawn(&runtime, async move {
                    fs.after_stale_followed(&tried, &again, read, source, reply);
                });
            }
            Err(error) => reply(Err(error.into())),
        });
    }

    /// Answers a READ that found its object gone.
    pub(super) fn after_stale<R>(self: &Arc<Self>, read: ReadAt, source: ReadError, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let Some(OpenFile::Object(open)) = self.files.get(read.handle) else {
            return reply(Err(FsError::Stale { parent_and_name: None, source }));
        };
        let tried = Tried { ino: open.ino, object: open.reader.object().clone(), renames: open.renames };
        if self.has_other_bytes(&tried) {
            open.set_renamed();
        }
        let (fs, slot) = (self.clone(), open.slot.clone());
        spawn(self.namespace.requests().runtime(), async move {
            fs.after_stale_followed(&tried, &slot, read, source, reply);
        });
    }

    /// Answers a READ that found its version gone: from the present version or draft of the inode, if this mount has
    /// renamed or changed the file since.
    fn after_stale_followed<R>(
        self: &Arc<Self>,
        tried: &Tried,
        slot: &ReaderSlot,
        read: ReadAt,
        source: ReadError,
        reply: R,
    ) where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        if read.times_again >= MOST_AGAIN || !self.has_other_bytes(tried) {
            return reply(Err(FsError::Stale { parent_and_name: self.forget_name(tried.ino), source }));
        }
        slot.forget();
        let read = ReadAt { times_again: read.times_again + 1, ..read };
        self.read_followed((tried.ino, None), slot, read, reply);
    }

    /// Whether an inode refers to other bytes than the tried object, or may have done so meanwhile: a rename of the
    /// file, or of a folder above it, there and back moves the object away for a while.
    fn has_other_bytes(&self, tried: &Tried) -> bool {
        match self.inodes.node(tried.ino) {
            Some(Node::Draft(_)) => true,
            Some(Node::File(now)) => now.object != tried.object || self.inodes.renames() != tried.renames,
            Some(Node::Directory(_)) | None => false,
        }
    }

    fn spawn_read<R>(self: &Arc<Self>, file: Arc<DraftFile>, read: ReadAt, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let fs = self.clone();
        let earlier_writes = file.underway.wait(read.offset, read.offset.saturating_add(read.len as u64));
        spawn(self.namespace.requests().runtime(), async move {
            earlier_writes.await;
            match fs.read_draft(&file, read).await {
                Ok(bytes) => reply(Ok(&bytes)),
                Err(error) => reply(Err(error.into())),
            }
        });
    }

    /// Reads a draft. While the draft is renamed, the object that it is made of may be gone before the draft knows the
    /// key of the copy.
    async fn read_draft(&self, file: &DraftFile, read: ReadAt) -> Result<Bytes, WriteError> {
        match file.draft().read(read.offset, read.len).await {
            Err(WriteError::SourceGone(_)) => {
                drop(self.hold_draft(file).await);
                file.draft().read(read.offset, read.len).await
            }
            read => read,
        }
    }
}
