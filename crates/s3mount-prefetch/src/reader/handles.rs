//! The handles of an open version, and which of its bytes stay when the last handle is closed.

use super::ObjectReader;
use super::state::{Handles, ReaderState};
use super::waiter::Waiter;
use crate::ReadError;
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
        let mut unwanted = Vec::new();
        if !may_go_on || !goes_on {
            self.note_reading(state, true);
            unwanted = state.drop_unread();
            self.count_active(state);
        }
        self.list(state);
        drop(guard);
        // The kernel has had their answers, so nobody hears of this one.
        self.fail(unwanted, &ReadError::TimedOut(self.shared.config.read_timeout));
        self.shared.backfill_queue.on_close(&self.version, is_reopened);
        may_go_on
    }

    /// Notes that the version is also read without a handle: the last one that is closed says nothing of these reads.
    pub fn read_without_handle(&self) {
        self.lock().state.handles.are_not_all = true;
    }
}

impl ReaderState {
    /// Drops the segments of streams and random reads, and returns the reads that have waited for any segment. Those are of
    /// programs that were killed. Where reads come without a handle, they go on, with the segments that they wait for.
    fn drop_unread(&mut self) -> Vec<Waiter> {
        self.sweep();
        let has_more = self.handles.are_not_all;
        let unwanted =
            self.segments.iter_mut().filter(|_| !has_more).flat_map(Segment::take_waiters).collect();
        let is_unread = |segment: &&Segment<Waiter>| !segment.purpose.stays_unread() && !segment.is_awaited();
        let unread: Vec<SegmentKey> = self.segments.iter().filter(is_unread).map(Segment::key).collect();
        unread.into_iter().for_each(|part| self.drop_part(part));
        self.streams.rest(|_| true);
        unwanted
    }
}
