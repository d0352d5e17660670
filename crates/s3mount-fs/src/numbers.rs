//! Numbers that the kernel and the filesystem exchange. Each has a type, so that none is taken for another.

use std::fmt;

/// The number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeNo(pub u64);

impl InodeNo {
    /// The number of a file in the marks of its writes.
    pub(crate) fn in_marks(self) -> u32 {
        (self.0 ^ self.0 >> 32) as u32
    }
}

/// The number of an open file, or of an open directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// The kernel's number of a request. A request that comes again has the same. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A place between two names of an open directory. The first is [`DirOffset::START`]; each name has the place after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirOffset(pub u64);

impl DirOffset {
    /// The place before the first name.
    pub const START: Self = Self(0);

    /// The place after `.` and `..`, which come before all other names.
    pub const AFTER_DOTS: Self = Self(2);
}

/// The root's number, by FUSE's rule.
pub const ROOT: InodeNo = InodeNo(1);

/// The first number that a directory or an object may have. Numbers between the root's and this one belong to the
/// daemon's own files.
pub(crate) const FIRST_FREE: InodeNo = InodeNo(16);

impl fmt::Display for InodeNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
