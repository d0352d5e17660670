//! Changes of a draft.

use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::Need;
use tokio::time::{Instant, timeout_at};

use super::Draft;
use crate::WriteError;
use crate::grid::PAGE;
use crate::state::{BLOCK, Held, Wants, index};

/// Who waits for memory asks drafts again after this time: they may have got something to give.
const ASK_AGAIN: Duration = Duration::from_millis(100);

impl Draft {
    /// Writes at once if memory is free, and nothing has to be fetched. `None`: call [`write`](Self::write)
    /// with the same bytes. Never waits.
    pub fn try_write(&self, offset: u64, data: &[u8]) -> Option<Result<(), WriteError>> {
        let _change = self.gate.try_read().ok()?;
        let mut spare = None;
        let mut at = 0;
        loop {
            match self.step(offset + at as u64, &data[at..], &mut spare) {
                Err(error) => return Some(Err(self.fail(error))),
                Ok((_, Wants::Nothing)) => return Some(Ok(())),
                Ok((written, Wants::Buffer { len, least })) => {
                    at += written;
                    spare =
                        Some(self.try_buffer(len).or_else(|| self.try_buffer(len.min(BLOCK).max(least)))?);
                }
                Ok((_, Wants::Bytes(..))) => return None,
            }
        }
    }

    /// Writes `data` at `offset`. Waits for memory, and for the bytes around a change.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), WriteError> {
        let _change = self.gate.read().await;
        let mut spare = None;
        let mut at = 0;
        loop {
            let (written, wants) =
                self.step(offset + at as u64, &data[at..], &mut spare).map_err(|error| self.fail(error))?;
            at += written;
            match wants {
                Wants::Nothing => return Ok(()),
                Wants::Buffer { len, least } => {
                    let short = len.min(BLOCK).max(least);
                    spare = self.try_buffer(len);
                    if spare.is_none() {
                        spare = Some(self.buffer(short).await.map_err(|error| self.fail(error))?);
                    }
                }
                Wants::Bytes(start, end) => {
                    let (start, end) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
                    self.load(start, end).await.map_err(|error| self.fail(error))?;
                }
            }
        }
    }

    /// Writes as much as it can. Returns how many bytes that are, and what is missing for more.
    fn step(&self, offset: u64, data: &[u8], spare: &mut Option<Held>) -> Result<(usize, Wants), WriteError> {
        let now = self.shared.now();
        let end = offset.checked_add(data.len() as u64).ok_or(WriteError::TooLarge { size: u64::MAX })?;
        let mut state = self.state();
        state.check()?;
        if data.is_empty() {
            return Ok((0, Wants::Nothing));
        }
        let plan = self.shared.grid(state.size());
        let most = state.grid.unwrap_or(plan).most_bytes();
        if end > most {
            return Err(WriteError::TooLarge { size: end });
        }
        if let Some(offset) = state.lost_beside(offset, end) {
            return Err(WriteError::NotPatchable { offset });
        }
        let (written, wants) = state.write(offset, data, spare, plan)?;
        if written > 0 {
            state.touch(offset, offset + written as u64, now);
            self.shared.metrics.written_bytes.add(written as u64);
        }
        let is_passed = wants == Wants::Nothing && !state.is_patched;
        let frontier = state.frontier;
        drop(state);
        if is_passed {
            self.upload_passed(offset, frontier);
        }
        Ok((written, wants))
    }

    /// Cuts the file to `size` bytes, or makes it that long by zeros.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn truncate(&self, size: u64) -> Result<(), WriteError> {
        let _change = self.gate.read().await;
        self.resize(size).map_err(|error| match error {
            // Nothing has changed.
            WriteError::TooLarge { .. } => error,
            error => self.fail(error),
        })
    }

    fn resize(&self, size: u64) -> Result<(), WriteError> {
        let now = self.shared.now();
        let mut state = self.state();
        state.check()?;
        let before = state.size();
        if size > state.grid.unwrap_or_else(|| self.shared.grid(size)).most_bytes() {
            return Err(WriteError::TooLarge { size });
        }
        if let Some(offset) = state.lost_beside(size.min(before), size.max(before)) {
            return Err(WriteError::NotPatchable { offset });
        }
        state.resize(size, now);
        Ok(())
    }

    /// A buffer of `len` bytes, if there is one now.
    pub(super) fn try_buffer(&self, len: u64) -> Option<Held> {
        let len = index(len).min(self.shared.share.max_buffer_bytes());
        Some(Held::new(self.shared.share.try_buffer(len, self.need(len))?, &self.held))
    }

    /// A buffer of `len` bytes, as soon as there is one.
    pub(super) async fn buffer(&self, len: u64) -> Result<Held, WriteError> {
        if let Some(buffer) = self.try_buffer(len) {
            return Ok(buffer);
        }
        let len = index(len).min(self.shared.share.max_buffer_bytes());
        let need = self.need(len);
        let share = &self.shared.share;
        let _wanted = self.shared.givers.want(len as u64);
        let buffer = {
            let waiting = share.buffer(len, need, &*self.shared.reclaim);
            tokio::pin!(waiting);
            let deadline = Instant::now() + self.shared.config.timeout;
            // It takes its place in the queue before others are asked to give.
            let mut limit = Instant::now();
            loop {
                match timeout_at(limit, &mut waiting).await {
                    Ok(buffer) => break buffer,
                    Err(_) if Instant::now() >= deadline => {
                        return Err(match &self.shared.spool {
                            Some(spool) if spool.is_full() => WriteError::OutOfSpool,
                            _ => WriteError::OutOfMemory(self.shared.config.timeout),
                        });
                    }
                    Err(_) => self.state().check()?,
                }
                self.shared.givers.relieve(self);
                limit = deadline.min(Instant::now() + ASK_AGAIN);
            }
        };
        Ok(Held::new(buffer, &self.held))
    }

    /// A draft that can't fill a part needs memory most: nothing else frees what it holds.
    fn need(&self, len: usize) -> Need {
        let held = self.held.load(std::sync::atomic::Ordering::Relaxed);
        let part = self.state_part();
        if held + len as u64 <= part + PAGE { Need::Least } else { Need::More }
    }

    fn state_part(&self) -> u64 {
        let state = self.state();
        state.grid.unwrap_or_else(|| self.shared.grid(state.size())).first()
    }
}
