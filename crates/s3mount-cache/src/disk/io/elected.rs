//! Elects the process that does a directory's housekeeping for all its users: the one that has locked a file there.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use crate::disk::io::identity;
use crate::disk::layout::Layout;

/// The lock of a directory, if this process holds it.
#[derive(Debug, Default)]
pub(crate) struct Elected(Option<File>);

/// The process that holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This process held it before, and still does.
    Still,
    /// This process has just taken it.
    New,
    /// Another process.
    Other,
}

impl Elected {
    /// Takes the lock if it is free, and returns which process holds it.
    pub(crate) fn hold(&mut self, layout: &Layout) -> io::Result<Holder> {
        if let Some(lock) = &self.0 {
            // The file, or the whole directory, may have been deleted or replaced.
            if identity::at(&layout.lock()) == Some(identity::of(&lock.metadata()?)) {
                return Ok(Holder::Still);
            }
            self.0 = None;
        }
        let mut options = File::options();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(layout.lock())?;
        match lock.try_lock() {
            Ok(()) => self.0 = Some(lock),
            Err(TryLockError::WouldBlock) => return Ok(Holder::Other),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Holder::New)
    }
}
