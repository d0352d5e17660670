//! A share of the pool, for callers that can't give their buffers back whenever a reader wants them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Buffer, BufferPool, Priority, UNIT_BYTES};

/// How much a caller needs a buffer of a [`Share`].
#[derive(Clone, Copy, Debug)]
pub enum Need<'a> {
    /// The caller can't go on without it, nor give anything back before it has had `bytes`. Where memory is short, it
    /// gets all of these or none: what it does not take at once stays on its line.
    Least {
        /// What it has been promised.
        line: &'a Line,
        /// How many bytes it still has to have, with this buffer, to give all of them back.
        bytes: u64,
    },
    /// The caller holds no other memory, and gives it back without having had more: a task that gathers bytes from
    /// elsewhere and uploads them.
    Task,
    /// The caller would go faster with it.
    More,
}

/// What a caller takes where memory is free, but in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// It waits for one piece.
    One,
    /// The longest piece will do, however long that is.
    First,
    /// It takes as many as make up the length.
    All,
}

/// A bounded part of a pool's memory. Cheap to clone.
///
/// Readers can give their buffers back at any time. A file that is being written can't: its bytes are nowhere
/// else. So all such buffers together have a bound, and the rest of the pool is always the readers'.
///
/// Some callers can give their buffers back only once they have got more: a part of a file is uploaded when it is
/// whole. If all memory were held by such callers, each would wait for the others for ever. So one half of the share is
/// handed out only as a whole of all that a caller needs ([`Need::Least`]): a caller that has memory of that half goes
/// on to the end without waiting, and gives all of it back. Both halves serve in order of arrival.
///
/// Others can give their buffers back once a task has got some ([`Need::Task`]): what a file has in memory of a part whose
/// other bytes are elsewhere. So there is memory beside the bound that only tasks get, one after another.
#[derive(Clone, Debug)]
pub struct Share(Arc<Halves>);

#[derive(Debug)]
struct Halves {
    pool: BufferPool,
    /// Permits count [`UNIT_BYTES`].
    more: Arc<Semaphore>,
    least: Arc<Semaphore>,
    tasks: Arc<Semaphore>,
    /// Of the two halves.
    units: usize,
    /// Of those beside them, for tasks.
    task_units: usize,
    waiting: AtomicU64,
    /// How many buffers it has given.
    given: AtomicU64,
    /// The bytes of the second half held by callers that may not go on.
    abandoned_bytes: AtomicU64,
}

/// What one caller was promised of a [`Share`], and has not taken yet.
#[derive(Debug)]
pub struct Line {
    share: Share,
    state: Mutex<LineState>,
}

#[derive(Debug, Default)]
struct LineState {
    credit: Option<OwnedSemaphorePermit>,
    /// How many bytes the caller held when its promise was taken back.
    abandoned_bytes: u64,
}

/// A buffer of a share. Its content is whatever its last user left in it.
#[derive(Debug)]
pub struct ShareBuffer {
    // Dropped in this order: the memory is free before the share says so.
    buffer: Buffer,
    permit: OwnedSemaphorePermit,
}

/// The permit of a caller that waits for the pool. Where the caller stops waiting, or takes less, what it was promised
/// goes to its line: it holds memory of that promise, maybe, and would wait for the rest with others who do.
struct Kept<'a> {
    permit: Option<OwnedSemaphorePermit>,
    need: Need<'a>,
    share: &'a Share,
}

impl Kept<'_> {
    /// The permit for a buffer of `len` bytes, of those that are kept.
    fn take(&mut self, len: usize) -> OwnedSemaphorePermit {
        let permit = self.permit.as_mut().and_then(|permit| permit.split(units(len) as usize));
        permit.expect("a buffer is no longer than what is asked for")
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let (Some(permit), Need::Least { line, .. }) = (self.permit.take(), self.need)
            && permit.num_permits() > 0
            && self.share.is_least(&permit)
        {
            line.put(permit);
        }
    }
}

struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn units(len: usize) -> u32 {
    u32::try_from(len.div_ceil(UNIT_BYTES)).expect("a buffer is far below 4 Gi units")
}

impl Share {
    /// A share of `limit_bytes` of `pool`, or of all of it where its limit is the least. Beside that, tasks get
    /// `task_bytes`, so the pool is to have as much more. No task may need more than that at once.
    pub fn new(pool: BufferPool, limit_bytes: u64, task_bytes: u64) -> Self {
        let units =
            usize::try_from(limit_bytes.min(pool.budget().least_bytes())).unwrap_or(usize::MAX) / UNIT_BYTES;
        let least = units / 2;
        let task_units = usize::try_from(task_bytes).unwrap_or(usize::MAX).div_ceil(UNIT_BYTES);
        Self(Arc::new(Halves {
            pool,
            more: Arc::new(Semaphore::new(units - least)),
            least: Arc::new(Semaphore::new(least)),
            tasks: Arc::new(Semaphore::new(task_units)),
            units,
            task_units,
            waiting: AtomicU64::new(0),
            given: AtomicU64::new(0),
            abandoned_bytes: AtomicU64::new(0),
        }))
    }

