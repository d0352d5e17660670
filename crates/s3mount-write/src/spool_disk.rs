//! Where the bytes of the spool lie: on a disk, or in memory for programs without one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Makes the files of the spool.
pub trait SpoolDisk: std::fmt::Debug + Send + Sync {
    /// A new, empty file without a name.
    ///
    /// # Errors
    /// The disk's.
    fn file(&self) -> io::Result<Arc<dyn SpoolBytes>>;

    /// Whether calls may wait for a disk: these are made on threads for such things.
    fn blocks(&self) -> bool;
}

/// A file of the spool. It lives as long as somebody has it, in this process or in another one.
pub trait SpoolBytes: std::fmt::Debug + Send + Sync {
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

    /// How many bytes of the disk it takes. Holes take nothing.
    fn taken_bytes(&self) -> u64;

    /// What another process goes on with, if that can have the file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether these are all bytes that it was given, where it knows.
    fn are(&self, _pieces: &[Bytes]) -> bool {
        true
    }
}

/// A directory of a file system. Its files have no names, so the kernel frees them when no process has them any more.
#[derive(Debug)]
pub(crate) struct Directory(pub(crate) PathBuf);

impl SpoolDisk for Directory {
    fn file(&self) -> io::Result<Arc<dyn SpoolBytes>> {
        Ok(Arc::new(tempfile::tempfile_in(&self.0)?))
    }

    fn blocks(&self) -> bool {
        true
    }
}

impl SpoolBytes for File {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn taken_bytes(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.blocks() * 512)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// A file of the spool that the process before has left.
pub fn kept_file(descriptor: OwnedFd) -> Arc<dyn SpoolBytes> {
    Arc::new(File::from(descriptor))
}

/// A spool in memory, for simulations and tests. Nothing blocks, and a file outlives the writer for whoever has it.
#[derive(Debug)]
pub struct MemoryDisk;

#[derive(Debug, Default)]
struct MemoryFile(Mutex<Vec<u8>>);

impl SpoolDisk for MemoryDisk {
    fn file(&self) -> io::Result<Arc<dyn SpoolBytes>> {
        Ok(Arc::new(MemoryFile::default()))
    }

    fn blocks(&self) -> bool {
        false
    }
}

impl SpoolBytes for MemoryFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let len = file.len().max(start + bytes.len());
        file.resize(len, 0);
        file[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = file.get(start..start.saturating_add(into.len()));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn taken_bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Bytes that others have on a disk, and that never change.
pub trait RestingBytes: std::fmt::Debug + Send + Sync {
    /// Reads `into.len()` bytes at `offset`. Blocks.
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Whether these are all of them, as they were when others got them.
    fn are(&self, pieces: &[Bytes]) -> bool;
}

/// Such bytes in the place of a file of the spool.
#[derive(Debug)]
pub(crate) struct Resting(pub(crate) Arc<dyn RestingBytes>);

impl SpoolBytes for Resting {
    fn write(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, into)
    }

    fn are(&self, pieces: &[Bytes]) -> bool {
        self.0.are(pieces)
    }

    fn taken_bytes(&self) -> u64 {
        0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
