//! Whether the directory at a path is still the one that was checked. A user who moves a cache away while a mount uses
//! it may put another folder in its place. The mount writes and deletes nothing there.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::disk::layout::Layout;

/// The identity of a file or a directory: its device and its inode.
pub(crate) fn of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The identity of the file at the path, if there is one.
pub(crate) fn at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().as_ref().map(of)
}

/// The device and the inode of the directory that was checked.
#[derive(Debug)]
pub(crate) struct Identity {
    layout: Layout,
    known: Mutex<Option<(u64, u64)>>,
}

impl Identity {
    /// The identity of the directory that is there now.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone(), known: Mutex::new(at(layout.root())) }
    }

    /// Whether the same directory is still there.
    pub(crate) fn is_there(&self) -> bool {
        let found = at(self.layout.root());
        found.is_some() && found == *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the identity of another checked directory in its place.
    pub(crate) fn renew(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = at(self.layout.root());
    }
}
