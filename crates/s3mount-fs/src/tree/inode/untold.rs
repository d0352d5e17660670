//! What the kernel does not know yet to be outdated.

use std::collections::BTreeMap;

use crate::numbers::InodeNo;

/// What the kernel does not know yet to be outdated.
#[derive(Debug, Default)]
pub(super) struct Untold {
    /// Inodes by directory.
    pub(super) inodes: BTreeMap<InodeNo, Vec<InodeNo>>,
    /// Names by directory: those that this daemon has not given the kernel, and a daemon before may have, and all if the
    /// store tells of changes.
    pub(super) names: BTreeMap<InodeNo, Vec<Box<str>>>,
    /// Whether the store tells of changes. The kernel may then have a name with an inode that has got it by a rename since,
    /// or is marked already, so it is told of the name whatever inode it has.
    pub(super) is_by_name: bool,
    /// Whether the kernel is being told of some that are not here any more.
    pub(super) is_telling: bool,
}
