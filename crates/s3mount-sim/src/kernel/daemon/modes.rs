//! How each inode is open, as the adapter counts it (`modes.rs` and `passthrough.rs` of s3mount-fuse).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use s3mount_fs::InodeNo;

use crate::kernel::common::lock;

/// The mode of an inode that is open.
#[derive(Debug)]
enum Mode {
    /// So many files are open through the daemon.
    Daemon(usize),
    /// So many files are open by passthrough, all with this backing file.
    Passthrough(usize, Arc<File>),
}

/// The modes of all inodes that are open.
#[derive(Debug, Default)]
pub(super) struct Modes(Mutex<BTreeMap<u64, Mode>>);

impl Modes {
    /// Counts a file as open. Returns the backing file if it is open by passthrough. `whole` is the file of the disk.
    pub(super) fn open(&self, ino: InodeNo, whole: Option<&File>) -> Option<Arc<File>> {
        let mut modes = lock(&self.0);
        let mode = modes.entry(ino.0).or_insert_with(|| {
            let backing = whole.and_then(|whole| opened(whole).ok());
            backing.map_or(Mode::Daemon(0), |backing| Mode::Passthrough(0, Arc::new(backing)))
        });
        match mode {
            Mode::Daemon(count) => {
                *count += 1;
                None
            }
            Mode::Passthrough(count, backing) => {
                *count += 1;
                Some(backing.clone())
            }
        }
    }

    /// Counts a file as open through the daemon. Returns false if that can't be.
    pub(super) fn enter(&self, ino: InodeNo) -> bool {
        let is_through_daemon = self.open(ino, None).is_none();
        if !is_through_daemon {
            self.release(ino);
        }
        is_through_daemon
    }

    /// Counts a file as released.
    pub(super) fn release(&self, ino: InodeNo) {
        let mut modes = lock(&self.0);
        // The daemon's own files are released, too, and are not counted.
        let Some(Mode::Daemon(count) | Mode::Passthrough(count, _)) = modes.get_mut(&ino.0) else { return };
        *count -= 1;
        if *count == 0 {
            modes.remove(&ino.0);
        }
    }
}

/// The file, opened anew, as the kernel opens it (`backing_file_open`). It lives on without its name.
fn opened(whole: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", whole.as_raw_fd()))
}
