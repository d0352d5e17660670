//! Sorts the READs that fill the kernel's page cache. Those of random maps are refused, or answered piece by
//! piece.

use std::sync::{Arc, OnceLock};

use s3mount_object::ByteRange;
use s3mount_prefetch::ObjectReader;
use tokio::sync::{Mutex, mpsc};

use super::kind::kind_of;
use super::map_reads::{Answer, may_be_read_around};
use super::map_table::{MapTable, Watched};
use crate::numbers::InodeNo;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::tree::inode::InodeTable;

/// How many ranges of pages may wait to be dropped.
const MAX_REFUSED_PAGES: usize = 256;

/// A range of bytes of an inode.
type Pages = (InodeNo, ByteRange);

/// Sorts the READs that fill the page cache.
#[derive(Debug)]
pub(crate) struct Fills {
    inodes: Arc<InodeTable>,
    maps: MapTable,
    /// Pages that the kernel has to drop.
    refused_pages: (mpsc::Sender<Pages>, Mutex<mpsc::Receiver<Pages>>),
}

/// The READs of one open file that fill the page cache.
#[derive(Debug)]
pub(crate) struct OpenFills {
    ino: InodeNo,
    /// The end of the last READ.
    last_end: AtomicU64,
    /// Whether a READ has continued another since [`watched`](Self::watched) was last used.
    has_gone_on: AtomicBool,
    /// Set when the READs look like random page faults of a map.
    watched: OnceLock<Arc<Watched>>,
}

impl OpenFills {
    /// Whether the file is known to be read at random through maps.
    pub(crate) fn is_random(&self) -> bool {
        self.watched.get().is_some_and(|file| file.is_random())
    }
}

impl Fills {
    pub(crate) fn new(inodes: Arc<InodeTable>) -> Self {
        let (refused, dropped) = mpsc::channel(MAX_REFUSED_PAGES);
        Self { inodes, maps: MapTable::default(), refused_pages: (refused, Mutex::new(dropped)) }
    }

    /// The files that are read at random through maps.
    pub(crate) fn maps(&self) -> &MapTable {
        &self.maps
    }

    /// Notes that a file of `size` bytes is opened.
    pub(crate) fn on_open(&self, ino: InodeNo, size: u64) -> OpenFills {
        let watched = self.maps.on_open(ino, size, || kind_of(&self.inodes, ino));
        OpenFills {
            ino,
            last_end: AtomicU64::new(0),
            has_gone_on: AtomicBool::new(false),
            watched: watched.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    /// Decides about a READ. A READ of a stream takes no lock here.
    pub(crate) fn sort(&self, open: &OpenFills, reader: &ObjectReader, read: ByteRange) -> Answer {
        let readahead_bytes = self.maps.readahead_bytes();
        if readahead_bytes == 0 {
            return Answer::Serve;
        }
        let goes_on = open.last_end.swap(read.end(), Ordering::Relaxed) == read.start();
        let size = reader.size();
        if open.watched.get().is_none_or(|file| file.is_only_watching()) {
            if goes_on && !open.has_gone_on.load(Ordering::Relaxed) {
                open.has_gone_on.store(true, Ordering::Relaxed);
            }
            if goes_on || !may_be_read_around(read, readahead_bytes, size) || !self.maps.is_worth_it(size) {
                return Answer::Serve;
            }
        }
        let Some(file) = self.watched(open, size) else { return Answer::Serve };
        let was_stream = open.has_gone_on.swap(false, Ordering::Relaxed);
        let decision = self.maps.on_read(&file, read, was_stream, || reader.is_streamed(read));
        tracing::trace!(%read, len = read.len(), ?decision, "sorted");
        if let Some(range) = decision.drop {
            // If there is no room, these pages are dropped later or never. Then their reader is slow, but its
            // bytes are right.
            let _ = self.refused_pages.0.try_send((open.ino, range));
        }
        if let Some(change) = decision.change {
            tracing::debug!(object = ?reader.object(), ?change, "reads of a file through maps have changed");
        }
        decision.answer
    }

    fn watched(&self, open: &OpenFills, size: u64) -> Option<Arc<Watched>> {
        if let Some(file) = open.watched.get() {
            return Some(file.clone());
        }
        let file = self.maps.watch(open.ino, size, kind_of(&self.inodes, open.ino)?);
        Some(open.watched.get_or_init(|| file).clone())
    }

    /// Waits until refused pages slow a reader down. Returns the inode and the bytes that the kernel has to drop from
    /// its page cache. Only one caller may wait at a time.
    pub(crate) async fn refused_pages(&self) -> (InodeNo, ByteRange) {
        let mut pages = self.refused_pages.1.lock().await;
        match pages.recv().await {
            Some(refused) => refused,
            // This never ends, because the sender lives as long as the receiver.
            None => std::future::pending().await,
        }
    }
}
