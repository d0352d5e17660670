//! What a reader does when wrong bytes of its object came.

use super::ObjectReader;
use super::waiter::Waiter;
use crate::ReadError;

impl ObjectReader {
    /// Drops everything of this version, because wrong bytes of it came and readers may have seen them. When
    /// two threads find that out at once, the second waits for the first.
    pub(super) fn condemn(&self, error: &ReadError) {
        let mut waiters = Vec::new();
        self.condemned.get_or_init(|| waiters = self.drop_all(error));
        for waiter in waiters {
            self.shared.metrics.read_wait.note_time(waiter.since.elapsed());
            (waiter.reply)(Err(error.clone()));
        }
    }

    fn drop_all(&self, error: &ReadError) -> Vec<Waiter> {
        let (key, version) = (self.object().key(), self.object().etag());
        tracing::error!(key, %version, %error, "wrong bytes came: the object is dropped from all caches");
        // This comes before any reader gets the error, so that a reader that opens the object again gets a
        // new one.
        self.readers.replace(self.object());
        self.shared.condemn(self.object());
        let state = &mut self.lock().state;
        let waiters = state.condemn(error);
        self.count_active(state);
        waiters
    }
}
