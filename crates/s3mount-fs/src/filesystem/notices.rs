//! Notices to the kernel: names that have changed, and files that it has to forget.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use s3mount_metrics::{ChangeEvent, Event};
use s3mount_names::Told;

use super::Filesystem;
use super::open_file::OpenFile;
use crate::numbers::InodeNo;
use crate::tree::inode::{KnownName, Node};

/// How long to wait before another search for files to forget, when all files that the kernel knows are in use.
const ALL_IN_USE: Duration = Duration::from_secs(1);

impl Filesystem {
    /// Forgets the name of an inode, because its version is gone. Returns the inode's directory and its name there.
    pub(super) fn forget_name(&self, ino: InodeNo) -> Option<(InodeNo, Arc<str>)> {
        let (parent, name) = self.inodes.outdate_version(ino)?;
        if let Some(Node::Directory(prefix)) = self.inodes.node(parent) {
            self.namespace.forget(&prefix, &name);
        }
        Some((parent, name))
    }

    /// Takes in that the store has told of a change of the object `key`: its names are looked up again.
    pub fn was_told(&self, key: &str, told: Told<'_>) {
        if self.namespace.was_told(key, told) {
            self.instruments.metrics.told_changes.add(1);
        }
    }

    /// Has the kernel drop the names of `key` once more: an answer from before [`was_told`](Self::was_told) may have been on
    /// its way.
    pub fn drop_again(&self, key: &str) {
        self.namespace.drop_again(key);
    }

    /// Passes a change on in `.s3mount/changes`, once the kernel has dropped its names. Those that the mount does not show are
    /// left out.
    pub fn pass_on(&self, change: ChangeEvent) {
        if change.key.starts_with(&*self.config.prefix) {
            self.instruments.changes.note(&Event::Change(change));
        }
    }

    /// Waits until more names may have another inode than the kernel knows. Only one caller may wait at a time.
    pub async fn wait_for_outdated(&self) {
        self.inodes.wait_for_outdated().await;
    }

    /// Whether the kernel has to drop names, and was not told of all of them yet.
    pub fn has_outdated(&self) -> bool {
        self.inodes.has_outdated()
    }

    /// Takes names that the kernel has to drop, because they have changed. All are of one directory for which `is_free`
    /// holds.
    pub fn take_outdated(&self, is_free: impl Fn(InodeNo) -> bool) -> Option<(InodeNo, Vec<KnownName>)> {
        self.inodes.take_outdated(is_free)
    }

    /// Takes back names of which the kernel could not be told.
    pub fn put_back_outdated(&self, directory: InodeNo, names: &[KnownName]) {
        self.inodes.put_back(directory, names);
    }

    /// Waits until the kernel knows too many files. Returns the files to forget, by directory: the oldest that are not
    /// in use.
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
            OpenFile::Draft(open) => Some(open.ino),
            OpenFile::Snapshot(_)
            | OpenFile::Events(_)
            | OpenFile::Hints(_)
            | OpenFile::Keep(_)
            | OpenFile::Settable(..)
            | OpenFile::Lost(_) => None,
        })
    }
}
