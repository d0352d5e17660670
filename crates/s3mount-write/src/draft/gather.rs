//! Gathers the bytes of a part for a request.
//!
//! A part whose bytes are all in memory is sent where it lies. Another is gathered in memory of its own, as a reader
//! would gather it: what the file has in memory is copied, and the rest is fetched. That memory is had at once, before
//! anything is fetched, and is given back when the request is done. So a task that waits for memory holds none, and it gets
//! some whatever the files hold.

use bytes::Bytes;
use s3mount_memory::Pieces;

use super::Draft;
use super::upload::pieces;
use super::write::Use;
use crate::WriteError;
use crate::state::{BLOCK, index};

impl Draft {
    /// The bytes of a range where they lie, if all are in memory.
    pub(super) fn lying(&self, start: u64, end: u64) -> Option<Vec<Bytes>> {
        let mut state = self.state();
        let end = end.min(state.size());
        state.extents.freeze(start, end);
        pieces(&state, start, end)
    }

    /// The bytes of a range in memory of their own. If the file changes meanwhile, they may be older or newer ones.
    /// If the file `may_keep` what is fetched of a version, it does where the drafts have memory to spare.
    pub(super) async fn gather(
        &self,
        start: u64,
        end: u64,
        may_keep: bool,
    ) -> Result<Vec<Bytes>, WriteError> {
        let _one = self.gathering.lock().await;
        let end = end.min(self.size());
        let (mut gathered, mut at) = (Vec::new(), start);
        while at < end {
            for mut buffer in self.wait_for_buffers(end - at, Pieces::All, Use::Task).await? {
                let len = (buffer.as_ref().len() as u64).min(end - at);
                for target in buffer.as_mut()[..index(len)].chunks_mut(index(BLOCK)) {
                    self.gather_block(at, target, may_keep).await?;
                    at += target.len() as u64;
                }
                gathered.push(Bytes::from_owner(buffer).slice(..index(len)));
            }
        }
        Ok(gathered)
    }

    async fn gather_block(&self, at: u64, into: &mut [u8], may_keep: bool) -> Result<(), WriteError> {
        let (holes, spool) = {
            let state = self.state();
            state.check()?;
            // If the file was cut meanwhile, what is sent is not what it has, and is sent again.
            let end = state.size().clamp(at, at + into.len() as u64);
            let (inside, behind) = into.split_at_mut(index(end - at));
            behind.fill(0);
            (state.extents.look(at, inside), state.spool.clone())
        };
        for hole in holes {
            let target = &mut into[index(hole.start - at)..index(hole.end - at)];
            self.bring(&hole, spool.clone(), target, may_keep).await?;
        }
        Ok(())
    }
}
