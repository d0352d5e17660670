//! What the kernel does not know yet to be outdated.

use std::collections::BTreeMap;

use crate::numbers::InodeNo;

/// What the kernel does not know yet to be outdated.
#[derive(Debug, Default)]
pub(super) struct Untold {
    /// Inodes by directory.
    pub(super) inodes: BTreeMap<InodeNo, Vec<InodeNo>>,
    /// Names by directory that this daemon has not given the kernel. A daemon before may have.
    pub(super) names: BTreeMap<InodeNo, Vec<Box<str>>>,
    /// Whether the kernel is being told of some that are not here any more.
    pub(super) is_telling: bool,
}
