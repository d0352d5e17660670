//! Open files.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_prefetch::ObjectReader;

use crate::ahead::hints::HintWriter;
use crate::numbers::{FileHandle, InodeNo};
use crate::page_cache::direct_io::OpenLarge;
use crate::page_cache::fills::OpenFills;
use crate::sync::{AtomicBool, Ordering};

/// How the bytes of an open file come to its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Through the kernel's page cache.
    Cached,
    /// Around it: each read of a program is one READ of the kernel, or several.
    Direct,
}

/// An open file, as the kernel is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The handle, for the calls that follow.
    pub handle: FileHandle,
    /// How its bytes come to its readers.
    pub mode: OpenMode,
    /// Whether the file is read at random through maps, and a small readahead suits it.
    pub is_random_map: bool,
    /// Whether the pages that the kernel holds of it are good.
    pub keep_cache: bool,
}

impl Opened {
    /// A file of the daemon's own: its size is not known before, and its pages must not be kept.
    pub(super) fn own(handle: FileHandle) -> Self {
        Self { handle, mode: OpenMode::Direct, is_random_map: false, keep_cache: false }
    }
}

/// What the handle of a file stands for.
#[derive(Clone, Debug)]
pub(crate) enum OpenFile {
    Object(Arc<OpenObject>),
    /// A file of the daemon's own, as it was when it was opened.
    Snapshot(Bytes),
    /// Where hints are written.
    Hints(Arc<HintWriter>),
}

/// An open version of an object.
#[derive(Debug)]
pub(crate) struct OpenObject {
    pub(crate) ino: InodeNo,
    pub(crate) reader: Arc<ObjectReader>,
    /// Whether the inode was opened before.
    pub(crate) is_again: bool,
    was_read: AtomicBool,
    /// Set for large files with `--direct-io auto`.
    pub(crate) large: Option<OpenLarge>,
    pub(crate) fills: OpenFills,
}

impl OpenObject {
    pub(crate) fn new(
        ino: InodeNo,
        reader: Arc<ObjectReader>,
        is_again: bool,
        large: Option<OpenLarge>,
        fills: OpenFills,
    ) -> Self {
        Self { ino, reader, is_again, was_read: AtomicBool::new(false), large, fills }
    }

    /// Notes a READ; whether it is the first.
    pub(crate) fn note_read(&self) -> bool {
        !self.was_read.load(Ordering::Relaxed) && !self.was_read.swap(true, Ordering::Relaxed)
    }

    /// Whether anything was read of it since it was opened.
    pub(crate) fn was_read(&self) -> bool {
        self.was_read.load(Ordering::Relaxed)
    }
}
