//! How each inode is open, as the adapter counts it (`modes.rs` and `passthrough.rs` of s3mount-fuse).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use s3mount_fs::InodeNo;

use crate::kernel::common::lock;

/// A file that the kernel reads by itself, and the number by which it knows it.
#[derive(Clone, Debug)]
pub(super) struct Backing {
    pub(super) id: u32,
    pub(super) file: Arc<File>,
}

/// The files that the kernel was given, whichever daemon has given them (`fuse_conn.backing_files_map`).
#[derive(Debug, Default)]
pub(super) struct Backings(Mutex<Numbered>);

#[derive(Debug, Default)]
struct Numbered {
    files: BTreeMap<u32, Arc<File>>,
    last: u32,
}

impl Backings {
    /// `FUSE_DEV_IOC_BACKING_OPEN`
    fn open(&self, whole: &File) -> Option<Backing> {
        let file = Arc::new(opened(whole).ok()?);
        let mut numbered = lock(&self.0);
        numbered.last += 1;
        let id = numbered.last;
        numbered.files.insert(id, file.clone());
        Some(Backing { id, file })
    }

    /// `FUSE_DEV_IOC_BACKING_CLOSE`. Files that are open with it keep it.
    fn close(&self, backing: &Backing) {
        lock(&self.0).files.remove(&backing.id);
    }

    fn get(&self, id: u32) -> Backing {
        let file = lock(&self.0).files.get(&id).cloned();
        Backing { id, file: file.expect("who closes a backing file closes what is open with it") }
    }
}

/// The mode of an inode that is open.
#[derive(Debug)]
enum Mode {
    /// So many files are open through the daemon.
    Daemon(usize),
    /// So many files are open by passthrough, all with this backing file.
    Passthrough(usize, Backing),
}

/// The modes of all inodes that are open.
#[derive(Debug, Default)]
pub(super) struct Modes(Mutex<BTreeMap<u64, Mode>>);

impl Modes {
    /// Counts a file as open. Returns the backing file if it is open by passthrough. `whole` is the file of the disk.
    pub(super) fn open(&self, ino: InodeNo, whole: Option<&File>, backings: &Backings) -> Option<Backing> {
        let mut modes = lock(&self.0);
        let mode = modes.entry(ino.0).or_insert_with(|| {
            let backing = whole.and_then(|whole| backings.open(whole));
            backing.map_or(Mode::Daemon(0), |backing| Mode::Passthrough(0, backing))
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

    /// Counts a file that the daemon before has opened: by passthrough with the file of this number, or through the
    /// daemon.
    pub(super) fn inherit(&self, ino: InodeNo, id: Option<u32>, backings: &Backings) {
        let mut modes = lock(&self.0);
        let new = || id.map_or(Mode::Daemon(0), |id| Mode::Passthrough(0, backings.get(id)));
        let (Mode::Daemon(count) | Mode::Passthrough(count, _)) = modes.entry(ino.0).or_insert_with(new);
        *count += 1;
    }

    /// Counts a file as open through the daemon. Returns false if that can't be.
    pub(super) fn enter(&self, ino: InodeNo, backings: &Backings) -> bool {
        let is_through_daemon = self.open(ino, None, backings).is_none();
        if !is_through_daemon {
            self.release(ino, backings);
        }
        is_through_daemon
    }

    /// Counts a file as released.
    pub(super) fn release(&self, ino: InodeNo, backings: &Backings) {
        let mut modes = lock(&self.0);
        // The daemon's own files are released, too, and are not counted.
        let Some(Mode::Daemon(count) | Mode::Passthrough(count, _)) = modes.get_mut(&ino.0) else { return };
        *count -= 1;
        if *count == 0
            && let Some(Mode::Passthrough(_, backing)) = modes.remove(&ino.0)
        {
            backings.close(&backing);
        }
    }
}

/// The file, opened anew, as the kernel opens it (`backing_file_open`). It lives on without its name.
fn opened(whole: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", whole.as_raw_fd()))
}
