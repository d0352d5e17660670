//! Changes of a draft.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use s3mount_memory::{Need, Pieces};
use tokio::time::{Instant, timeout, timeout_at};

use super::Draft;
use super::load::PinGuard;
use crate::WriteError;
use crate::part_layout::{PAGE, PartLayout};
use crate::state::{BLOCK, DraftState, Held, Wants, index};

/// A write that waits for memory asks drafts again after this time: they may have memory to give by then.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How long a write waits for the buffer of a whole part. S3 takes a part of 8 MiB in 0.2 s in the mean.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most that one write needs of the memory: the bytes around it, and blocks of two parts.
const MOST_OF_WRITE: u64 = 3 * BLOCK;

/// A write that has asked this often in vain is stuck.
const STUCK: u32 = 5;

/// A part that a draft fills.
struct ToFill {
    /// Its number, or 0 where the store takes no more parts.
    number: u32,
    /// Its length.
    bytes: u64,
    /// How many of these are not written yet, if that is known: of a file that is written from front to back.
    missing: Option<u64>,
}

/// What memory is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A change of the file.
    Change,
    /// A task that gathers bytes for a request.
    Task,
}

impl Draft {
    /// Writes at once what memory is free for, as long as nothing has to be fetched or [kept](Self::keep). Returns how many
    /// bytes are written; [`write`](Self::write) takes those behind them, and not the others again: a file that is written
    /// from front to back would be none any more. Never waits.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn try_write(&self, offset: u64, data: &[u8]) -> Result<usize, WriteError> {
        let Ok(_turn) = self.turn.try_lock() else { return Ok(0) };
        if self.is_kept() || self.is_resting() {
            return Ok(0);
        }
        let written = self.try_write_alone(offset, data);
        self.end_write();
        written
    }

    fn try_write_alone(&self, offset: u64, data: &[u8]) -> Result<usize, WriteError> {
        let (mut spare, mut at) = (None, 0);
        loop {
            let step = self.step(offset + at as u64, &data[at..], &mut spare);
            let (written, wants) = step.map_err(|error| self.refuse(error))?;
            at += written;
            match wants {
                Wants::Nothing | Wants::Bytes(..) => return Ok(at),
                Wants::Buffer { len, least } => {
                    spare = self.try_buffer(len);
                    if spare.is_none() && !self.will_have(len) {
                        spare = self.try_buffer(len.min(BLOCK).max(least));
                    }
                    if spare.is_none() {
                        return Ok(at);
                    }
                }
            }
        }
    }

    /// Writes `data` at `offset`. Waits for memory, and for the bytes around a change.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), WriteError> {
        let _turn = self.turn.lock().await;
        if !data.is_empty() {
            self.wake(u64::MAX).await?;
        }
        let keeper = if data.is_empty() { None } else { self.begin_change().await };
        let written = self.write_alone(offset, data.clone()).await;
        if let Some(keeper) = keeper {
            self.end_write_kept(keeper, offset, data, written.is_ok()).await;
        }
        self.end_write();
        written
    }

    /// What was written can go to the spool, if there is one, without more memory.
    fn end_write(&self) {
        if self.has_spool() {
            self.end_line();
        }
    }

    async fn write_alone(&self, offset: u64, data: Bytes) -> Result<(), WriteError> {
        let _pin = self.pin_changed(offset, data.len() as u64);
        let (mut spare, mut _keeping) = (None, None);
        let mut at = 0;
        loop {
            let (written, wants) =
                self.step(offset + at as u64, &data[at..], &mut spare).map_err(|error| self.refuse(error))?;
            at += written;
            match wants {
                Wants::Nothing => return Ok(()),
                Wants::Buffer { len, least } => {
                    let short = len.min(BLOCK).max(least);
                    spare = self.try_buffer(len);
                    if spare.is_none() && self.will_have(len) && !self.line.has_credit() {
                        let whole = timeout(PATIENCE, self.buffer(len)).await;
                        spare = whole.ok().transpose().map_err(|error| self.fail(error))?;
                    }
                    if spare.is_none() {
                        let buffer = self.one_buffer(short, Pieces::First).await;
                        spare = Some(buffer.map_err(|error| self.fail(error))?);
                    }
                }
                Wants::Bytes(start, end) => {
                    // The bytes have left memory while it waited for the buffer. Who waits for memory holds none that others
                    // could have.
                    spare = None;
                    let (start, end) = match self.size() {
                        // Publication needs all of it.
                        size if size <= BLOCK => (0, size),
                        _ => (start / PAGE * PAGE, end.next_multiple_of(PAGE)),
                    };
                    _keeping = Some(self.load(start, end).await.map_err(|error| self.fail(error))?);
                }
            }
        }
    }

    /// Keeps the parts that a change goes to in memory, other than those that a stream fills: while the change waits for
    /// memory, it must not lose the bytes around it.
    fn pin_changed(&self, offset: u64, len: u64) -> Option<PinGuard<'_>> {
        let mut state = self.state();
        let layout = state.layout.filter(|_| offset != state.frontier && len > 0)?;
        let (first, last) = (layout.part_at(offset)?, layout.part_at(offset.checked_add(len - 1)?)?);
        Some(PinGuard::new(self, &mut state, first.start, last.end))
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
        let size = state.size().max(end);
        let plan = self.check_change(&state, (offset, end), size, || state.copied_head().min(offset))?;
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

    /// Checks that a range may change: the file, whose length is `size` then, is not too long, and the bytes around
    /// the change can be had. `copied` bytes at the beginning come from one version then. Returns the cuts.
    pub(super) fn check_change(
        &self,
        state: &DraftState,
        (start, end): (u64, u64),
        size: u64,
        copied: impl FnOnce() -> u64,
    ) -> Result<PartLayout, WriteError> {
        let layout = state.layout.unwrap_or_else(|| self.shared.layout(size, copied));
        if size > layout.most_bytes() {
            return Err(WriteError::TooLarge { size });
        }
        match state.lost_beside(start, end) {
            Some(offset) => Err(WriteError::NotPatchable { offset }),
            None => Ok(layout),
        }
    }

    /// Cuts the file to `size` bytes, or makes it that long by zeros.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn truncate(&self, size: u64) -> Result<(), WriteError> {
        let _turn = self.turn.lock().await;
        if self.size() == size { self.resize(size) } else { self.resize_kept(size).await }
    }

    /// Cuts the file to no byte. One that has none is changed, too.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn empty(&self) -> Result<(), WriteError> {
        let _turn = self.turn.lock().await;
        self.resize_kept(0).await?;
        self.state().touch(0, 0, self.shared.now());
        Ok(())
    }

    /// Makes the file `size` bytes long by zeros, unless it is longer.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn grow(&self, size: u64) -> Result<(), WriteError> {
        let _turn = self.turn.lock().await;
        if self.size() < size { self.resize_kept(size).await } else { Ok(()) }
    }

    /// Gives the file another size, and has the keeper told.
    async fn resize_kept(&self, size: u64) -> Result<(), WriteError> {
        self.wake(size).await?;
        let keeper = self.begin_change().await;
        let resized = self.resize(size);
        if let Some(keeper) = keeper {
            self.end_change(|| {
                if resized.is_ok() {
                    keeper.resized(size);
                }
            });
        }
        resized
    }

    /// Fails a change. What is too large has changed nothing, so the file goes on.
    fn refuse(&self, error: WriteError) -> WriteError {
        match error {
            WriteError::TooLarge { .. } => error,
            error => self.fail(error),
        }
    }

    fn resize(&self, size: u64) -> Result<(), WriteError> {
        self.try_resize(size).map_err(|error| self.refuse(error))
    }

    fn try_resize(&self, size: u64) -> Result<(), WriteError> {
        let now = self.shared.now();
        let mut state = self.state();
        state.check()?;
        let before = state.size();
        let changed = (size.min(before), size.max(before));
        self.check_change(&state, changed, size, || state.copied_head().min(size))?;
        state.resize(size, now);
        Ok(())
    }

    /// Whether it pays to wait a moment for a buffer of a whole part, because parts of the file that are being
    /// uploaded will give theirs back. A part in many small buffers is copied into one before it is uploaded: that
    /// was a tenth of what it costs to write a large file.
    fn will_have(&self, len: u64) -> bool {
        len > BLOCK && self.state().part_states.claimed() > 0
    }

    /// A buffer of `len` bytes, if there is one now.
    fn try_buffer(&self, len: u64) -> Option<Held> {
        let len = index(len).min(self.shared.share.max_buffer_bytes());
        Some(Held::new(self.shared.share.try_buffer(len, self.need(len))?, &self.held))
    }

    /// A buffer of `len` bytes that the draft can do without, if there is one now.
    pub(super) fn spare_buffer(&self, len: u64) -> Option<Held> {
        let len = index(len).min(self.shared.share.max_buffer_bytes());
        Some(Held::new(self.shared.share.try_buffer(len, Need::More)?, &self.held))
    }

    /// A buffer of `len` bytes, as soon as there is one.
    pub(super) async fn buffer(&self, len: u64) -> Result<Held, WriteError> {
        self.one_buffer(len, Pieces::One).await
    }

    async fn one_buffer(&self, len: u64, pieces: Pieces) -> Result<Held, WriteError> {
        if let Some(buffer) = self.try_buffer(len) {
            return Ok(buffer);
        }
        let mut buffers = self.wait_for_buffers(len, pieces, Use::Change).await?;
        Ok(buffers.pop().expect("who asks for one gets one"))
    }

    /// Buffers of `len` bytes, or the most that there ever is, as soon as memory is free. A task gets them whatever the
    /// draft holds.
    pub(super) async fn wait_for_buffers(
        &self,
        len: u64,
        pieces: Pieces,
        usage: Use,
    ) -> Result<Vec<Held>, WriteError> {
        let share = &self.shared.share;
        let is_task = usage == Use::Task;
        let len = index(len).min(if is_task { share.task_bytes() } else { share.max_buffer_bytes() });
        let _wanted = self.shared.draft_reclaimer.want(len as u64);
        let (mut since, mut given, mut stuck) = (Instant::now(), share.given(), 0);
        loop {
            let need = if is_task { Need::Task } else { self.need(len) };
            let is_more = matches!(need, Need::More);
            let waiting = share.buffers(len, pieces, need, &*self.shared.reclaim_from_readers);
            tokio::pin!(waiting);
            // It takes its place in the queue before others are asked to give.
            let mut limit = Instant::now();
            loop {
                if let Ok(buffers) = timeout_at(limit, &mut waiting).await {
                    return Ok(buffers.into_iter().map(|buffer| Held::new(buffer, &self.held)).collect());
                }
                if given != share.given() {
                    // Others get on, so its turn comes.
                    (since, given) = (Instant::now(), share.given());
                }
                self.check_wait(since, is_more)?;
                let held = self.held.load(Ordering::Relaxed);
                self.shared.draft_reclaimer.reclaim(self);
                stuck = if self.is_stuck(held) { stuck + 1 } else { 0 };
                if stuck == STUCK {
                    return Err(WriteError::NeedsSpool);
                }
                if is_more && matches!(self.need(len), Need::Least { .. }) {
                    // It has given back what it could, and waits with those who can give no more.
                    break;
                }
                limit = Instant::now() + ASK_AGAIN;
            }
        }
    }

    /// Fails a wait in which nobody has got memory `since` then, if that is too long ago.
    fn check_wait(&self, since: Instant, is_more: bool) -> Result<(), WriteError> {
        let (timeout, state) = (self.shared.config.timeout, self.state());
        state.check()?;
        let needs_spool = self.shared.spool.is_none() && state.is_patched;
        // Its parts may never be whole. It gives up before the callers that only wait for what it holds.
        let most = if needs_spool && is_more { timeout / 2 } else { timeout };
        if since.elapsed() < most {
            return Ok(());
        }
        Err(match &self.shared.spool {
            Some(spool) if spool.is_full() => WriteError::OutOfSpool,
            _ if needs_spool => WriteError::NeedsSpool,
            _ => WriteError::OutOfMemory(timeout),
        })
    }

    /// Whether the draft itself holds the memory that it waits for, and none of it comes free: pieces of parts that
    /// can't be uploaded before they are whole. It held `before` bytes before it was to give some.
    fn is_stuck(&self, before: u64) -> bool {
        let (held, share) = (self.held.load(Ordering::Relaxed), &self.shared.share);
        let state = self.state();
        self.shared.spool.is_none()
            && held == before
            // Half of the memory is for files that can't fill a part, so no file has more than the other half.
            && held >= share.limit_bytes() / 8 * 3
            // Others could give what they hold.
            && share.held_bytes() <= held + share.limit_bytes() / 8
            && state.is_patched
            && state.part_states.claimed() == 0
    }

    /// A draft that can't fill a part needs memory most: nothing else frees what it holds. If memory is short, it is
    /// promised the whole part, so that it fills it without waiting for others who do the same. Where there is a spool,
    /// all that a write needs is enough: then its bytes can go there.
    fn need(&self, len: usize) -> Need<'_> {
        let held = self.held.load(Ordering::Relaxed);
        let ToFill { number, bytes: part, missing } = self.to_fill();
        if self.line_of.swap(number, Ordering::Relaxed) != number {
            // That part is full, or left.
            self.line.give_back();
        }
        if held + len as u64 > part + PAGE && !self.line.has_credit() {
            return Need::More;
        }
        let bytes = missing.unwrap_or(part.saturating_sub(held)) + BLOCK;
        Need::Least {
            line: &self.line,
            bytes: if self.has_spool() { bytes.min(MOST_OF_WRITE) } else { bytes },
        }
    }

    /// The part that is written now. A long one is copied inside the store.
    fn to_fill(&self) -> ToFill {
        let state = self.state();
        let layout = self.layout(&state);
        let Some(part) = layout.part_at(state.frontier) else {
            return ToFill { number: 0, bytes: layout.first(), missing: None };
        };
        let bytes = part.len().min(layout.most()).max(layout.first());
        // What the draft holds beside may be of other parts.
        let missing = (!state.is_patched).then(|| (part.end - state.frontier).min(bytes));
        ToFill { number: part.number, bytes, missing }
    }

    /// The draft can give back all that it holds.
    pub(super) fn end_line(&self) {
        self.line.give_back();
    }

    /// Lets others have what the draft was promised, if it has not changed for a while.
    pub(super) fn lend_line(&self) {
        let idle = self.shared.now().duration_since(self.modified()).unwrap_or_default();
        if idle < PATIENCE || !self.line.has_credit() {
            return;
        }
        let Ok(_turn) = self.turn.try_lock() else { return };
        let held = self.held.load(Ordering::Relaxed);
        self.line.abandon(held, self.to_fill().bytes + BLOCK);
    }
}
