//! Applies the policy of `--direct-io auto`: opens large files around the kernel's page cache.

use std::sync::Arc;

use s3mount_object::folder_and_name;
use s3mount_prefetch::ObjectReader;

use super::direct::{Change, Closed, Counts, Direct, LEAST_BYTES, Large, Pieces};
use super::kind::{KindKey, kind_of};
use crate::PageCacheBytes;
use crate::names::Namespace;
use crate::numbers::InodeNo;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::tree::inode::InodeTable;
use s3mount_names::File;

/// The kernel's default readahead, in bytes. If the readahead was not set, a first READ of this size shows
/// that the reader asked for a large piece.
const KERNEL_READAHEAD_BYTES: u64 = 128 << 10;

/// The largest READ that the kernel sends, in bytes.
const MAX_READ_BYTES: u64 = 1 << 20;

/// A large file that is open, and how it is read.
#[derive(Debug)]
pub(crate) struct OpenLarge {
    ino: InodeNo,
    kind: KindKey,
    is_direct: bool,
    read_bytes: AtomicU64,
    /// The READs since its readers were last judged, and their bytes. Another thread may count a READ in
    /// between, which moves the judgement by one READ.
    reads: AtomicU32,
    bytes: AtomicU64,
    is_mapped: AtomicBool,
}

impl OpenLarge {
    /// Whether it is opened around the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Counts a READ. When there are enough, returns whether they show large pieces.
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

/// Decides which large files are opened around the page cache.
#[derive(Debug)]
pub(crate) struct DirectIo {
    namespace: Arc<Namespace>,
    inodes: Arc<InodeTable>,
    policy: Mutex<Direct>,
    /// Returns how much the page cache may hold for a process. Unset without `--direct-io auto`.
    page_cache_bytes: Option<PageCacheBytes>,
    /// Whether this kernel can't map a file that is open directly.
    keeps_page_cache: AtomicBool,
}

impl DirectIo {
    /// Opens every file through the page cache unless `page_cache_bytes` is set.
    pub(crate) fn new(
        namespace: Arc<Namespace>,
        inodes: Arc<InodeTable>,
        page_cache_bytes: Option<PageCacheBytes>,
    ) -> Self {
        let keeps_page_cache = AtomicBool::new(false);
        Self { namespace, inodes, policy: Mutex::default(), page_cache_bytes, keeps_page_cache }
    }

    fn policy(&self) -> MutexGuard<'_, Direct> {
        lock(&self.policy)
    }

    /// The decisions since the mount.
    pub(crate) fn counts(&self) -> Counts {
        self.policy().counts()
    }

    /// Opens every file through the page cache from now on, because this kernel can't map a file that is open
    /// directly.
    pub(crate) fn keep_page_cache(&self) {
        self.keeps_page_cache.store(true, Ordering::Relaxed);
    }

    /// Decides how the process `pid` opens a file. `None` for a file that the policy does not concern.
    pub(crate) fn on_open(&self, ino: InodeNo, file: &File, pid: u32) -> Option<OpenLarge> {
        let is_left_alone = file.size < LEAST_BYTES || self.keeps_page_cache.load(Ordering::Relaxed);
        let page_cache_bytes = self.page_cache_bytes.filter(|_| !is_left_alone)?;
        let kind = kind_of(&self.inodes, ino)?;
        let large = Large { ino, size: file.size, cache_bytes: page_cache_bytes(pid) };
        let (folder, _) = folder_and_name(file.object.key());
        let mut data_set_bytes = self.policy().data_set_bytes(&kind);
        if data_set_bytes < large.too_large_bytes() {
            data_set_bytes = self.namespace.file_bytes(folder, &kind.1, large.too_large_bytes());
        }
        let (is_direct, change) = self.policy().on_open(&kind, &large, data_set_bytes);
        log_change(change, folder, &kind);
        Some(OpenLarge {
            ino,
            kind,
            is_direct,
            read_bytes: AtomicU64::new(0),
            reads: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            is_mapped: AtomicBool::new(false),
        })
    }

    /// Counts a READ of a large file, and learns from its size. Takes a lock only once in many READs.
    pub(crate) fn on_read(&self, large: &OpenLarge, reader: &ObjectReader, len: usize) {
        if let Some(are_large) = large.count(len as u64) {
            let change = self.policy().on_pieces(&large.kind, large.ino, are_large);
            log_change(change, folder_and_name(reader.object().key()).0, &large.kind);
        }
    }

    /// Learns from a READ that fills the page cache. If the file is open directly, the READ comes from a map.
    /// The kernel reads `readahead_bytes` ahead.
    pub(crate) fn on_fill(
        &self,
        large: &OpenLarge,
        reader: &ObjectReader,
        offset: u64,
        len: usize,
        readahead_bytes: u64,
    ) {
        if large.is_direct {
            if !large.is_mapped.swap(true, Ordering::Relaxed) {
                let change = self.policy().on_map(&large.kind);
                log_change(change, folder_and_name(reader.object().key()).0, &large.kind);
            }
        } else if offset == 0 {
            // The kernel begins with a little more than the program asked for. It begins with its whole
            // readahead if the program asked for a quarter of that.
            let readahead = readahead_bytes.clamp(KERNEL_READAHEAD_BYTES, MAX_READ_BYTES);
            if len as u64 >= readahead {
                self.policy().on_large_beginning(&large.kind);
            }
        }
    }

    /// Notes that a large file is closed, and how much of it was read.
    pub(crate) fn on_close(&self, large: &OpenLarge, size: u64) {
        let read_bytes = large.read_bytes.load(Ordering::Relaxed);
        let closed = Closed { ino: large.ino, size, read_bytes, is_direct: large.is_direct };
        self.policy().on_close(&large.kind, &closed);
    }
}

fn log_change(change: Option<Change>, folder: &str, kind: &KindKey) {
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
