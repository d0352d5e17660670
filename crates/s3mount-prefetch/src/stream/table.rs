//! The streams of one object; finds the stream that a read belongs to.
//!
//! **Invariant:** each stream that goes up or down is once in the order of its direction's cursors. If it
//! goes up, it is also once in the order of the beginnings. Each stream with a stride is once in the list of
//! the strided streams. So a read finds its stream in O(log n).

use std::collections::VecDeque;
use std::time::Duration;

use s3mount_object::ByteRange;

use super::candidates::{Candidates, Sign};
use super::cursor::{IDLE_TICKS, Stream};
use super::direction::{DOWN, Direction, UP};
use super::history::History;
use super::offset_order::OffsetOrder;
use super::reach::{ADJACENT_BYTES, AHEAD_BYTES, BEHIND_BYTES, REORDERED_BYTES, goes_on};
use super::strides::Strides;
use crate::limits::window::{Window, WindowLimits};
use crate::{EDGE_BYTES, PrefetchConfig};

/// The most streams of one object, not counting streams with a stride. Further readers count as random: a reader that
/// has a stream keeps it.
const MAX_STREAMS: usize = 512;

/// The most streams with a stride of one object. Each read that continues no other is compared with all of them.
pub(super) const MAX_STRIDED: usize = 16;

/// Slots for the streams of one object.
const SLOTS: usize = MAX_STREAMS + MAX_STRIDED;

/// The largest window that a new stream begins with, however much earlier streams have read: its reader may be a
/// different one that reads less.
const MAX_FIRST_WINDOW_BYTES: u64 = 64 << 20;

/// The reads that must go down, each ending where the one before began, to count as a stream. A reader of a parquet
/// footer takes two such steps, and then goes elsewhere.
const STEPS_DOWN: u32 = 3;

/// The kind of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It belongs to the stream of this id.
    Stream(u64),
    /// It belongs to no stream.
    Random,
    /// It belongs to no stream, and comes page by page: a record begins or continues here.
    Paged,
}

/// The streams of one object.
#[derive(Debug)]
pub(crate) struct StreamTable {
    /// The streams by slot. An id is the number of streams that have begun so far, times [`SLOTS`], plus the
    /// slot.
    pub(super) slots: Vec<Option<Stream>>,
    /// The cursors of the streams that go up, and of those that go down.
    cursors: [OffsetOrder; 2],
    /// The slots of the streams that have a stride.
    pub(super) strided: Vec<u16>,
    /// Where the streams that go up began.
    beginnings: OffsetOrder,
    pub(crate) candidates: Candidates,
    pub(super) history: History,
    pub(super) strides: Strides,
    /// The streams whose windows are not full because memory or requests are short, in the order in which
    /// that happened.
    hungry: VecDeque<u64>,
    /// How many streams take a share of the memory.
    active: usize,
    /// The object's size in bytes.
    pub(super) size: u64,
    /// The end, from the object's end, of the last read that may go down, and how many steps down it was.
    /// There is one at a time, because few readers go down.
    down: Option<(u64, u32)>,
    /// The number of reads so far.
    pub(super) clock: u64,
    begun: u64,
}

impl StreamTable {
    /// No streams yet, for an object of `size` bytes.
    pub(crate) fn new(size: u64) -> Self {
        Self {
            slots: Vec::new(),
            cursors: [OffsetOrder::default(), OffsetOrder::default()],
            strided: Vec::new(),
            beginnings: OffsetOrder::default(),
            candidates: Candidates::new(size),
            history: History::default(),
            strides: Strides::default(),
            hungry: VecDeque::new(),
            active: 0,
            size,
            down: None,
            clock: 0,
            begun: 0,
        }
    }

    /// Finds the stream of a read, or begins one.
    pub(crate) fn on_read(&mut self, range: ByteRange, config: &PrefetchConfig) -> Access {
        use Direction::{Down, Up};
        self.clock += 1;
        let mirrored = Down.seen(range, self.size);
        let found = self
            .nearest(UP, range.start())
            .map(|slot| (slot, range))
            .or_else(|| Some((self.nearest(DOWN, mirrored.start())?, mirrored)));
        if let Some((slot, seen)) = found
            && self.is_straight_on(slot, seen)
        {
            self.strides.go_on(range);
            return self.go_on(slot, seen);
        }
        let strided = self.strided(range);
        let sign = if strided.is_some() || found.is_none() {
            self.candidates.on_read(range, self.clock, self.size, config)
        } else {
            Sign::None
        };
        let found = strided.or(found);
        let slot = found.map(|(slot, _)| slot);
        if let Some(stride) = self.new_stride(range, sign, slot, config) {
            return self.add_strided(stride, range, slot, config);
        }
        if let Some((slot, seen)) = found {
            return self.go_on(slot, seen);
        }
        if range.start() == 0 {
            return self.add(Up, range, range.start(), self.clock, config);
        }
        if let Sign::Sure(candidate) = sign {
            return self.add(Up, range, candidate.began, candidate.since, config);
        }
        if self.steps_down(mirrored) {
            return self.add(Down, mirrored, mirrored.start(), self.clock, config);
        }
        Access::Random
    }

