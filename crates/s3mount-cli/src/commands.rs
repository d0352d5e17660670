//! The commands beside the mount itself.

pub(crate) mod bench;
pub(crate) mod tune;
pub(crate) mod umount;
pub(crate) mod warm;
