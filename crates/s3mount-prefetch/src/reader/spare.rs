//! Which segments of one version could be given back, and in which order.

use std::cmp::Reverse;

use s3mount_object::ByteRange;

use super::state::ReaderState;
use super::waiter::Waiter;
use crate::PrefetchConfig;
use crate::reader::segment::{Purpose, Segment, SegmentKey, SegmentState};
use crate::readers::reclaim::{Spare, SpareParts};
use crate::stream::LEFT_TICKS;

/// A part that the reader could spare.
struct Far {
    /// How far it is ahead of its stream, in bytes.
    distance: u64,
    range: ByteRange,
    id: u64,
}

impl ReaderState {
    /// Notes that a segment was read to its end. It stays for a moment, for readers just behind. `keep` bytes of all
    /// such segments stay.
    pub(super) fn consume(&mut self, key: SegmentKey, keep: u64) {
        self.consumed.push_back(key);
        self.consumed_bytes += key.len;
        while self.consumed_bytes > keep
            && let Some(oldest) = self.consumed.pop_front()
        {
            self.consumed_bytes -= oldest.len;
            self.segments.remove(oldest.start, oldest.id);
        }
    }

    /// Drops consumed segments and segments that streams have passed by. Returns how many bytes they had.
    pub(super) fn sweep(&mut self) -> u64 {
        self.sweep_but(0)
    }

    /// Like [`sweep`](Self::sweep), but keeps the latest `keep` bytes that streams have passed by. When several workers
    /// read as one stream, a worker that waited for a slow GET still reads them. They are worth less than bytes that
    /// are read later.
    pub(super) fn sweep_but(&mut self, keep: u64) -> u64 {
        let before = self.segments.held_bytes();
        self.consumed_bytes = 0;
        for consumed in std::mem::take(&mut self.consumed) {
            self.segments.remove(consumed.start, consumed.id);
        }
        let mut passed = self.passed();
        passed.sort_unstable_by_key(|passed| Reverse(passed.id));
        let mut kept = 0;
        for passed in passed {
            kept += passed.len;
            if kept > keep {
                self.drop_part(passed);
            }
        }
        before - self.segments.held_bytes()
    }

    /// Called by the housekeeper once a second. Drops the segments that streams have passed by, except those of the
    /// last two seconds.
    pub(super) fn tick_passed(&mut self) {
        let [lately, before] = self.sent_before_ticks;
        self.sent_before_ticks = [self.next_segment, lately];
        for passed in self.passed() {
            if passed.id <= before {
                self.drop_part(passed);
            }
        }
    }

    /// Ready segments that no stream will reach: a stream has skipped them, or their stream has ended, or it was not
    /// read for [`LEFT_TICKS`].
    fn passed(&self) -> Vec<SegmentKey> {
        let is_passed = |segment: &&Segment<Waiter>| {
            // Whole small objects and hinted bytes stay until they are closed or released, or memory is short.
            matches!(segment.state, SegmentState::Ready(_))
                && !segment.purpose.stays_unread()
                && !segment.is_consumed()
                && !self.streams.may_read(segment.range, |stream| stream.idle_ticks < LEFT_TICKS)
        };
        self.segments.iter().filter(is_passed).map(Segment::key).collect()
    }

    /// Drops a part that no read waits for.
    pub(super) fn drop_part(&mut self, part: SegmentKey) {
        let Some(dropped) = self.segments.remove(part.start, part.id) else { return };
        if let SegmentState::InFlight { task, .. } = &dropped.state {
            task.abort();
        }
        // Its stream fetches it anew if the reader goes on after all.
        self.streams.unplan(dropped.range);
    }

    /// Drops the hinted segments in `range` that no read waits for.
    pub(super) fn drop_hinted(&mut self, range: ByteRange) {
        let is_unread = |segment: &&Segment<Waiter>| {
            let is_in_range = segment.range.start() < range.end() && range.start() < segment.range.end();
            segment.purpose.stays_unread() && is_in_range && !segment.is_awaited()
        };
        let unread = self.segments.iter().filter(is_unread);
        let unread: Vec<_> = unread.map(Segment::key).collect();
        self.reclaimed.retain(|before| !before.overlaps(range));
        unread.into_iter().for_each(|unread| self.drop_part(unread));
    }

