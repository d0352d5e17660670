//! What is known of a daemon that has died.

use std::collections::BTreeSet;

/// What the next daemon goes on with of what was being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoesOn {
    /// Nothing.
    Nothing,
    /// Files whose bytes are all stored.
    Stored,
    /// All files, but for those that were renamed, or copied to, while they were written.
    All,
}

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
    /// Those files that were written since.
    pub(super) written: BTreeSet<usize>,
    /// Names that may stand for anything since, and the change that says so.
    pub(super) names: Vec<(String, usize)>,
    pub(super) folders: Vec<(String, usize)>,
}
