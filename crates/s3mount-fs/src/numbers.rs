//! Numbers that the kernel and the filesystem exchange.

/// Number of an inode.
pub type InodeNo = u64;

/// The root's number, by FUSE's rule.
pub const ROOT: InodeNo = 1;

/// The first number that a directory or an object may have. Those between the root's and this one belong to
/// the daemon's own files.
pub(crate) const FIRST_FREE: InodeNo = 16;