    /// The bytes fetched ahead that could be spared.
    pub(super) fn spare(&self) -> Spare {
        let [ready, in_flight] = [true, false].map(|is_ready| {
            let (far, bytes) = self.far_half(is_ready);
            SpareParts { bytes, least_bytes: far.iter().map(|part| part.range.len()).min().unwrap_or(0) }
        });
        let is_holder = |segment: &Segment<Waiter>| match &segment.state {
            SegmentState::InFlight { waiters, .. } => {
                waiters.iter().any(|waiter| waiter.progress.holds_buffers())
            }
            SegmentState::Ready(_) => false,
        };
        Spare { ready, in_flight, has_holders: self.segments.iter().any(is_holder) }
    }

    /// The farther half of the ready parts, or of the parts in flight that no read waits for; and the total length of
    /// all these parts.
    fn far_half(&self, is_ready: bool) -> (Vec<Far>, u64) {
        let is_spare = |segment: &&Segment<Waiter>| match &segment.state {
            SegmentState::Ready(_) => is_ready,
            SegmentState::InFlight { waiters, .. } => !is_ready && waiters.is_empty(),
        };
        let distance = |segment: &Segment<Waiter>| match segment.purpose {
            Purpose::Stream(id) => self.streams.get(id).map_or(u64::MAX, |stream| {
                let seen = stream.direction.seen(segment.range, self.size);
                seen.start().saturating_sub(stream.position)
            }),
            Purpose::Random | Purpose::Whole | Purpose::Hinted => u64::MAX,
        };
        let far = |segment: &Segment<Waiter>| {
            let Segment { range, id, .. } = *segment;
            Far { distance: distance(segment), range, id }
        };
        let mut spare: Vec<Far> = self.segments.iter().filter(is_spare).map(far).collect();
        let bytes = spare.iter().map(|part| part.range.len()).sum();
        let farthest = spare.iter().map(|part| part.distance).max().unwrap_or(0);
        spare.retain(|part| part.distance >= farthest / 2);
        (spare, bytes)
    }

    /// Drops a ready segment, or one in flight that no read waits for, to give `wanted` bytes back. It chooses the
    /// smallest one that is large enough in the farther half of the bytes ahead. Returns its length, or 0 when there is
    /// none.
    pub(super) fn drop_far_end(&mut self, is_ready: bool, wanted: u64, config: &PrefetchConfig) -> u64 {
        let (far, _) = self.far_half(is_ready);
        let chosen = far.iter().min_by_key(|part| (part.range.len().max(wanted), Reverse(part.distance)));
        let Some(dropped) = chosen.and_then(|part| self.segments.remove(part.range.start(), part.id)) else {
            return 0;
        };
        if let SegmentState::InFlight { task, .. } = &dropped.state {
            task.abort();
        }
        self.streams.unplan(dropped.range);
        match dropped.purpose {
            Purpose::Stream(stream) => self.streams.on_waste(stream, config),
            Purpose::Whole | Purpose::Hinted if !dropped.is_consumed() => self.reclaimed.push(dropped.range),
            Purpose::Whole | Purpose::Hinted | Purpose::Random => {}
        }
        dropped.range.len()
    }

    /// Takes out the waiting reads that hold buffers.
    pub(super) fn take_holders(&mut self) -> Vec<Waiter> {
        let waiters = self.segments.iter_mut().filter_map(|segment| match &mut segment.state {
            SegmentState::InFlight { waiters, .. } => Some(waiters),
            SegmentState::Ready(_) => None,
        });
        waiters.flat_map(|waiters| waiters.extract_if(.., |waiter| waiter.progress.holds_buffers())).collect()
    }
}
