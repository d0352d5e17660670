//! The disk cache's calls to the file system, each of which may fail, be slow or hang.
//!
//! Everything goes through [`Io`], so that tests can put faults in its way. It also works around operations that the
//! file system lacks.
//!
//! Objects are written past the page cache. Writing 1 GiB so takes 0.03 CPU seconds, and through the page cache 0.5,
//! even with `RWF_DONTCACHE`: that slows down a first epoch when no processor is free.

pub(crate) mod durable;
pub(crate) mod elected;
pub(crate) mod faults;
pub(crate) mod health;
pub(crate) mod identity;
pub(crate) mod opened;
pub(crate) mod pool;
#[cfg(any(test, feature = "by-hand"))]
pub(crate) mod power;
pub(crate) mod slow;

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::disk::clock::Clock;
use crate::disk::io::faults::{Faults, Op};

/// Reads and writes of a file without the page cache begin and end at multiples of this, in the file and in
/// memory. Few disks have larger sectors.
pub(crate) const ALIGN: usize = 4096;

/// Only the owner may use the files and folders.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);

/// `RWF_DONTCACHE` of Linux 6.14: what was written leaves the page cache once it is on the disk.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// The extended attribute of a file's record. It is written first, because the first has room in the inode.
pub(crate) const RECORD_ATTRIBUTE: &str = "user.s3mount";

/// The extended attribute with the name of the file's version. Readers do not read it.
pub(crate) const NAME_ATTRIBUTE: &str = "user.s3mount.name";

/// The longest extended attribute of a file. ext4 has one block of 4 KiB for all that have no room in the inode.
const MAX_ATTRIBUTE_BYTES: usize = 2048;

/// Numbers the temporary files of this process.
static NEXT_TEMPORARY: AtomicU64 = AtomicU64::new(0);

/// A file that has no name yet, or a temporary one.
#[derive(Debug)]
pub(crate) struct Unnamed {
    pub(crate) file: File,
    /// Its temporary name, on a file system without unnamed files.
    temporary: Option<PathBuf>,
}

/// The value of a file's extended attribute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    Value(Vec<u8>),
    /// The file has none.
    Missing,
    /// The file system has no attributes.
    Unsupported,
}

/// The file system below one cache directory.
#[derive(Debug)]
pub(crate) struct Io {
    has_direct: AtomicBool,
    has_dontcache: AtomicBool,
    has_unnamed: AtomicBool,
    /// Gives files their times. `None`: the file system does.
    marks: Option<Clock>,
    pub(crate) faults: Faults,
}

impl Io {
    pub(crate) fn new() -> Self {
        let [has_direct, has_dontcache, has_unnamed] = std::array::from_fn(|_| AtomicBool::new(true));
        Self { has_direct, has_dontcache, has_unnamed, marks: None, faults: Faults::default() }
    }

    /// The file system of a cache with this clock.
    pub(crate) fn with_clock(clock: &Clock) -> Self {
        Self { marks: clock.marks_files().then(|| clock.clone()), ..Self::new() }
    }

