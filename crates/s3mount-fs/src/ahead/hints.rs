//! Hints: programs write the paths that they will read to `.s3mount/prefetch`, in the order of reading.
//!
//! A line is a path below the root of the mount, or a path, an offset and a length with tabs between them. A
//! writer is an open file, or a connection to the control socket. Each writer has its own queue and its own
//! window ([`HintWindow`]), so no writer waits for another. The daemon's own guesses have a writer, too. All
//! writers with hints share the memory evenly. A reader that waits for memory takes it from hints first.

pub(crate) mod hint;
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
pub(crate) use self::window::HintSource;
use self::window::HintWindow;
use crate::open::open_clock::OpenClock;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, lock};

/// The memory for all queued hints, in bytes. A writer may use as much as is left for the others, so a single writer
/// may use half. That is enough for the 1,281,167 paths of ImageNet, of 25 bytes each. Further hints are refused and
/// counted.
const MAX_QUEUED: usize = 64 << 20;

/// The most guesses in the queue.
const MAX_GUESSED: usize = 512;

/// How many names are looked up at once for one writer. 192 LISTs of 60 ms each are 3,000 a second, so a job
/// does not wait for 1,000 cold folders. Names in one folder wait for each other.
const LOOK_UPS: usize = 192;

/// How long after a hint the daemon makes no guesses in the same folder. A program that writes hints knows better.
const HINTED_FOLDER_MEMORY: Duration = Duration::from_secs(30);

/// How many hinted folders are remembered. When there are more, all are forgotten.
const MAX_HINTED_FOLDERS: usize = 10_000;

/// When the page cache misses a file that was opened before, this many hits are needed before hints of such files are
/// skipped again. With 8, hints are followed if more than one file in nine is a miss. The sum is [`MOST_HITS_NEEDED`]
/// at most.
const HITS_PER_MISS: u32 = 8;
const MOST_HITS_NEEDED: u32 = 32;

/// The hints of all writers.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// The writers with hints in their queue or window. A task follows each of them.
    running: Mutex<Vec<Arc<HintWriter>>>,
    /// The writer of the daemon's own guesses.
    guesser: Arc<HintWriter>,
    queued_bytes: AtomicUsize,
    /// The prefixes of folders that hints named, and the time of the last hint of each.
    hinted_folders: Mutex<HashMap<Arc<str>, Instant>>,
    refused: AtomicU64,
    /// How many more hits in the kernel's page cache are needed before all files that were opened before count as hits.
    hits_needed: AtomicU32,
}

/// One writer's hints.
#[derive(Debug, Default)]
pub(crate) struct HintWriter(Mutex<WriterState>);

#[derive(Debug, Default)]
struct WriterState {
    line: Line,
    queue: HintQueue,
    guessed: VecDeque<Guess>,
    /// How many hints and guesses are being looked up, or wait to be fetched.
    looked_up: usize,
    window: HintWindow<Arc<ObjectReader>>,
    /// Whether a task follows this writer.
    is_running: bool,
}

/// The next entry of a queue.
#[derive(Debug)]
pub(crate) enum Next {
    /// A hint of a program.
    Hint(Hint),
    /// A guess of the daemon. It is followed unless the file was opened meanwhile.
    Guess(Guess),
}

/// What a writer's task does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Todo {
    /// Fetch the next file that was looked up: the window has room.
    Fetch,
    /// Wait for this time: the window is full, or the queue is empty.
    Wait(Duration),
    /// End: nothing is left.
    End,
}

