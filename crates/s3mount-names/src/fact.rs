//! What is known of a name, and as of when.
//!
//! Answers come in any order, and a store may do what was asked for later first. So an answer tells what was so at some
//! moment between its request and itself ([`Asked`]), and it is newer than another only if it was asked for after the
//! other had come. Of two that overlap, and tell different things, nobody knows the order: the name is in doubt until
//! somebody asks again.

use std::time::Duration;

use tokio::time::Instant;

use crate::name::Target;

/// When a request was sent, and when its answer came. What this mount has made so itself has one moment.
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

    /// The answer to a request that was `sent` then has come just now.
    pub fn since(sent: Instant) -> Self {
        Self { sent, came: Instant::now() }
    }

    fn is_moment(self) -> bool {
        self.sent == self.came
    }

    /// Whether nobody knows which of two answers tells of a later moment. What this mount has made so is later than all
    /// that was asked for before.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        !self.is_moment() && !other.is_moment() && self.sent < other.came && other.sent < self.came
    }

    /// As late as the later of both, and as uncertain.
    pub(crate) fn later(self, other: Self) -> Self {
        Self { sent: self.sent.max(other.sent), came: self.came.max(other.came) }
    }
}

/// What a name stands for as of a moment.
#[derive(Debug)]
pub struct Fact<D> {
    /// `None`: nothing has this name.
    pub target: Option<Target<D>>,
    /// When the request was sent that told it. What has changed since, the answer does not know.
    pub at: Instant,
    /// How long it may be believed.
    pub left: Duration,
}
