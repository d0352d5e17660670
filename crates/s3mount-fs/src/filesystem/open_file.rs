//! Open files.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_metrics::Listener;
use s3mount_prefetch::OpenReader;

use crate::ahead::hints::HintWriter;
use crate::control::Control;
use crate::control::keep_file::KeepFile;
use crate::numbers::{FileHandle, InodeNo};
use crate::open::reader_slot::ReaderSlot;
use crate::page_cache::OpenPages;
use crate::sync::{AtomicBool, Ordering};
use crate::writes::{OpenDraft, WriteOpen};

/// Whether an open file is read through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Through the kernel's page cache.
    Cached,
    /// Around the page cache. Each read of a program is one READ of the kernel, or several.
    Direct,
}

/// The answer to an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The handle, for the next calls.
    pub handle: FileHandle,
    /// Whether it is read through the page cache.
    pub mode: OpenMode,
    /// Whether the file is read at random through maps. Then a small readahead of the kernel is best.
    pub is_random_map: bool,
    /// Whether the kernel may keep the pages that it has of the file.
    pub keep_cache: bool,
    /// Whether the daemon before has opened it, for the same request.
    pub was_open: bool,
}

impl Opened {
    /// One of the daemon's own files, or a draft that is only read. The kernel must not keep its pages.
    pub(super) fn own(handle: FileHandle) -> Self {
        Self { handle, mode: OpenMode::Direct, is_random_map: false, keep_cache: false, was_open: false }
    }

    /// A handle of a draft.
    pub(super) fn draft(handle: FileHandle, how: WriteOpen, is_cached: bool) -> Self {
        let mode = if is_cached { OpenMode::Cached } else { OpenMode::Direct };
        // A handle that only reads a draft uses no page, so it drops none: a page that is dropped while a WRITE of it
        // is under way could come back without these bytes.
        let keep_cache = is_cached || !how.writes;
        Self { mode, keep_cache, ..Self::own(handle) }
    }
}

/// The open file of a handle.
#[derive(Clone, Debug)]
pub(crate) enum OpenFile {
    Object(Arc<OpenObject>),
    /// The text of one of the daemon's own files, as of its open.
    Snapshot(Bytes),
    /// The file that passes on events while it is open.
    Events(Arc<Listener>),
    /// The file that takes hints.
    Hints(Arc<HintWriter>),
    /// The file that takes the paths of files to warm.
    Keep(Arc<KeepFile>),
    /// The file that takes the limit on the memory, and its text as of its open.
    Settable(Control, Bytes),
    /// A file that this mount is writing.
    Draft(Arc<OpenDraft>),
    /// A file that a daemon before had open, and whose bytes are lost with that daemon.
    Lost(InodeNo),
}

impl OpenFile {
    /// The inode, unless it is one of the daemon's own files.
    pub(crate) fn ino(&self) -> Option<InodeNo> {
        match self {
            OpenFile::Object(open) => Some(open.ino),
            OpenFile::Draft(open) => Some(open.ino),
            OpenFile::Lost(ino) => Some(*ino),
            OpenFile::Snapshot(_)
            | OpenFile::Events(_)
            | OpenFile::Hints(_)
            | OpenFile::Keep(_)
            | OpenFile::Settable(..) => None,
        }
    }
}

/// An open version of an object.
#[derive(Debug)]
pub(crate) struct OpenObject {
    pub(crate) ino: InodeNo,
    pub(crate) reader: OpenReader,
    /// Whether the inode was opened before.
    pub(crate) was_opened_before: bool,
    /// Whether the kernel reads the file by itself.
    pub(crate) is_passthrough: bool,
    was_read: AtomicBool,
    /// The count of this mount's renames when the file was opened.
    pub(crate) renames: u64,
    /// Whether the file was renamed since it was opened, and its first object is gone. Then READs follow the inode.
    was_renamed: AtomicBool,
    /// Whether this mount has begun to write the file since it was opened. Then READs follow the inode, too.
    was_written: AtomicBool,
    pub(crate) slot: ReaderSlot,
    pub(crate) pages: OpenPages,
}

impl OpenObject {
    pub(crate) fn new(
        (ino, renames): (InodeNo, u64),
        reader: OpenReader,
        was_opened_before: bool,
        is_passthrough: bool,
        pages: OpenPages,
    ) -> Self {
        Self {
            ino,
            reader,
            was_opened_before,
            is_passthrough,
            was_read: AtomicBool::new(false),
            renames,
            was_renamed: AtomicBool::new(false),
            was_written: AtomicBool::new(false),
            slot: ReaderSlot::default(),
            pages,
        }
    }

    /// Notes a READ. Returns whether it is the first.
    pub(crate) fn note_read(&self) -> bool {
        !self.was_read.load(Ordering::Relaxed) && !self.was_read.swap(true, Ordering::Relaxed)
    }

    /// Whether the file was renamed since it was opened, and its first object is gone.
    pub(crate) fn was_renamed(&self) -> bool {
        self.was_renamed.load(Ordering::Relaxed)
    }

    /// Notes that the file was renamed, and its first object is gone.
    pub(crate) fn set_renamed(&self) {
        self.was_renamed.store(true, Ordering::Relaxed);
    }

    /// Notes that this mount has begun to write the file.
    pub(crate) fn set_written(&self) {
        self.was_written.store(true, Ordering::Release);
    }

    /// Whether this mount has begun to write the file since it was opened.
    pub(crate) fn was_written(&self) -> bool {
        self.was_written.load(Ordering::Acquire)
    }

    /// Whether the file was read since it was opened.
    pub(crate) fn was_read(&self) -> bool {
        self.was_read.load(Ordering::Relaxed)
    }
}

/// A READ of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAt {
    pub(super) handle: FileHandle,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// How often the READ has begun again, because its object was gone.
    pub(super) times_again: u32,
}

impl ReadAt {
    pub(super) fn new(handle: FileHandle, offset: u64, len: usize) -> Self {
        Self { handle, offset, len, times_again: 0 }
    }
}