impl Hints {
    /// Adds the bytes that a writer wrote at the time `given_at`. Returns whether the caller has to start a task that
    /// follows this writer.
    pub(crate) fn push(&self, writer: &Arc<HintWriter>, mut data: &[u8], given_at: OpenClock) -> bool {
        let mut state = lock(&writer.0);
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            state.line.extend(&data[..end]);
            self.finish(&mut state, given_at);
            data = &data[end + 1..];
        }
        state.line.extend(data);
        let is_needed = state.queue.len() > 0;
        self.run(writer, state, is_needed)
    }

    /// Whether a hint named the folder of `prefix` lately. Nothing is guessed there.
    pub(crate) fn is_hinted(&self, prefix: &str, now: Instant) -> bool {
        let is_fresh = |hinted: &Instant| now.saturating_duration_since(*hinted) < HINTED_FOLDER_MEMORY;
        lock(&self.hinted_folders).get(prefix).is_some_and(is_fresh)
    }

    /// Adds guesses of files below `prefix`, as many as there is room for, unless a hint named this folder lately.
    /// Returns the writer of guesses if the caller has to start a task that follows it.
    pub(crate) fn guess(
        &self,
        prefix: &str,
        guesses: impl Iterator<Item = Guess>,
        now: Instant,
    ) -> Option<Arc<HintWriter>> {
        if self.is_hinted(prefix, now) {
            return None;
        }
        let mut state = lock(&self.guesser.0);
        let room = MAX_GUESSED.saturating_sub(state.guessed.len());
        state.guessed.extend(guesses.take(room));
        let is_needed = !state.guessed.is_empty();
        self.run(&self.guesser, state, is_needed).then(|| self.guesser.clone())
    }

    fn run(&self, writer: &Arc<HintWriter>, mut state: MutexGuard<'_, WriterState>, is_needed: bool) -> bool {
        if state.is_running || !is_needed {
            return false;
        }
        state.is_running = true;
        drop(state);
        lock(&self.running).push(writer.clone());
        true
    }

    fn finish(&self, state: &mut WriterState, given_at: OpenClock) {
        let Some(text) = state.line.take() else { return self.refuse() };
        if text.is_empty() {
            return;
        }
        let free = MAX_QUEUED.saturating_sub(self.queued_bytes.load(Ordering::Relaxed));
        if state.queue.bytes() + text.len() > free || Hint::parse(&text, given_at).is_none() {
            return self.refuse();
        }
        self.queue(state, |queue| queue.push(&text, given_at));
    }

    /// Changes a queue, and updates the sum of the memory of all queues.
    fn queue<T>(&self, state: &mut WriterState, change: impl FnOnce(&mut HintQueue) -> T) -> T {
        let before = state.queue.bytes();
        let result = change(&mut state.queue);
        self.queued_bytes.fetch_add(state.queue.bytes(), Ordering::Relaxed);
        self.queued_bytes.fetch_sub(before, Ordering::Relaxed);
        result
    }

    /// Counts a hint that names no file, or that came when the queues were full.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many hints were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many hints are queued, and how many are in the windows.
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

    /// Takes the next hint or guess from the queue. The caller looks it up, and calls [`Self::followed`] when
    /// that is done.
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

    /// Notes that a hint or guess was put into the window, or was dropped.
    pub(crate) fn followed(&self, writer: &HintWriter) {
        lock(&writer.0).looked_up -= 1;
    }

    /// Notes that a hint named a file in the folder `prefix`.
    pub(crate) fn note_hinted_folder(&self, prefix: &Arc<str>, now: Instant) {
        let mut folders = lock(&self.hinted_folders);
        if folders.len() >= MAX_HINTED_FOLDERS && !folders.contains_key(prefix) {
            folders.clear();
        }
        folders.insert(prefix.clone(), now);
    }

    /// Drops hints from a writer's window that were read, or will not be read any more.
    pub(crate) fn look(&self, writer: &HintWriter, opens: OpenClock, now: Instant) {
        self.look_at(&mut lock(&writer.0), opens, now);
    }

    fn look_at(&self, state: &mut WriterState, opens: OpenClock, now: Instant) {
        let is_unread = |reader: &Arc<ObjectReader>, range| reader.is_unread(range);
        if state.window.look(opens, now, is_unread, |reader, range| reader.let_go(range)) {
            tracing::info!(
                hints_queued = state.queue.len(),
                "hinted files are not read: the hints are dropped"
            );
            self.queue(state, |queue| *queue = HintQueue::default());
            state.guessed.clear();
        }
    }

    /// What the task of a writer does next. All windows together may hold `max_bytes`.
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

    /// Puts a range that is being fetched into a writer's window.
    pub(crate) fn keep(
        &self,
        writer: &HintWriter,
        reader: Arc<ObjectReader>,
        range: ByteRange,
        source: HintSource,
        opens: OpenClock,
    ) {
        lock(&writer.0).window.put(reader, range, source, opens, Instant::now());
    }

    /// Puts a file into a writer's window that the kernel will read by itself. It stays there until it is opened, or
    /// counts as skipped.
    pub(crate) fn keep_whole(&self, writer: &HintWriter, reader: Arc<ObjectReader>, opens: OpenClock) {
        lock(&writer.0).window.put_whole(reader, opens, Instant::now());
    }

    /// Notes that a file is opened that lies whole on a disk. If it `is_passthrough`, no reader needs what was fetched
    /// of it before.
    pub(crate) fn on_open_whole(&self, reader: &Arc<ObjectReader>, is_passthrough: bool) {
        for writer in self.running() {
            let is_it = |known: &Arc<ObjectReader>| Arc::ptr_eq(known, reader);
            let let_go = |known: &Arc<ObjectReader>, range| known.let_go(range);
            lock(&writer.0).window.pass_whole(is_it, is_passthrough, let_go, Instant::now());
        }
    }

    /// The next large file that hints name and that is not read yet. The reader of `before` is expected to read it
    /// next. Each file is returned once. Its reader lives as long as the hint.
    pub(crate) fn take_successor(&self, before: &Arc<ObjectReader>) -> Option<Arc<ObjectReader>> {
        let may_follow = |reader: &Arc<ObjectReader>, range| {
            !Arc::ptr_eq(reader, before) && !reader.is_small() && reader.is_unread(range)
        };
        self.running().iter().find_map(|writer| lock(&writer.0).window.take_next(may_follow).cloned())
    }

    /// Notes that a file that was opened before is closed. If it `was_read`, it was not in the kernel's page cache.
    pub(crate) fn on_close_again(&self, reader: &Arc<ObjectReader>, was_read: bool) {
        let next = |hits_needed: u32| {
            if was_read {
                (hits_needed + HITS_PER_MISS).min(MOST_HITS_NEEDED)
            } else {
                hits_needed.saturating_sub(1)
            }
        };
        self.hits_needed.update(Ordering::Relaxed, Ordering::Relaxed, next);
        if !was_read {
            for writer in self.running() {
                lock(&writer.0).window.pass(|known| Arc::ptr_eq(known, reader), Instant::now());
            }
        }
    }

    /// Whether files that were opened before are mostly in the kernel's page cache.
    pub(crate) fn are_cached(&self) -> bool {
        self.hits_needed.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests;
