//! Notices to the kernel: names and pages that it must not use any more.
//!
//! To drop a name, the kernel takes the lock of its folder. A caller that waits for the answer to a look-up or
//! a READDIR in this folder holds the same lock. A notice that waits for the lock makes every later caller wait
//! behind it, inside the kernel, where no signal reaches the callers. So names are dropped only while no
//! request of their folder waits for the store.
//!
//! `FUSE_NOTIFY_INC_EPOCH` (Linux 6.16) takes no lock, but it drops all names of the mount, and with them their
//! inodes and everything that the page cache holds.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use s3mount_fs::KnownName;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// Sends notices to the kernel, at moments when they block nobody.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    notifier: OnceLock<Notifier>,
    /// How many requests of a folder wait for the store. Their callers hold the folder's lock.
    held: Mutex<HashMap<INodeNo, usize>>,
    was_released: Notify,
}

/// A request that waits for the store while its caller holds the lock of `folder`.
#[derive(Debug)]
pub(crate) struct Hold {
    kernel: Arc<Kernel>,
    folder: INodeNo,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.kernel.held();
        let is_last = held.get_mut(&self.folder).is_none_or(|count| {
            *count -= 1;
            *count == 0
        });
        if is_last {
            held.remove(&self.folder);
            drop(held);
            self.kernel.was_released.notify_waiters();
        }
    }
}

impl Kernel {
    /// Sends notices through `notifier` from now on.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // It was empty until now, because a mount has one session.
        drop(self.notifier.set(notifier));
    }

    fn held(&self) -> MutexGuard<'_, HashMap<INodeNo, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request of `folder` waits for the store.
    pub(crate) fn is_held(&self, folder: INodeNo) -> bool {
        self.held().contains_key(&folder)
    }

    /// Counts a request of `folder` as waiting for the store until the [`Hold`] is dropped.
    pub(crate) fn hold(self: &Arc<Self>, folder: INodeNo) -> Hold {
        *self.held().entry(folder).or_default() += 1;
        Hold { kernel: self.clone(), folder }
    }

    /// Resolves when, from now on, the last request of some folder has stopped waiting for the store.
    pub(crate) fn was_released(&self) -> Notified<'_> {
        self.was_released.notified()
    }

    /// Waits until no request of `folder` waits for the store. Returns false when `deadline` passes before.
    async fn wait_for_release(&self, folder: INodeNo, deadline: Instant) -> bool {
        loop {
            let was_released = self.was_released();
            if !self.is_held(folder) {
                return true;
            }
            if tokio::time::timeout_at(deadline, was_released).await.is_err() {
                return false;
            }
        }
    }

    /// Makes the kernel drop these names of `folder` while nobody holds its lock. Returns the names that the
    /// kernel was not told of within `patience`.
    pub(crate) async fn drop_names(
        self: &Arc<Self>,
        folder: INodeNo,
        mut names: Vec<KnownName>,
        patience: Duration,
    ) -> Vec<KnownName> {
        let deadline = Instant::now() + patience;
        while !names.is_empty() && self.wait_for_release(folder, deadline).await {
            let kernel = self.clone();
            // This is a blocking task, because the kernel may hold the lock for a moment all the same.
            let told = tokio::task::spawn_blocking(move || {
                while let Some(known) = names.pop() {
                    kernel.drop_name(folder, &known.name);
                    if kernel.is_held(folder) {
                        break;
                    }
                }
                names
            });
            names = told.await.unwrap_or_default();
        }
        names
    }

    fn drop_name(&self, folder: INodeNo, name: &str) {
        if let Some(notifier) = self.notifier.get() {
            // An error says that the kernel does not know the name, or that the session has ended.
            drop(notifier.inval_entry(folder, OsStr::new(name)));
        }
    }

    /// Makes the kernel drop the pages of these bytes of an inode. A length of 0 stands for all bytes. The
    /// kernel waits for READs of these pages that are under way, so a thread of the session or of the runtime
    /// must not call this.
    pub(crate) fn drop_pages(&self, ino: INodeNo, offset: i64, len: i64) {
        if let Some(notifier) = self.notifier.get() {
            // An error says that the kernel has already forgotten the inode.
            drop(notifier.inval_inode(ino, offset, len));
        }
    }
}
