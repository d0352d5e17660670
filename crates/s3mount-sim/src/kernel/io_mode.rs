//! Whether the files of an inode are read through the page cache, or from a file of the daemon's (`fs/fuse/iomode.c`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use super::common::lock;

/// How the files of an inode are open (`fuse_inode.iocachectr`, `fuse_inode.fb`).
#[derive(Debug, Default)]
pub(super) struct IoMode(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// How many of them use the page cache.
    cached: usize,
    /// How many of them are open by passthrough, and their backing file.
    passed: usize,
    backing: Option<Arc<File>>,
}

/// How one open file is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Counted {
    #[default]
    Not,
    Cached,
    Passed,
}

impl IoMode {
    /// A file is open (`fuse_file_io_open`).
    pub(super) fn open(&self, is_direct: bool, backing: Option<&Arc<File>>) -> Result<Counted, i32> {
        let mut counts = lock(&self.0);
        match (backing, &counts.backing) {
            // `fuse_inode_uncached_io_start`
            (Some(backing), before) => {
                let is_other = before.as_ref().is_some_and(|before| !Arc::ptr_eq(before, backing));
                if counts.cached > 0 || is_other {
                    return Err(libc::EIO);
                }
                counts.passed += 1;
                counts.backing = Some(backing.clone());
                Ok(Counted::Passed)
            }
            (None, Some(_)) => Err(libc::EIO),
            (None, None) if is_direct => Ok(Counted::Not),
            (None, None) => {
                counts.cached += 1;
                Ok(Counted::Cached)
            }
        }
    }

    /// A file that is open directly is mapped (`fuse_file_cached_io_open`).
    pub(super) fn map(&self) -> Result<Counted, i32> {
        let mut counts = lock(&self.0);
        if counts.backing.is_some() {
            return Err(libc::ENODEV);
        }
        counts.cached += 1;
        Ok(Counted::Cached)
    }

    /// A file is released (`fuse_file_io_release`).
    pub(super) fn release(&self, counted: Counted) {
        let mut counts = lock(&self.0);
        match counted {
            Counted::Not => {}
            Counted::Cached => counts.cached -= 1,
            Counted::Passed => {
                counts.passed -= 1;
                if counts.passed == 0 {
                    counts.backing = None;
                }
            }
        }
    }
}

/// Reads a backing file (`fuse_passthrough_read_iter`).
pub(super) fn read_backing(backing: &File, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
    let (mut bytes, mut done) = (vec![0; len], 0);
    while done < len {
        match backing.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) => return Err(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
