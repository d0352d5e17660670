//! `--direct-io auto`: large files that are opened around the kernel's page cache.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{MutexGuard, PoisonError};

use s3mount_object::folder_and_name;

use super::{Filesystem, OpenObject};
use crate::inode::InodeNo;
use crate::namespace::names::File;
use crate::page_cache::direct::{Change, Closed, Direct, LEAST_BYTES, Large, Pieces};
use crate::page_cache::map_table::Kind;

/// A first READ of this many bytes, through the page cache, shows a reader who asked for a large piece, where
/// the kernel's readahead was not set: all of its default.
const KERNEL_READAHEAD_BYTES: u64 = 128 << 10;

/// The largest READ that the kernel sends, in bytes.
const MAX_READ_BYTES: u64 = 1 << 20;

/// A large file that is open, and how it is read.
#[derive(Debug)]
pub(super) struct Auto {
    kind: Kind,
    pub(super) is_direct: bool,
    read_bytes: AtomicU64,
    /// READs since its readers were judged, and the bytes these asked for. Another thread may count a READ in
    /// between: that moves the judgement by one.
    reads: AtomicU32,
    bytes: AtomicU64,
    is_mapped: AtomicBool,
}

impl Auto {
    /// Counts a READ. Whether the last ones show large pieces, once they are enough.
    fn count(&self, len: u64) -> Option<bool> {
        self.read_bytes.fetch_add(len, Ordering::Relaxed);
        if !self.is_direct {
            return None;
        }
        let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.bytes.fetch_add(len, Ordering::Relaxed) + len;
        let are_large = Pieces { reads, bytes }.are_large()?;
        self.reads.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        Some(are_large)
    }
}

impl Filesystem {
    pub(super) fn direct(&self) -> MutexGuard<'_, Direct> {
        self.direct.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves every file that was not named to the page cache: the kernel could not map one that is open
    /// directly.
    pub fn keep_page_cache(&self) {
        self.keeps_page_cache.store(true, Ordering::Relaxed);
    }

    /// Decides how a file is opened by the process `pid`. `None` for one that is left alone.
    pub(super) fn open_auto(&self, ino: InodeNo, file: &File, pid: u32) -> Option<Auto> {
        let is_left_alone = file.size < LEAST_BYTES || self.keeps_page_cache.load(Ordering::Relaxed);
        let page_cache_bytes = self.config.direct_auto.filter(|_| !is_left_alone)?;
        let kind = self.kind(ino)?;
        let large = Large { ino, size: file.size, cache_bytes: page_cache_bytes(pid) };
        let (folder, _) = folder_and_name(file.object.key());
        let mut data_set_bytes = self.direct().data_set_bytes(&kind);
        if data_set_bytes < large.too_large_bytes() {
            data_set_bytes = self.metadata.file_bytes(folder, &kind.1, large.too_large_bytes());
        }
        let (is_direct, change) = self.direct().on_open(&kind, &large, data_set_bytes);
        tell(change, folder, &kind);
        Some(Auto {
            kind,
            is_direct,
            read_bytes: AtomicU64::new(0),
            reads: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            is_mapped: AtomicBool::new(false),
        })
    }

    /// Counts a READ of a large file, and learns from how its reader asks. Takes no lock but once in many.
    pub(super) fn on_auto_read(&self, open: &OpenObject, len: usize) {
        if let Some(auto) = &open.auto
            && let Some(are_large) = auto.count(len as u64)
        {
            let change = self.direct().on_pieces(&auto.kind, open.ino, are_large);
            tell(change, folder_and_name(open.reader.object().key()).0, &auto.kind);
        }
    }

    /// Looks at a READ that fills the page cache: of a file that is open directly, only maps send these.
    pub(super) fn on_auto_fill(&self, open: &OpenObject, offset: u64, len: usize) {
        let Some(auto) = &open.auto else { return };
        if auto.is_direct {
            if !auto.is_mapped.swap(true, Ordering::Relaxed) {
                let change = self.direct().on_map(&auto.kind);
                tell(change, folder_and_name(open.reader.object().key()).0, &auto.kind);
            }
        } else if offset == 0 {
            // The kernel begins with what was asked for, and a little more: with all of its readahead where
            // that was a quarter of it.
            let readahead = self.maps.readahead_bytes().clamp(KERNEL_READAHEAD_BYTES, MAX_READ_BYTES);
            if len as u64 >= readahead {
                self.direct().on_large_beginning(&auto.kind);
            }
        }
    }

    pub(super) fn on_auto_close(&self, open: &OpenObject) {
        let Some(auto) = &open.auto else { return };
        let read_bytes = auto.read_bytes.load(Ordering::Relaxed);
        let (ino, size, is_direct) = (open.ino, open.reader.size(), auto.is_direct);
        self.direct().on_close(&auto.kind, &Closed { ino, size, read_bytes, is_direct });
    }
}

fn tell(change: Option<Change>, folder: &str, kind: &Kind) {
    let extension = &*kind.1;
    match change {
        Some(Change::Direct) => {
            tracing::info!(folder, extension, "large files are opened around the page cache from now on");
        }
        Some(Change::Cached(reason)) => {
            tracing::info!(folder, extension, ?reason, "large files are opened through the page cache again");
        }
        None => {}
    }
}
