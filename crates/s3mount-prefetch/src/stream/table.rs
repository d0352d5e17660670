//! The streams of one object, and which of them a read belongs to.
//!
//! **Invariant:** each stream that runs up or down stands once in the order of its direction's cursors,
//! and once in that of the beginnings if it runs up; each other one stands once in the list of the
//! strided. So a read finds its stream in O(log n).

use std::collections::VecDeque;
use std::time::Duration;

use s3mount_object::ByteRange;

use super::candidates::{Candidates, Sign};
use super::cursor::{IDLE_TICKS, LEFT_TICKS, Stream};
use super::direction::{DOWN, Direction, UP};
use super::history::History;
use super::offset_order::OffsetOrder;
use super::reach::{ADJACENT_BYTES, AHEAD_BYTES, BEHIND_BYTES, REORDERED_BYTES, goes_on};
use super::strides::Strides;
use crate::window::{Window, WindowLimits};
use crate::{EDGE_BYTES, PrefetchConfig};

/// Streams of one object, without those that have a stride. With more readers than this the others read
/// at random: who has a stream keeps it.
const MAX_STREAMS: usize = 512;

/// Streams with a stride of one object at most: each read that goes on from no other is compared with all.
pub(super) const MAX_STRIDED: usize = 16;

/// Places for streams of one object.
const SLOTS: usize = MAX_STREAMS + MAX_STRIDED;

/// A new stream's window at most, however much the streams before it have read: it may be another
/// reader's, who reads less.
const MAX_FIRST_WINDOW_BYTES: u64 = 64 << 20;

/// Reads that go down, each to where the one before began, before it counts as a stream. A reader
/// of a parquet footer takes two such steps, and then goes elsewhere.
const STEPS_DOWN: u32 = 3;

/// What a read turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The stream of this id goes on.
    Stream(u64),
    /// It belongs to no stream.
    Random,
    /// It belongs to no stream, and was asked for by the page: a record begins here, or goes on.
    Paged,
}

/// The streams of one object.
#[derive(Debug)]
pub(crate) struct StreamTable {
    /// Streams by slot. An id is the number of streams begun before, times [`SLOTS`], plus the slot.
    pub(super) slots: Vec<Option<Stream>>,
    /// Cursors of the streams that run up, and of those that run down.
    cursors: [OffsetOrder; 2],
    /// Streams that have a stride.
    pub(super) strided: Vec<u16>,
    /// Where the streams that run up began.
    beginnings: OffsetOrder,
    candidates: Candidates,
    pub(super) history: History,
    pub(super) strides: Strides,
    /// Streams whose windows are not full because memory or requests were short, in the order in which
    /// they came to be so.
    hungry: VecDeque<u64>,
    /// Streams that take a share of the memory.
    active: usize,
    /// The object's size in bytes.
    pub(super) size: u64,
    /// Where the last read that may go down has come to, in the mirror, and in how many steps. One at
    /// a time: there are few who read backwards.
    down: Option<(u64, u32)>,
    /// Reads so far.
    clock: u64,
    begun: u64,
}

impl StreamTable {
    /// No streams yet, of an object of `size` bytes.
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

    /// Sorts a read into a stream, or begins one.
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

    /// The stream in this order whose cursor is the nearest to a read at `start`.
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

    /// The stream in `slot` reads `range`, as it sees it.
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

    /// Whether a stream that is being read goes on with `range`, up to [`REORDERED_BYTES`] out of order.
    pub(crate) fn is_going_on(&self, range: ByteRange) -> bool {
        [Direction::Up, Direction::Down].into_iter().zip([UP, DOWN]).any(|(direction, order)| {
            let start = direction.seen(range, self.size).start();
            let near = self.cursors[order].from(start.saturating_sub(REORDERED_BYTES));
            near.take_while(|(at, _)| *at <= start + REORDERED_BYTES).any(|(_, slot)| {
                self.slots[usize::from(slot)].as_ref().is_some_and(|stream| stream.idle_ticks <= 1)
            })
        })
    }

    /// Ends the streams that the one in `slot` has run into: two cursors over the same bytes are one.
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

    /// Whether `range`, in the mirror, is the last of so many reads that went down.
    fn steps_down(&mut self, range: ByteRange) -> bool {
        let steps = match self.down {
            Some((position, steps)) if goes_on(position, range) => steps + 1,
            // A read of the beginning has nothing below it.
            _ if range.end() == self.size => return false,
            _ => 1,
        };
        self.down = (steps < STEPS_DOWN).then_some((range.end(), steps));
        self.down.is_none()
    }

    /// Begins a stream with the read of `range`; its first read was at `began`, when the clock stood at
    /// `since`. Where the table is full of streams that are read, it is a random read.
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

    /// Who begins a stream with a read at `since` has turned away from another: of the streams that were
    /// not read after that, it is one. They may still be others', which are slow, and go on.
    fn note_left(&mut self, since: u64) {
        for stream in self.slots.iter_mut().flatten() {
            if stream.used < since && !stream.is_left && stream.direction == Direction::Up {
                stream.is_left = true;
                self.history.push(stream.id, stream.position - stream.began);
            }
        }
    }

