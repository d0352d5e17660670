//! The commands other than `mount`.

pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod cleanup;
pub(crate) mod cp;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod stats;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod tune;
pub(crate) mod umount;
pub(crate) mod warm;
