//! Streams with a stride, in the table of an object's streams.

use s3mount_object::ByteRange;

use super::candidates::Sign;
use super::cursor::Stream;
use super::direction::Direction;
use super::reach::{ADJACENT_BYTES, AHEAD_BYTES, BEHIND_BYTES};
use super::strides::Stride;
use super::table::{Access, MAX_STRIDED, StreamTable};
use crate::limits::window::Window;
use crate::{EDGE_BYTES, PrefetchConfig};

impl Stream {
    fn stride(&self) -> Option<Stride> {
        if let Direction::Strided(stride) = self.direction { Some(stride) } else { None }
    }

    /// Whether a read belongs to this stream; `seen` is the read's range over the pieces. A read that skips
    /// pieces needs the credit for them.
    fn reaches_piece(&self, seen: ByteRange) -> bool {
        let most = self.window.bytes().clamp(EDGE_BYTES, AHEAD_BYTES).min(self.credit_bytes);
        seen.start() + BEHIND_BYTES >= self.position && seen.start() <= self.position + most
    }
}

impl StreamTable {
    /// Whether a read directly continues the stream in `slot`; `range` is in that stream's offsets.
    pub(super) fn is_straight_on(&self, slot: u16, range: ByteRange) -> bool {
        self.slots[usize::from(slot)].as_ref().is_some_and(|stream| {
            let from = stream.began.saturating_sub(ADJACENT_BYTES);
            (from..=stream.position + ADJACENT_BYTES).contains(&range.start())
        })
    }

    /// The stream with a stride that a read of `range` belongs to, and the read's range over its pieces.
    pub(super) fn strided(&self, range: ByteRange) -> Option<(u16, ByteRange)> {
        self.strided.iter().find_map(|slot| {
            let stream = self.slots[usize::from(*slot)].as_ref()?;
            let stride = stream.stride()?;
            stride.piece_at(range.start(), self.size)?;
            let seen = stride.seen(range);
            stream.reaches_piece(seen).then_some((*slot, seen))
        })
    }

    /// The stride that a read turns out to belong to, if the read continues no other (`sign`) and the stream in `slot`
    /// does not serve the stride already. A stream that goes up or down serves a stride with short gaps as long as the
    /// bytes that it fetches are read: other readers may fill the gaps.
    pub(super) fn new_stride(
        &mut self,
        range: ByteRange,
        sign: Sign,
        slot: Option<u16>,
        config: &PrefetchConfig,
    ) -> Option<Stride> {
        if !matches!(sign, Sign::None) {
            self.strides.go_on(range);
            return None;
        }
        let stride = self.strides.on_read(range, config.random_read_bytes)?;
        let stream = slot.and_then(|slot| self.slots[usize::from(slot)].as_ref());
        let is_served = stream.is_some_and(|stream| match stream.stride() {
            Some(own) => own.serves(stride),
            None => stride.gap_bytes() < EDGE_BYTES && !self.history.is_wasteful(),
        });
        (!is_served).then_some(stride)
    }

    /// Begins a stream with the read of `range`, the fourth piece of `stride`. Until now the read seemed to
    /// belong to the stream in `slot`, if any.
    pub(super) fn add_strided(
        &mut self,
        stride: Stride,
        range: ByteRange,
        slot: Option<u16>,
        config: &PrefetchConfig,
    ) -> Access {
        let window = slot.map(|slot| self.leave(slot, config)).unwrap_or_default();
        if self.strided.len() >= MAX_STRIDED {
            let used = |slot: &u16| self.slots[usize::from(*slot)].as_ref().map(|stream| stream.used);
            if let Some(oldest) = self.strided.iter().copied().min_by_key(used) {
                self.remove(oldest);
            }
        }
        let Some(slot) = self.any_slot() else { return Access::Random };
        let seen = stride.seen(range);
        self.strided.push(slot);
        let window = Window::new(window.max(config.initial_window_bytes));
        // Its reader has already read the pieces before this one.
        self.put(slot, Direction::Strided(stride), seen, seen.start(), seen.start(), window)
    }

    /// Takes the reader of the stream in `slot` out of it, because it has turned out to have a stride, or a different
    /// one. If that stream had a stride, ends it and returns half of its window. Otherwise returns 0.
    fn leave(&mut self, slot: u16, config: &PrefetchConfig) -> u64 {
        let Some(stream) = self.slots[usize::from(slot)].as_ref() else { return 0 };
        if stream.stride().is_some() {
            let bytes = stream.window.bytes();
            self.remove(slot);
            return bytes / 2;
        }
        // The bytes ahead of it are no longer needed.
        self.change(slot, |stream| {
            stream.planned_end = stream.position;
            stream.window = Window::new(config.initial_window_bytes);
        });
        0
    }
}
