//! What the next daemon needs of a draft.

use super::DraftFile;
use super::writers::WriterId;
use crate::numbers::FileHandle;
use crate::sync::Ordering;

impl DraftFile {
    /// Notes that its changes are noted for the next daemon.
    pub(crate) fn set_noted(&self) {
        self.is_noted.store(true, Ordering::Release);
        self.is_kept.store(true, Ordering::Release);
    }

    /// Notes that the next daemon can't go on with it before it is published.
    pub(crate) fn give_up_kept(&self) {
        self.is_kept.store(false, Ordering::Release);
    }

    /// Whether the next daemon can go on with it.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    /// These threads have written it, each through a handle, and these handles have emptied it, when another daemon had it.
    /// If there are none, any thread may have, unless it `is_known` that all that have are done.
    pub(crate) fn note_writers(&self, threads: &[(FileHandle, u32)], emptied: &[FileHandle], is_known: bool) {
        self.lock().writers.note_writers(threads, emptied, is_known);
    }

    /// Notes the number of a handle that may write.
    pub(crate) fn note_handle(&self, writer: WriterId, handle: FileHandle) {
        self.lock().writers.note_handle(writer, handle);
    }

    /// The number of a handle that may write.
    pub(crate) fn handle(&self, writer: WriterId) -> Option<FileHandle> {
        self.lock().writers.handle(writer)
    }
}
