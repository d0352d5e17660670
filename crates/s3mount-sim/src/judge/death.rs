//! What is known of a daemon that has died.

use std::collections::BTreeSet;

/// A daemon that has died.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) at: u64,
    /// When all was done that it had sent.
    pub(super) settled: u64,
    /// Files that were being written.
    pub(super) lost: BTreeSet<usize>,
    /// Open files that wrote them, by their number.
    pub(super) writers: BTreeSet<usize>,
    /// Names that may stand for anything since, and the change that says so.
    pub(super) names: Vec<(String, usize)>,
    pub(super) folders: Vec<(String, usize)>,
}
