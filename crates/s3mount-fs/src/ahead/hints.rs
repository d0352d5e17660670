//! What readers say they will read: paths in order, written to `.s3mount/prefetch`.
//!
//! A line is a path below the root of the mount, or a path, an offset and a length with tabs between
//! them. Each writer (an open file, or a connection to the control socket) has a queue and a window
//! ([`HintWindow`]) of its own, and what the daemon guesses has one, so none waits for another. Those that
//! run share the memory evenly. Hints take memory only as reading ahead does, so whoever waits for memory
//! takes it from here first.

mod hint;
mod queue;
mod window;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use s3mount_object::ByteRange;
use s3mount_prefetch::ObjectReader;
use tokio::time::Instant;

use self::hint::Line;
pub(crate) use self::hint::{Guess, Hint};
use self::queue::HintQueue;
use self::window::HintWindow;
pub(crate) use self::window::Source;
use crate::open_clock::OpenClock;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, lock};

/// Memory of all hints that wait, in bytes. A writer may have as much as is left to others, so one alone
/// has half: the 1,281,167 paths of ImageNet, of 25 bytes each. More are dropped, and counted.
const MAX_QUEUED: usize = 64 << 20;

/// Guesses that wait, at most.
const MAX_GUESSED: usize = 512;

/// Names that are looked up at once for one writer: 192 LISTs of 60 ms each are 3,000 a second, so 1,000 cold
/// folders are no longer what a job waits for. Those in one folder wait for each other.
const LOOK_UPS: usize = 192;

/// For so long after a hint nothing is guessed in its folder: somebody knows.
const TOLD: Duration = Duration::from_secs(30);

/// Folders that are remembered to have been told of; when there are more, all are forgotten.
const MAX_TOLD: usize = 10_000;

/// Files that are opened again lie in the kernel's page cache, or one in nine of them does not: then
/// hints of them are followed until so many for each such file did, at most [`MOST_DOUBT`].
const DOUBT: u32 = 8;
const MOST_DOUBT: u32 = 32;

/// The hints of all writers.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Writers with something queued or in the window, each with a task that follows it.
    running: Mutex<Vec<Arc<HintWriter>>>,
    /// What the daemon has thought of by itself.
    guesser: Arc<HintWriter>,
    queued_bytes: AtomicUsize,
    /// Folders that hints were of, as their keys begin, and when.
    told: Mutex<HashMap<Arc<str>, Instant>>,
    refused: AtomicU64,
    /// How many files have to be found in the kernel's page cache until it is believed of others.
    doubt: AtomicU32,
}

/// One writer's hints.
#[derive(Debug, Default)]
pub(crate) struct HintWriter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    line: Line,
    queue: HintQueue,
    guessed: VecDeque<Guess>,
    /// How many are being looked up, or are about to be fetched.
    looked_up: usize,
    window: HintWindow<Arc<ObjectReader>>,
    /// Whether a task follows them.
    is_running: bool,
}

/// One of a queue.
#[derive(Debug)]
pub(crate) enum Next {
    /// Somebody told.
    Hint(Hint),
    /// The daemon guesses: follow it unless it was opened meanwhile.
    Guess(Guess),
}

/// What to do for a writer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Todo {
    /// The window has room: fetch what was looked up.
    Fetch,
    /// Wait so long: the window is full, or nothing is queued.
    Wait(Duration),
    /// Nothing is left.
    End,
}

