//! Where a reader meets an object that is not what the store keeps.

use super::ObjectReader;
use super::state::State;
use super::waiter::Waiter;
use crate::ReadError;
use crate::segment::{Segment, State as SegmentState};

impl ObjectReader {
    /// Has what no reader has seen of an object that is not what the store keeps fetched again, with the
    /// segment at `start`, which has just landed: the wrong bytes may be there. Returns `false` when
    /// that was tried before.
    pub(super) fn mend(&self, state: &mut State, start: u64, error: &ReadError) -> bool {
        let Some(verifier) = &self.verifier else { return false };
        let Some(wrong) = verifier.may_mend(error) else { return false };
        let is_unseen = |segment: &&Segment<Waiter>| {
            let may_be_wrong = segment.range.start() < wrong.end() && wrong.start() < segment.range.end();
            matches!(segment.state, SegmentState::Ready(_))
                && !segment.is_begun()
                && (may_be_wrong || segment.range.start() == start)
        };
        let unseen: Vec<_> =
            state.segments.iter().filter(is_unseen).map(|segment| (segment.range, segment.id)).collect();
        let segments = unseen.len();
        tracing::warn!(object = ?self.object, %error, segments, "fetching again what was not read yet");
        for (range, id) in unseen {
            // Bytes that came before, and that a reader may have seen then, stay counted. The others are
            // not, so they have to come again, whatever lies beside them.
            verifier.forget(range);
            state.segments.remove(range.start(), id);
            state.streams.unplan(range);
        }
        true
    }

    /// Drops everything of this version, because wrong bytes of it came and readers may have seen them.
    /// Where two find that out, the second waits for the first.
    pub(super) fn condemn(&self, error: &ReadError) {
        let mut waiters = Vec::new();
        self.condemned.get_or_init(|| waiters = self.drop_all(error));
        for waiter in waiters {
            (waiter.reply)(Err(error.clone()));
        }
    }

    fn drop_all(&self, error: &ReadError) -> Vec<Waiter> {
        let (key, version) = (self.object.key(), self.object.etag());
        tracing::error!(key, %version, %error, "wrong bytes came: the object is dropped from all caches");
        // Before a reader hears of it, and opens the object again.
        self.shared.condemn(&self.object);
        let mut state = self.lock();
        let waiters = state.condemn(error);
        self.count_active(&mut state);
        waiters
    }
}
