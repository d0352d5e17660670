//! Bytes of a draft that go to the spool, and come back.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::RwLockReadGuard;

use super::Draft;
use crate::WriteError;
use crate::grid::Cell;
use crate::spool::SpoolFile;
use crate::state::{Held, index};

impl Draft {
    /// Whether bytes that memory can't hold go to the spool.
    pub(super) fn has_spool(&self) -> bool {
        self.shared.spool.as_ref().is_some_and(|spool| !spool.is_full())
    }

    /// Begins to write parts to the spool, so that their bytes can be dropped then. One such task at a time.
    pub(super) fn spill(self: Arc<Self>, cells: Vec<Cell>) -> bool {
        {
            let mut state = self.state();
            if state.spilling_bytes > 0 || cells.is_empty() {
                return false;
            }
            state.spilling_bytes = cells.iter().map(|cell| cell.end - cell.start).sum();
        }
        let runtime = self.shared.runtime.clone();
        runtime.spawn(async move {
            if let Err(error) = self.spill_now(&cells).await {
                // What does not fit is uploaded, as if there were no spool.
                tracing::warn!(%error, "bytes of a file can't be written to the spool");
            }
            self.state().spilling_bytes = 0;
            if self.shared.givers.is_wanted() {
                self.shared.givers.relieve(&*self);
            }
        });
        true
    }

    /// Writes what memory has of parts, and the spool has not, to the spool.
    pub(super) async fn spill_now(&self, cells: &[Cell]) -> io::Result<()> {
        let Some(spool) = self.shared.spool.clone() else { return Ok(()) };
        // Nobody reads the file meanwhile: a reader could see bytes of two writes.
        let mut kept = self.spool.write().await;
        let pieces = {
            let mut state = self.state();
            cells.iter().flat_map(|cell| state.unspooled(*cell)).collect::<Vec<_>>()
        };
        let file = kept.take();
        let (file, written, pieces) = blocking(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(spool.file()?),
            };
            let written = file.write(&pieces);
            Ok((file, written, pieces))
        })
        .await?;
        *kept = Some(file);
        written?;
        self.state().spooled(&pieces);
        Ok(())
    }

    /// Reads bytes from the spool. The guard is to be held until they are put where they belong.
    pub(super) async fn unspill(
        &self,
        offset: u64,
        len: u64,
        mut into: Held,
    ) -> Result<(Bytes, RwLockReadGuard<'_, Option<Arc<SpoolFile>>>), WriteError> {
        let kept = self.spool.read().await;
        let Some(file) = kept.clone() else { return Err(WriteError::NotReadable { offset }) };
        let read = blocking(move || {
            file.read(offset, &mut into.as_mut()[..index(len)])?;
            Ok(into)
        });
        let into = read.await.map_err(WriteError::Spool)?;
        Ok((Bytes::from_owner(into).slice(..index(len)), kept))
    }

    /// Gives the spool's file back: all bytes can be had from elsewhere.
    pub(super) async fn drop_spool(&self) {
        let file = self.spool.write().await.take();
        // Freeing the blocks of a long file takes a while.
        drop(tokio::task::spawn_blocking(move || drop(file)));
    }
}

/// Does something that blocks, on a thread for such things.
async fn blocking<T: Send + 'static>(task: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::task::spawn_blocking(task).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}
