//! How much a cache directory may take: a number of bytes, or all but a part of the file system. A part of the file
//! system's bytes and inodes always stays free.
//!
//! Each process has its own limit. The file `limit` holds the largest limit of the processes that use the directory
//! now, and each of them holds a shared lock on it. The first one writes its limit, whatever the file said before.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::statvfs;

use crate::disk::layout::Layout;

/// The part of the file system that stays free, of its bytes and of its inodes.
const FREE: f64 = 0.05;

/// A user who gives a limit has chosen how much of the disk the cache takes. Then no more than this stays free.
const MOST_FREE: u64 = 2 << 30;

/// When other programs leave less than this part of the reserved space free, the cache evicts objects that it would
/// otherwise hold. So it does not evict for each file of another program.
const TOO_LITTLE: f64 = 0.9;

/// Kept listings take at most one part in this many of the cache's limit: names are worth little room beside the
/// objects. The listings of a million keys take some 50 MiB.
const LISTINGS_PART: u64 = 16;

/// The most files that a version takes: its data, its record or map, and their folder.
pub(crate) const NEW_FILES: u64 = 3;

/// How long to wait for the file's lock. Another process that opens the directory holds it exclusively for some
/// microseconds, and one that deletes the rest of an empty cache for some tenths of a second.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
const LOCK_RETRY: Duration = Duration::from_millis(1);

/// How much a cache directory may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// This many bytes.
    Bytes(u64),
    /// 5 % of the file system stay free.
    LeaveFree,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::LeaveFree => f.write_str("all but 5 % of the file system"),
        }
    }
}

/// The space of a file system: in bytes, and in files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) total: u64,
    pub(crate) free: u64,
    /// 0 where the file system makes inodes as it needs them.
    pub(crate) total_files: u64,
    pub(crate) free_files: u64,
}

impl Space {
    /// The space of a disk without an end.
    pub(crate) const ENDLESS: Self = Self { total: 0, free: u64::MAX, total_files: 0, free_files: u64::MAX };

    pub(crate) fn of(layout: &Layout) -> io::Result<Self> {
        let space = statvfs(layout.root())?;
        Ok(Self {
            total: space.f_blocks * space.f_frsize,
            free: space.f_bavail * space.f_frsize,
            total_files: space.f_files,
            free_files: space.f_favail,
        })
    }
}

/// The bytes of the disk and the files to evict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

impl Need {
    /// Nothing needs to be evicted.
    pub(crate) const NONE: Self = Self { bytes: 0, files: 0 };
}

/// The part of `total` that stays free.
fn share(total: u64) -> u64 {
    (total as f64 * FREE) as u64
}

fn too_little(kept_free: u64) -> u64 {
    (kept_free as f64 * TOO_LITTLE) as u64
}

impl Limit {
    pub(crate) fn new(max_bytes: Option<u64>) -> Self {
        max_bytes.map_or(Self::LeaveFree, Self::Bytes)
    }

    /// What to evict before `more` bytes, and some new files, can be written.
    pub(crate) fn excess(self, used: u64, more: u64, space: Space) -> Need {
        let bytes = (more + self.kept_free(space)).saturating_sub(space.free);
        let files = (NEW_FILES + share(space.total_files)).saturating_sub(space.free_files);
        let files = if space.total_files == 0 { 0 } else { files };
        Need { bytes: bytes.max(self.over(used + more)), files }
    }

    /// What to evict at once, even objects that would otherwise be held.
    pub(crate) fn surplus(self, used: u64, space: Space) -> Need {
        let bytes = too_little(self.kept_free(space)).saturating_sub(space.free);
        let files = too_little(share(space.total_files)).saturating_sub(space.free_files);
        let files = if used == 0 { 0 } else { files };
        Need { bytes: bytes.max(self.over(used)).min(used), files }
    }

    /// How many bytes kept listings may take.
    pub(crate) fn listings(self, space: Space) -> u64 {
        let all = match self {
            Self::Bytes(limit) => limit,
            Self::LeaveFree => space.total - self.kept_free(space),
        };
        all / LISTINGS_PART
    }

    /// By how many bytes `used` exceeds the limit.
    fn over(self, used: u64) -> u64 {
        match self {
            Self::Bytes(limit) => used.saturating_sub(limit),
            Self::LeaveFree => 0,
        }
    }

    /// How many bytes of the file system stay free.
    fn kept_free(self, space: Space) -> u64 {
        match self {
            Self::Bytes(_) => share(space.total).min(MOST_FREE),
            Self::LeaveFree => share(space.total),
        }
    }

    fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bytes(one), Self::Bytes(other)) => Self::Bytes(one.max(other)),
            _ => Self::LeaveFree,
        }
    }

    fn encode(self) -> [u8; 8] {
        match self {
            Self::Bytes(bytes) => bytes.min(u64::MAX - 1),
            Self::LeaveFree => u64::MAX,
        }
        .to_le_bytes()
    }
}

/// The limit shared by the processes that use a directory, this process among them.
#[derive(Debug)]
pub(crate) struct SharedLimit {
    file: Mutex<File>,
    pub(crate) own: Limit,
}

impl SharedLimit {
    /// Joins the processes that use the directory. Also returns their limit, if it differs.
    pub(crate) fn open(layout: &Layout, own: Limit) -> io::Result<(Self, Option<Limit>)> {
        let (file, others) = join(layout, own)?;
        Ok((Self { file: Mutex::new(file), own }, others))
    }

    /// Joins the processes that use a directory that has replaced the former one.
    pub(crate) fn join_again(&self, layout: &Layout) -> io::Result<()> {
        let (file, _) = join(layout, self.own)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }

    /// The largest limit of the processes that use the directory.
    pub(crate) fn read(&self) -> io::Result<Limit> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(read(&file)?.unwrap_or(self.own))
    }
}

/// The file, with a lock that marks its directory as in use, and the limit of other processes, if it differs.
fn join(layout: &Layout, own: Limit) -> io::Result<(File, Option<Limit>)> {
    let file = loop {
        let file = open(layout)?;
        match file.try_lock() {
            Ok(()) => file.write_all_at(&own.encode(), 0)?,
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        lock_shared(&file)?;
        // The former holder of the exclusive lock may have deleted the file.
        if file.metadata()?.nlink() > 0 {
            break file;
        }
    };
    let others = read(&file)?.filter(|others| *others != own);
    if let Some(others) = others {
        file.write_all_at(&own.max(others).encode(), 0)?;
    }
    Ok((file, others))
}

/// The directory's present or last limit, and whether a process uses the directory.
pub(crate) fn look(layout: &Layout) -> io::Result<(Option<Limit>, bool)> {
    let file = match File::open(layout.limit()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, false)),
        file => file?,
    };
    let is_used = match file.try_lock() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    Ok((read(&file)?, is_used))
}

/// The file, if no process uses the directory. While it is open, no process can begin to.
pub(crate) fn lock_unused(layout: &Layout) -> io::Result<Option<File>> {
    let file = open(layout)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open(layout: &Layout) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(layout.limit())
}

fn read(file: &File) -> io::Result<Option<Limit>> {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(Some(match u64::from_le_bytes(bytes) {
            u64::MAX => Limit::LeaveFree,
            bytes => Limit::Bytes(bytes),
        })),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn lock_shared(file: &File) -> io::Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if waited < LOCK_LIMIT => {
                std::thread::sleep(LOCK_RETRY);
                waited += LOCK_RETRY;
            }
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
