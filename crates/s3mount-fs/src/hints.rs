//! What a reader says it will read: paths in order, written to `.s3mount/prefetch`.
//!
//! A line is a path below the root of the mount, or a path, an offset and a length with tabs between
//! them. A sliding window of them is fetched ahead of what is being read ([`HintWindow`]). It takes
//! memory only as reading ahead does, so whoever waits for memory takes it from here first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use s3mount_object::ByteRange;
use s3mount_prefetch::ObjectReader;

use crate::hint_window::{HintWindow, Source};
use crate::inode::{InodeNo, Opens};
use crate::names::is_file_name;

/// Longest line: S3's longest key, and two numbers.
const MAX_LINE: usize = 1024 + 2 * 21;

/// Text of hints that wait, in bytes; more are dropped, and counted.
const MAX_QUEUED: usize = 32 << 20;

/// Guesses that wait, at most.
const MAX_GUESSED: usize = 512;

/// For so long after a hint nothing is guessed: somebody knows.
const TOLD: Duration = Duration::from_secs(30);

/// Files that are opened again lie in the kernel's page cache, or one in nine of them does not: then
/// hints of them are followed until so many for each such file did, at most [`MOST_DOUBT`].
const DOUBT: u32 = 8;
const MOST_DOUBT: u32 = 32;

/// A path below the root, and which of its bytes; without these, as many as reading ahead begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) path: Box<str>,
    pub(crate) range: Option<(u64, u64)>,
    /// When it came.
    pub(crate) told: Opens,
}

impl Hint {
    /// Reads a line that came at `told`; `None` for one that names no file.
    fn parse(line: &[u8], told: Opens) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.split('\t');
        let path = fields.next()?;
        let range = match (fields.next(), fields.next(), fields.next()) {
            (None, ..) => None,
            (Some(offset), Some(len), None) => {
                let (offset, len): (u64, u64) = (offset.parse().ok()?, len.trim_end().parse().ok()?);
                offset.checked_add(len).filter(|_| len > 0)?;
                Some((offset, len))
            }
            _ => return None,
        };
        path.split('/').all(is_file_name).then(|| Self { path: path.into(), range, told })
    }

    pub(crate) fn source(&self) -> Source {
        if self.range.is_some() { Source::Range } else { Source::File }
    }
}

/// A file that will be read, if its directory's files are opened in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    pub(crate) parent: InodeNo,
    pub(crate) prefix: Arc<str>,
    pub(crate) name: Box<str>,
    /// When it was guessed, and whether from files that had been opened before.
    pub(crate) told: Opens,
    pub(crate) is_again: bool,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Hint>,
    queued_bytes: usize,
    /// What the daemon has thought of by itself: it comes behind what was told.
    guessed: VecDeque<Guess>,
    told: Option<Instant>,
    window: HintWindow<Arc<ObjectReader>>,
    /// Whether somebody fetches what is queued.
    is_running: bool,
}

/// The hints of all writers, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    state: Mutex<State>,
    refused: AtomicU64,
    /// How many files have to be found in the kernel's page cache until it is believed of others.
    doubt: AtomicU32,
}

/// A writer's last line, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Line {
    text: Vec<u8>,
    is_too_long: bool,
}

