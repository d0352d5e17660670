//! The tree that the kernel knows: inodes, and the locks for changes of names.

pub(crate) mod inode;
pub(crate) mod tree_locks;
