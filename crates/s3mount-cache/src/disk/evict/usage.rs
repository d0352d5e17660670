//! How many bytes of the disk the cache takes, counted by all processes that share it, in one small file.
//!
//! The file is changed under its lock. It may be wrong after a crash: bytes that were reserved and not written,
//! or written and not given back. So a pass over all shards corrects it from time to time. What changes while
//! the pass goes on may or may not be in its sum. But the sum less all that was given back meanwhile, and the
//! sum with all that was reserved meanwhile, are bounds of the truth.
//!
//! When the file is lost or damaged, nothing is known until a pass is over.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::blocks;
use crate::disk::layout::Layout;

/// The file begins with this.
const MAGIC: &[u8; 8] = b"s3muse02";

/// The file's length: a magic, four numbers and a checksum.
const FILE_BYTES: usize = 48;

/// Where the checksum lies.
const SUM: usize = FILE_BYTES - 8;

/// How long to wait for the lock, which is held for some microseconds. After this time the caller gives up.
const LOCK_LIMIT: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(1);

/// The counts in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many bytes of the disk are in use or reserved.
    pub(crate) used: u64,
    /// How many bytes were reserved, and given back or evicted, since the file was made.
    pub(crate) added: u64,
    pub(crate) removed: u64,
    /// How many of the bytes in use are those of kept listings.
    pub(crate) listings: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.used += bytes;
        self.added += bytes;
    }

    pub(crate) fn remove(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        self.removed += bytes;
    }

    /// Notes that a listing of `bytes` replaced one of `before` bytes. Either may be 0.
    pub(crate) fn replace_listing(&mut self, before: u64, bytes: u64) {
        self.remove(before);
        self.add(bytes);
        self.listings = self.listings.saturating_sub(before) + bytes;
    }

    /// Corrects the bytes in use after a pass. It found `sum` bytes, of which listings take `listings`, and the counts
    /// were `before` when it began.
    pub(crate) fn correct(&mut self, before: Self, sum: u64, listings: u64) {
        self.listings = (listings + self.listings).saturating_sub(before.listings);
        let lowest = sum.saturating_sub(self.removed.saturating_sub(before.removed));
        let highest = sum + self.added.saturating_sub(before.added);
        self.used = self.used.clamp(lowest, highest.max(lowest));
    }

    fn encode(self) -> [u8; FILE_BYTES] {
        let mut out = [0; FILE_BYTES];
        out[..8].copy_from_slice(MAGIC);
        let numbers = [self.used, self.added, self.removed, self.listings];
        for (at, number) in numbers.into_iter().enumerate() {
            out[8 + 8 * at..16 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        let sum = blocks::sum(&out[..SUM]);
        out[SUM..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; FILE_BYTES]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
        let is_right = bytes.starts_with(MAGIC) && number(5) == blocks::sum(&bytes[..SUM]);
        is_right.then(|| Self { used: number(1), added: number(2), removed: number(3), listings: number(4) })
    }
}

/// A file that several processes change under its lock.
#[derive(Debug)]
pub(crate) struct SharedFile {
    path: PathBuf,
    file: Mutex<File>,
}

/// The lock of a [`SharedFile`], among threads and among processes.
pub(crate) struct Locked<'a>(MutexGuard<'a, File>);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing the file would release the lock, too.
        let _ = self.0.unlock();
    }
}

