//! Files that are made longer.

use std::sync::Arc;

use super::Filesystem;
use crate::FsError;
use crate::numbers::FileHandle;

impl Filesystem {
    /// Extends a file with zeros to at least `size` bytes. A file that another caller has made longer meanwhile keeps
    /// its length. `thread` counts as the writer.
    ///
    /// # Errors
    /// `ReadOnly` for a handle that may not write, and those of writing.
    pub async fn grow(self: Arc<Self>, handle: FileHandle, size: u64, thread: u32) -> Result<(), FsError> {
        let (open, writer) = self.open_to_writer(handle).ok_or_else(|| self.no_writer(handle))?;
        let file = &open.file;
        let _turn = file.turn().await;
        self.note_change(file, writer, thread, false)?;
        file.draft().grow(size).await.map_err(|error| self.failed(file, error))
    }
}
