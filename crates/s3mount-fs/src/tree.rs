//! The tree that the kernel knows: inodes, and the locks of names that are being changed.

pub(crate) mod inode;
pub(crate) mod tree_locks;
