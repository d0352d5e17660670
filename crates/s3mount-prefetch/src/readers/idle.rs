//! Readers that hold bytes ahead of idle streams: of files that stay open after they were read, and of files that were
//! closed a moment ago and may be opened again. They give these bytes to streams that are being read.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, lock};

/// All readers are searched at most once in this many milliseconds, however short memory is.
const LOOK_MS: u64 = 200;

/// The readers with such bytes, in the order in which they give them. `R` is a reader.
#[derive(Debug)]
pub(crate) struct IdleBooks<R> {
    readers: Mutex<VecDeque<Weak<R>>>,
    /// Their number, so that the check is free when there are none.
    count: AtomicUsize,
    /// When all readers were last searched, in milliseconds of the policies' clock.
    looked_at: AtomicU64,
}

impl<R> Default for IdleBooks<R> {
    fn default() -> Self {
        Self { readers: Mutex::default(), count: AtomicUsize::new(0), looked_at: AtomicU64::new(0) }
    }
}

impl<R> IdleBooks<R> {
    /// Whether there may be such readers.
    pub(crate) fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether some reader may give bytes at the time `now`: one is listed, or the last search was a while ago.
    pub(crate) fn may_give(&self, now: Duration) -> bool {
        self.has_any() || millis(now) >= self.looked_at.load(Ordering::Relaxed) + LOOK_MS
    }

    /// Whether to search all readers at the time `now`: none is listed, and the last search was a while ago.
    pub(crate) fn is_time_to_look(&self, now: Duration) -> bool {
        let (now, before) = (millis(now), self.looked_at.load(Ordering::Relaxed));
        !self.has_any()
            && now >= before + LOOK_MS
            && self.looked_at.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Lists a reader.
    pub(crate) fn list(&self, reader: Weak<R>) {
        self.change(|readers| readers.push_back(reader));
    }

    /// Lists a reader first that was taken off the list and can give more.
    pub(crate) fn list_first(&self, reader: Weak<R>) {
        self.change(|readers| readers.push_front(reader));
    }

    /// Takes the next reader that gives bytes off the list.
    pub(crate) fn next(&self) -> Option<Weak<R>> {
        self.change(VecDeque::pop_front)
    }

    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Weak<R>>) -> T) -> T {
        let mut readers = lock(&self.readers);
        let changed = change(&mut readers);
        self.count.store(readers.len(), Ordering::Relaxed);
        changed
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