    /// The stream whose cursor in this order is the nearest to a read at `start`, among the streams that the
    /// read may belong to.
    fn nearest(&self, order: usize, start: u64) -> Option<u16> {
        let cursors = &self.cursors[order];
        let stream = |slot: u16| self.slots[usize::from(slot)].as_ref();
        let is_wasteful = self.history.is_wasteful();
        let beyond = cursors
            .from(start + 1)
            .take_while(|(at, _)| at - start <= BEHIND_BYTES)
            .find(|(_, slot)| stream(*slot).is_some_and(|found| found.reaches_back(start, is_wasteful)))
            .map(|(at, slot)| (at - start, slot));
        let before = cursors
            .before(start + 1)
            .take_while(|(at, _)| start - at <= AHEAD_BYTES)
            .find(|(_, slot)| stream(*slot).is_some_and(|found| found.reaches(start, is_wasteful)))
            .map(|(at, slot)| (start - at, slot));
        beyond.into_iter().chain(before).min().map(|(_, slot)| slot)
    }

    /// Notes that the stream in `slot` reads `range`, which is in its own offsets.
    fn go_on(&mut self, slot: u16, range: ByteRange) -> Access {
        let clock = self.clock;
        let Some(stream) = &mut self.slots[usize::from(slot)] else { return Access::Random };
        if std::mem::take(&mut stream.is_left) {
            self.history.retract(stream.id);
        }
        let (id, from, direction) = (stream.id, stream.position, stream.direction);
        self.change(slot, |stream| stream.go_on(range, clock));
        if range.start() > from + ADJACENT_BYTES {
            self.judge();
        }
        let to = from.max(range.end());
        if let Some(order) = direction.order() {
            self.cursors[order].moved(from, to, slot);
            self.merge_into(slot, order, to);
        }
        Access::Stream(id)
    }

    /// Whether an active stream goes on with `range`, which may be up to [`REORDERED_BYTES`] out of order.
    pub(crate) fn is_going_on(&self, range: ByteRange) -> bool {
        [Direction::Up, Direction::Down].into_iter().zip([UP, DOWN]).any(|(direction, order)| {
            let start = direction.seen(range, self.size).start();
            let near = self.cursors[order].from(start.saturating_sub(REORDERED_BYTES));
            near.take_while(|(at, _)| *at <= start + REORDERED_BYTES).any(|(_, slot)| {
                self.slots[usize::from(slot)].as_ref().is_some_and(|stream| stream.idle_ticks <= 1)
            })
        })
    }

    /// Ends the streams whose cursors the stream in `slot` has reached: two cursors over the same bytes are one.
    fn merge_into(&mut self, slot: u16, order: usize, position: u64) {
        loop {
            let cursors = &self.cursors[order];
            let is_other = |(_, other): &(u64, u16)| *other != slot;
            let beyond = cursors.from(position).find(is_other);
            let before = cursors.before(position + 1).find(is_other);
            let near = beyond.into_iter().chain(before).find(|(at, _)| at.abs_diff(position) <= EDGE_BYTES);
            match near {
                Some((_, other)) => self.remove(other),
                None => return,
            }
        }
    }

    /// Whether `range`, counted from the object's end, is the last of [`STEPS_DOWN`] reads that went down.
    fn steps_down(&mut self, range: ByteRange) -> bool {
        let steps = match self.down {
            Some((position, steps)) if goes_on(position, range) => steps + 1,
            // Below a read of the object's beginning there is nothing.
            _ if range.end() == self.size => return false,
            _ => 1,
        };
        self.down = (steps < STEPS_DOWN).then_some((range.end(), steps));
        self.down.is_none()
    }

    /// Begins a stream with the read of `range`. Its first read was at `began`, when the clock stood at `since`. When
    /// the table is full of active streams, the read counts as random.
    fn add(
        &mut self,
        direction: Direction,
        range: ByteRange,
        began: u64,
        since: u64,
        config: &PrefetchConfig,
    ) -> Access {
        self.note_left(since);
        self.judge();
        let Some(slot) = self.free_slot() else { return Access::Random };
        let window = Window::new(self.initial_window(config));
        self.put(slot, direction, range, began, range.end() - began, window)
    }

