//! What the machine tells and does: mounts, FUSE's helper, the terminal.

pub(crate) mod connections;
pub(crate) mod fusermount;
pub(crate) mod mounts;
pub(crate) mod open_files;
pub(crate) mod terminal;
