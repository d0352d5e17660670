//! What a reader gives back when others wait for memory.

use std::cmp::Reverse;

use s3mount_object::ByteRange;

use super::ObjectReader;
use super::state::State;
use super::waiter::Waiter;
use crate::PrefetchConfig;
use crate::fetch::Wanted;
use crate::relief::{Parts, Spare};
use crate::segment::{Purpose, Segment, State as SegmentState};
use crate::sync::spawn;
use crate::verify::fetch_by;

impl ObjectReader {
    /// Lists this reader as changed, unless it is listed.
    pub(super) fn list(&self, state: &mut State) {
        if !std::mem::replace(&mut state.is_listed, true) {
            self.shared.relief.list(self.number, self.me.clone());
        }
    }

    /// Gives back what nobody is expected to read again; returns how many bytes that were, and what
    /// else could be spared.
    pub(crate) fn visit(&self) -> (u64, Spare) {
        let mut state = self.lock();
        (state.is_listed, state.was_visited) = (false, true);
        let swept = state.sweep();
        (swept, state.spare())
    }

    /// Gives back a part that is ready, or one in flight, of those that will be read last; it is as
    /// small as `wanted` bytes allow. Returns its length, or 0 when there is none, and what else could be
    /// spared.
    pub(crate) fn drop_far_end(&self, is_ready: bool, wanted: u64) -> (u64, Spare) {
        let mut state = self.lock();
        let dropped = state.drop_far_end(is_ready, wanted, &self.shared.config);
        (dropped, state.spare())
    }

    /// Has the reads that wait, and hold buffers meanwhile, give these up. Each is then answered by
    /// a GET of its own for all that it asked for: it needs one buffer, and holds none while it
    /// waits for that. Returns how many reads that were.
    pub(crate) fn detach_holders(&self) -> usize {
        let detached: Vec<Waiter> = {
            let mut state = self.lock();
            self.list(&mut state);
            state.take_holders()
        };
        let count = detached.len();
        for Waiter { progress, reply, since } in detached {
            let (shared, me, object) = (self.shared.clone(), self.me.clone(), self.object.clone());
            let verifier = self.verifier.clone();
            drop(progress.pieces);
            spawn(&self.shared.runtime, async move {
                let limit = shared.config.read_timeout;
                let wanted = Wanted { deadline: since + limit, is_awaited: &|| true };
                let result =
                    fetch_by(verifier.as_ref(), &shared, &object, progress.range, None, wanted).await;
                let result = result.map_err(|failure| failure.into_error(limit));
                if let (Err(error), Some(reader)) = (&result, me.upgrade())
                    && error.is_corrupt()
                {
                    reader.condemn(error);
                }
                shared.metrics.read_wait.note_time(since.elapsed());
                reply(result.as_deref().map_err(Clone::clone));
            });
        }
        count
    }
}

/// A part that could be spared.
struct Far {
    /// How far ahead of its stream.
    distance: u64,
    range: ByteRange,
    id: u64,
}

impl State {
    /// What could be spared of what was fetched ahead.
    pub(super) fn spare(&self) -> Spare {
        let [ready, in_flight] = [true, false].map(|is_ready| {
            let (far, bytes) = self.far_half(is_ready);
            Parts { bytes, least_bytes: far.iter().map(|part| part.range.len()).min().unwrap_or(0) }
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
            Purpose::Random => u64::MAX,
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
            Purpose::Stream(0) if !dropped.is_consumed() => self.taken.push(dropped.range),
            Purpose::Stream(stream) => self.streams.on_waste(stream, config),
            Purpose::Random => {}
        }
        dropped.range.len()
    }

    /// Takes the reads out that wait and hold buffers meanwhile.
    fn take_holders(&mut self) -> Vec<Waiter> {
        let waiters = self.segments.iter_mut().filter_map(|segment| match &mut segment.state {
            SegmentState::InFlight { waiters, .. } => Some(waiters),
            SegmentState::Ready(_) => None,
        });
        waiters.flat_map(|waiters| waiters.extract_if(.., |waiter| waiter.progress.holds_buffers())).collect()
    }
}