impl std::ops::Deref for Locked<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl SharedFile {
    /// Opens the file, and makes it if need be.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: Mutex::new(open(path)?) })
    }

    /// Switches to the file that is at the path now.
    pub(crate) fn open_again(&self) -> io::Result<()> {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = open(&self.path)?;
        Ok(())
    }

    /// Waits for the lock. A file that was deleted is made anew.
    pub(crate) fn lock(&self) -> io::Result<Locked<'_>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.metadata()?.nlink() == 0 {
            *file = open(&self.path)?;
        }
        let mut waited = Duration::ZERO;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Locked(file)),
                Err(TryLockError::WouldBlock) if waited < LOCK_LIMIT => {
                    std::thread::sleep(LOCK_RETRY);
                    waited += LOCK_RETRY;
                }
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Fills `into` from `offset` on. Returns whether the file has that many bytes.
pub(crate) fn read_exact(file: &File, into: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(into, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The file of the counts.
#[derive(Debug)]
pub(crate) struct Usage(SharedFile);

impl Usage {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(SharedFile::open(path)?))
    }

    /// Switches to the file of a directory that has replaced the former one.
    pub(crate) fn open_again(&self) -> io::Result<()> {
        self.0.open_again()
    }

    /// Begins to count in a directory without objects, which needs no pass.
    pub(crate) fn begin(&self, layout: &Layout) -> io::Result<()> {
        let is_new = is_empty(layout)?;
        self.change(|counts| {
            if counts.is_none() && is_new {
                *counts = Some(Counts::default());
            }
        })
    }

    /// Lets `change` change the counts. They are `None` when the file is lost.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Option<Counts>) -> T) -> io::Result<T> {
        let file = self.0.lock()?;
        let mut bytes = [0; FILE_BYTES];
        let before = if read_exact(&file, &mut bytes, 0)? { Counts::decode(&bytes) } else { None };
        let mut counts = before;
        let result = change(&mut counts);
        if let Some(counts) = counts.filter(|counts| Some(*counts) != before) {
            file.write_all_at(&counts.encode(), 0)?;
        }
        Ok(result)
    }

    pub(crate) fn read(&self) -> io::Result<Option<Counts>> {
        self.change(|counts| *counts)
    }
}

/// Whether no object was ever cached here.
fn is_empty(layout: &Layout) -> io::Result<bool> {
    match std::fs::read_dir(layout.objects()) {
        Ok(mut shards) => Ok(shards.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Usage};

    #[test]
    fn two_processes_count_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("usage");
        let open = || Usage::open(&path).expect("a file");
        let (one, other) = (open(), open());
        assert_eq!(one.read().expect("a file"), None);
        one.change(|counts| *counts = Some(Counts::default())).expect("a file");
        std::thread::scope(|scope| {
            for usage in [&one, &other, &one] {
                scope.spawn(move || {
                    (0..500).for_each(|_| {
                        usage.change(|counts| counts.as_mut().expect("known").add(3)).expect("a file");
                    });
                });
            }
        });
        let sum = Counts { used: 4500, added: 4500, ..Counts::default() };
        assert_eq!(other.read().expect("a file"), Some(sum));
        std::fs::write(&path, "s3muse02 but damaged").expect("a file");
        assert_eq!(one.read().expect("a file"), None);
        std::fs::remove_file(&path).expect("a file");
        one.change(|counts| *counts = Some(sum)).expect("a new file");
        assert_eq!(open().read().expect("a file"), Some(sum), "not the file that was deleted");
    }

    #[test]
    fn a_pass_corrects_what_it_can_know() {
        let before = Counts { used: 1000, added: 5000, removed: 4000, listings: 100 };
        let corrected = |now: Counts, sum| {
            let mut now = now;
            now.correct(before, sum, 100);
            now.used
        };
        assert_eq!(corrected(before, 800), 800, "nothing has changed meanwhile");
        let busy = Counts { used: 1200, added: 5300, removed: 4100, listings: 100 };
        assert_eq!(corrected(busy, 1000), 1200, "it may well be right");
        assert_eq!(corrected(busy, 800), 1100, "the sum with all that was added");
        assert_eq!(corrected(busy, 1500), 1400, "the sum less all that was removed");
        // The pass found listings of 70 bytes, and 20 were added meanwhile.
        let mut now = Counts { listings: 120, ..busy };
        now.correct(before, 1000, 70);
        assert_eq!(now.listings, 90);
    }
}
