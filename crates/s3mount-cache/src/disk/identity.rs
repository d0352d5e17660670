//! Whether the directory at a path is still the one that was checked. Whoever moves a cache away while a mount uses it may
//! put a folder of his own in its place, and nothing is written there or deleted.

use std::sync::{Mutex, PoisonError};

use crate::disk::check;
use crate::disk::layout::Layout;

/// The device and the inode of the directory that was checked.
#[derive(Debug)]
pub(crate) struct Identity {
    layout: Layout,
    known: Mutex<Option<(u64, u64)>>,
}

impl Identity {
    /// The directory that is there now.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone(), known: Mutex::new(check::identity(layout)) }
    }

    /// Whether it is there.
    pub(crate) fn is_there(&self) -> bool {
        let found = check::identity(&self.layout);
        found.is_some() && found == *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another directory that was checked has taken its place.
    pub(crate) fn renew(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = check::identity(&self.layout);
    }
}
