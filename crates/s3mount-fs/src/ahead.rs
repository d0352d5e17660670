//! Which files and directories are wanted next: what hints name, and what the order of opens lets guess.

pub(crate) mod hints;
pub(crate) mod sequence;
pub(crate) mod successors;
