//! Has requests to the client in memory fail.

use s3mount_object::ErrorKind;

use super::MemoryClient;

impl MemoryClient {
    /// Makes each of the next requests fail with one of these kinds of errors, in this order.
    pub fn fail_next(&self, kinds: impl IntoIterator<Item = ErrorKind>) {
        self.lock().faults.next.extend(kinds);
    }

    /// Makes each request fail with this kind of error, or none any more.
    pub fn fail_all(&self, kind: Option<ErrorKind>) {
        self.lock().faults.all = kind;
    }

    /// From now on, this `share` of the requests fails by each of these: 500, 503, a reset before it is done; and if it
    /// changes something, after it is done: the answer is lost, is cut off, or says 500. `seed` chooses them.
    pub fn fail_by_chance(&self, share: f64, seed: u64) {
        self.lock().faults.set_chance(share, seed);
    }

    /// The answers to the next `count` requests that change something are lost, once that is done.
    pub fn lose_next(&self, count: usize) {
        self.lock().faults.lost = count;
    }
}