    /// Puts a stream that begins with the read of `range` into a free slot.
    pub(super) fn put(
        &mut self,
        slot: u16,
        direction: Direction,
        range: ByteRange,
        began: u64,
        credit_bytes: u64,
        window: Window,
    ) -> Access {
        self.begun += 1;
        let id = self.begun * SLOTS as u64 + u64::from(slot);
        let stream = Stream {
            id,
            direction,
            began,
            position: range.end(),
            planned_end: range.start(),
            window,
            idle_ticks: 0,
            read_at: Duration::ZERO,
            longest_pause: Duration::ZERO,
            credit_bytes,
            is_complete: false,
            used: self.clock,
            is_left: false,
            is_hungry: false,
        };
        self.active += usize::from(stream.is_active(self.size));
        self.slots[usize::from(slot)] = Some(stream);
        if direction == Direction::Up {
            self.beginnings.insert(began, slot);
        }
        if let Some(order) = direction.order() {
            self.cursors[order].insert(range.end(), slot);
            self.merge_into(slot, order, range.end());
        }
        Access::Stream(id)
    }

    /// Notes that a reader that begins a stream with a read at `since` has left another stream. That is one of the
    /// streams that were not read after `since`. The rest of these may belong to slow readers that go on.
    fn note_left(&mut self, since: u64) {
        for stream in self.slots.iter_mut().flatten() {
            if stream.used < since && !stream.is_left && stream.direction == Direction::Up {
                stream.is_left = true;
                self.history.push(stream.id, stream.position - stream.began);
            }
        }
    }

    /// Judges whether the fetched bytes are read. Bytes ahead of active streams count neither way.
    fn judge(&mut self) {
        let read = self.slots.iter().flatten().filter(|stream| !stream.is_left);
        let ahead = read.map(|stream| stream.planned_end.saturating_sub(stream.position));
        self.history.judge(ahead.sum());
    }

    /// The window that a new stream begins with: as many bytes as each of the last streams has read, within bounds.
    fn initial_window(&self, config: &PrefetchConfig) -> u64 {
        let most = MAX_FIRST_WINDOW_BYTES.min(config.max_window_bytes);
        self.history.shortest().unwrap_or(0).min(most).max(config.initial_window_bytes)
    }

    /// Notes that a GET of `bytes` was sent for a stream.
    pub(crate) fn fetched(&mut self, bytes: u64) {
        self.history.fetched(bytes);
    }

    /// Notes how many fetched bytes were read for the first time.
    pub(crate) fn served(&mut self, bytes: u64) {
        self.history.served(bytes);
    }

    /// A slot for one more stream without a stride. In a full table, the least recently used idle stream gives up its
    /// slot, and young streams do so first.
    fn free_slot(&mut self) -> Option<u16> {
        let others = self.slots.iter().flatten().filter(|stream| stream.direction.order().is_some());
        if others.count() < MAX_STREAMS {
            return self.any_slot();
        }
        let streams = (0..).zip(&self.slots).filter_map(|(slot, stream)| Some((slot, stream.as_ref()?)));
        let idle = streams
            .filter(|(_, stream)| stream.idle_ticks >= IDLE_TICKS && stream.direction.order().is_some());
        let (slot, _) = idle.min_by_key(|(_, stream)| (!stream.is_young(), stream.used))?;
        self.remove(slot);
        Some(slot)
    }

