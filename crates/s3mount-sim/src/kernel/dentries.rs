//! The dentry cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::inode::Inode;

/// A name that the kernel knows.
#[derive(Clone, Debug)]
pub(super) struct Dentry {
    /// Its number: a name that was dropped and found again is another.
    pub(super) number: u64,
    pub(super) dir: Arc<Inode>,
    /// Unset if there is nothing of this name.
    pub(super) inode: Option<Arc<Inode>>,
    /// Until when the name is believed (`fuse_dentry_time`).
    pub(super) believed_until: Option<Instant>,
}

pub(super) type Key = (u64, String);

/// All names that the kernel knows.
#[derive(Debug, Default)]
pub(super) struct Dentries {
    pub(super) known: BTreeMap<Key, Dentry>,
    /// Names that are being looked up (`d_alloc_parallel`).
    pub(super) under_way: BTreeSet<Key>,
    pub(super) was_found: Arc<Notify>,
    pub(super) next_number: u64,
}

impl Dentries {
    /// Drops all names. The caller drops their inodes without the lock.
    pub(super) fn take_all(&mut self) -> Vec<Arc<Inode>> {
        std::mem::take(&mut self.known).into_values().filter_map(|dentry| dentry.inode).collect()
    }

    /// Drops a name, and those below it (`d_invalidate`).
    pub(super) fn drop_name(&mut self, key: &Key, dropped: &mut Vec<Dentry>) {
        let Some(dentry) = self.known.remove(key) else { return };
        if let Some(dir) = dentry.inode.as_ref().filter(|inode| inode.is_dir) {
            let first = (dir.number.0, String::new());
            let below: Vec<_> =
                self.known.range(first..).take_while(|(key, _)| key.0 == dir.number.0).collect();
            let below: Vec<Key> = below.into_iter().map(|(key, _)| key.clone()).collect();
            below.iter().for_each(|key| self.drop_name(key, dropped));
        }
        dropped.push(dentry);
    }
}
