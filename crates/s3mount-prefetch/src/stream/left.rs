//! Idle streams: those that are not read now.

use super::cursor::{IDLE_TICKS, LEFT_TICKS, Stream};
use super::table::StreamTable;

impl StreamTable {
    /// Called by the housekeeper once a second. A stream that has read little, and nothing for long, ends: it may be
    /// mere chance.
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

    /// Gives no share of the memory to streams that are `left`, until they are read again.
    pub(crate) fn rest(&mut self, left: impl Fn(&Stream) -> bool) {
        for slot in 0..self.slots.len() as u16 {
            self.change(slot, |stream| {
                if left(stream) {
                    stream.idle_ticks = stream.idle_ticks.max(IDLE_TICKS);
                }
            });
        }
    }

    /// Whether a returning reader may have something left to read: the object was read, but not all of it from the
    /// beginning to the end.
    pub(crate) fn may_go_on(&self) -> bool {
        self.clock > 0 && self.furthest_from_start().is_none_or(|stream| stream.position < self.size)
    }
}
