//! What readers see of one version on the disk, and the threads that do the work.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::{ByteRange, PartBuffer};

use crate::disk::blocks;
use crate::disk::dir::Dir;
use crate::disk::metrics::Dropped;
use crate::disk::pool::Pool;
use crate::disk::queue::Queue;
use crate::disk::version::{Offer, Version};

/// Threads that read one directory. An NVMe brings 7 GB/s, 7,000 reads of 1 MiB a second of 1 to 2 ms each.
const READERS: usize = 16;

/// Threads that write one directory. One computes checksums while the other writes.
const WRITERS: usize = 2;

/// One cache directory and its threads.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) dir: Arc<Dir>,
    pub(crate) queue: Arc<Queue<Offer>>,
    readers: Pool,
}

impl Disk {
    /// Starts the writers. At most `queue_bytes` wait to be written.
    pub(crate) fn start(dir: Dir, queue_bytes: u64) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::<Offer>::new(queue_bytes));
        for number in 0..WRITERS {
            let queue = queue.clone();
            let write = |offer: Offer| offer.version.keep(offer.range, &offer.bytes);
            std::thread::Builder::new()
                .name(format!("cache-write-{number}"))
                .spawn(move || queue.work(write))?;
        }
        Ok(Self { dir: Arc::new(dir), queue, readers: Pool::new("cache-read".to_owned(), READERS) })
    }

    /// Waits until what was offered is written, at most for `limit`. Returns whether that came to pass.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        self.queue.wait_idle(limit)
    }

    /// Drops writes that wait, the newest first.
    pub(crate) fn shed(&self, bytes: u64) -> u64 {
        let shed = self.queue.shed(bytes);
        let freed = shed.iter().map(|(bytes, _)| bytes).sum();
        self.dir.metrics.dropped_bytes.at(Dropped::Memory).add(freed);
        freed
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.queue.close();
        self.readers.close();
    }
}

/// A run of bytes that are alike: all of them are on the disk, or none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whether the bytes are on the disk.
    pub is_here: bool,
    /// Where the run ends, in bytes from the object's beginning; exclusive.
    pub end: u64,
}

/// One version of an object, and what the disk holds of it.
pub struct DiskObject {
    disk: Arc<Disk>,
    pub(crate) version: Arc<Version>,
}

impl fmt::Debug for DiskObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskObject").field("object", &self.version.named.object).finish_non_exhaustive()
    }
}

impl DiskObject {
    pub(crate) fn new(disk: Arc<Disk>, version: Version) -> Self {
        Self { disk, version: Arc::new(version) }
    }

    /// Finds out what the disk holds of the version. That takes one open(2); later calls answer from memory.
    /// A disk that hangs holds nothing.
    pub async fn look(&self) {
        if !self.version.is_known() {
            let version = self.version.clone();
            let looked = self.disk.readers.run(self.disk.dir.clock.now(), move || version.look());
            drop(looked.await);
        }
    }

    /// Whether the byte at `offset` is on the disk, and where the run of bytes with that answer ends. From
    /// memory, without I/O. Before [`look`](Self::look), nothing is there.
    pub fn run(&self, offset: u64) -> Run {
        let (is_here, end) = self.version.run(offset);
        Run { is_here, end }
    }

    /// Whether nothing that was offered to its directory waits to be written.
    pub fn is_idle(&self) -> bool {
        self.disk.queue.is_idle()
    }

    /// The file of the whole object, for the kernel to read it by itself. `None` where the object is not
    /// whole, and where its bytes may not have survived a power cut and were not compared with their
    /// checksums since.
    pub fn whole_file(&self) -> Option<Arc<File>> {
        self.version.whole_file()
    }

    /// Reads `range` into the front of `into`, which is at least that long, and compares it with its
    /// checksums. [Looks](Self::look) first if nobody has.
    ///
    /// # Errors
    /// When not all of the range is on the disk, or it can't be read, or its bytes are wrong. That gives the
    /// buffer back, unless a read that hangs still writes to it.
    pub async fn read<B: PartBuffer>(&self, range: ByteRange, mut into: B) -> Result<Bytes, Option<B>> {
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let is_inside = range.end() <= self.version.named.size && 0 < len && len <= into.as_ref().len();
        if !is_inside || !self.version.may_have(range) {
            return Err(Some(into));
        }
        let version = self.version.clone();
        let answer = self.disk.readers.run(self.disk.dir.clock.now(), move || {
            if version.read(range, &mut into.as_mut()[..len]) { Ok(into) } else { Err(into) }
        });
        match answer.await {
            Ok(Ok(into)) => Ok(Bytes::from_owner(into).slice(..len)),
            Ok(Err(into)) => Err(Some(into)),
            Err(_) => Err(None),
        }
    }

    /// Offers the object's bytes at `range` for keeping. Never waits and does no I/O: they are written later,
    /// or dropped when too many wait, when the disk does not work as it should, or when the cache is full.
    pub fn offer(&self, range: ByteRange, bytes: &Bytes) {
        debug_assert_eq!(range.len(), bytes.len() as u64, "the bytes are those of the range");
        let blocks = blocks::covered(range, self.version.named.size);
        if blocks.is_empty() || self.version.run(range.start()).0 {
            return;
        }
        let offer = Offer { version: self.version.clone(), range, bytes: bytes.clone() };
        if self.disk.queue.push(offer, range.len()).is_err() {
            self.disk.dir.metrics.dropped_bytes.at(Dropped::Queue).add(range.len());
        }
    }
}