impl Hints {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what one writer has written at `told`; `line` is what it has begun. Whether somebody has
    /// to be found now to fetch it.
    pub(crate) fn push(&self, line: &mut Line, mut data: &[u8], told: Opens) -> bool {
        let mut state = self.lock();
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            line.extend(&data[..end]);
            self.finish(&mut state, line, told);
            data = &data[end + 1..];
        }
        line.extend(data);
        let is_needed = !state.is_running && !state.queue.is_empty();
        state.is_running |= is_needed;
        is_needed
    }

    /// Takes what the daemon has thought of by itself, unless much of that waits, or somebody who knows
    /// has told lately. Whether somebody has to be found now to fetch it.
    pub(crate) fn guess(&self, guesses: impl Iterator<Item = Guess>, now: Instant) -> bool {
        let mut state = self.lock();
        if state.told.is_some_and(|told| now.saturating_duration_since(told) < TOLD) {
            return false;
        }
        let room = MAX_GUESSED.saturating_sub(state.guessed.len());
        state.guessed.extend(guesses.take(room));
        let is_needed = !state.is_running && !state.guessed.is_empty();
        state.is_running |= is_needed;
        is_needed
    }

    fn finish(&self, state: &mut State, line: &mut Line, told: Opens) {
        let Line { text, is_too_long } = std::mem::take(line);
        if text.is_empty() && !is_too_long {
            return;
        }
        let fits = !is_too_long && state.queued_bytes + text.len() <= MAX_QUEUED;
        match fits.then(|| Hint::parse(&text, told)).flatten() {
            Some(hint) => {
                state.queued_bytes += hint.path.len();
                state.queue.push_back(hint);
            }
            None => self.refuse(),
        }
    }

    /// Counts a hint that names nothing that can be fetched.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Hints that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Hints that wait, and those in the window.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.queue.len(), state.window.len())
    }

    /// Drops what was read of the window, and what will not be.
    pub(crate) fn look(&self, opens: Opens, now: Instant) {
        Self::look_at(&mut self.lock(), opens, now);
    }

    fn look_at(state: &mut State, opens: Opens, now: Instant) {
        let is_unread = |reader: &Arc<ObjectReader>, range| reader.is_unread(range);
        if state.window.look(opens, now, is_unread, |reader, range| reader.let_go(range)) {
            tracing::info!(
                hints_queued = state.queue.len(),
                "nobody reads what hints named: they are dropped"
            );
            (state.queue, state.queued_bytes) = (VecDeque::new(), 0);
            state.guessed.clear();
        }
    }

    /// The next hint, if the window of `max_bytes` has room for one.
    pub(crate) fn next(&self, max_bytes: u64, opens: Opens, now: Instant) -> Next {
        let mut state = self.lock();
        Self::look_at(&mut state, opens, now);
        if !state.window.has_room(max_bytes) {
            return Next::Later(state.window.pause(now));
        }
        if let Some(hint) = state.queue.pop_front() {
            state.told = Some(now);
            state.queued_bytes -= hint.path.len();
            return Next::Hint(hint);
        }
        if let Some(guess) = state.guessed.pop_front() {
            return Next::Guess(guess);
        }
        if state.window.len() == 0 {
            state.is_running = false;
            return Next::Done;
        }
        Next::Later(state.window.pause(now))
    }

    /// Puts what is being fetched into the window.
    pub(crate) fn keep(&self, reader: Arc<ObjectReader>, range: ByteRange, source: Source, opens: Opens) {
        self.lock().window.put(reader, range, source, opens, Instant::now());
    }

    /// The next large file that hints name and that nobody reads yet, for the reader of `before`, which will go
    /// on with it. Each is told once. It is kept as long as the hint is.
    pub(crate) fn take_successor(&self, before: &Arc<ObjectReader>) -> Option<Arc<ObjectReader>> {
        let may_follow = |reader: &Arc<ObjectReader>, range| {
            !Arc::ptr_eq(reader, before) && !reader.is_small() && reader.is_unread(range)
        };
        self.lock().window.take_next(may_follow).cloned()
    }

    /// Notes whether a file that was opened again was read when it is closed, or lay in the kernel's
    /// page cache.
    pub(crate) fn on_close_again(&self, reader: &Arc<ObjectReader>, was_read: bool) {
        let next = |doubt: u32| {
            if was_read { (doubt + DOUBT).min(MOST_DOUBT) } else { doubt.saturating_sub(1) }
        };
        self.doubt.update(Ordering::Relaxed, Ordering::Relaxed, next);
        if !was_read {
            self.lock().window.pass(|known| Arc::ptr_eq(known, reader), Instant::now());
        }
    }

    /// Whether files that are opened again mostly lie in the kernel's page cache.
    pub(crate) fn are_cached(&self) -> bool {
        self.doubt.load(Ordering::Relaxed) == 0
    }
}

