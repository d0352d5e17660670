//! The means and the rights to write, and the requests for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::NewObject;
use s3mount_outbox::Outbox;
use s3mount_write::{BegunRename, Writer};

use crate::FsError;
use crate::behind::Behind;
use crate::control::keep_file::WarmRequest;
use crate::drafts::cuts::Cuts;
use crate::drafts::detached::Detached;
use crate::drafts::logs::Logs;
use crate::drafts::underway::UnderwayWrite;
use crate::drafts::writers::WriterId;
use crate::drafts::{DraftFile, Turn};
use crate::numbers::{FileHandle, InodeNo, RequestId};
use crate::open::reader_slot::ReaderSlot;
use crate::sync::Mutex;
use crate::tree::tree_locks::TreeLocks;

/// What a mount may do to existing objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Delete them.
    pub may_delete: bool,
    /// Replace them.
    pub may_overwrite: bool,
    /// The most objects in a folder that is renamed. With 0, only folders without objects in the store are renamed.
    pub folder_rename_limit: usize,
}

impl Rights {
    /// # Errors
    /// `NotAllowed`.
    pub(crate) fn overwrite(self) -> Result<(), FsError> {
        if self.may_overwrite { Ok(()) } else { Err(FsError::NotAllowed("--allow overwrite")) }
    }

    /// # Errors
    /// `NotAllowed`.
    pub(crate) fn delete(self) -> Result<(), FsError> {
        if self.may_delete { Ok(()) } else { Err(FsError::NotAllowed("--allow delete")) }
    }

    /// A renamed file's object is deleted at its old key.
    ///
    /// # Errors
    /// `NotAllowed`.
    pub(crate) fn rename(self) -> Result<(), FsError> {
        let may = self.may_delete || self.folder_rename_limit > 0;
        if may { Ok(()) } else { Err(FsError::NotAllowed("--allow rename")) }
    }
}

/// The means to write objects, and the rights.
#[derive(Clone, Debug)]
pub struct Writes {
    /// Writes files, and has the bucket in which objects are deleted and copied.
    pub writer: Writer,
    /// What the mount may do.
    pub rights: Rights,
    /// The metadata of new objects. A missing media type follows from the extension of the name.
    pub object: NewObject,
    /// How long `close` may leave a file unpublished that was opened to append. Zero: `close` waits.
    pub append_delay: Duration,
    /// Where closed files wait until the store has them, and the number in the marks of all writes of this daemon. Unset:
    /// `close` waits for the store.
    pub outbox: Option<(Outbox, u32)>,
    /// Whether fsync makes an object of the file.
    pub publishes_on_fsync: bool,
}

/// The state of writing. A mount that only reads has it, too, and it stays empty there.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    /// Unset if no object may be written.
    pub(crate) writes: Option<Writes>,
    /// Unset if `close` waits for the store.
    pub(crate) behind: Option<Arc<Behind>>,
    /// Whether new folders are objects.
    pub(crate) has_folder_markers: bool,
    /// Names that are being changed, and folders that are being renamed.
    pub(crate) tree_locks: TreeLocks,
    /// Files that programs append to again and again.
    pub(crate) logs: Arc<Logs>,
    /// Opens that the kernel has to repeat.
    pub(crate) detached: Detached,
    /// What the daemon before has opened to write, by the requests that have asked for it. A request that comes again had
    /// no answer.
    pub(crate) opened_before: Mutex<HashMap<RequestId, FileHandle>>,
    /// Renames of folders that the daemon before has begun. Their requests come again, and until then nobody else changes
    /// names in the folders.
    pub(crate) begun_renames: Mutex<Vec<BegunRename>>,
    /// Files that are being cut.
    pub(crate) cuts: Arc<Cuts>,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The directory.
    pub parent: InodeNo,
    /// The name.
    pub name: &'a str,
}

/// How a file is opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOpen {
    /// Whether the handle may write.
    pub writes: bool,
    /// Whether all bytes go to the end (`O_APPEND`).
    pub appends: bool,
    /// Whether the file is emptied (`O_TRUNC`).
    pub truncates: bool,
    /// Whether there may be no file of this name (`O_EXCL`).
    pub is_exclusive: bool,
}

