//! How each inode is open: through the daemon, or by passthrough.
//!
//! The kernel keeps one mode for all open files of an inode, and answers an OPEN against it with EIO:
//! - While a file of the inode is open by passthrough, every other is opened so, too, with the same backing
//!   file.
//! - While a file of the inode is open through the page cache, none is opened by passthrough. A file that is
//!   open directly comes to use the page cache when it is mapped, so it counts as well.
//!
//! So the mode of an OPEN is chosen here before the OPEN is answered, and given back at the RELEASE. The
//! kernel enters the mode after the answer, and leaves it before it sends the RELEASE. So whatever the kernel
//! counts is counted here, too, and nothing that is answered can be against the kernel's mode.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The mode of an inode that is open.
#[derive(Debug)]
enum Mode<B> {
    /// So many files are open through the daemon.
    Daemon(usize),
    /// So many files are open by passthrough, all with this backing file.
    Passthrough(usize, Arc<B>),
}

/// How an OPEN has to be answered.
#[derive(Debug)]
pub(crate) enum Grant<B> {
    /// Through the daemon.
    Daemon,
    /// By passthrough, with this backing file.
    Passthrough(Arc<B>),
}

/// The modes of all inodes `I` that are open. `B` is a backing file that the kernel was given. The kernel has
/// it until the last file that is open with it is released.
#[derive(Debug)]
pub(crate) struct Modes<I, B>(Mutex<HashMap<I, Mode<B>>>);

impl<I, B> Default for Modes<I, B> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<I: std::hash::Hash + Eq, B> Modes<I, B> {
    fn lock(&self) -> MutexGuard<'_, HashMap<I, Mode<B>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses how an OPEN of `ino` is answered, and counts the file as open. `back` gives the kernel a backing
    /// file. It is called if nothing of the inode is open yet, and returns nothing if the daemon has to serve
    /// the file.
    pub(crate) fn open(&self, ino: I, back: impl FnOnce() -> Option<B>) -> Grant<B> {
        match self.lock().entry(ino) {
            Entry::Occupied(mut known) => match known.get_mut() {
                Mode::Daemon(count) => {
                    *count += 1;
                    Grant::Daemon
                }
                Mode::Passthrough(count, backing) => {
                    *count += 1;
                    Grant::Passthrough(backing.clone())
                }
            },
            Entry::Vacant(free) => match back().map(Arc::new) {
                None => {
                    free.insert(Mode::Daemon(1));
                    Grant::Daemon
                }
                Some(backing) => {
                    free.insert(Mode::Passthrough(1, backing.clone()));
                    Grant::Passthrough(backing)
                }
            },
        }
    }

    /// Counts a file of `ino` as released. Returns the backing file that no file is open with any more. To drop
    /// it may take a while, so the caller drops it without the lock.
    pub(crate) fn release(&self, ino: I) -> Option<Arc<B>> {
        let mut modes = self.lock();
        // The daemon's own files are released, too, and are not counted.
        let Entry::Occupied(mut known) = modes.entry(ino) else { return None };
        let (Mode::Daemon(count) | Mode::Passthrough(count, _)) = known.get_mut();
        *count -= 1;
        if *count > 0 {
            return None;
        }
        match known.remove() {
            Mode::Daemon(_) => None,
            Mode::Passthrough(_, backing) => Some(backing),
        }
    }
}

#[cfg(test)]
mod tests;
