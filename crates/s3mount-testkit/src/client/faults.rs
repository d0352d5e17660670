//! What goes wrong with the requests to the client in memory.

use s3mount_object::ErrorKind;

use super::{MemoryClient, State};
use crate::random::mix;

/// Each request meets each kind of fault by chance.
#[derive(Debug, Default)]
pub(super) struct Chances {
    share: f64,
    seed: u64,
    drawn: u64,
    /// How many answers are lost next.
    lost: usize,
}

impl Chances {
    fn strikes(&mut self) -> bool {
        if self.share <= 0.0 {
            return false;
        }
        self.drawn += 1;
        (mix(self.seed ^ mix(self.drawn)) >> 11) as f64 / ((1_u64 << 53) as f64) < self.share
    }
}

impl State {
    /// What goes wrong with the next request before it is done.
    pub(super) fn failure(&mut self) -> Option<ErrorKind> {
        let told = self.fails_all.clone().or_else(|| self.failures.pop_front());
        let kinds = [ErrorKind::Server, ErrorKind::Throttled, ErrorKind::Network];
        told.or_else(|| kinds.into_iter().find(|_| self.chances.strikes()))
    }

    /// What becomes of the answer to a request that changes something, once it is done: it is lost, is cut off, or
    /// says that the store has failed.
    pub(super) fn lost_answer(&mut self) -> Option<ErrorKind> {
        if self.chances.lost > 0 {
            self.chances.lost -= 1;
            return Some(ErrorKind::Network);
        }
        let kinds = [ErrorKind::Network, ErrorKind::Integrity, ErrorKind::Server];
        kinds.into_iter().find(|_| self.chances.strikes())
    }
}

impl MemoryClient {
    /// Makes each of the next requests fail with one of these kinds of errors, in this order.
    pub fn fail_next(&self, kinds: impl IntoIterator<Item = ErrorKind>) {
        self.lock().failures.extend(kinds);
    }

    /// Makes each request fail with this kind of error, or none any more.
    pub fn fail_all(&self, kind: Option<ErrorKind>) {
        self.lock().fails_all = kind;
    }

    /// From now on, this `share` of the requests fails by each of these: 500, 503, a reset before it is done; and if it
    /// changes something, after it is done: the answer is lost, is cut off, or says 500. `seed` chooses them.
    pub fn fail_by_chance(&self, share: f64, seed: u64) {
        self.lock().chances = Chances { share, seed, ..Chances::default() };
    }

    /// The answers to the next `count` requests that change something are lost, once that is done.
    pub fn lose_next(&self, count: usize) {
        self.lock().chances.lost = count;
    }
}