/// The thread that opens a file for writing.
#[derive(Clone)]
pub struct Opener {
    /// The thread, or 0 if it is not known.
    pub thread: u32,
    /// Its request.
    pub request: RequestId,
    is_waiting: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Opener {
    /// A thread; `is_waiting` returns whether it still waits. When it is killed, others may open the file, and write to
    /// it, before its own open continues: that open must change nothing any more.
    pub fn new(thread: u32, is_waiting: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { thread, request: RequestId::default(), is_waiting: Arc::new(is_waiting) }
    }

    /// The same by this request.
    #[must_use]
    pub fn by(self, request: RequestId) -> Self {
        Self { request, ..self }
    }

    /// # Errors
    /// An error that no caller gets, if the thread does not wait any more.
    pub(crate) fn check(&self) -> Result<(), FsError> {
        if (self.is_waiting)() { Ok(()) } else { Err(FsError::Outdated) }
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl From<u32> for Opener {
    fn from(thread: u32) -> Self {
        Self::new(thread, || true)
    }
}

/// The process that closes a descriptor.
pub trait Closer: Send {
    /// Whether a thread is of the process.
    fn is_of(&self, thread: u32) -> bool;

    /// Whether the process has another descriptor of the file `ino`, if that is known.
    fn has_another(&self, ino: InodeNo) -> Option<bool>;
}

/// A closer with known threads, and unknown descriptors.
impl<F: Fn(u32) -> bool + Send> Closer for F {
    fn is_of(&self, thread: u32) -> bool {
        self(thread)
    }

    fn has_another(&self, _: InodeNo) -> Option<bool> {
        None
    }
}

/// An open draft. One that is only read follows its inode when it has become a version.
#[derive(Debug)]
pub(crate) struct OpenDraft {
    pub(crate) ino: InodeNo,
    pub(crate) file: Arc<DraftFile>,
    pub(crate) how: WriteOpen,
    /// Set if the handle may change the file.
    pub(crate) writer: Option<WriterId>,
    /// Whether the handle uses the kernel's page cache.
    pub(crate) is_cached: bool,
    pub(crate) slot: ReaderSlot,
}

impl OpenDraft {
    pub(crate) fn new(
        ino: InodeNo,
        file: Arc<DraftFile>,
        how: WriteOpen,
        writer: Option<WriterId>,
        is_cached: bool,
    ) -> Self {
        Self { ino, file, how, writer, is_cached, slot: ReaderSlot::default() }
    }
}

/// The position of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// At this offset.
    Offset(u64),
    /// At the end that the file has by then.
    End(Option<RequestId>),
    /// At this offset, up to the end that the file has by then: the bytes are pages of a map.
    Pages(u64),
}

impl To {
    /// The offset and the length of a WRITE of `len` bytes to a file of `size` bytes. `size` is only called if it
    /// matters.
    pub(crate) fn range(self, size: impl FnOnce() -> u64, len: usize) -> (u64, usize) {
        match self {
            To::Offset(offset) => (offset, len),
            To::End(_) => (size(), len),
            To::Pages(offset) => {
                let room = usize::try_from(size().saturating_sub(offset)).unwrap_or(usize::MAX);
                (offset, len.min(room))
            }
        }
    }

    /// Whether these bytes, of which `len` are left, lie beyond the end of the file.
    pub(crate) fn is_behind(self, len: usize) -> bool {
        len == 0 && matches!(self, To::Pages(_))
    }
}

/// The deferred work of a WRITE, to do before its answer.
#[derive(Debug)]
pub enum Deferred {
    /// The caller waits until files are in the disk cache.
    Warm(WarmRequest),
    /// The bytes wait for memory, or for bytes around them.
    Write(DeferredWrite),
}

/// Bytes that could not be written at once.
#[derive(Debug)]
pub struct DeferredWrite {
    pub(crate) file: Arc<DraftFile>,
    pub(crate) writer: WriterId,
    pub(crate) thread: u32,
    pub(crate) to: To,
    /// The draft's turn, if the write holds it by now. Some of the bytes may be written.
    pub(crate) turn: Option<Turn>,
    pub(crate) underway: UnderwayWrite,
    pub(crate) data: Bytes,
}
