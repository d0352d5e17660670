//! What a reader does when its object can no longer be read: wrong bytes of it came, or the store says that the version
//! is gone.

use super::ObjectReader;
use super::state::ReaderState;
use super::waiter::Waiter;
use crate::ReadError;

impl ObjectReader {
    /// Drops everything of this version, because wrong bytes of it came and readers may have seen them. When two
    /// threads notice this at once, the second waits for the first.
    pub(super) fn quarantine(&self, error: &ReadError) {
        let mut waiters = Vec::new();
        self.quarantined.get_or_init(|| waiters = self.drop_all(error));
        self.fail(waiters, error);
    }

    /// Notes that a GET of a read that waited alone has failed. Drops everything if the version can no longer be read.
    pub(super) fn note_end(&self, error: &ReadError) {
        if error.is_corrupt() {
            self.quarantine(error);
        } else if error.is_stale() {
            let waiters = {
                let state = &mut self.lock().state;
                let waiters = self.bury(state, error);
                self.count_active(state);
                waiters
            };
            self.fail(waiters, error);
        }
    }

    /// Drops everything, because the version is gone. Returns the reads that wait. The next open of the version gets a
    /// new reader, which asks the store: the store's answer may have been wrong.
    pub(super) fn bury(&self, state: &mut ReaderState, error: &ReadError) -> Vec<Waiter> {
        // The state is locked, so no reader gets the error before this.
        self.readers.replace(self.object(), &self.me);
        state.invalidate(error)
    }

    fn drop_all(&self, error: &ReadError) -> Vec<Waiter> {
        let (key, version) = (self.object().key(), self.object().etag());
        tracing::error!(key, %version, %error, "wrong bytes came: the object is dropped from all caches");
        // This comes before any reader gets the error, so that a reader that opens the object again gets a
        // new one.
        self.shared.ledgers.forget(self.object());
        self.readers.replace(self.object(), &self.me);
        self.shared.quarantine(self.object());
        let state = &mut self.lock().state;
        let waiters = state.invalidate(error);
        self.count_active(state);
        waiters
    }
}
