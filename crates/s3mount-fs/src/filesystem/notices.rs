//! What the kernel is to be told by itself: names that stand for something else, and files that it is to
//! forget.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::Filesystem;
use super::open_file::OpenFile;
use crate::inode::{KnownName, Node};
use crate::numbers::InodeNo;

/// How long nothing is looked for that the kernel could forget, when all it knows is in use.
const ALL_IN_USE: Duration = Duration::from_secs(1);

impl Filesystem {
    /// Forgets what stands for the name of an inode, as its version is gone. Returns its directory and its
    /// name there.
    pub(super) fn forget_name(&self, ino: InodeNo) -> Option<(InodeNo, Arc<str>)> {
        let (parent, name) = self.inodes.outdate_version(ino)?;
        if let Some(Node::Directory(prefix)) = self.inodes.node(parent) {
            self.namespace.forget(&prefix, &name);
        }
        Some((parent, name))
    }

    /// Waits until the names of more inodes may stand for something else than the kernel was given. For one
    /// caller at a time.
    pub async fn wait_for_outdated(&self) {
        self.inodes.wait_for_outdated().await;
    }

    /// Takes names of which the kernel is to be told that they stand for something else: some of one
    /// directory for which `is_free` holds.
    pub fn take_outdated(&self, is_free: impl Fn(InodeNo) -> bool) -> Option<(InodeNo, Vec<KnownName>)> {
        self.inodes.take_outdated(is_free)
    }

    /// Takes names back of which the kernel could not be told.
    pub fn put_back_outdated(&self, directory: InodeNo, names: &[KnownName]) {
        self.inodes.put_back(directory, names);
    }

    /// Waits until the kernel knows too many files, and gives some, by directory, that it is to forget: the
    /// oldest of those that are not in use.
    pub async fn oldest(&self) -> HashMap<InodeNo, Vec<KnownName>> {
        loop {
            self.inodes.wait_for_too_many().await;
            let open = self.open_inodes();
            let oldest = self.inodes.oldest(|ino| open.contains(&ino));
            if !oldest.is_empty() {
                return oldest;
            }
            tokio::time::sleep(ALL_IN_USE).await;
        }
    }

    fn open_inodes(&self) -> HashSet<InodeNo> {
        self.files.filter_map(|file| match file {
            OpenFile::Object(open) => Some(open.ino),
            OpenFile::Snapshot(_) | OpenFile::Hints(_) => None,
        })
    }
}
