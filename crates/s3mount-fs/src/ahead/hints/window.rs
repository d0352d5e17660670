//! The window of hints: the hinted ranges that are in memory or being fetched. Each stays until it is read, or counts
//! as skipped.
//!
//! A hint far behind a newer one that was read counts as skipped. So does a hint that was not read for half a minute
//! while other files were opened. If no files are opened at all, the program may not have begun: a job takes minutes to
//! load its libraries and its model. After [`ABANDONED`] the whole window is dropped.

use std::collections::VecDeque;
use std::time::Duration;

use s3mount_object::ByteRange;
use tokio::time::Instant;

use crate::open::open_clock::OpenClock;

/// The most hints in the window, and how far behind the newest read hint another one may be before it counts as
/// skipped. Eight workers of a DataLoader that read a batch of 64 each are 448 apart.
const MOST: usize = 2048;
const SKIPPED: u64 = 2048;

/// The most files in the window that the kernel reads from a disk by itself. Nothing of them is fetched, but
/// each is an open file of the daemon. Eight workers of a `DataLoader` are 448 apart, so they still find the ranges
/// that they wait for behind these files.
const MOST_WHOLE: usize = 512;

/// After this time a guess counts as wrong. A hint counts as skipped if [`ELSEWHERE`] files were opened meanwhile.
const STALE: Duration = Duration::from_secs(30);
const ELSEWHERE: u32 = 64;

/// The window is dropped when nothing in it was read for this time.
const ABANDONED: Duration = Duration::from_secs(600);

/// How often the window is checked for hints that were read. A window in which nothing was read for
/// [`IDLE_AFTER`] is checked less often.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The source of a predicted range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HintSource {
    /// A hint names the file.
    File,
    /// A hint names a range of the file.
    Range,
    /// The daemon has guessed the file.
    Guess,
}

/// The window. While a reader `R` is held, the bytes that it fetched are kept.
#[derive(Debug)]
pub(crate) struct HintWindow<R> {
    kept: VecDeque<Kept<R>>,
    bytes: u64,
    /// How many files the kernel reads from a disk by itself.
    whole: usize,
    next_number: u64,
    newest_read: u64,
    looked: Option<Instant>,
    /// When a hint in the window was last read, or the first hint came.
    moved: Option<Instant>,
}

#[derive(Debug)]
struct Kept<R> {
    number: u64,
    reader: R,
    range: ByteRange,
    source: HintSource,
    since: Instant,
    since_opens: OpenClock,
    /// Whether the file is expected after one that is being read.
    is_expected: bool,
    /// Whether the kernel reads the file from a disk by itself.
    is_whole: bool,
}

impl<R> Default for HintWindow<R> {
    fn default() -> Self {
        Self {
            kept: VecDeque::new(),
            bytes: 0,
            whole: 0,
            next_number: 0,
            newest_read: 0,
            looked: None,
            moved: None,
        }
    }
}

impl<R> HintWindow<R> {
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether a window of `max_bytes` has room for one more hint.
    pub(crate) fn has_room(&self, max_bytes: u64) -> bool {
        self.kept.len() < MOST && self.whole < MOST_WHOLE && self.bytes < max_bytes
    }

    /// Puts `range` into the window. `reader` is fetching it.
    pub(crate) fn put(
        &mut self,
        reader: R,
        range: ByteRange,
        source: HintSource,
        opens: OpenClock,
        now: Instant,
    ) {
        self.push(reader, (range, source), false, opens, now);
    }

    /// Puts a file into the window that the kernel will read from a disk by itself.
    pub(crate) fn put_whole(&mut self, reader: R, opens: OpenClock, now: Instant) {
        self.whole += 1;
        self.push(reader, (ByteRange::new(0, 0), HintSource::File), true, opens, now);
    }

    fn push(
        &mut self,
        reader: R,
        (range, source): (ByteRange, HintSource),
        is_whole: bool,
        opens: OpenClock,
        now: Instant,
    ) {
        if self.kept.is_empty() {
            self.moved = Some(now);
        }
        self.next_number += 1;
        self.bytes += range.len();
        let number = self.next_number;
        self.kept.push_back(Kept {
            number,
            reader,
            range,
            source,
            since: now,
            since_opens: opens,
            is_expected: false,
            is_whole,
        });
    }

