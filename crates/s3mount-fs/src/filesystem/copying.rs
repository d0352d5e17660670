//! Copying between files of the mount. A copy is only noted: the store makes it when the file is published.

use std::sync::Arc;

use s3mount_object::{ByteRange, ObjectId};

use super::Filesystem;
use super::open_file::OpenFile;
use crate::FsError;
use crate::numbers::FileHandle;
use crate::tree::inode::Node;

impl Filesystem {
    /// Copies up to `len` bytes from one open file, from an offset on, to another. Returns how many: fewer only at the
    /// end. `thread` counts as the writer.
    ///
    /// # Errors
    /// `NotCopied` when the caller should read and write the bytes instead, and those of writing to a draft.
    pub async fn copy_range(
        self: Arc<Self>,
        from: (FileHandle, u64),
        to: (FileHandle, u64),
        len: u64,
        thread: u32,
    ) -> Result<u64, FsError> {
        let (Some((version, size)), Some((open, writer))) =
            (self.version_of_handle(from.0), self.open_to_writer(to.0))
        else {
            return Err(FsError::NotCopied);
        };
        let file = &open.file;
        let _turn = file.turn().await;
        let range = ByteRange::new(from.1.min(size), from.1.saturating_add(len).min(size));
        let draft = file.draft();
        if !draft.suits_copy(&version, range, to.1) {
            return Err(FsError::NotCopied);
        }
        self.note_change(file, writer, thread, false)?;
        draft.copy_from(&version, size, range, to.1).await.map_err(|error| self.failed(file, error))?;
        Ok(range.len())
    }

    /// The version whose bytes an open file has, and its length. `None` for a file that has changed since it was
    /// published, or whose name has another version by now: the version may be gone.
    fn version_of_handle(&self, handle: FileHandle) -> Option<(ObjectId, u64)> {
        let ino = match self.files.get(handle)? {
            OpenFile::Object(open) => open.ino,
            OpenFile::Draft(open) => open.ino,
            OpenFile::Snapshot(_)
            | OpenFile::Events(_)
            | OpenFile::Hints(_)
            | OpenFile::Keep(_)
            | OpenFile::Settable(..)
            | OpenFile::Lost(_) => {
                return None;
            }
        };
        match self.inodes.node(ino)? {
            Node::File(file) if !self.inodes.is_outdated(ino) => Some((file.object, file.size)),
            Node::Draft(file) => file.draft().version(),
            Node::File(_) | Node::Directory(_) => None,
        }
    }
}
