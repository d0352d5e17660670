//! One stream: a cursor over an object, and its window.

use std::time::Duration;

use s3mount_object::ByteRange;

use super::direction::Direction;
use super::reach::{ADJACENT_BYTES, AHEAD_BYTES, BEHIND_BYTES};
use crate::EDGE_BYTES;
use crate::limits::window::Window;

/// A stream that was not read for this many ticks of the housekeeper takes no share of the memory.
pub(super) const IDLE_TICKS: u32 = 3;

/// A stream that was not read for this many ticks gives back the bytes ahead of it. A reader that goes on after a
/// minute can wait for one GET. A forgotten open file must cost nothing.
pub(crate) const LEFT_TICKS: u32 = 60;

/// A stream whose reader paused for longer than this, and for twice as long as ever before, gives the bytes ahead of it
/// to active streams with too little memory. A reader that comes back waits for one GET.
const QUIET: Duration = Duration::from_millis(250);

/// A pause that is longer than this counts as this long.
const LONGEST_PAUSE: Duration = Duration::from_millis(1500);

/// A cursor and its window. Its offsets count in its direction: from the object's end if it goes down, and over only
/// the pieces if it has a stride.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) direction: Direction,
    /// The first byte that was read.
    pub(super) began: u64,
    /// One past the furthest byte that was read.
    pub(crate) position: u64,
    /// All bytes before this are or were in memory or in flight. The next plan starts here.
    pub(crate) planned_end: u64,
    /// How far ahead of `position` to fetch.
    pub(crate) window: Window,
    /// Ticks of the housekeeper since the last read.
    pub(crate) idle_ticks: u32,
    /// When its last read came or was answered, and the longest pause before a read so far.
    pub(super) read_at: Duration,
    pub(super) longest_pause: Duration,
    /// Whether all bytes up to its end were in memory or in flight at the last plan.
    pub(super) is_complete: bool,
    /// Bytes read less bytes skipped, up to [`AHEAD_BYTES`].
    pub(super) credit_bytes: u64,
    /// The table's clock at its last read.
    pub(super) used: u64,
    /// Whether its reader seems to have gone elsewhere.
    pub(super) is_left: bool,
    /// Whether its window is not full because memory or requests are short.
    pub(crate) is_hungry: bool,
}

impl Stream {
    /// Whether the stream is expected to read any of `range` in an object of `size` bytes, either ahead of
    /// the cursor or a little behind it.
    pub(super) fn may_read(&self, range: ByteRange, size: u64) -> bool {
        let range = self.direction.seen(range, size);
        range.len() > 0
            && range.end() + BEHIND_BYTES > self.position
            && range.start() < self.planned_end.max(self.position + self.window.bytes())
    }

    /// Whether a read at `start`, at the cursor or beyond, belongs to the stream. A read that skips bytes
    /// needs the credit for them while the stream is young, and where the object's streams waste bytes
    /// (`is_wasteful`).
    pub(super) fn reaches(&self, start: u64, is_wasteful: bool) -> bool {
        let most = self.window.bytes().clamp(EDGE_BYTES, AHEAD_BYTES);
        let pays = is_wasteful || self.is_young();
        start - self.position <= if pays { self.credit_bytes.clamp(ADJACENT_BYTES, most) } else { most }
    }

    /// Whether a read at `start`, before the cursor, belongs to the stream. While the stream is young, or
    /// where the object's streams waste bytes, a read before the stream's beginning does not.
    pub(super) fn reaches_back(&self, start: u64, is_wasteful: bool) -> bool {
        start + ADJACENT_BYTES >= self.began || !(is_wasteful || self.is_young())
    }

    /// Whether it takes a share of the memory: it is being read, and has bytes left to fetch.
    pub(super) fn is_active(&self, size: u64) -> bool {
        let length = self.direction.length(size);
        self.idle_ticks < IDLE_TICKS && self.planned_end < length && !self.is_complete
    }

    /// Notes that it is read at the time `now`.
    pub(super) fn on_read(&mut self, now: Duration) {
        if self.read_at > Duration::ZERO {
            let pause = now.saturating_sub(self.read_at).min(LONGEST_PAUSE);
            self.longest_pause = self.longest_pause.max(pause);
        }
        self.read_at = now;
    }

    /// Notes that a read that waited is answered at the time `now`: its reader's pause begins here.
    pub(super) fn on_answer(&mut self, now: Duration) {
        self.read_at = now;
    }

    /// Whether its reader seems to have gone elsewhere, or sleeps.
    pub(crate) fn is_quiet(&self, now: Duration) -> bool {
        now.saturating_sub(self.read_at) > QUIET.max(self.longest_pause * 2)
    }

    /// Whether it began at the beginning of the object.
    pub(crate) fn is_from_start(&self) -> bool {
        self.direction == Direction::Up && self.began == 0
    }

    /// Whether it has read so little that it may be mere chance. A reader that goes on will hardly miss it.
    pub(crate) fn is_young(&self) -> bool {
        self.position - self.began < EDGE_BYTES
    }

    /// Notes a read of `range`, in the stream's direction, that belongs to the stream.
    pub(super) fn go_on(&mut self, range: ByteRange, clock: u64) {
        let skipped = range.start().saturating_sub(self.position);
        self.credit_bytes = (self.credit_bytes.saturating_sub(skipped) + range.len()).min(AHEAD_BYTES);
        self.used = clock;
        self.idle_ticks = 0;
        self.planned_end = self.planned_end.max(range.start());
        self.position = self.position.max(range.end());
    }
}
