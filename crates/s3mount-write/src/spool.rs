//! The spool: a disk for bytes of drafts that memory can't hold, or that another process may have to go on with.
//!
//! Each draft has one file there, without a name, in which a byte lies at the same offset as in the draft. All files
//! together have a bound.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use crate::SpoolConfig;
use crate::spool_disk::SpoolBytes;

/// The disk, and how much of it is used.
#[derive(Clone, Debug)]
pub(crate) struct Spool(Arc<SpoolUse>);

#[derive(Debug)]
struct SpoolUse {
    config: SpoolConfig,
    used_bytes: AtomicU64,
    /// Whether something did not fit since a file was given back last.
    is_full: AtomicBool,
}

/// The file of one draft.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    spool: Spool,
    bytes: Arc<dyn SpoolBytes>,
    /// How many bytes of the disk it takes.
    taken_bytes: AtomicU64,
}

impl Spool {
    pub(crate) fn new(config: SpoolConfig) -> Self {
        let (used_bytes, is_full) = (AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(SpoolUse { config, used_bytes, is_full }))
    }

    /// A spool without room: its files are others'.
    pub(crate) fn none() -> Self {
        Self::new(SpoolConfig::in_directory(Path::new(""), 0))
    }

    /// How many bytes of the disk all files take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether there was no room for something, and nothing was given back since.
    pub(crate) fn is_full(&self) -> bool {
        self.0.is_full.load(Ordering::Relaxed)
    }

    /// A new file. Blocks.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn file(&self) -> io::Result<SpoolFile> {
        Ok(self.count(self.0.config.disk.file()?))
    }

    /// A file that the process before has left. It counts, also where it does not fit.
    pub(crate) fn count(&self, bytes: Arc<dyn SpoolBytes>) -> SpoolFile {
        let file = SpoolFile { spool: self.clone(), bytes, taken_bytes: AtomicU64::new(0) };
        file.count();
        file
    }

    /// Does something that blocks: on a thread for such things, if the disk is a real one.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if !self.0.config.disk.blocks() {
            return task();
        }
        match tokio::task::spawn_blocking(task).await {
            Ok(result) => result,
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Gives a file back, which nobody waits for: freeing the blocks of a long file takes a while.
    pub(crate) fn give_back(&self, file: Arc<SpoolFile>) {
        if self.0.config.disk.blocks() {
            drop(tokio::task::spawn_blocking(move || drop(file)));
        }
    }
}

impl SpoolFile {
    /// Writes pieces at their offsets. Blocks. There may be one such call at a time.
    ///
    /// # Errors
    /// `StorageFull` when they would exceed the bound; the disk's.
    pub(crate) fn write(&self, pieces: &[(u64, Bytes)]) -> io::Result<()> {
        let SpoolUse { config, used_bytes, is_full } = &*self.spool.0;
        let len: u64 = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        if used_bytes.load(Ordering::Relaxed) + len > config.limit_bytes {
            is_full.store(true, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let written = pieces.iter().try_for_each(|(offset, bytes)| self.bytes.write(*offset, bytes));
        self.count();
        is_full.fetch_or(written.is_err(), Ordering::Relaxed);
        written
    }

    /// Counts what it takes. Holes take nothing, and what was there before was counted.
    fn count(&self) {
        let used_bytes = &self.spool.0.used_bytes;
        let taken = self.bytes.taken_bytes();
        let before = self.taken_bytes.swap(taken, Ordering::Relaxed);
        used_bytes.fetch_add(taken.saturating_sub(before), Ordering::Relaxed);
        used_bytes.fetch_sub(before.saturating_sub(taken), Ordering::Relaxed);
    }

    /// Whether these are all bytes that it was given, where it knows.
    pub(crate) fn are(&self, pieces: &[Bytes]) -> bool {
        self.bytes.are(pieces)
    }

    /// Reads `into.len()` bytes at `offset`. Blocks.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.bytes.read(offset, into)
    }

    /// The spool that it is a file of.
    pub(crate) fn spool(&self) -> &Spool {
        &self.spool
    }

    /// The file itself.
    pub(crate) fn bytes(&self) -> &Arc<dyn SpoolBytes> {
        &self.bytes
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        let SpoolUse { used_bytes, is_full, .. } = &*self.spool.0;
        used_bytes.fetch_sub(*self.taken_bytes.get_mut(), Ordering::Relaxed);
        is_full.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Spool;
    use crate::SpoolConfig;

    #[test]
    fn the_bound_counts_what_lies_on_the_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = SpoolConfig::in_directory(directory.path(), 3 << 20);
        let spool = Spool::new(config);
        let file = spool.file().expect("a file");
        let piece = Bytes::from(vec![7; 1 << 20]);
        for _ in 0..5 {
            file.write(&[(5 << 40, piece.clone())]).expect("a sparse file, written at one place");
        }
        assert!((1 << 20..2 << 20).contains(&spool.used_bytes()), "{}", spool.used_bytes());
        let other = spool.file().expect("a file");
        other.write(&[(0, piece.clone())]).expect("there is room");
        let error = other.write(&[(1 << 20, piece.clone()), (2 << 20, piece)]).expect_err("no room");
        assert_eq!((error.kind(), spool.is_full()), (std::io::ErrorKind::StorageFull, true));
        let mut read = [0; 3];
        file.read((5 << 40) + 100, &mut read).expect("it is there");
        assert_eq!(read, [7; 3]);
        assert_eq!(directory.path().read_dir().expect("a directory").count(), 0, "the files have no names");
        drop((file, other));
        assert_eq!((spool.used_bytes(), spool.is_full()), (0, false));
    }
}