    /// The next file that `may_follow` allows, and that is not yet expected after another file. It is expected from now
    /// on.
    pub(crate) fn take_next(&mut self, may_follow: impl Fn(&R, ByteRange) -> bool) -> Option<&R> {
        let is_next = |kept: &&mut Kept<R>| {
            kept.source == HintSource::File
                && !kept.is_expected
                && !kept.is_whole
                && may_follow(&kept.reader, kept.range)
        };
        let next = self.kept.iter_mut().find(is_next)?;
        next.is_expected = true;
        Some(&next.reader)
    }

    /// Drops the hints of a file that was opened and closed without a READ, because the kernel has its pages.
    pub(crate) fn pass(&mut self, is_it: impl Fn(&R) -> bool, now: Instant) {
        self.drop_unless(now, |kept| kept.source == HintSource::Range || !is_it(&kept.reader));
    }

    /// Drops the hints of a file that is opened and lies whole on a disk. If it `is_passthrough`, calls `let_go` for
    /// what was fetched of it before, which no reader needs.
    pub(crate) fn pass_whole(
        &mut self,
        is_it: impl Fn(&R) -> bool,
        is_passthrough: bool,
        let_go: impl Fn(&R, ByteRange),
        now: Instant,
    ) {
        self.drop_unless(now, |kept| {
            let is_passed = (kept.is_whole || is_passthrough) && is_it(&kept.reader);
            if is_passed && !kept.is_whole {
                let_go(&kept.reader, kept.range);
            }
            !is_passed
        });
    }

