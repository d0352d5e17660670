//! The handles that have the version open: what stays of it when the last one is closed.

use super::ObjectReader;
use super::state::State;
use super::waiter::Waiter;
use crate::segment::{Segment, SegmentKey};

impl ObjectReader {
    /// A handle was opened.
    pub(crate) fn on_open(&self) {
        let handles = &mut self.lock().state.handles;
        handles.is_reopened |= handles.open == 0 && handles.was_closed;
        handles.open += 1;
    }

    /// A handle was closed. If it was the last one, what is ahead of the streams is given back, unless the
    /// file is opened again and again. Returns whether the reader is to be remembered for the next handle.
    pub(crate) fn on_close(&self) -> bool {
        let mut guard = self.lock();
        let state = &mut guard.state;
        state.handles.open -= 1;
        if state.handles.open > 0 {
            return false;
        }
        state.handles.was_closed = true;
        let is_reopened = state.handles.is_reopened;
        let may_go_on = !self.is_small() && state.stale.is_none() && state.streams.may_go_on();
        if !may_go_on || !is_reopened {
            self.note_reading(state, true);
            state.drop_unread();
            self.count_active(state);
        }
        self.list(state);
        drop(guard);
        self.shared.refills.on_close(&self.version, is_reopened);
        may_go_on
    }
}

impl State {
    /// Drops what was fetched for streams and random reads, but not what anybody waits for.
    fn drop_unread(&mut self) {
        self.sweep();
        let is_unread = |segment: &&Segment<Waiter>| !segment.purpose.stays_unread() && !segment.is_awaited();
        let unread: Vec<SegmentKey> = self.segments.iter().filter(is_unread).map(Segment::key).collect();
        unread.into_iter().for_each(|part| self.drop_part(part));
        self.streams.rest(|_| true);
    }
}