impl Hints {
    /// Takes what a writer has written at `told`. Whether a task has to follow it from now on.
    pub(crate) fn push(&self, writer: &Arc<HintWriter>, mut data: &[u8], told: OpenClock) -> bool {
        let mut state = lock(&writer.0);
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            state.line.extend(&data[..end]);
            self.finish(&mut state, told);
            data = &data[end + 1..];
        }
        state.line.extend(data);
        let is_needed = state.queue.len() > 0;
        self.run(writer, state, is_needed)
    }

    /// Takes guesses of files below `prefix`, unless many of them wait, or somebody who knows has told of
    /// that folder lately. The writer that a task has to follow from now on, if it has to.
    pub(crate) fn guess(
        &self,
        prefix: &str,
        guesses: impl Iterator<Item = Guess>,
        now: Instant,
    ) -> Option<Arc<HintWriter>> {
        let is_fresh = |told: &Instant| now.saturating_duration_since(*told) < TOLD;
        if lock(&self.told).get(prefix).is_some_and(is_fresh) {
            return None;
        }
        let mut state = lock(&self.guesser.0);
        let room = MAX_GUESSED.saturating_sub(state.guessed.len());
        state.guessed.extend(guesses.take(room));
        let is_needed = !state.guessed.is_empty();
        self.run(&self.guesser, state, is_needed).then(|| self.guesser.clone())
    }

    fn run(&self, writer: &Arc<HintWriter>, mut state: MutexGuard<'_, State>, is_needed: bool) -> bool {
        if state.is_running || !is_needed {
            return false;
        }
        state.is_running = true;
        drop(state);
        lock(&self.running).push(writer.clone());
        true
    }

    fn finish(&self, state: &mut State, told: OpenClock) {
        let Some(text) = state.line.take() else { return self.refuse() };
        if text.is_empty() {
            return;
        }
        let free = MAX_QUEUED.saturating_sub(self.queued_bytes.load(Ordering::Relaxed));
        if state.queue.bytes() + text.len() > free || Hint::parse(&text, told).is_none() {
            return self.refuse();
        }
        self.queue(state, |queue| queue.push(&text, told));
    }

    /// Changes a queue, and keeps count of what all of them take.
    fn queue<T>(&self, state: &mut State, change: impl FnOnce(&mut HintQueue) -> T) -> T {
        let before = state.queue.bytes();
        let result = change(&mut state.queue);
        self.queued_bytes.fetch_add(state.queue.bytes(), Ordering::Relaxed);
        self.queued_bytes.fetch_sub(before, Ordering::Relaxed);
        result
    }

    /// Counts a hint that names nothing that can be fetched.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Hints that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Hints that wait, and those in the windows.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |(queued, ahead): (usize, usize), writer: &Arc<HintWriter>| {
            let state = lock(&writer.0);
            (queued + state.queue.len() + state.looked_up, ahead + state.window.len())
        };
        self.running().iter().fold((0, 0), count)
    }

    fn running(&self) -> Vec<Arc<HintWriter>> {
        lock(&self.running).clone()
    }

    /// Takes the next that is to be looked up; each taken is to be given back by [`Self::followed`].
    pub(crate) fn next(&self, writer: &HintWriter) -> Option<Next> {
        let mut state = lock(&writer.0);
        if state.looked_up >= LOOK_UPS {
            return None;
        }
        let hint = self.queue(&mut state, HintQueue::pop).map(Next::Hint);
        let next = hint.or_else(|| state.guessed.pop_front().map(Next::Guess))?;
        state.looked_up += 1;
        Some(next)
    }

    /// Something that was taken is in the window now, or leads nowhere.
    pub(crate) fn followed(&self, writer: &HintWriter) {
        lock(&writer.0).looked_up -= 1;
    }

    /// Notes that somebody tells what is read below `prefix`.
    pub(crate) fn note_told(&self, prefix: &Arc<str>, now: Instant) {
        let mut told = lock(&self.told);
        if told.len() >= MAX_TOLD && !told.contains_key(prefix) {
            told.clear();
        }
        told.insert(prefix.clone(), now);
    }

    /// Drops what was read of a writer's window, and what will not be.
    pub(crate) fn look(&self, writer: &HintWriter, opens: OpenClock, now: Instant) {
        self.look_at(&mut lock(&writer.0), opens, now);
    }

    fn look_at(&self, state: &mut State, opens: OpenClock, now: Instant) {
        let is_unread = |reader: &Arc<ObjectReader>, range| reader.is_unread(range);
        if state.window.look(opens, now, is_unread, |reader, range| reader.let_go(range)) {
            tracing::info!(
                hints_queued = state.queue.len(),
                "nobody reads what hints named: they are dropped"
            );
            self.queue(state, |queue| *queue = HintQueue::default());
            state.guessed.clear();
        }
    }

    /// What is to be done for a writer, when all windows together may have `max_bytes`.
    pub(crate) fn todo(
        &self,
        writer: &Arc<HintWriter>,
        max_bytes: u64,
        opens: OpenClock,
        now: Instant,
    ) -> Todo {
        let share = max_bytes / (lock(&self.running).len() as u64).max(1);
        let mut state = lock(&writer.0);
        self.look_at(&mut state, opens, now);
        if state.looked_up > 0 && state.window.has_room(share) {
            return Todo::Fetch;
        }
        let left = state.queue.len() + state.guessed.len() + state.looked_up + state.window.len();
        if left > 0 {
            return Todo::Wait(state.window.pause(now));
        }
        state.is_running = false;
        drop(state);
        let mut running = lock(&self.running);
        if let Some(at) = running.iter().position(|known| Arc::ptr_eq(known, writer)) {
            running.swap_remove(at);
        }
        Todo::End
    }

    /// Puts what is being fetched into a writer's window.
    pub(crate) fn keep(
        &self,
        writer: &HintWriter,
        reader: Arc<ObjectReader>,
        range: ByteRange,
        source: Source,
        opens: OpenClock,
    ) {
        lock(&writer.0).window.put(reader, range, source, opens, Instant::now());
    }

    /// The next large file that hints name and that nobody reads yet, for the reader of `before`, which will go
    /// on with it. Each is told once. It is kept as long as the hint is.
    pub(crate) fn take_successor(&self, before: &Arc<ObjectReader>) -> Option<Arc<ObjectReader>> {
        let may_follow = |reader: &Arc<ObjectReader>, range| {
            !Arc::ptr_eq(reader, before) && !reader.is_small() && reader.is_unread(range)
        };
        self.running().iter().find_map(|writer| lock(&writer.0).window.take_next(may_follow).cloned())
    }

    /// Notes whether a file that was opened again was read when it is closed, or lay in the kernel's
    /// page cache.
    pub(crate) fn on_close_again(&self, reader: &Arc<ObjectReader>, was_read: bool) {
        let next = |doubt: u32| {
            if was_read { (doubt + DOUBT).min(MOST_DOUBT) } else { doubt.saturating_sub(1) }
        };
        self.doubt.update(Ordering::Relaxed, Ordering::Relaxed, next);
        if !was_read {
            for writer in self.running() {
                lock(&writer.0).window.pass(|known| Arc::ptr_eq(known, reader), Instant::now());
            }
        }
    }

    /// Whether files that are opened again mostly lie in the kernel's page cache.
    pub(crate) fn are_cached(&self) -> bool {
        self.doubt.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests;
