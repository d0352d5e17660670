//! Tells of folders that may hold no object: only this mount knows of them.

use std::fmt;
use std::sync::OnceLock;

/// Why a folder stays although it may hold no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderNote {
    /// This mount has made it.
    Made,
    /// This mount has removed files from it.
    Emptied,
}

/// Takes a folder's parent prefix, its name, and why it stays, if it does.
pub(crate) type Tell = dyn Fn(&str, &str, Option<FolderNote>) + Send + Sync;

/// Who is told of such folders, while their names are locked.
#[derive(Default)]
pub(crate) struct FolderListener(OnceLock<Box<Tell>>);

impl fmt::Debug for FolderListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FolderListener").field(&self.0.get().is_some()).finish()
    }
}

impl FolderListener {
    /// Has `tell` told from now on. It can be set once.
    pub(crate) fn set(&self, tell: Box<Tell>) {
        drop(self.0.set(tell));
    }

    /// Tells that the folder `name` in the folder `prefix` is noted, or not any more.
    pub(crate) fn tell(&self, prefix: &str, name: &str, note: Option<FolderNote>) {
        if let Some(tell) = self.0.get() {
            tell(prefix, name, note);
        }
    }
}
