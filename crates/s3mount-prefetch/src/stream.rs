//! Streams: who reads sequentially, and how far ahead of it to fetch.
//!
//! Pure: it sees reads, and answers with ranges to fetch. It owns no clock and does no I/O.
//!
//! A stream is a cursor over the object, recognised by offset, because that is what all the
//! handles, processes and mapped pages that read one file have in common. The cursor has a
//! tolerance: the kernel sends its readahead from several threads, so requests arrive out of
//! order, and loaders skip short stretches.
//!
//! A read at offset 0 starts a stream. A read elsewhere is a *candidate*, and fetches nothing
//! ahead, until a second read goes on where it ended.
//!
//! A stream may also run backwards, from the end of the object or from anywhere in it. It is the
//! same in a mirror: its cursor counts from the object's end.

use std::time::Duration;

use s3mount_object::ByteRange;

use crate::window::{Terms, Window};
use crate::{EDGE_BYTES, PrefetchConfig};

/// Streams and candidates of one object; the least recently used leaves first.
const MAX_STREAMS: usize = 32;

/// A read this far behind a cursor is still the cursor's: the reader's second thread, or requests
/// out of order. Segments stay for that long after they were consumed.
pub(crate) const BEHIND_BYTES: u64 = 8 << 20;

/// A read at most this far beyond the cursor moves it, once the window is as large: skips beyond
/// are another stream's.
const AHEAD_BYTES: u64 = 16 << 20;

/// The kernel has at most two READs of 1 MiB of one reader's readahead under way, and they arrive in any
/// order.
const REORDERED_BYTES: u64 = 2 << 20;

/// Gap after which a second read still goes on where a candidate ended: the kernel's readahead
/// leaves none, and loaders of records skip padding.
const ADJACENT_BYTES: u64 = 128 << 10;

/// Reads that go down, each to where the one before began, before it counts as a stream. A reader
/// of a parquet footer takes two such steps, and then goes elsewhere.
const STEPS_DOWN: u32 = 3;

/// Which way a stream runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Direction {
    /// `range` of an object of `size` bytes, as a stream of this direction sees it: from the
    /// object's end, if it runs down.
    pub(crate) fn seen(self, range: ByteRange, size: u64) -> ByteRange {
        match self {
            Direction::Up => range,
            Direction::Down => ByteRange::new(size - range.end(), size - range.start()),
        }
    }
}

/// A cursor and its window. Its offsets count as its direction has it.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) direction: Direction,
    /// First byte read.
    began: u64,
    /// One past the furthest byte read.
    pub(crate) position: u64,
    /// Everything before is fetched, in flight, or was; what is planned next starts here.
    pub(crate) planned_end: u64,
    /// How far ahead of `position` to fetch; closed for a candidate.
    pub(crate) window: Window,
    /// Ticks of the housekeeper since the last read.
    pub(crate) idle_ticks: u32,
    used: u64,
}

impl Stream {
    /// Whether the stream is expected to read any of `range` of an object of `size` bytes, going on
    /// or a little behind.
    pub(crate) fn may_read(&self, range: ByteRange, size: u64) -> bool {
        let range = self.direction.seen(range, size);
        range.end() + BEHIND_BYTES > self.position
            && range.start() < self.planned_end.max(self.position + self.window.bytes())
    }
}

/// What a read turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The stream of this id goes on.
    Stream(u64),
    /// It belongs to no stream.
    Random,
}

/// The streams of one object.
#[derive(Debug)]
pub(crate) struct StreamTable {
    streams: Vec<Stream>,
    /// The object's size in bytes.
    size: u64,
    /// Where the last read that may go down has come to, in the mirror, and in how many steps. One at
    /// a time: there are few who read backwards.
    down: Option<(u64, u32)>,
    clock: u64,
    next_id: u64,
}

impl StreamTable {
    /// No streams yet, of an object of `size` bytes.
    pub(crate) fn new(size: u64) -> Self {
        Self { streams: Vec::new(), size, down: None, clock: 0, next_id: 0 }
    }

    /// Sorts a read into a stream, or begins one.
    pub(crate) fn on_read(&mut self, range: ByteRange, config: &PrefetchConfig) -> Access {
        use Direction::{Down, Up};
        self.clock += 1;
        let mirrored = Down.seen(range, self.size);
        let index = self
            .nearest_stream(Up, range)
            .or_else(|| self.nearest_stream(Down, mirrored))
            .or_else(|| self.promote(range, config))
            .or_else(|| self.step_down(mirrored, config));
        let Some(index) = index else {
            let starts_file = range.start() == 0;
            let window = if starts_file { config.initial_window_bytes } else { 0 };
            let id = self.add(Up, range, window);
            return if starts_file { Access::Stream(id) } else { Access::Random };
        };
        let stream = &mut self.streams[index];
        let range = stream.direction.seen(range, self.size);
        stream.used = self.clock;
        stream.idle_ticks = 0;
        if range.start() > stream.planned_end {
            stream.planned_end = range.start();
        }
        stream.position = stream.position.max(range.end());
        let id = stream.id;
        self.merge_into(id);
        Access::Stream(id)
    }

    /// Whether a stream that is being read goes on with `range`, up to [`REORDERED_BYTES`] out of order.
    pub(crate) fn is_going_on(&self, range: ByteRange) -> bool {
        self.iter().any(|stream| {
            let start = stream.direction.seen(range, self.size).start();
            stream.idle_ticks <= 1 && start.abs_diff(stream.position) <= REORDERED_BYTES
        })
    }