    /// A slot that is free, or a new one.
    pub(super) fn any_slot(&mut self) -> Option<u16> {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(None);
        }
        u16::try_from(free).ok()
    }

    pub(super) fn remove(&mut self, slot: u16) {
        let Some(stream) = self.slots[usize::from(slot)].take() else { return };
        if stream.is_hungry {
            self.hungry.retain(|id| *id != stream.id);
        }
        self.active -= usize::from(stream.is_active(self.size));
        match stream.direction.order() {
            Some(order) => self.cursors[order].remove(stream.position, slot),
            None => self.strided.retain(|other| *other != slot),
        }
        if stream.direction == Direction::Up {
            self.beginnings.remove(stream.began, slot);
        }
    }

    /// Changes the stream in `slot`, except for the position of its cursor in the order.
    pub(super) fn change(&mut self, slot: u16, change: impl FnOnce(&mut Stream)) {
        if let Some(stream) = &mut self.slots[usize::from(slot)] {
            self.active -= usize::from(stream.is_active(self.size));
            change(stream);
            self.active += usize::from(stream.is_active(self.size));
        }
    }

    fn slot_of(id: u64) -> u16 {
        (id % SLOTS as u64) as u16
    }

    /// Changes the stream `id`, if it still exists.
    fn change_id(&mut self, id: u64, change: impl FnOnce(&mut Stream)) {
        if self.get(id).is_some() {
            self.change(Self::slot_of(id), change);
        }
    }

    /// The stream of this id, if it still exists.
    pub(crate) fn get(&self, id: u64) -> Option<&Stream> {
        let stream = self.slots.get(usize::from(Self::slot_of(id)))?.as_ref();
        stream.filter(|stream| stream.id == id)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Stream> {
        let stream = self.slots.get_mut(usize::from(Self::slot_of(id)))?.as_mut();
        stream.filter(|stream| stream.id == id)
    }

    /// All streams.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().flatten()
    }

    /// Whether any stream for which `is_read` holds is expected to read part of `range`.
    pub(crate) fn may_read(&self, range: ByteRange, is_read: impl Fn(&Stream) -> bool) -> bool {
        let may_read = |slot: u16| {
            let stream = self.slots[usize::from(slot)].as_ref();
            stream.is_some_and(|found| is_read(found) && found.may_read(range, self.size))
        };
        let is_near = |(direction, order): (Direction, usize)| {
            let end = direction.seen(range, self.size).end() + BEHIND_BYTES;
            // Mostly it is the nearest stream.
            self.cursors[order].before(end).any(|(_, slot)| may_read(slot))
        };
        [(Direction::Up, UP), (Direction::Down, DOWN)].into_iter().any(is_near)
            || self.strided.iter().any(|slot| may_read(*slot))
    }

    /// Notes whether nothing is left to fetch for stream `id`, no matter which stream fetched it.
    pub(crate) fn note_complete(&mut self, id: u64, is_complete: bool) {
        self.change_id(id, |stream| stream.is_complete = is_complete);
    }

    /// The number of streams that take a share of the memory: they are being read and have bytes left to fetch.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// Gives stream `id`, which has just begun, another window.
    pub(crate) fn begin(&mut self, id: u64, window: Window) {
        self.change_id(id, |stream| stream.window = window);
    }

    /// The stream that has come furthest among those that began at the object's beginning.
    pub(crate) fn furthest_from_start(&self) -> Option<&Stream> {
        let began = self.iter().filter(|stream| stream.direction == Direction::Up && stream.began == 0);
        began.max_by_key(|stream| stream.position)
    }

    /// Notes that a read of stream `id` got its bytes at once or `waits` for them, at the time `now`.
    pub(crate) fn on_answer(&mut self, id: u64, now: Duration, waits: bool, limits: &WindowLimits<'_>) {
        self.change_id(id, |stream| {
            stream.on_read(now);
            stream.window.on_read(stream.position, now, waits, limits);
        });
    }

    /// Notes that a read of stream `id` that waited is answered at the time `now`.
    pub(crate) fn answered(&mut self, id: u64, now: Duration) {
        self.change_id(id, |stream| stream.on_answer(now));
    }

    /// Notes that the planned bytes of `range` are no longer in memory or in flight.
    pub(crate) fn unplan(&mut self, range: ByteRange) {
        let size = self.size;
        for slot in 0..self.slots.len() as u16 {
            self.change(slot, |stream| {
                let range = stream.direction.seen(range, size);
                if range.len() > 0 && range.end() > stream.position {
                    stream.is_complete = false;
                    stream.planned_end = stream.planned_end.min(range.start());
                }
            });
        }
    }

    /// Notes that bytes fetched ahead for stream `id` were dropped unread: its window was too large.
    pub(crate) fn on_waste(&mut self, id: u64, config: &PrefetchConfig) {
        self.change_id(id, |stream| stream.window.on_waste(config));
    }

    /// The byte up to which to fetch ahead for `stream`, which goes up. It is the first byte that the next stream has
    /// read, because the kernel holds those bytes now: loaders divide a file among themselves, so a reader that gets
    /// there usually stops there. Or it is the length after which readers left the last streams, rounded to multiples
    /// of `unit` bytes, until the reader has gone further.
    pub(crate) fn limit(&self, stream: &Stream, unit: u64) -> Option<u64> {
        let next = self.beginnings.from(stream.position).map(|(began, _)| began).next();
        let usual = self.history.longest().map(|longest| (stream.began + longest).next_multiple_of(unit));
        let usual = usual.filter(|end| stream.position <= *end);
        next.into_iter().chain(usual).min()
    }

    /// Notes that everything before `end` is planned for stream `id`.
    pub(crate) fn planned(&mut self, id: u64, end: u64) {
        self.change_id(id, |stream| stream.planned_end = stream.planned_end.max(end));
    }

    /// Notes that the window of stream `id` is not full because memory or requests are short.
    pub(crate) fn note_hungry(&mut self, id: u64) {
        if let Some(stream) = self.get_mut(id).filter(|stream| !stream.is_hungry) {
            stream.is_hungry = true;
            self.hungry.push_back(id);
        }
    }

    /// Takes the active stream that has been hungry for the longest time.
    pub(crate) fn next_hungry(&mut self) -> Option<u64> {
        while let Some(id) = self.hungry.pop_front() {
            let Some(stream) = self.get_mut(id) else { continue };
            stream.is_hungry = false;
            if stream.idle_ticks == 0 {
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
