//! The memory that a draft gives back when memory is short.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::Draft;
use crate::part_layout::PartRange;
use crate::reclaim::Reclaimable;
use crate::state::DraftState;

impl Reclaimable for Draft {
    fn changed(&self) -> SystemTime {
        self.modified()
    }

    fn evict(&self, wanted: u64) -> u64 {
        self.lend_line();
        let before = self.held.load(Ordering::Relaxed);
        let mut state = self.state();
        if state.failed.is_some() {
            // It is never published.
            state.lose_all();
        }
        for (part, is_current) in self.evictable(&state) {
            if before.saturating_sub(self.held.load(Ordering::Relaxed)) >= wanted {
                break;
            }
            state.evict(part, is_current);
        }
        before.saturating_sub(self.held.load(Ordering::Relaxed))
    }

    fn uploading_bytes(&self) -> u64 {
        let state = self.state();
        // A task whose part is not in memory waits for memory itself.
        let claims = state.part_states.claims().filter(|part| state.is_in_memory(*part));
        claims.map(|part| part.len()).sum::<u64>() + state.spilling_bytes
    }

    fn hurry(&self, wanted: u64) -> u64 {
        let Some(me) = self.me.upgrade() else { return 0 };
        if me.has_spool() {
            let (parts, bytes) = me.spillable(wanted);
            return if me.spill(parts) { bytes } else { 0 };
        }
        let mut coming = 0;
        for part in me.uploadable() {
            if coming >= wanted {
                break;
            }
            if Arc::clone(&me).start(part) {
                coming += part.len();
            }
        }
        coming
    }
}

impl Draft {
    /// The parts that may lose their bytes, and whether the store has them up to date. The last part stays, if
    /// it is not full: what is appended to it needs its bytes.
    fn evictable(&self, state: &DraftState) -> Vec<(PartRange, bool)> {
        let size = state.size();
        let Some(layout) = state.layout else {
            // There is no upload. All that is elsewhere is in the version that the draft began with.
            return vec![(PartRange { number: 0, start: 0, end: size }, false)];
        };
        // What goes to the spool first can still be patched and read. What an upload to an earlier key has is uploaded
        // anew.
        let is_left = state.has_old_upload() && state.stored(0, size).is_none();
        let may_go = !self.has_spool() && !is_left;
        let mut parts: Vec<_> =
            state.part_states.idle().map(|part| (part, may_go && part.end <= size)).collect();
        let mut at = 0;
        while let Some(part) = layout.part_at(at).filter(|part| part.start < size) {
            if !state.part_states.is_current(part) {
                parts.push((part, false));
            }
            at = part.end;
        }
        parts
    }

    /// Parts with at least `wanted` bytes together that are in memory and not in the spool, and how many these
    /// are. The part of the last write comes last.
    fn spillable(&self, wanted: u64) -> (Vec<PartRange>, u64) {
        let state = self.state();
        let layout = self.layout(&state);
        let last = layout.part_at(state.frontier.saturating_sub(1));
        // What is sent where it lies is free soon.
        let is_sent = |part| state.part_states.is_claimed(part) && state.is_in_memory(part);
        let (mut parts, mut bytes, mut at) = (Vec::new(), 0, 0);
        while bytes < wanted
            && let Some(part) = layout.part_at(at).filter(|part| part.start < state.size())
        {
            at = part.end;
            let found = state.unspooled_bytes(part);
            if found > 0 && Some(part) != last && !is_sent(part) {
                parts.push(part);
                bytes += found;
            }
        }
        let last = last.filter(|last| bytes < wanted && !is_sent(*last));
        if let Some((last, found)) = last.map(|last| (last, state.unspooled_bytes(last)))
            && found > 0
        {
            parts.push(last);
            bytes += found;
        }
        (parts, bytes)
    }

    /// The parts that free memory when they are uploaded, and that nobody is going to change, as far as one can tell: of a
    /// file that is written from front to back, those before the last write. Of another, those that are in memory as a
    /// whole; the part of the last write comes last.
    fn uploadable(&self) -> Vec<PartRange> {
        let state = self.state();
        let layout = self.layout(&state);
        let end = if state.is_patched { state.size() } else { state.frontier.min(state.size()) };
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(part) = layout.part_at(at).filter(|part| part.end <= end) {
            let can_be_had = || match state.is_patched {
                true => state.is_in_memory(part),
                false => state.stored(part.start, part.end).is_none(),
            };
            if !state.part_states.is_current(part)
                && !state.part_states.is_claimed(part)
                && state.unspooled_bytes(part) > 0
                && can_be_had()
            {
                parts.push(part);
            }
            at = part.end;
        }
        let last = layout.part_at(state.frontier.saturating_sub(1));
        parts.sort_by_key(|part| Some(*part) == last);
        parts
    }
}
