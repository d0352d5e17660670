//! The flags, and what `--help` says of them.

pub(crate) mod access;
pub(crate) mod age;
pub(crate) mod foreign;
pub(crate) mod journal;
pub(crate) mod mount;
pub(crate) mod nearest;
pub(crate) mod options;
pub(crate) mod preset;
pub(crate) mod size;
pub(crate) mod ttl;
pub(crate) mod writing;