/// What to do next for the hints.
#[derive(Debug)]
pub(crate) enum Next {
    /// Fetch this.
    Hint(Hint),
    /// Fetch this, unless it was opened meanwhile.
    Guess(Guess),
    /// Wait so long: the window is full, or nothing is queued.
    Later(Duration),
    /// Nothing is left.
    Done,
}

impl Line {
    fn extend(&mut self, data: &[u8]) {
        if self.is_too_long || self.text.len() + data.len() > MAX_LINE {
            (self.is_too_long, self.text) = (true, Vec::new());
        } else {
            self.text.extend_from_slice(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::{Hint, Hints, Line, Next};
    use crate::inode::Opens;

    const TOLD: Opens = Opens(0);

    fn hint(path: &str, range: Option<(u64, u64)>) -> Option<Hint> {
        Some(Hint { path: path.into(), range, told: Opens::default() })
    }

    #[test]
    fn lines_are_paths_with_or_without_ranges() {
        assert_eq!(Hint::parse(b"a/b c.bin", TOLD), hint("a/b c.bin", None));
        assert_eq!(Hint::parse("ä\t0\t5".as_bytes(), TOLD), hint("ä", Some((0, 5))));
        let bad: [&[u8]; 11] = [
            b"",
            b"/a",
            b"a/",
            b"../a",
            b"a/./b",
            b"a//b",
            b"a\t1",
            b"a\t1\t2\t3",
            b"a\tx\t2",
            b"a\t1\t0",
            b"\xff",
        ];
        for line in bad {
            assert_eq!(Hint::parse(line, TOLD), None, "{}", line.escape_ascii());
        }
        assert_eq!(Hint::parse(format!("a\t{}\t2", u64::MAX).as_bytes(), TOLD), None);
    }

    fn take_all(hints: &Hints) -> Vec<String> {
        let mut paths = Vec::new();
        while let Next::Hint(hint) = hints.next(1, TOLD, Instant::now()) {
            paths.push(hint.path.into());
        }
        paths
    }

    #[test]
    fn a_line_of_any_length_and_lines_without_end_are_bounded() {
        let (hints, mut line) = (Hints::default(), Line::default());
        for _ in 0..10 {
            hints.push(&mut line, &vec![b'x'; 1 << 20], TOLD);
        }
        assert!(line.text.capacity() < 1 << 20);
        assert!(hints.push(&mut line, b"\nafter\n", TOLD));
        assert!(!hints.push(&mut line, b"more\n", TOLD), "somebody is at it");
        assert_eq!(take_all(&hints), ["after", "more"]);
        assert_eq!(hints.refused(), 1);
        let many = b"some/long/path/to/a/file.jpeg\n".repeat(2_000_000);
        hints.push(&mut line, &many, TOLD);
        assert!(hints.lock().queued_bytes <= super::MAX_QUEUED);
        assert!(hints.refused() > 500_000);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_writes_are_cut(
            text in proptest::collection::vec(prop_oneof!["[a-c/.]{0,4}\n", "\t", "[0-9]{1,3}"], 0..30),
            cuts in proptest::collection::vec(1usize..20, 1..30),
        ) {
            let text = text.concat();
            let (whole, mut line) = (Hints::default(), Line::default());
            whole.push(&mut line, text.as_bytes(), TOLD);
            let (pieces, mut line) = (Hints::default(), Line::default());
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let cut = cuts.next().copied().unwrap_or(1).min(rest.len());
                pieces.push(&mut line, &rest[..cut], TOLD);
                rest = &rest[cut..];
            }
            prop_assert_eq!(whole.refused(), pieces.refused());
            prop_assert_eq!(take_all(&whole), take_all(&pieces));
        }
    }
}