    /// How long to wait before the window is checked again.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        if self.rested(now) < IDLE_AFTER { POLL_INTERVAL } else { IDLE_POLL_INTERVAL }
    }

    /// Drops the hints that were read, and those that were skipped, for which it calls `let_go`. Returns whether it
    /// dropped the whole window because the hints are not read.
    pub(crate) fn look(
        &mut self,
        opens: OpenClock,
        now: Instant,
        is_unread: impl Fn(&R, ByteRange) -> bool,
        let_go: impl Fn(&R, ByteRange),
    ) -> bool {
        if self.looked.is_some_and(|at| now.saturating_duration_since(at) < POLL_INTERVAL) {
            return false;
        }
        self.looked = Some(now);
        self.drop_unless(now, |kept| kept.is_whole || is_unread(&kept.reader, kept.range));
        let newest_read = self.newest_read;
        let is_skipped = |kept: &Kept<R>| {
            kept.number + SKIPPED <= newest_read
                || now.saturating_duration_since(kept.since) >= STALE
                    && (kept.source == HintSource::Guess || opens.since(kept.since_opens) >= ELSEWHERE)
        };
        let is_abandoned = self.rested(now) >= ABANDONED;
        let mut is_emptied = false;
        self.kept.retain(|kept| {
            let is_dropped = is_abandoned || is_skipped(kept);
            if is_dropped {
                // Other owners may hold the same reader, and with it the bytes that it fetched.
                let_go(&kept.reader, kept.range);
            }
            is_emptied |= is_dropped && is_abandoned;
            !is_dropped
        });
        self.bytes = self.kept.iter().map(|kept| kept.range.len()).sum();
        self.whole = self.kept.iter().filter(|kept| kept.is_whole).count();
        is_emptied
    }

    fn rested(&self, now: Instant) -> Duration {
        self.moved.map_or(Duration::ZERO, |moved| now.saturating_duration_since(moved))
    }

    fn drop_unless(&mut self, now: Instant, is_unread: impl Fn(&Kept<R>) -> bool) {
        let Self { kept, whole, newest_read, moved, .. } = self;
        kept.retain(|kept| {
            let is_unread = is_unread(kept);
            if !is_unread {
                *newest_read = kept.number.max(*newest_read);
                *moved = Some(now);
                *whole -= usize::from(kept.is_whole);
            }
            is_unread
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3mount_object::ByteRange;
    use tokio::time::Instant;

    use super::{HintSource, HintWindow};
    use crate::open::open_clock::OpenClock;

    fn range() -> ByteRange {
        ByteRange::new(0, 10)
    }

    /// Checks the window after `seconds`, when all hints above `read` are unread. Returns whether it was dropped.
    fn look(window: &mut HintWindow<u64>, start: Instant, seconds: u64, read: u64) -> bool {
        window.look(
            OpenClock(63),
            start + Duration::from_secs(seconds),
            |number, _| *number > read,
            |_, _| (),
        )
    }

    fn window(count: u64, source: HintSource, start: Instant) -> HintWindow<u64> {
        let mut window = HintWindow::default();
        for number in 1..=count {
            window.put(number, range(), source, OpenClock(0), start);
        }
        window
    }

    #[test]
    fn what_was_read_and_what_is_far_behind_it_leaves() {
        let start = Instant::now();
        let mut window = window(2048, HintSource::File, start);
        assert!(!window.has_room(u64::MAX));
        look(&mut window, start, 1, 48);
        assert_eq!(window.len(), 2000);
        assert!(window.has_room(20_001) && !window.has_room(20_000), "10 bytes each");
        // The newest hint is read, and those that are 2,048 before it are not.
        for number in 2049..=2098 {
            window.put(number, range(), HintSource::File, OpenClock(0), start);
        }
        window.look(OpenClock(0), start + Duration::from_secs(2), |number, _| *number != 2098, |_, _| ());
        assert_eq!(window.len(), 2050 - 1 - 2);
    }

    #[test]
    fn a_job_that_has_not_begun_finds_all_and_one_that_died_leaves_nothing() {
        let start = Instant::now();
        let mut window = window(100, HintSource::File, start);
        assert!(!look(&mut window, start, 599, 0));
        assert_eq!(window.len(), 100);
        look(&mut window, start, 600, 1);
        assert_eq!(window.len(), 99, "the first was read, so a reader follows");
        assert!(!look(&mut window, start, 1199, 1));
        assert!(look(&mut window, start, 1200, 1));
        assert_eq!(window.len(), 0);
        window.put(101, range(), HintSource::File, OpenClock(0), start + Duration::from_secs(2000));
        assert!(!look(&mut window, start, 2001, 1), "a reader begins anew");
    }

    #[test]
    fn readers_that_are_elsewhere_have_skipped_and_guesses_are_wrong_soon() {
        let start = Instant::now();
        let mut window = window(100, HintSource::Range, start);
        window.put(101, range(), HintSource::Guess, OpenClock(0), start);
        look(&mut window, start, 30, 0);
        assert_eq!(window.len(), 100, "only the guess leaves");
        window.put(102, range(), HintSource::Range, OpenClock(1), start);
        let let_go = std::cell::RefCell::new(Vec::new());
        let note = |number: &u64, _| let_go.borrow_mut().push(*number);
        window.look(OpenClock(64), start + Duration::from_secs(31), |_, _| true, note);
        assert_eq!(*let_go.borrow(), (1..=100).collect::<Vec<_>>());
        assert_eq!(window.len(), 1, "63 files were opened since the last came");
    }

    #[test]
    fn each_file_follows_one_that_is_read() {
        let start = Instant::now();
        let mut window = window(2, HintSource::File, start);
        window.put(3, range(), HintSource::Range, OpenClock(0), start);
        window.put(4, range(), HintSource::File, OpenClock(0), start);
        let mut next = || window.take_next(|number, _| *number > 1).copied();
        assert_eq!([next(), next(), next()], [Some(2), Some(4), None], "a range is no file");
    }

    #[test]
    fn files_on_the_disk_wait_for_their_open() {
        let start = Instant::now();
        let mut window = HintWindow::default();
        for number in 1..=512 {
            assert!(window.has_room(1));
            window.put_whole(number, OpenClock(0), start);
        }
        assert!(!window.has_room(1), "each is an open file");
        look(&mut window, start, 1, 512);
        assert_eq!(window.len(), 512, "they are not opened");
        assert_eq!(window.take_next(|_, _| true), None, "nothing of them is to be fetched");
        window.put(512, range(), HintSource::Range, OpenClock(0), start);
        let (is_it, let_go) = (|number: &u64| *number == 512, std::cell::Cell::new(0));
        let note = |_: &u64, range: ByteRange| let_go.set(let_go.get() + range.len());
        window.pass_whole(is_it, false, note, start);
        assert_eq!((window.len(), let_go.get()), (512, 0), "the daemon serves it, so the range is read");
        assert!(window.has_room(11));
        window.pass_whole(is_it, true, note, start);
        assert_eq!((window.len(), let_go.get()), (511, 10), "the kernel reads it by itself");
        look(&mut window, start, 600, 0);
        assert_eq!(window.len(), 0, "no reader comes");
        assert!(window.has_room(1));
    }

    #[test]
    fn what_the_kernel_has_is_passed() {
        let start = Instant::now();
        let mut window = window(3, HintSource::File, start);
        window.put(2, range(), HintSource::Range, OpenClock(0), start);
        window.pass(|number| *number == 2, start + Duration::from_secs(5));
        assert_eq!(window.len(), 3, "the range may be read later");
        assert_eq!(window.pause(start + Duration::from_millis(5500)), super::POLL_INTERVAL);
        assert_eq!(window.pause(start + Duration::from_secs(7)), super::IDLE_POLL_INTERVAL);
    }
}
