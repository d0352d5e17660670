//! What is known of a name, and as of when.
//!
//! Answers come in any order. So a fact carries the time at which its request was sent, or at which this mount made it
//! true, and replaces only an older one.

use std::time::Duration;

use tokio::time::Instant;

use super::names::Target;

/// What a name stands for as of a moment.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    /// `None`: nothing has this name.
    pub(crate) target: Option<Target>,
    /// When the request was sent that told it. What has changed since, the answer does not know.
    pub(crate) at: Instant,
    /// How long it may be believed.
    pub(crate) left: Duration,
}
