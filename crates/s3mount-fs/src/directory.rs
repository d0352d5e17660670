//! Directories that are open, and those that are listed ahead of a walk.

pub(crate) mod list_ahead;
pub(crate) mod open_directory;
