//! The flags, and what `--help` says of them.

pub mod access;
pub mod age;
pub(crate) mod foreign;
pub mod journal;
pub mod mount;
pub(crate) mod mount_s3;
pub(crate) mod nearest;
pub(crate) mod options;
pub(crate) mod places;
pub(crate) mod preset;
pub(crate) mod row;
pub mod size;
pub(crate) mod ttl;
mod values;
pub(crate) mod writing;
