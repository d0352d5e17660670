//! The handles of an open version, and which of its bytes stay when the last handle is closed.

use super::ObjectReader;
use super::state::{Handles, ReaderState};
use super::waiter::Waiter;
use crate::reader::segment::{Segment, SegmentKey};

impl ObjectReader {
    /// Notes that a handle was opened.
    pub(crate) fn on_open(&self) {
        self.lock().state.handles.open();
    }

    /// Notes that a handle was closed. If it was the last one, gives back the bytes ahead of the streams, unless a
    /// program reopens the file again and again to continue where it stopped. Returns whether to remember the reader
    /// for the next handle.
    pub(crate) fn on_close(&self) -> bool {
        let mut guard = self.lock();
        let state = &mut guard.state;
        state.handles.open -= 1;
        if state.handles.open > 0 {
            return false;
        }
        state.handles.was_closed = true;
        let Handles { is_reopened, goes_on, .. } = state.handles;
        let may_go_on = !self.is_small() && state.stale.is_none() && state.streams.may_go_on();
        if !may_go_on || !goes_on {
            self.note_reading(state, true);
            state.drop_unread();
            self.count_active(state);
        }
        self.list(state);
        drop(guard);
        self.shared.backfill_queue.on_close(&self.version, is_reopened);
        may_go_on
    }
}

impl ReaderState {
    /// Drops the segments of streams and random reads, except those that a read waits for.
    fn drop_unread(&mut self) {
        self.sweep();
        let is_unread = |segment: &&Segment<Waiter>| !segment.purpose.stays_unread() && !segment.is_awaited();
        let unread: Vec<SegmentKey> = self.segments.iter().filter(is_unread).map(Segment::key).collect();
        unread.into_iter().for_each(|part| self.drop_part(part));
        self.streams.rest(|_| true);
    }
}
