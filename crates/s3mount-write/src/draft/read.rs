//! Reads of a draft.
//!
//! A read looks at the file once, under the lock. It copies the bytes in memory then, and lists where the other bytes
//! lie. It loads the listed bytes, whatever changes meanwhile, so every byte of its answer is one that was written. It
//! waits for no memory of the drafts, and holds none: otherwise reads and uploads could wait for each other.
//!
//! A publication replaces the version that bytes are in, and a rename moves it. A read that finds it gone waits until
//! that is over, and looks again for those bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use super::Draft;
use crate::WriteError;
use crate::extents::{Content, Elsewhere, Hole};
use crate::spool::SpoolFile;
use crate::state::{BLOCK, DraftState, index};

/// Bytes of an answer that are still to come, and the spool's file at the moment of the look.
struct Wanted {
    hole: Hole,
    spool: Option<Arc<SpoolFile>>,
}

/// An answer, as far as it is known.
struct Answer {
    offset: u64,
    into: BytesMut,
    wanted: VecDeque<Wanted>,
}

impl Answer {
    /// Looks at the file. What is not in memory is wanted.
    fn look(state: &DraftState, offset: u64, end: u64) -> Self {
        let mut into = BytesMut::zeroed(index(end - offset));
        let holes = state.extents.look(offset, &mut into);
        let wanted = holes.into_iter().map(|hole| Wanted { hole, spool: state.spool.clone() }).collect();
        Self { offset, into, wanted }
    }

    /// Looks again for bytes that are not where they were. The file ends with them if it was cut meanwhile. False if
    /// they are said to be where they were.
    fn look_again(&mut self, state: &DraftState, gone: &Hole) -> bool {
        let end = gone.end.min(state.size()).max(gone.start);
        let again = Self::look(state, gone.start, end);
        if again.wanted.front().is_some_and(|wanted| wanted.hole.elsewhere == gone.elsewhere) {
            return false;
        }
        self.into[index(gone.start - self.offset)..][..again.into.len()].copy_from_slice(&again.into);
        if end < gone.end {
            self.into.truncate(index(end - self.offset));
            self.wanted.clear();
        }
        again.wanted.into_iter().rev().for_each(|wanted| self.wanted.push_front(wanted));
        true
    }

    /// Where the bytes of a hole go.
    fn of(&mut self, hole: &Hole) -> &mut [u8] {
        &mut self.into[index(hole.start - self.offset)..index(hole.end - self.offset)]
    }
}

impl Draft {
    /// Up to `len` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes, WriteError> {
        let mut answer = {
            let state = self.state();
            if state.is_discarded {
                state.check()?;
            }
            let end = state.size().min(offset.saturating_add(len as u64));
            if offset >= end {
                return Ok(Bytes::new());
            }
            if let Some(bytes) = whole(&state, offset, end) {
                return Ok(bytes);
            }
            Answer::look(&state, offset, end)
        };
        let deadline = Instant::now() + self.shared.config.timeout;
        while let Some(Wanted { hole, spool }) = answer.wanted.pop_front() {
            let brought = self.bring(&hole, spool, answer.of(&hole), true).await;
            let error = match brought {
                Ok(()) => continue,
                Err(error @ (WriteError::SourceGone(_) | WriteError::NotReadable { .. })) => error,
                Err(error) => return Err(error),
            };
            // A publication under way says where the bytes are once it is over.
            drop(timeout_at(deadline, self.turn.lock()).await);
            let state = self.state();
            if state.is_discarded || Instant::now() >= deadline || !answer.look_again(&state, &hole) {
                return Err(error);
            }
        }
        Ok(answer.into.freeze())
    }

    /// Brings the bytes of a hole that was seen in the file, while `spool` was its file in the spool, `into` a place
    /// outside of it. If the file `may_keep` the bytes of a version, it does where the drafts have memory to spare.
    pub(super) async fn bring(
        &self,
        hole: &Hole,
        spool: Option<Arc<SpoolFile>>,
        into: &mut [u8],
        may_keep: bool,
    ) -> Result<(), WriteError> {
        let from = match (&hole.elsewhere, spool) {
            (Elsewhere::Source(place), _) => place,
            (Elsewhere::Spool, Some(file)) => return unspool(file, hole.start, into).await,
            (Elsewhere::Spool, None) | (Elsewhere::Stored, _) => {
                return Err(WriteError::NotReadable { offset: hole.start });
            }
        };
        let mut at = hole.start;
        for target in into.chunks_mut(index(BLOCK)) {
            let (len, place) = (target.len() as u64, from.after(at - hole.start));
            let bytes = self.fetch(&place, len, || async move { Ok(vec![0; index(len)]) }).await?;
            target.copy_from_slice(&bytes);
            if let Some(mut kept) = self.spare_buffer(len).filter(|_| may_keep) {
                kept.as_mut()[..index(len)].copy_from_slice(&bytes);
                let kept = Bytes::from_owner(kept).slice(..index(len));
                self.state().fill(at, &kept, Some(&place));
            }
            at += len;
        }
        Ok(())
    }
}

/// Reads bytes from the spool. Others may change them there meanwhile: then these are old bytes or new ones.
async fn unspool(file: Arc<SpoolFile>, start: u64, into: &mut [u8]) -> Result<(), WriteError> {
    let mut at = start;
    for target in into.chunks_mut(index(BLOCK)) {
        let (spool, file, len) = (file.spool().clone(), file.clone(), target.len());
        let read = spool.run(move || {
            let mut bytes = vec![0; len];
            file.read(at, &mut bytes)?;
            Ok(bytes)
        });
        target.copy_from_slice(&read.await.map_err(WriteError::Spool)?);
        at += len as u64;
    }
    Ok(())
}

/// The bytes of a range, if they lie in one frozen extent. Nothing is copied.
fn whole(state: &DraftState, start: u64, end: u64) -> Option<Bytes> {
    let (from, extent) = state.extents.range(start, end).next()?;
    match &extent.content {
        Content::Frozen(bytes, _) if end <= from + extent.len => {
            Some(bytes.slice(index(start - from)..index(end - from)))
        }
        _ => None,
    }
}