    /// The bound without what is there for tasks, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        (self.0.units * UNIT_BYTES) as u64
    }

    /// How many bytes its buffers take now, and those that were promised.
    pub fn held_bytes(&self) -> u64 {
        let Halves { more, least, tasks, units, task_units, .. } = &*self.0;
        let free = more.available_permits() + least.available_permits() + tasks.available_permits();
        ((units + task_units).saturating_sub(free) * UNIT_BYTES) as u64
    }

    /// How many callers wait for a buffer.
    pub fn waiting(&self) -> u64 {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// How many buffers it has given. While that grows, every waiting caller gets its turn.
    pub fn given(&self) -> u64 {
        self.0.given.load(Ordering::Relaxed)
    }

    /// The largest buffer that it can ever give, in bytes.
    pub fn max_buffer_bytes(&self) -> usize {
        self.least_bytes().min(self.0.pool.max_buffer_bytes())
    }

    /// The most that a task gets at once, in bytes.
    pub fn task_bytes(&self) -> usize {
        self.0.task_units * UNIT_BYTES
    }

    fn least_bytes(&self) -> usize {
        self.0.units / 2 * UNIT_BYTES
    }

    /// A line for one caller.
    pub fn line(&self) -> Line {
        Line { share: self.clone(), state: Mutex::default() }
    }

    /// A buffer of `len` bytes if there is room for it now. It leaves the pool's reserve to readers.
    ///
    /// # Panics
    /// When `len` is 0, or above the pool's largest buffer.
    pub fn try_buffer(&self, len: usize, need: Need<'_>) -> Option<ShareBuffer> {
        let buffer = self.0.pool.try_buffer(len, Priority::Prefetch)?;
        let more = self.0.more.clone().try_acquire_many_owned(units(len));
        let permit = match (more, need) {
            (Ok(permit), _) => permit,
            (Err(_), Need::Least { line, bytes }) => line.take(len).or_else(|| {
                let whole = self.whole(len, bytes);
                Some(line.put_but(self.0.least.clone().try_acquire_many_owned(whole).ok()?, len))
            })?,
            (Err(_), Need::Task) => self.0.tasks.clone().try_acquire_many_owned(units(len)).ok()?,
            (Err(_), Need::More) => return None,
        };
        Some(self.give(buffer, permit))
    }

    /// A buffer of `len` bytes, or what `pieces` says, as soon as there is room for it, first in the share and then in
    /// the pool. `reclaim` is called when it begins to wait for the pool: others have to give memory back then. The
    /// wait has no deadline of its own.
    ///
    /// # Panics
    /// When `len` is 0, or above [`max_buffer_bytes`](Self::max_buffer_bytes); for a task, above
    /// [`task_bytes`](Self::task_bytes).
    pub async fn buffers(
        &self,
        len: usize,
        pieces: Pieces,
        need: Need<'_>,
        reclaim: &(dyn Fn() + Send + Sync),
    ) -> Vec<ShareBuffer> {
        let most = if matches!(need, Need::Task) { self.task_bytes() } else { self.max_buffer_bytes() };
        assert!(0 < len && len <= most, "buffer of {len} bytes asked for");
        let mut kept = Kept { permit: Some(self.permit(len, need).await), need, share: self };
        let (mut buffers, mut missing) = (Vec::new(), len);
        loop {
            let unit = if pieces == Pieces::One { missing } else { UNIT_BYTES };
            let buffer = match self.0.pool.try_up_to(missing, unit, Priority::Prefetch) {
                Some(buffer) => buffer,
                None => {
                    let queued = self.0.pool.shared_up_to(missing, unit);
                    reclaim();
                    queued.await
                }
            };
            let got = buffer.as_ref().len();
            buffers.push(self.give(buffer, kept.take(got)));
            missing -= got;
            if missing == 0 || pieces != Pieces::All {
                return buffers;
            }
        }
    }

    /// Waits until the share has room for `len` bytes.
    async fn permit(&self, len: usize, need: Need<'_>) -> OwnedSemaphorePermit {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.0.waiting);
        let more = self.0.more.clone().acquire_many_owned(units(len));
        match need {
            Need::More => more.await.expect("the semaphores are never closed"),
            Need::Task => {
                let task = self.0.tasks.clone().acquire_many_owned(units(len));
                tokio::select! {
                    biased;
                    permit = more => permit.expect("the semaphores are never closed"),
                    permit = task => permit.expect("the semaphores are never closed"),
                }
            }
            Need::Least { line, bytes } => {
                if let Some(permit) = line.take(len) {
                    return permit;
                }
                // A caller that waits for a promise has none.
                line.state().credit = None;
                let least = self.0.least.clone().acquire_many_owned(self.whole(len, bytes));
                tokio::select! {
                    biased;
                    permit = more => permit.expect("the semaphores are never closed"),
                    whole = least => line.put_but(whole.expect("the semaphores are never closed"), len),
                }
            }
        }
    }

    /// How many units a caller gets at once who still has to have `bytes`.
    fn whole(&self, len: usize, bytes: u64) -> u32 {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        units(bytes.min(self.least_bytes()).max(len))
    }

    fn is_least(&self, permit: &OwnedSemaphorePermit) -> bool {
        Arc::ptr_eq(permit.semaphore(), &self.0.least)
    }

    fn give(&self, buffer: Buffer, permit: OwnedSemaphorePermit) -> ShareBuffer {
        self.0.given.fetch_add(1, Ordering::Relaxed);
        ShareBuffer { buffer, permit }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything was promised and not taken.
    pub fn has_credit(&self) -> bool {
        self.state().credit.as_ref().is_some_and(|credit| credit.num_permits() > 0)
    }

    fn take(&self, len: usize) -> Option<OwnedSemaphorePermit> {
        self.state().credit.as_mut()?.split(units(len) as usize)
    }

    fn put(&self, permit: OwnedSemaphorePermit) {
        let mut state = self.state();
        self.forgive(&mut state);
        match &mut state.credit {
            Some(credit) => credit.merge(permit),
            credit @ None => *credit = Some(permit),
        }
    }

    /// Keeps a promise, but for `len` bytes that are taken at once.
    fn put_but(&self, mut whole: OwnedSemaphorePermit, len: usize) -> OwnedSemaphorePermit {
        let taken = whole.split(units(len) as usize).expect("a whole is no less than what is taken");
        self.put(whole);
        taken
    }

    /// Gives back what was promised and not taken: the caller needs no more of it, and can give back all that it has.
    pub fn give_back(&self) {
        let mut state = self.state();
        self.forgive(&mut state);
        state.credit = None;
    }

    /// Takes a promise back from a caller that does not go on, and holds `held` bytes. Does so only if the bytes that
    /// such callers hold leave room for `most` bytes, the largest promise, so that other callers get theirs.
    pub fn abandon(&self, held: u64, most: u64) {
        let mut state = self.state();
        let least = self.share.least_bytes() as u64;
        let abandoned_bytes = &self.share.0.abandoned_bytes;
        let is_room = |others: u64| (others + held + most <= least).then_some(others + held);
        if state.credit.is_some()
            && abandoned_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_room).is_ok()
        {
            state.abandoned_bytes += held;
            state.credit = None;
        }
    }

    fn forgive(&self, state: &mut LineState) {
        let abandoned = std::mem::take(&mut state.abandoned_bytes);
        self.share.0.abandoned_bytes.fetch_sub(abandoned, Ordering::Relaxed);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl ShareBuffer {
    /// How many bytes of the share it takes.
    pub fn held_bytes(&self) -> u64 {
        (self.permit.num_permits() * UNIT_BYTES) as u64
    }
}

impl AsRef<[u8]> for ShareBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl AsMut<[u8]> for ShareBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::{Need, Pieces, Share};
    use crate::{BufferPool, MemoryBudget, Priority, UNIT_BYTES};

    fn pool(units: usize) -> BufferPool {
        BufferPool::new(MemoryBudget::new((units * UNIT_BYTES) as u64)).expect("a pool")
    }

    fn bytes(units: usize) -> u64 {
        (units * UNIT_BYTES) as u64
    }

    #[tokio::test]
    async fn memory_in_pieces_is_memory() {
        let pool = pool(16);
        let share = Share::new(pool.clone(), bytes(16), 0);
        let mut units: Vec<_> = (0..16).map(|_| pool.try_buffer(UNIT_BYTES, Priority::Demand)).collect();
        // Every other one is free, and a reader waits for a piece that there is not.
        units.iter_mut().step_by(2).for_each(|unit| drop(unit.take()));
        let reader = pool.buffer(2 * UNIT_BYTES);
        let got = share.buffers(4 * UNIT_BYTES, Pieces::All, Need::More, &|| ()).await;
        assert_eq!(got.iter().map(|piece| piece.as_ref().len()).collect::<Vec<_>>(), [UNIT_BYTES; 4]);
        let first = share.buffers(4 * UNIT_BYTES, Pieces::First, Need::More, &|| ()).await;
        assert_eq!((first.len(), first[0].as_ref().len()), (1, UNIT_BYTES));
        assert_eq!(share.held_bytes(), bytes(5), "what it did not get is not its");
        drop((got, first, units));
        assert_eq!((reader.await.as_ref().len(), share.held_bytes()), (2 * UNIT_BYTES, 0));
    }

    #[tokio::test]
    async fn who_waits_no_longer_for_one_piece_keeps_his_promise() {
        let pool = pool(32);
        let share = Share::new(pool.clone(), bytes(16), 0);
        let more = share.try_buffer(8 * UNIT_BYTES, Need::More).expect("half is free");
        let mut units: Vec<_> = (0..24).map(|_| pool.try_buffer(UNIT_BYTES, Priority::Demand)).collect();
        units.iter_mut().step_by(2).for_each(|unit| drop(unit.take()));
        let (line, other) = (share.line(), share.line());
        let need = Need::Least { line: &line, bytes: bytes(6) };
        let one = share.buffers(5 * UNIT_BYTES, Pieces::One, need, &|| ());
        tokio::select! {
            biased;
            _ = one => panic!("free memory is in pieces"),
            () = std::future::ready(()) => {}
        }
        let ask = |line, units| share.try_buffer(UNIT_BYTES, Need::Least { line, bytes: bytes(units) });
        assert!(ask(&other, 3).is_none(), "two units are too little");
        let held: Vec<_> = (0..6).map(|taken| ask(&line, 6 - taken).expect("it was promised")).collect();
        drop((more, held, units));
    }

    #[tokio::test]
    async fn tasks_get_memory_one_after_another_whoever_holds_the_rest() {
        let pool = pool(32);
        let share = Share::new(pool, bytes(16), bytes(4));
        let line = share.line();
        let more = share.try_buffer(8 * UNIT_BYTES, Need::More).expect("half is free");
        let least = share.try_buffer(UNIT_BYTES, Need::Least { line: &line, bytes: bytes(8) });
        let task = share.buffers(3 * UNIT_BYTES, Pieces::All, Need::Task, &|| ()).await;
        assert_eq!(share.held_bytes(), bytes(8 + 8 + 3));
        assert!(share.try_buffer(2 * UNIT_BYTES, Need::Task).is_none() && least.is_some());
        let (next, ()) =
            tokio::join!(share.buffers(2 * UNIT_BYTES, Pieces::All, Need::Task, &|| ()), async {
                drop(task);
            });
        drop((more, least, next));
        line.give_back();
        assert_eq!(share.held_bytes(), 0);
    }

    #[test]
    fn a_promise_is_kept_whole_or_not_made() {
        let share = Share::new(pool(16), bytes(16), 0);
        let more = share.try_buffer(8 * UNIT_BYTES, Need::More).expect("half is free");
        let lines: Vec<_> = (0..4).map(|_| share.line()).collect();
        let ask = |line: usize, units: usize| {
            share.try_buffer(UNIT_BYTES, Need::Least { line: &lines[line], bytes: bytes(units) })
        };
        let held: Vec<_> =
            [(0, 3), (1, 3)].into_iter().filter_map(|(line, units)| ask(line, units)).collect();
        assert_eq!((held.len(), share.held_bytes()), (2, bytes(8 + 6)), "the rest is theirs");
        assert!(ask(2, 3).is_none(), "two units are too little");
        assert!(ask(0, 2).is_some() && ask(1, 2).is_some(), "it was promised");
        lines[0].give_back();
        assert!(!lines[0].has_credit() && ask(2, 3).is_some());
        drop((more, held));
    }

    #[test]
    fn who_does_not_go_on_keeps_what_he_has_and_leaves_room_for_a_whole() {
        let share = Share::new(pool(16), bytes(16), 0);
        let more = share.try_buffer(8 * UNIT_BYTES, Need::More).expect("half is free");
        let (mut lines, mut held) = (Vec::new(), Vec::new());
        loop {
            let line = share.line();
            let Some(buffer) = share.try_buffer(UNIT_BYTES, Need::Least { line: &line, bytes: bytes(3) })
            else {
                break;
            };
            held.push(buffer);
            line.abandon(bytes(1), bytes(3));
            lines.push(line);
        }
        // Five have a unit each. The sixth has a whole, and keeps it: else there would be room for none.
        let credits: Vec<_> = lines.iter().map(super::Line::has_credit).collect();
        assert_eq!(credits, [false, false, false, false, false, true]);
        drop((lines.pop(), held.pop()));
        let line = share.line();
        assert!(share.try_buffer(UNIT_BYTES, Need::Least { line: &line, bytes: bytes(3) }).is_some());
        drop((line, lines, held, more));
        assert_eq!(share.held_bytes(), 0);
    }
}
