//! What of one version could be given back, and what goes first.

use std::cmp::Reverse;

use s3mount_object::ByteRange;

use super::state::State;
use super::waiter::Waiter;
use crate::PrefetchConfig;
use crate::reclaim::{Spare, SpareParts};
use crate::segment::{Purpose, Segment, SegmentKey, SegmentState};
use crate::stream::LEFT_TICKS;

/// A part that could be spared.
struct Far {
    /// How far ahead of its stream.
    distance: u64,
    range: ByteRange,
    id: u64,
}

impl State {
    /// A segment was read to its end: it stays a little for those just behind, then goes. Of such
    /// segments `keep` bytes stay.
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

    /// Drops what was consumed and what streams have passed by; returns how many bytes that were.
    pub(super) fn sweep(&mut self) -> u64 {
        self.sweep_but(0)
    }

    /// The same, but for the last `keep` bytes that were passed by. Where several workers read as one stream,
    /// one that waited for a slow GET comes to them yet: they are not worth a place for what is read later.
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
                self.drop_passed(passed);
            }
        }
        before - self.segments.held_bytes()
    }

    /// The housekeeper's look: what was passed by goes, but not what came a moment ago.
    pub(super) fn tick_passed(&mut self) {
        let [lately, before] = self.sent_before_ticks;
        self.sent_before_ticks = [self.next_segment, lately];
        for passed in self.passed() {
            if passed.id <= before {
                self.drop_passed(passed);
            }
        }
    }

    /// Ready segments that no stream will reach, which they have skipped, of a stream that has ended,
    /// or of one that nobody reads for [`LEFT_TICKS`].
    fn passed(&self) -> Vec<SegmentKey> {
        let is_passed = |segment: &&Segment<Waiter>| {
            // Whole small objects stay until they are closed or memory is short.
            matches!(segment.state, SegmentState::Ready(_))
                && !segment.purpose.stays_unread()
                && !segment.is_consumed()
                && !self.streams.may_read(segment.range, LEFT_TICKS)
        };
        self.segments.iter().filter(is_passed).map(Segment::key).collect()
    }

    fn drop_passed(&mut self, passed: SegmentKey) {
        if let Some(dropped) = self.segments.remove(passed.start, passed.id) {
            // Should somebody go on after all.
            self.streams.unplan(dropped.range);
        }
    }

    /// Drops what was fetched of `range` before anybody read it, and that nobody waits for.
    pub(super) fn drop_hinted(&mut self, range: ByteRange) {
        let is_unread = |segment: &&Segment<Waiter>| {
            let is_waited_for =
                matches!(&segment.state, SegmentState::InFlight { waiters, .. } if !waiters.is_empty());
            let is_in_range = segment.range.start() < range.end() && range.start() < segment.range.end();
            segment.purpose.stays_unread() && is_in_range && !is_waited_for
        };
        let unread = self.segments.iter().filter(is_unread);
        let unread: Vec<_> = unread.map(Segment::key).collect();
        self.reclaimed.retain(|before| !before.overlaps(range));
        for unread in unread {
            let Some(dropped) = self.segments.remove(unread.start, unread.id) else { continue };
            if let SegmentState::InFlight { task, .. } = &dropped.state {
                task.abort();
            }
            self.streams.unplan(dropped.range);
        }
    }

    /// What could be spared of what was fetched ahead.
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

    /// Of the parts that are ready, or of those in flight that nobody waits for, the farther half, and
    /// the sum of the lengths of all.
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

    /// Drops a segment that is ready, or one in flight that nobody waits for, to give `wanted` bytes
    /// back: of those in the farther half of what is ahead, the smallest that is enough. Returns its
    /// length, or 0 when there is none.
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

    /// Takes the reads out that wait and hold buffers meanwhile.
    pub(super) fn take_holders(&mut self) -> Vec<Waiter> {
        let waiters = self.segments.iter_mut().filter_map(|segment| match &mut segment.state {
            SegmentState::InFlight { waiters, .. } => Some(waiters),
            SegmentState::Ready(_) => None,
        });
        waiters.flat_map(|waiters| waiters.extract_if(.., |waiter| waiter.progress.holds_buffers())).collect()
    }
}