    /// Judges whether what is fetched is read; what lies ahead of streams that are read counts neither way.
    fn judge(&mut self) {
        let read = self.slots.iter().flatten().filter(|stream| !stream.is_left);
        let ahead = read.map(|stream| stream.planned_end.saturating_sub(stream.position));
        self.history.judge(ahead.sum());
    }

    /// A new stream's window: what the last streams have all read, if they have.
    fn initial_window(&self, config: &PrefetchConfig) -> u64 {
        let most = MAX_FIRST_WINDOW_BYTES.min(config.max_window_bytes);
        self.history.shortest().unwrap_or(0).min(most).max(config.initial_window_bytes)
    }

    /// So many bytes were asked of the store for a stream.
    pub(crate) fn fetched(&mut self, bytes: u64) {
        self.history.fetched(bytes);
    }

    /// So many of these were read, for the first time.
    pub(crate) fn served(&mut self, bytes: u64) {
        self.history.served(bytes);
    }

    /// A slot for one stream more that has no stride. In a full table the least recently used of those that
    /// nobody reads leaves, the young ones first.
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

    /// A slot that is free, or new.
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

    /// Changes the stream in `slot`, but not where its cursor stands in the order.
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

    /// Changes the stream `id`, if it still is one.
    fn change_id(&mut self, id: u64, change: impl FnOnce(&mut Stream)) {
        if self.get(id).is_some() {
            self.change(Self::slot_of(id), change);
        }
    }

    /// The stream of this id, if it still is one.
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

    /// Whether a stream that was read within the last `idle_ticks` is expected to read any of `range`.
    pub(crate) fn may_read(&self, range: ByteRange, idle_ticks: u32) -> bool {
        let may_read = |slot: u16| {
            let stream = self.slots[usize::from(slot)].as_ref();
            stream.is_some_and(|found| found.idle_ticks < idle_ticks && found.may_read(range, self.size))
        };
        let is_near = |(direction, order): (Direction, usize)| {
            let end = direction.seen(range, self.size).end() + BEHIND_BYTES;
            // Mostly it is the nearest.
            self.cursors[order].before(end).any(|(_, slot)| may_read(slot))
        };
        [(Direction::Up, UP), (Direction::Down, DOWN)].into_iter().any(is_near)
            || self.strided.iter().any(|slot| may_read(*slot))
    }

    /// Notes whether nothing is left to fetch for stream `id`, whoever fetched it.
    pub(crate) fn note_complete(&mut self, id: u64, is_complete: bool) {
        self.change_id(id, |stream| stream.is_complete = is_complete);
    }

    /// How many streams take a share of the memory: those that are read and not at their end.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// The housekeeper's look. What has read little, and nothing for long, is no stream any more: chance
    /// may have made it one.
    pub(crate) fn tick(&mut self) {
        for slot in 0..self.slots.len() as u16 {
            self.change(slot, |stream| stream.idle_ticks = stream.idle_ticks.saturating_add(1));
            let stream = self.slots[usize::from(slot)].as_ref();
            let is_gone = |stream: &Stream| stream.is_young() || stream.direction.order().is_none();
            if stream.is_some_and(|stream| stream.idle_ticks >= LEFT_TICKS && is_gone(stream)) {
                self.remove(slot);
            }
        }
    }

    /// Gives stream `id`, which has just begun, another window.
    pub(crate) fn begin(&mut self, id: u64, window: Window) {
        self.change_id(id, |stream| stream.window = window);
    }

    /// Of the streams that began at the object's beginning, the one that came furthest.
    pub(crate) fn furthest_from_start(&self) -> Option<&Stream> {
        let began = self.iter().filter(|stream| stream.direction == Direction::Up && stream.began == 0);
        began.max_by_key(|stream| stream.position)
    }

    /// The reader of stream `id` got its bytes at once or `waits` for them, at the time `now`.
    pub(crate) fn on_answer(&mut self, id: u64, now: Duration, waits: bool, limits: &WindowLimits<'_>) {
        self.change_id(id, |stream| stream.window.on_read(stream.position, now, waits, limits));
    }

    /// Bytes from `start` on are not there any more, although they were planned.
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

    /// What was fetched ahead for stream `id` was thrown away unread: its window was too large.
    pub(crate) fn on_waste(&mut self, id: u64, config: &PrefetchConfig) {
        self.change_id(id, |stream| stream.window.on_waste(config));
    }

    /// Before which byte to fetch ahead for `stream`, which runs up. Beyond it lies what the next stream
    /// has read already, which is the kernel's now: a reader that comes so far mostly ends there (loaders
    /// that share a file divide it). Or the streams before this one were left behind after as many bytes.
    /// It counts until the reader has gone further. Multiples of `unit` bytes are fetched.
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

    /// The window of stream `id` is not full, because memory or requests are short.
    pub(crate) fn note_hungry(&mut self, id: u64) {
        if let Some(stream) = self.get_mut(id).filter(|stream| !stream.is_hungry) {
            stream.is_hungry = true;
            self.hungry.push_back(id);
        }
    }

    /// The stream that is hungry for the longest time, of those that are read.
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
