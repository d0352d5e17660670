//! One stream: a cursor over an object, and its window.

use s3mount_object::ByteRange;

use super::direction::Direction;
use super::reach::{ADJACENT_BYTES, AHEAD_BYTES, BEHIND_BYTES};
use crate::EDGE_BYTES;
use crate::window::Window;

/// A stream that was not read for this many ticks of the housekeeper takes no share of the memory.
pub(super) const IDLE_TICKS: u32 = 3;

/// A stream that was not read for this many ticks gives back what it has fetched ahead. A reader that
/// goes on after a minute can wait for one GET; an open file that is forgotten shall cost nothing.
pub(crate) const LEFT_TICKS: u32 = 60;

/// A cursor and its window. Its offsets count as its direction has it.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) direction: Direction,
    /// First byte read.
    pub(super) began: u64,
    /// One past the furthest byte read.
    pub(crate) position: u64,
    /// Everything before is fetched, in flight, or was; what is planned next starts here.
    pub(crate) planned_end: u64,
    /// How far ahead of `position` to fetch.
    pub(crate) window: Window,
    /// Ticks of the housekeeper since the last read.
    pub(crate) idle_ticks: u32,
    /// Whether all up to its end is here or on its way, as when it was planned last.
    pub(super) is_complete: bool,
    /// Bytes read and not yet set off against bytes skipped, up to [`AHEAD_BYTES`].
    pub(super) credit_bytes: u64,
    /// The table's clock at its last read.
    pub(super) used: u64,
    /// Whether its reader has turned elsewhere, by all that is known.
    pub(super) is_left: bool,
    /// Whether its window is not full because memory or requests are short.
    pub(crate) is_hungry: bool,
}

impl Stream {
    /// Whether the stream is expected to read any of `range` of an object of `size` bytes, going on
    /// or a little behind.
    pub(super) fn may_read(&self, range: ByteRange, size: u64) -> bool {
        let range = self.direction.seen(range, size);
        range.len() > 0
            && range.end() + BEHIND_BYTES > self.position
            && range.start() < self.planned_end.max(self.position + self.window.bytes())
    }

    /// Whether a read at `start`, at the cursor or beyond, is the stream's. One that skips has to have the
    /// credit for it while the stream is young, and where the object's streams waste (`is_wasteful`).
    pub(super) fn reaches(&self, start: u64, is_wasteful: bool) -> bool {
        let most = self.window.bytes().clamp(EDGE_BYTES, AHEAD_BYTES);
        let pays = is_wasteful || self.is_young();
        start - self.position <= if pays { self.credit_bytes.clamp(ADJACENT_BYTES, most) } else { most }
    }

    /// Whether a read at `start`, before the cursor, is the stream's. One before its beginning is only
    /// where neither holds.
    pub(super) fn reaches_back(&self, start: u64, is_wasteful: bool) -> bool {
        start + ADJACENT_BYTES >= self.began || !(is_wasteful || self.is_young())
    }

    /// Whether it takes a share of the memory: it is read, and has something left to fetch.
    pub(super) fn is_active(&self, size: u64) -> bool {
        let length = self.direction.length(size);
        self.idle_ticks < IDLE_TICKS && self.planned_end < length && !self.is_complete
    }

    /// Whether it began at the beginning of the object.
    pub(crate) fn is_from_start(&self) -> bool {
        self.direction == Direction::Up && self.began == 0
    }

    /// Whether it has read so little that chance may have made it, and that who goes on will hardly miss
    /// it.
    pub(super) fn is_young(&self) -> bool {
        self.position - self.began < EDGE_BYTES
    }

    /// The reader reads `range`, as the stream sees it.
    pub(super) fn go_on(&mut self, range: ByteRange, clock: u64) {
        let skipped = range.start().saturating_sub(self.position);
        self.credit_bytes = (self.credit_bytes.saturating_sub(skipped) + range.len()).min(AHEAD_BYTES);
        self.used = clock;
        self.idle_ticks = 0;
        self.planned_end = self.planned_end.max(range.start());
        self.position = self.position.max(range.end());
    }
}
