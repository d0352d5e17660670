//! How a reader gives the bytes ahead of idle streams to streams that are being read.

use std::cmp::Reverse;
use std::time::Duration;

use super::ObjectReader;
use super::state::ReaderState;
use crate::reader::segment::{Purpose, Segment, SegmentKey, SegmentState};
use crate::readers::Readers;
use crate::readers::reclaim::ReclaimOrder;
use crate::stream::Stream;
use crate::sync::Ordering;

/// Bytes that a reader gave.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    bytes: u64,
    /// The part of them that was in flight. Their buffers come back in a moment.
    in_flight_bytes: u64,
}

/// The number of parts that a stream with too little memory takes at once. The next read takes more.
const PARTS_AT_ONCE: u64 = 4;

impl Readers<ObjectReader> {
    /// Makes readers give about `wanted` bytes that are ahead of idle streams. Returns how many they gave. Notes
    /// buffers that come back in a moment in the books of `order`.
    pub(crate) fn take_idle(
        &self,
        wanted: u64,
        now: Duration,
        order: &mut ReclaimOrder<ObjectReader>,
    ) -> u64 {
        let mut given = 0;
        if self.idle.is_time_to_look(now) {
            self.all().iter().for_each(|reader| reader.list_idle(now));
        }
        while given < wanted
            && self.idle.has_any()
            && let Some(listed) = self.idle.next()
        {
            let Some(reader) = listed.upgrade() else { continue };
            let (dropped, has_more) = reader.give_idle(wanted - given, now);
            self.books.dropped_bytes.fetch_add(dropped.bytes, Ordering::Relaxed);
            given += dropped.bytes;
            if dropped.in_flight_bytes > 0 {
                order.on_cancel(dropped.in_flight_bytes);
            }
            if has_more {
                self.idle.list_first(listed);
            }
        }
        given
    }
}

impl ObjectReader {
    /// Fills the windows of streams that were short of memory, with memory of idle streams. The caller holds no
    /// reader's lock.
    pub(super) fn feed(&self) {
        if !self.readers.idle.may_give(self.now()) {
            return;
        }
        let given = {
            let order = &mut *self.readers.books.order();
            let wanted = PARTS_AT_ONCE * self.shared.config.part_bytes;
            let missing = wanted.saturating_sub(order.cancelled_bytes());
            self.readers.take_idle(missing, self.now(), order)
        };
        if given > 0 {
            let state = &mut self.lock().state;
            self.plan_hungry(state);
            state.is_short = false;
        }
    }

    /// Lists this reader if it could give bytes that are ahead of idle streams.
    fn list_idle(&self, now: Duration) {
        let state = &mut self.lock().state;
        if !state.is_listed_idle && state.segments.held_bytes() > 0 && !state.idle_parts(now).is_empty() {
            state.is_listed_idle = true;
            self.readers.idle.list(self.me.clone());
        }
    }

    /// Drops about `wanted` bytes that are ahead of idle streams, the latest first. Returns what it gave, and whether
    /// it could give more.
    fn give_idle(&self, wanted: u64, now: Duration) -> (Given, bool) {
        let state = &mut self.lock().state;
        let (given, has_more) = state.drop_idle(wanted, now);
        state.is_listed_idle = has_more;
        if given.bytes > 0 {
            state.rest_quiet(now);
            self.count_active(state);
        }
        (given, has_more)
    }
}

impl ReaderState {
    /// The streams whose reads wait.
    pub(super) fn awaiting_streams(&self) -> Vec<u64> {
        self.segments.iter().flat_map(Segment::awaiting_streams).collect()
    }

    /// Gives no share of the memory to streams whose readers seem to have gone elsewhere, until they are read again.
    pub(super) fn rest_quiet(&mut self, now: Duration) {
        let awaited = self.awaiting_streams();
        self.streams.rest(|stream| stream.is_quiet(now) && !awaited.contains(&stream.id));
    }

    /// Parts that were fetched ahead of streams and that only idle streams would reach, and whether each is in flight.
    /// No read waits for them.
    fn idle_parts(&self, now: Duration) -> Vec<(bool, SegmentKey)> {
        let awaited = self.awaiting_streams();
        let is_read = |stream: &Stream| !stream.is_quiet(now) || awaited.contains(&stream.id);
        let idle = self.segments.iter().filter(|part| {
            matches!(part.purpose, Purpose::Stream(_))
                && !part.is_awaited()
                && !self.streams.may_read(part.range, is_read)
        });
        idle.map(|part| (matches!(part.state, SegmentState::InFlight { .. }), part.key())).collect()
    }

    /// Drops such parts up to `wanted` bytes: ready parts before parts in flight, the latest first. Returns the bytes
    /// dropped, and whether more parts are left.
    fn drop_idle(&mut self, wanted: u64, now: Duration) -> (Given, bool) {
        let mut parts = self.idle_parts(now);
        parts.sort_unstable_by_key(|(is_in_flight, part)| (*is_in_flight, Reverse(part.id)));
        let mut given = Given::default();
        for (is_in_flight, part) in parts {
            if given.bytes >= wanted {
                return (given, true);
            }
            self.drop_part(part);
            given.bytes += part.len;
            given.in_flight_bytes += if is_in_flight { part.len } else { 0 };
        }
        (given, false)
    }
}
