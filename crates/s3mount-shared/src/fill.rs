//! Blocks that are fetched whole from the source, behind random reads of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::Priority;
use s3mount_object::{GetObject, ObjectId};
use tokio::time::timeout;

use crate::block::Block;
use crate::lease::Claim;
use crate::tier_state::TierState;

/// The source may take this long for a block. No read waits for it.
const FILL_LIMIT: Duration = Duration::from_secs(30);

impl TierState {
    /// Fetches a block in the background, unless others are fetched or memory is short. Then a later read of
    /// the block tries again.
    pub(crate) fn fill(self: &Arc<Self>, object: &ObjectId, block: Block) {
        let Ok(permit) = self.fills.clone().try_acquire_owned() else { return };
        self.books().notes.update(&block, |note| note.missed_bytes = 0);
        let (tier, object) = (self.clone(), object.clone());
        self.runtime.spawn(async move {
            tier.fetch_whole(&object, block).await;
            drop(permit);
        });
    }

    async fn fetch_whole(self: &Arc<Self>, object: &ObjectId, block: Block) {
        let lease = match self.claim(&block, None).await {
            Claim::Held(lease) => Some(lease),
            Claim::Free => None,
            Claim::Taken(_) => return,
        };
        let Some(bytes) = self.fetch_from_source(object, &block).await else { return };
        self.metrics.fills.inc();
        let mut books = self.books();
        let overwrites = books.notes.get(&block).is_damaged;
        self.enqueue(&mut books, block, vec![bytes], overwrites);
        drop(books);
        drop(lease);
    }

    async fn fetch_from_source(&self, object: &ObjectId, block: &Block) -> Option<Bytes> {
        let len = usize::try_from(block.len()).ok().filter(|len| *len <= self.pool.max_buffer_bytes())?;
        let buffer = self.pool.try_buffer(len, Priority::Prefetch)?;
        let request = GetObject { object: object.clone(), range: block.range };
        let answer = timeout(FILL_LIMIT, self.source.get_ahead_once(request, Box::new(buffer))).await.ok()?;
        answer
            .inspect_err(|error| tracing::debug!(%error, "a block could not be filled"))
            .ok()
            .map(|a| a.bytes)
    }
}
