//! What the kernel is told without having asked: names and pages that it must not use any more.
//!
//! To drop a name, the kernel takes the lock of its folder. A caller that waits for the answer to a look-up or
//! a READDIR in this folder holds the same lock. A notice that waits for the lock makes every later caller wait
//! behind it, inside the kernel, where no signal reaches them. So names are dropped only while no request of
//! their folder waits for the store.
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

/// The kernel's side of the mount.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    notifier: OnceLock<Notifier>,
    /// How many requests of a folder wait for the store while their callers hold its lock.
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
    /// Notices go this way from now on.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // It was empty until now: a mount has one session.
        drop(self.notifier.set(notifier));
    }

    fn held(&self) -> MutexGuard<'_, HashMap<INodeNo, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request of `folder` waits for the store.
    pub(crate) fn is_held(&self, folder: INodeNo) -> bool {
        self.held().contains_key(&folder)
    }

    /// Counts a request of `folder` as waiting, until the result is dropped.
    pub(crate) fn hold(self: &Arc<Self>, folder: INodeNo) -> Hold {
        *self.held().entry(folder).or_default() += 1;
        Hold { kernel: self.clone(), folder }
    }

    /// Resolves when the last request of a folder, from now on, waits no more.
    pub(crate) fn was_released(&self) -> Notified<'_> {
        self.was_released.notified()
    }

    /// Waits until no request of `folder` waits for the store; false if that takes until `deadline`.
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

    /// Makes the kernel drop these names of `folder` while nobody holds its lock. Returns the names that were
    /// not told of within `patience`.
    pub(crate) async fn drop_names(
        self: &Arc<Self>,
        folder: INodeNo,
        mut names: Vec<KnownName>,
        patience: Duration,
    ) -> Vec<KnownName> {
        let deadline = Instant::now() + patience;
        while !names.is_empty() && self.wait_for_release(folder, deadline).await {
            let kernel = self.clone();
            // Not in a thread of the runtime: the kernel may hold the lock for a moment all the same.
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

    /// Makes the kernel drop the pages of these bytes of an inode; a length of 0 is all of them. Not in a
    /// thread of the session or the runtime: the kernel waits for reads of these pages that are under way.
    pub(crate) fn drop_pages(&self, ino: INodeNo, offset: i64, len: i64) {
        if let Some(notifier) = self.notifier.get() {
            // An error says that the kernel has forgotten the inode by itself.
            drop(notifier.inval_inode(ino, offset, len));
        }
    }
}
