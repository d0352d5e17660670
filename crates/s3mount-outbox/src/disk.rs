//! Where records lie: in files of a folder, or on a simulated disk that may lose what was not synced.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

/// A disk with files that have numbers.
pub trait OutboxDisk: std::fmt::Debug + Send + Sync {
    /// The numbers of all files, in any order.
    ///
    /// # Errors
    /// The disk's.
    fn segments(&self) -> io::Result<Vec<u64>>;

    /// A new file with room for `bytes`, which has nothing but zeros. Its name survives a power cut once this returns.
    ///
    /// # Errors
    /// The disk's.
    fn create(&self, number: u64, bytes: u64) -> io::Result<Arc<dyn SegmentFile>>;

    /// A file that is there.
    ///
    /// # Errors
    /// The disk's.
    fn open(&self, number: u64) -> io::Result<Arc<dyn SegmentFile>>;

    /// Removes the name of a file. Its bytes stay as long as somebody has it.
    ///
    /// # Errors
    /// The disk's.
    fn remove(&self, number: u64) -> io::Result<()>;

    /// Keeps a file that is damaged under another name.
    ///
    /// # Errors
    /// The disk's.
    fn set_aside(&self, number: u64) -> io::Result<()>;

    /// The numbers of the files that were [set aside](Self::set_aside).
    ///
    /// # Errors
    /// The disk's.
    fn damaged(&self) -> io::Result<Vec<u64>>;

    /// A number that nobody can guess, so that nobody can write bytes to a file that look like a record.
    fn salt(&self) -> u32;

    /// Whether calls may wait for a disk: these are made on threads for such things.
    fn blocks(&self) -> bool;
}

/// A file of the outbox.
pub trait SegmentFile: std::fmt::Debug + Send + Sync {
    /// Writes bytes at `offset`.
    ///
    /// # Errors
    /// The disk's.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads `into.len()` bytes at `offset`.
    ///
    /// # Errors
    /// The disk's. `UnexpectedEof` where the file is shorter.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Waits until what was written survives a power cut.
    ///
    /// # Errors
    /// The disk's: what was written since the last success may be lost.
    fn sync(&self) -> io::Result<()>;

    /// Its length in bytes.
    ///
    /// # Errors
    /// The disk's.
    fn bytes(&self) -> io::Result<u64>;

    /// Gives up all but its first `bytes`.
    ///
    /// # Errors
    /// The disk's.
    fn shorten(&self, bytes: u64) -> io::Result<()>;
}

/// How the name of a file ends.
const SUFFIX: &str = ".outbox";

/// How the name of a file ends that was set aside.
const DAMAGED: &str = ".damaged";

/// The name of a file.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:016x}{SUFFIX}")
}

/// The name of a file that was set aside.
pub(crate) fn damaged_name(number: u64) -> String {
    format!("{number:016x}{DAMAGED}")
}

/// The file that the daemon locks that has the folder.
const LOCK: &str = "lock";

/// A folder of a file system.
#[derive(Debug)]
pub struct FolderDisk {
    path: PathBuf,
    folder: File,
    /// Locked as long as this lives. Whoever only looks has none.
    lock: Option<File>,
}

impl FolderDisk {
    /// Takes a folder, which nobody else can take as long as the result lives.
    ///
    /// # Errors
    /// `WouldBlock` where another process has it; those of the file system.
    pub fn take(path: &Path) -> io::Result<Self> {
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(path.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path: path.to_owned(), folder: File::open(path)?, lock: Some(lock) })
    }

    /// A folder to look at, whoever has it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn look(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), folder: File::open(path)?, lock: None })
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.path.join(segment_name(number))
    }

    /// The numbers in the names that end so.
    fn numbers(&self, suffix: &str) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in self.path.read_dir()? {
            let name = entry?.file_name();
            let digits = name.to_str().and_then(|name| name.strip_suffix(suffix));
            numbers.extend(digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
        }
        Ok(numbers)
    }
}

impl OutboxDisk for FolderDisk {
    fn segments(&self) -> io::Result<Vec<u64>> {
        self.numbers(SUFFIX)
    }

