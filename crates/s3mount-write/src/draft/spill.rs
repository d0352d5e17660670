//! Bytes of a draft that go to the spool, and come back.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::RwLockReadGuard;

use super::Draft;
use crate::WriteError;
use crate::part_layout::PartRange;
use crate::spool::SpoolFile;
use crate::state::{Held, index};

impl Draft {
    /// Whether bytes that memory can't hold go to the spool.
    pub(super) fn has_spool(&self) -> bool {
        self.shared.spool.as_ref().is_some_and(|spool| !spool.is_full())
    }

    /// Begins to write parts to the spool, so that their bytes can be dropped then. One such task at a time.
    pub(super) fn spill(self: Arc<Self>, parts: Vec<PartRange>) -> bool {
        {
            let mut state = self.state();
            if state.spilling_bytes > 0 || parts.is_empty() {
                return false;
            }
            state.spilling_bytes = parts.iter().map(|part| part.len()).sum();
        }
        let runtime = self.shared.runtime.clone();
        runtime.spawn(async move {
            if let Err(error) = self.spill_now(&parts).await {
                // What does not fit is uploaded, as if there were no spool.
                tracing::warn!(%error, "bytes of a file can't be written to the spool");
            }
            self.state().spilling_bytes = 0;
            if self.shared.draft_reclaimer.is_wanted() {
                self.shared.draft_reclaimer.reclaim(&*self);
            }
        });
        true
    }

    /// Writes what memory has of parts, and the spool has not, to the spool.
    pub(super) async fn spill_now(&self, parts: &[PartRange]) -> io::Result<()> {
        let Some(spool) = self.shared.spool.clone() else { return Ok(()) };
        // Nobody brings bytes from there into memory meanwhile: they could be older than what the file has by then.
        let _alone = self.spooling.write().await;
        let file = self.spool_file().await?;
        let pieces = {
            let mut state = self.state();
            let pieces = parts.iter().flat_map(|part| state.unspooled(*part)).collect::<Vec<_>>();
            // A change that is kept has written them.
            let (written, pieces): (Vec<_>, Vec<_>) = pieces
                .into_iter()
                .partition(|(start, piece)| state.in_file.has(*start, start + piece.len() as u64));
            state.spooled(&written);
            pieces
        };
        let pieces = spool.run(move || file.write(&pieces).map(|()| pieces)).await?;
        self.state().spooled(&pieces);
        Ok(())
    }

    /// The draft's file in the spool, which is made if there is none. The caller holds `spooling` alone.
    pub(super) async fn spool_file(&self) -> io::Result<Arc<SpoolFile>> {
        if let Some(file) = self.state().spool.clone() {
            return Ok(file);
        }
        let Some(spool) = self.shared.spool.clone() else { return Err(io::ErrorKind::Unsupported.into()) };
        let making = spool.clone();
        let file = Arc::new(spool.run(move || making.file()).await?);
        self.state().spool = Some(file.clone());
        Ok(file)
    }

    /// Reads bytes from the spool. The guard is to be held until they are put where they belong.
    pub(super) async fn unspill(
        &self,
        offset: u64,
        len: u64,
        mut into: Held,
    ) -> Result<(Bytes, RwLockReadGuard<'_, ()>), WriteError> {
        let kept = self.spooling.read().await;
        let file = self.state().spool.clone();
        let Some(file) = file else { return Err(WriteError::NotReadable { offset }) };
        let spool = file.spool().clone();
        let read = spool.run(move || {
            file.read(offset, &mut into.as_mut()[..index(len)])?;
            Ok(into)
        });
        let into = read.await.map_err(WriteError::Spool)?;
        Ok((Bytes::from_owner(into).slice(..index(len)), kept))
    }

    /// Gives the spool's file back: all bytes can be had from elsewhere.
    pub(super) async fn drop_spool(&self) {
        let _alone = self.spooling.write().await;
        let file = self.state().spool.take();
        if let Some(file) = file {
            file.spool().clone().give_back(file);
        }
    }
}