    fn nearest_stream(&self, direction: Direction, range: ByteRange) -> Option<usize> {
        let start = range.start();
        self.streams
            .iter()
            .enumerate()
            .filter(|(_, stream)| {
                let ahead = stream.window.bytes().clamp(EDGE_BYTES, AHEAD_BYTES);
                stream.window.bytes() > 0
                    && stream.direction == direction
                    && start + BEHIND_BYTES >= stream.position
                    && start <= stream.position + ahead
            })
            .min_by_key(|(_, stream)| start.abs_diff(stream.position))
            .map(|(index, _)| index)
    }

    /// Makes a stream of the candidate that `range` goes on from.
    fn promote(&mut self, range: ByteRange, config: &PrefetchConfig) -> Option<usize> {
        let index = self
            .streams
            .iter()
            .position(|stream| stream.window.bytes() == 0 && goes_on(stream.position, range))?;
        let stream = &mut self.streams[index];
        stream.window = Window::new(config.initial_window_bytes);
        stream.planned_end = range.start();
        Some(index)
    }

    /// Makes a stream of so many reads that went down, of which `range`, in the mirror, is the last.
    fn step_down(&mut self, range: ByteRange, config: &PrefetchConfig) -> Option<usize> {
        let steps = match self.down {
            Some((position, steps)) if goes_on(position, range) => steps + 1,
            // A read of the beginning has nothing below it.
            _ if range.end() == self.size => return None,
            _ => 1,
        };
        self.down = (steps < STEPS_DOWN).then_some((range.end(), steps));
        if self.down.is_some() {
            return None;
        }
        self.add(Direction::Down, range, config.initial_window_bytes);
        Some(self.streams.len() - 1)
    }

    fn add(&mut self, direction: Direction, range: ByteRange, window_bytes: u64) -> u64 {
        if self.streams.len() >= MAX_STREAMS {
            let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.used);
            if let Some((index, _)) = oldest {
                self.streams.swap_remove(index);
            }
        }
        self.next_id += 1;
        self.streams.push(Stream {
            id: self.next_id,
            direction,
            began: range.start(),
            position: range.end(),
            planned_end: range.start(),
            window: Window::new(window_bytes),
            idle_ticks: 0,
            used: self.clock,
        });
        self.next_id
    }

    /// Ends the streams and candidates that the stream `id` has run into: two cursors over the
    /// same bytes are one.
    fn merge_into(&mut self, id: u64) {
        let Some(into) = self.get(id) else { return };
        let (from, to) = (into.position.saturating_sub(EDGE_BYTES), into.position + EDGE_BYTES);
        let direction = into.direction;
        self.streams.retain(|stream| {
            stream.id == id || stream.direction != direction || !(from..=to).contains(&stream.position)
        });
    }

    /// The stream of this id, if it still is one.
    pub(crate) fn get(&self, id: u64) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.id == id)
    }

    /// All streams, without the candidates.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter().filter(|stream| stream.window.bytes() > 0)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.iter_mut().filter(|stream| stream.window.bytes() > 0)
    }

    /// How many streams take a share of the memory: those that are read and not at their end.
    pub(crate) fn active(&self, idle_after_ticks: u32) -> usize {
        self.iter()
            .filter(|stream| stream.idle_ticks < idle_after_ticks && stream.planned_end < self.size)
            .count()
    }

    /// Gives stream `id`, which has just begun, another window.
    pub(crate) fn begin(&mut self, id: u64, window: Window) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            stream.window = window;
        }
    }

    /// Of the streams that began at the object's beginning, the one that came furthest.
    pub(crate) fn furthest_from_start(&self) -> Option<&Stream> {
        let began = self.iter().filter(|stream| stream.direction == Direction::Up && stream.began == 0);
        began.max_by_key(|stream| stream.position)
    }

    /// The reader of stream `id` got its bytes at once or `waits` for them, at the time `now`.
    pub(crate) fn on_answer(&mut self, id: u64, now: Duration, waits: bool, terms: &Terms<'_>) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            stream.window.on_read(stream.position, now, waits, terms);
        }
    }

    /// Bytes from `start` on are not there any more, although they were planned.
    pub(crate) fn unplan(&mut self, range: ByteRange) {
        let size = self.size;
        for stream in self.iter_mut() {
            let range = stream.direction.seen(range, size);
            if range.end() > stream.position && range.start() < stream.planned_end {
                stream.planned_end = range.start();
            }
        }
    }

    /// What was fetched ahead for stream `id` was thrown away unread: its window was too large.
    pub(crate) fn on_waste(&mut self, id: u64, config: &PrefetchConfig) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            stream.window.on_waste(config);
        }
    }

    /// Where the next stream beyond `position` began. What lies behind that was read already, and
    /// is the kernel's now: a reader that comes so far mostly ends there (loaders that share a
    /// file divide it), so nothing of it is fetched ahead before the reader has come so far.
    pub(crate) fn next_beginning(&self, position: u64) -> Option<u64> {
        let up = self.iter().filter(|stream| stream.direction == Direction::Up);
        up.map(|stream| stream.began).filter(|began| *began >= position).min()
    }

    /// Notes that everything before `end` is planned for stream `id`.
    pub(crate) fn planned(&mut self, id: u64, end: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            stream.planned_end = stream.planned_end.max(end);
        }
    }
}

/// Whether `range` begins where another read ended, or a little behind.
fn goes_on(end: u64, range: ByteRange) -> bool {
    (end..=end + ADJACENT_BYTES).contains(&range.start())
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
