//! Facts about names, each as of a moment.
//!
//! Answers come in any order, and a store may carry out a later request first. So an answer shows the state at some
//! moment between the request and the answer ([`Asked`]), and it is newer than another only if its request was sent
//! after the other answer had come. The order of two answers that overlap is unknown. If they differ, the name is in
//! doubt until the store is asked again.

use std::time::Duration;

use tokio::time::Instant;

use crate::name::Target;

/// When a request was sent, and when its answer came. For this mount's own changes, both are the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When the request was sent.
    pub sent: Instant,
    /// When the answer came.
    pub came: Instant,
}

impl Asked {
    /// This moment alone.
    pub fn at(moment: Instant) -> Self {
        Self { sent: moment, came: moment }
    }

    /// The times of a request that was `sent`, and whose answer comes now.
    pub fn since(sent: Instant) -> Self {
        Self { sent, came: Instant::now() }
    }

    fn is_moment(self) -> bool {
        self.sent == self.came
    }

    /// Whether the order of two answers is unknown. A change of this mount is later than all requests before it.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        !self.is_moment() && !other.is_moment() && self.sent < other.came && other.sent < self.came
    }

    /// The later of both times of sending, and of both times of arrival.
    pub(crate) fn later(self, other: Self) -> Self {
        Self { sent: self.sent.max(other.sent), came: self.came.max(other.came) }
    }
}

/// What a name refers to as of a moment.
#[derive(Debug)]
pub struct Fact<D> {
    /// `None`: nothing has this name.
    pub target: Option<Target<D>>,
    /// When the request for it was sent. The answer does not include later changes.
    pub at: Instant,
    /// How long it may be cached.
    pub left: Duration,
}