    /// Opens a file for reading, and returns whether its reads bypass the page cache.
    pub(crate) fn open(&self, path: &Path) -> io::Result<(File, bool)> {
        self.faults.at(Op::Open)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let best = flags | OFlags::DIRECT | OFlags::NOATIME;
        match fs::open(path, best, Mode::empty()) {
            Ok(file) => Ok((file.into(), true)),
            // The file system has no such reads, or the file belongs to another user.
            Err(Errno::INVAL | Errno::PERM) => Ok((fs::open(path, flags, Mode::empty())?.into(), false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Fills `into` from `offset` on, in order. Returns how many bytes there were before the file's end.
    pub(crate) fn read(
        &self,
        file: &File,
        mut into: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<usize> {
        self.faults.at(Op::Read)?;
        let mut done = 0;
        while !into.is_empty() {
            match rustix::io::preadv(file, into, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => {
                    done += count;
                    IoSliceMut::advance_slices(&mut into, count);
                    // A short read that is no multiple of a sector ends at the file's end.
                    if !count.is_multiple_of(ALIGN) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    /// A new file in the folder of `path`, for [`publish`](Self::publish). Makes the folder if need be.
    pub(crate) fn create(&self, path: &Path) -> io::Result<Unnamed> {
        self.faults.at(Op::Write)?;
        with_folder(path, |folder| self.create_in(folder, path))
    }

    /// Opens a file for reading and writing, with its folder if need be.
    pub(crate) fn open_or_create(&self, path: &Path) -> io::Result<File> {
        self.faults.at(Op::Write)?;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        with_folder(path, |_| Ok(self.open_to_write(path, flags)?))
    }

    /// Opens a file whose [writes](Self::write) bypass the page cache, if the file system has such writes.
    fn open_to_write(&self, path: &Path, flags: OFlags) -> Result<File, Errno> {
        if !self.has_direct.load(Ordering::Relaxed) {
            return Ok(fs::open(path, flags, FILE_MODE)?.into());
        }
        match fs::open(path, flags | OFlags::DIRECT, FILE_MODE) {
            Err(Errno::INVAL) => {
                // The failed call may have created the file.
                let file = fs::open(path, flags - OFlags::EXCL, FILE_MODE)?;
                self.has_direct.store(false, Ordering::Relaxed);
                Ok(file.into())
            }
            result => Ok(result?.into()),
        }
    }

    fn create_in(&self, folder: &Path, path: &Path) -> io::Result<Unnamed> {
        if self.has_unnamed.load(Ordering::Relaxed) {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            match self.open_to_write(folder, flags) {
                Ok(file) => return Ok(Unnamed { file, temporary: None }),
                // An old kernel takes the flag for O_DIRECTORY.
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                    self.has_unnamed.store(false, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let number = NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{number}.new", std::process::id()));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = self.open_to_write(&temporary, flags)?;
        Ok(Unnamed { file, temporary: Some(temporary) })
    }

    /// Gives a new file its name. Returns `false` if there is a file of this name.
    pub(crate) fn publish(&self, unnamed: &Unnamed, path: &Path) -> io::Result<bool> {
        let published = self.link(&unnamed.file, path);
        if let Some(temporary) = &unnamed.temporary {
            let _ = fs::unlink(temporary);
        }
        published
    }

    /// Gives an open file a name. Returns `false` if there is a file of this name.
    pub(crate) fn link(&self, file: &File, path: &Path) -> io::Result<bool> {
        self.faults.at(Op::Publish)?;
        match fs::linkat(CWD, path_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes what [`create`](Self::create) made, if it has a name.
    pub(crate) fn discard(&self, unnamed: Unnamed) {
        if let Some(temporary) = unnamed.temporary {
            let _ = fs::unlink(temporary);
        }
    }

    /// Makes a file that is open for writing `len` bytes long and sparse.
    pub(crate) fn make_empty(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(0)?;
        file.set_len(len)?;
        self.mark(file)
    }

    /// Sets the time of a file that was written, unless the file system does.
    fn mark(&self, file: &File) -> io::Result<()> {
        self.marks.as_ref().map_or(Ok(()), |clock| set_time(file, clock.file_time()))
    }

    /// Writes `bytes` at `offset`. They bypass the page cache, or leave it once they are on the disk.
    pub(crate) fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.faults.at(Op::Write)?;
        self.write_all(file, bytes, offset)?;
        self.mark(file)
    }

    fn write_all(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if !fs::fcntl_getfl(file)?.contains(OFlags::DIRECT) {
            return self.write_cached(file, bytes, offset);
        }
        let done = self.write_direct(file, bytes, offset)?;
        if done == bytes.len() {
            return Ok(());
        }
        // The rest: an end that is no multiple of a sector, or memory that is not aligned.
        let cached = fs::open(path_of(file), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?.into();
        self.write_cached(&cached, &bytes[done..], offset + done as u64)
    }

    /// Writes as much of the front of `bytes` as can bypass the page cache. Returns how many bytes that are.
    fn write_direct(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let is_aligned = offset.is_multiple_of(ALIGN as u64) && bytes.as_ptr().align_offset(ALIGN) == 0;
        let end = if is_aligned { bytes.len() / ALIGN * ALIGN } else { 0 };
        let mut done = 0;
        while done < end && done.is_multiple_of(ALIGN) {
            match rustix::io::pwrite(file, &bytes[done..end], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                // The disk has larger sectors, or the file system accepts the flag without supporting such writes.
                Err(Errno::INVAL) => {
                    self.has_direct.store(false, Ordering::Relaxed);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    /// Writes through the page cache, and drops the bytes from it once they are on the disk.
    fn write_cached(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = [IoSlice::new(&bytes[done..])];
            let has_dontcache = self.has_dontcache.load(Ordering::Relaxed);
            let flags = if has_dontcache { DONTCACHE } else { ReadWriteFlags::empty() };
            match rustix::io::pwritev2(file, &rest, offset + done as u64, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) if has_dontcache => {
                    self.has_dontcache.store(false, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !self.has_dontcache.load(Ordering::Relaxed) {
            // This begins to write dirty pages, and drops clean ones.
            let _ = fs::fadvise(file, 0, NonZeroU64::new(offset + done as u64), fs::Advice::DontNeed);
        }
        Ok(())
    }

    /// Replaces the small file at `path` by one with these bytes.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.faults.at(Op::Publish)?;
        let number = NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let temporary = path.with_file_name(format!("{name}.{}-{number}.new", std::process::id()));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file: File = fs::open(&temporary, flags, FILE_MODE)?.into();
        let written = self.write(&file, bytes, 0).and_then(|()| Ok(fs::rename(&temporary, path)?));
        if written.is_err() {
            let _ = fs::unlink(&temporary);
        }
        written
    }

    /// Reads a small file.
    pub(crate) fn load(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.faults.at(Op::Read)?;
        std::fs::read(path)
    }

    /// Deletes a file. Returns whether it was there.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<bool> {
        self.faults.at(Op::Remove)?;
        match fs::unlink(path) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets an attribute of a file. Returns `false` where files have no attributes, or no room for it.
    pub(crate) fn set_attribute(&self, file: &File, name: &str, value: &[u8]) -> io::Result<bool> {
        self.faults.at(Op::Publish)?;
        if value.len() > MAX_ATTRIBUTE_BYTES {
            return Ok(false);
        }
        match fs::fsetxattr(file, name, value, XattrFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::PERM) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// An attribute of a file.
    pub(crate) fn attribute(&self, file: &File, name: &str) -> io::Result<Attribute> {
        self.faults.at(Op::Read)?;
        let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
        match fs::fgetxattr(file, name, value.as_mut_slice()) {
            Ok(len) => {
                value.truncate(len);
                Ok(Attribute::Value(value))
            }
            Err(Errno::NODATA | Errno::RANGE) => Ok(Attribute::Missing),
            Err(Errno::OPNOTSUPP) => Ok(Attribute::Unsupported),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until all writes to the file system of `folder` are on the disk. Fails if a write has failed since
    /// `folder` was opened, or since the last call.
    pub(crate) fn sync(&self, folder: &File) -> io::Result<()> {
        self.faults.at(Op::Sync)?;
        if self.marks.is_some() {
            // A simulation's power cuts lose the writes since the last sync. The machine's disk is not involved.
            return Ok(());
        }
        Ok(fs::syncfs(folder)?)
    }
}

/// Sets the times of the file's last use and last write.
fn set_time(file: &File, time: Duration) -> io::Result<()> {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
    Ok(fs::futimens(file, &Timestamps { last_access: time, last_modification: time })?)
}

/// The path of an open file, whether it has a name or not.
fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Does `work`, which needs the folder of `path`, and makes the folder if need be.
fn with_folder<T>(path: &Path, work: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let folder = path.parent().unwrap_or(path);
    match work(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_folder(folder)?;
            work(folder)
        }
        result => result,
    }
}

/// Makes a folder that may exist.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    match fs::mkdir(path, FOLDER_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use proptest::prelude::*;
    use rustix::fs::{OFlags, fcntl_getfl};

    use super::{ALIGN, Io};

    const SIZE: usize = 9 * ALIGN + 77;

    proptest! {
        /// Pieces of a file may be written in any order, from any address, up to an end that is no multiple of a
        /// sector, past the page cache and through it.
        #[test]
        fn any_pieces_are_written(cuts in proptest::collection::btree_set(1..SIZE, 0..6), is_rounded in any::<bool>(), odd in 0usize..2, is_reversed in any::<bool>(), has_direct in any::<bool>()) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("folder/file");
            let io = Io::new();
            io.has_direct.store(has_direct, Ordering::Relaxed);
            let file = io.open_or_create(&path).expect("made");
            let (_, reads_direct) = io.open(&path).expect("opened");
            prop_assert_eq!(fcntl_getfl(&file).expect("open").contains(OFlags::DIRECT), has_direct && reads_direct);
            file.set_len(SIZE as u64).expect("sparse");
            let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 3 % 251) as u8).collect();
            let round = |at: &usize| if is_rounded { at.next_multiple_of(ALIGN).min(SIZE) } else { *at };
            let mut edges: Vec<_> = [0].into_iter().chain(cuts.iter().map(round)).chain([SIZE]).collect();
            edges.dedup();
            let mut pieces: Vec<_> = edges.windows(2).map(|edge| edge[0]..edge[1]).collect();
            if is_reversed {
                pieces.reverse();
            }
            let mut memory = vec![0; SIZE + 2 * ALIGN];
            let from = memory.as_ptr().align_offset(ALIGN) + odd * 13;
            for piece in pieces {
                let place = &mut memory[from..from + piece.len()];
                place.copy_from_slice(&bytes[piece.clone()]);
                io.write(&file, place, piece.start as u64).expect("written");
            }
            let mut found = vec![0; SIZE];
            std::fs::File::open(&path).expect("there").read_exact_at(&mut found, 0).expect("read");
            prop_assert!(found == bytes);
            prop_assert_eq!(file.metadata().expect("open").len(), SIZE as u64);
        }
    }
}
