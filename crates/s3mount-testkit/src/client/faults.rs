//! What goes wrong with the requests to the client in memory.

use std::collections::VecDeque;

use s3mount_object::ErrorKind;

use crate::random::mix;

/// What is to go wrong: told beforehand, or by chance.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Of the next requests, in this order.
    pub(super) next: VecDeque<ErrorKind>,
    /// Of all requests.
    pub(super) all: Option<ErrorKind>,
    /// How many answers are lost next.
    pub(super) lost: usize,
    share: f64,
    seed: u64,
    drawn: u64,
}

impl Faults {
    /// Each request meets each kind of fault in this `share` of all cases.
    pub(super) fn set_chance(&mut self, share: f64, seed: u64) {
        (self.share, self.seed, self.drawn, self.lost) = (share, seed, 0, 0);
    }

    fn strikes(&mut self) -> bool {
        if self.share <= 0.0 {
            return false;
        }
        self.drawn += 1;
        (mix(self.seed ^ mix(self.drawn)) >> 11) as f64 / ((1_u64 << 53) as f64) < self.share
    }

    /// What goes wrong with the next request before it is done.
    pub(super) fn failure(&mut self) -> Option<ErrorKind> {
        let told = self.all.clone().or_else(|| self.next.pop_front());
        let kinds = [ErrorKind::Server, ErrorKind::Throttled, ErrorKind::Network];
        told.or_else(|| kinds.into_iter().find(|_| self.strikes()))
    }

    /// What becomes of the answer to a request that changes something, once it is done: it is lost, is cut off, or
    /// says that the store has failed.
    pub(super) fn lost_answer(&mut self) -> Option<ErrorKind> {
        if self.lost > 0 {
            self.lost -= 1;
            return Some(ErrorKind::Network);
        }
        let kinds = [ErrorKind::Network, ErrorKind::Integrity, ErrorKind::Server];
        kinds.into_iter().find(|_| self.strikes())
    }
}
