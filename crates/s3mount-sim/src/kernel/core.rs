//! The kernel's side of one mount: what it knows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use s3mount_fs::Attr;

use super::common::{KernelConfig, lock};
use super::daemon::Daemon;
use super::dentries::Dentries;
use super::inode::Inode;
use super::record::Call;

/// The kernel's side of one mount.
#[derive(Debug)]
pub struct Kernel {
    pub(super) daemon: Arc<Daemon>,
    pub(super) config: KernelConfig,
    pub(super) inodes: Mutex<BTreeMap<u64, Weak<Inode>>>,
    pub(super) dentries: Mutex<Dentries>,
    pub(super) root: Arc<Inode>,
    /// `fuse_conn.attr_version`: counts what may change attributes, so that an older answer is not taken for a newer.
    pub(super) attr_version: Arc<AtomicU64>,
}

impl Kernel {
    /// The daemon dies: calls under way and all later ones end with `ENOTCONN`, and nothing calls the filesystem any more.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// The daemon dies, and another is to take over: calls wait for it.
    pub fn lose_daemon(&self) {
        self.daemon.lose();
    }

    /// How many files, and directories, the filesystem may have open that the kernel does not know of: the daemon that
    /// has opened them has died before it could answer.
    pub fn leaks(&self) -> [u64; 2] {
        self.daemon.leaks()
    }

    /// Waits until so many more requests were sent.
    pub async fn wait_for_requests(&self, count: u64) {
        self.daemon.wait_for_requests(count).await;
    }

    /// Files and directories that are open for the filesystem.
    pub fn open_handles(&self) -> usize {
        self.daemon.open_handles()
    }

    /// How many files were opened that are read without the daemon.
    pub fn passed_files(&self) -> u64 {
        self.daemon.passed()
    }

    /// The requests so far, if they are recorded.
    pub fn calls(&self) -> Vec<Call> {
        self.daemon.record().calls()
    }

    /// The kernel wants memory: it drops the names that nobody uses, and with them their inodes and pages.
    pub fn drop_caches(&self) {
        let dropped = lock(&self.dentries).take_all();
        drop(dropped);
    }

    pub(super) fn next_attr_version(&self) -> u64 {
        self.attr_version.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `fuse_get_attr_version`
    pub(super) fn attr_version(&self) -> u64 {
        self.attr_version.load(Ordering::Relaxed)
    }
}

impl Kernel {
    /// The inode that an answer has given (`fuse_iget`).
    pub(super) async fn inode_of(&self, attr: Attr, version: u64) -> Arc<Inode> {
        let known = lock(&self.inodes).get(&attr.ino.0).and_then(Weak::upgrade);
        let inode = known.unwrap_or_else(|| {
            let inode = Inode::new(attr, self.daemon.clone(), self.attr_version.clone());
            lock(&self.inodes).insert(attr.ino.0, Arc::downgrade(&inode));
            inode
        });
        inode.state().lookups += 1;
        inode.take_attr(attr, version).await;
        inode
    }
}
