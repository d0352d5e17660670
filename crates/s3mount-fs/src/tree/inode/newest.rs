//! The newest inode of each name.

use std::hash::BuildHasher as _;

use super::{InodeNo, Tables, hash_of};

impl Tables {
    /// Makes `ino` the newest inode of this name.
    pub(super) fn set_newest(&mut self, ino: InodeNo, parent: InodeNo, name: &str) {
        self.remove_newest(parent, name);
        let hash = self.hasher.hash_one((parent, name));
        let Self { directories, versions, drafts, by_name, hasher, .. } = self;
        by_name.insert_unique(hash, ino, |ino| hash_of(*ino, directories, versions, drafts, hasher));
    }

    pub(super) fn remove_newest(&mut self, parent: InodeNo, name: &str) {
        let Some(ino) = self.newest(parent, name) else { return };
        let hash = self.hasher.hash_one((parent, name));
        if let Ok(entry) = self.by_name.find_entry(hash, |known| *known == ino) {
            entry.remove();
        }
        self.record(ino);
    }

    /// Whether a directory lies in this `parent`, and not in another one that had its number before: one that the kernel has
    /// forgotten may be kept longer than the directory around it.
    pub(super) fn is_below(&self, ino: InodeNo, parent: InodeNo) -> bool {
        match (self.directories.get(&ino), self.directories.get(&parent)) {
            (Some(known), Some(above)) => {
                let rest = known.prefix.strip_prefix(&*above.prefix).and_then(|rest| rest.strip_suffix('/'));
                rest == Some(&*known.name)
            }
            _ => true,
        }
    }
}
