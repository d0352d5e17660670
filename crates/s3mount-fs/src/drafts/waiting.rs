//! Drafts whose bytes wait in the outbox.

use super::DraftFile;
use crate::behind::InOutbox;

impl DraftFile {
    /// Its entry in the outbox, if it has one.
    pub(crate) fn in_outbox(&self) -> Option<InOutbox> {
        self.lock().waiting
    }

    /// Notes its entry, or that it has none. Returns the one that it had.
    pub(crate) fn set_in_outbox(&self, entry: Option<InOutbox>) -> Option<InOutbox> {
        std::mem::replace(&mut self.lock().waiting, entry)
    }

    /// Whether the outbox has all of its changes.
    pub(crate) fn waits(&self) -> bool {
        let state = self.lock();
        state.waiting.is_some() && state.draft.is_resting()
    }
}