    fn create(&self, number: u64, bytes: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let path = self.path_of(number);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let made = match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // Such a file system can't say in advance whether there is room.
            Ok(()) | Err(Errno::OPNOTSUPP) => file.sync_all().and_then(|()| self.folder.sync_all()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = made {
            // Nothing is lost with an empty file, which the next daemon removes.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(self.lock.is_some()).open(self.path_of(number))?))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        std::fs::remove_file(self.path_of(number))
    }

    fn set_aside(&self, number: u64) -> io::Result<()> {
        std::fs::rename(self.path_of(number), self.path.join(damaged_name(number)))
    }

    fn damaged(&self) -> io::Result<Vec<u64>> {
        self.numbers(DAMAGED)
    }

    #[expect(clippy::disallowed_methods, reason = "its keys are random, which is what is wanted")]
    fn salt(&self) -> u32 {
        RandomState::new().build_hasher().finish() as u32
    }

    fn blocks(&self) -> bool {
        true
    }
}

impl SegmentFile for File {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A disk in memory, for simulations. After [`cut`](Self::cut) it has what was synced, and of the rest what its caller
/// says.
#[derive(Debug, Default)]
pub struct SimulatedDisk {
    files: Mutex<BTreeMap<u64, Arc<SimulatedFile>>>,
    aside: Mutex<BTreeMap<u64, Arc<SimulatedFile>>>,
}

#[derive(Debug, Default)]
struct SimulatedFile(Mutex<SimulatedBytes>);

#[derive(Debug, Default)]
struct SimulatedBytes {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// What was written since, as offset and bytes.
    since: Vec<(usize, Vec<u8>)>,
}

impl SimulatedDisk {
    /// A disk with the same files, for the next process. The one before can change nothing there any more.
    #[must_use]
    pub fn left(&self) -> Self {
        let left = |(number, file): (&u64, &Arc<SimulatedFile>)| {
            let SimulatedBytes { now, synced, since } = &*lock(&file.0);
            let bytes = SimulatedBytes { now: now.clone(), synced: synced.clone(), since: since.clone() };
            (*number, Arc::new(SimulatedFile(Mutex::new(bytes))))
        };
        let files = Mutex::new(lock(&self.files).iter().map(left).collect());
        Self { files, aside: Mutex::new(lock(&self.aside).iter().map(left).collect()) }
    }

    /// A power cut. Of each write since the last sync, `keeps` says how many bytes of its length are on the disk.
    pub fn cut(&self, mut keeps: impl FnMut(usize) -> usize) {
        for file in lock(&self.files).values() {
            let bytes = &mut *lock(&file.0);
            for (offset, written) in std::mem::take(&mut bytes.since) {
                let kept = keeps(written.len()).min(written.len());
                bytes.synced[offset..offset + kept].copy_from_slice(&written[..kept]);
            }
            bytes.now = bytes.synced.clone();
        }
    }
}

impl OutboxDisk for SimulatedDisk {
    fn segments(&self) -> io::Result<Vec<u64>> {
        Ok(lock(&self.files).keys().copied().collect())
    }

    fn create(&self, number: u64, bytes: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let file = Arc::<SimulatedFile>::default();
        let zeros = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        *lock(&file.0) = SimulatedBytes { now: zeros.clone(), synced: zeros, since: Vec::new() };
        lock(&self.files).insert(number, file.clone());
        Ok(file)
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let file = lock(&self.files).get(&number).cloned();
        Ok(file.ok_or(io::ErrorKind::NotFound)?)
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        lock(&self.files).remove(&number).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn set_aside(&self, number: u64) -> io::Result<()> {
        let file = lock(&self.files).remove(&number).ok_or(io::ErrorKind::NotFound)?;
        lock(&self.aside).insert(number, file);
        Ok(())
    }

    fn damaged(&self) -> io::Result<Vec<u64>> {
        Ok(lock(&self.aside).keys().copied().collect())
    }

    fn salt(&self) -> u32 {
        0
    }

    fn blocks(&self) -> bool {
        false
    }
}

impl SegmentFile for SimulatedFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = &mut *lock(&self.0);
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let len = file.now.len().max(start + bytes.len());
        file.now.resize(len, 0);
        file.synced.resize(len, 0);
        file.now[start..start + bytes.len()].copy_from_slice(bytes);
        file.since.push((start, bytes.to_vec()));
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let file = lock(&self.0);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = file.now.get(start..start.saturating_add(into.len()));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let file = &mut *lock(&self.0);
        for (offset, written) in file.since.drain(..) {
            file.synced[offset..offset + written.len()].copy_from_slice(&written);
        }
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(lock(&self.0).now.len() as u64)
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        // A power cut brings none of it back.
        let file = &mut *lock(&self.0);
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        file.now.truncate(len);
        file.synced.truncate(len);
        file.since.retain_mut(|(offset, written)| {
            written.truncate(len.saturating_sub(*offset));
            !written.is_empty()
        });
        Ok(())
    }
}
