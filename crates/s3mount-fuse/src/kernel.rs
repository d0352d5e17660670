//! Notices to the kernel: names and pages that it must not use any more.
//!
//! To drop a name, the kernel takes the lock of its folder. A caller that waits for the answer to a look-up or
//! a READDIR in this folder holds the same lock. A notice that waits for the lock makes every later caller wait
//! behind it, inside the kernel, where no signal reaches the callers. So names are dropped only while no
//! request of their folder waits for the store.
//!
//! A notice may wait inside the kernel all the same. So names and pages have a thread each, which nobody else
//! needs, and who must answer soon waits for them no longer than a deadline.
//!
//! `FUSE_NOTIFY_INC_EPOCH` (Linux 6.16) takes no lock, but it drops all names of the mount, and with them their
//! inodes and everything that the page cache holds.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use s3mount_fs::KnownName;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// How many notices of a kind may wait for their thread. Beyond that, the kernel is not told.
const MOST_WAITING: usize = 1024;

/// Sends notices to the kernel, at moments when they block nobody.
#[derive(Debug)]
pub(crate) struct Kernel {
    notifier: OnceLock<Notifier>,
    names: SyncSender<Names>,
    pages: SyncSender<Pages>,
    /// How many requests of a folder wait for the store. Their callers hold the folder's lock.
    held: Mutex<HashMap<INodeNo, usize>>,
    was_released: Notify,
}

/// Names of a folder that the kernel is to drop. `left` gets those that it was not told of.
#[derive(Debug)]
struct Names {
    folder: INodeNo,
    names: Vec<KnownName>,
    left: oneshot::Sender<Vec<KnownName>>,
}

/// Pages of an inode that the kernel is to drop. `done` is told when it has.
#[derive(Debug)]
struct Pages {
    ino: INodeNo,
    offset: i64,
    len: i64,
    done: oneshot::Sender<()>,
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

/// Has a thread tell what comes, until `kernel` is dropped.
fn start<T: Send + 'static>(
    name: &str,
    kernel: &Arc<Kernel>,
    come: Receiver<T>,
    tell: fn(&Kernel, T),
) -> io::Result<()> {
    let kernel = Arc::downgrade(kernel);
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        while let Ok(notice) = come.recv() {
            let Some(kernel) = kernel.upgrade() else { return };
            tell(&kernel, notice);
        }
    })?;
    Ok(())
}

impl Kernel {
    /// Starts the threads that tell the kernel.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let ((names, names_come), (pages, pages_come)) =
            (sync_channel(MOST_WAITING), sync_channel(MOST_WAITING));
        let (notifier, held, was_released) = Default::default();
        let kernel = Arc::new(Self { notifier, names, pages, held, was_released });
        start("drop-names", &kernel, names_come, Self::tell_names)?;
        start("drop-pages", &kernel, pages_come, Self::tell_pages)?;
        Ok(kernel)
    }

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
    /// kernel was not told of because somebody held it for longer than `patience`. The kernel itself may take as
    /// long as it likes: a caller that drops this future has it told all the same.
    pub(crate) async fn drop_names(
        &self,
        folder: INodeNo,
        mut names: Vec<KnownName>,
        patience: Duration,
    ) -> Vec<KnownName> {
        let deadline = Instant::now() + patience;
        while !names.is_empty() && self.wait_for_release(folder, deadline).await {
            let (left, told) = oneshot::channel();
            match self.names.try_send(Names { folder, names, left }) {
                Ok(()) => names = told.await.unwrap_or_default(),
                Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) => {
                    return refused.names;
                }
            }
        }
        names
    }

    /// Tells the kernel of names until somebody holds their folder.
    fn tell_names(&self, Names { folder, mut names, left }: Names) {
        while !self.is_held(folder)
            && let Some(known) = names.pop()
        {
            self.drop_name(folder, &known.name);
        }
        // It fails where nobody waits any more.
        let _ = left.send(names);
    }

    fn drop_name(&self, folder: INodeNo, name: &str) {
        if let Some(notifier) = self.notifier.get() {
            // An error says that the kernel does not know the name, or that the session has ended.
            drop(notifier.inval_entry(folder, OsStr::new(name)));
        }
    }

    /// Makes the kernel drop the pages of these bytes of an inode. A length of 0 stands for all bytes. The kernel
    /// waits for READs of these pages that are under way. The result tells when it has done so.
    pub(crate) fn drop_pages(&self, ino: INodeNo, offset: i64, len: i64) -> oneshot::Receiver<()> {
        let (done, told) = oneshot::channel();
        // If it is full, the result is an error at once.
        let _ = self.pages.try_send(Pages { ino, offset, len, done });
        told
    }

    fn tell_pages(&self, Pages { ino, offset, len, done }: Pages) {
        if let Some(notifier) = self.notifier.get() {
            // An error says that the kernel has already forgotten the inode.
            drop(notifier.inval_inode(ino, offset, len));
        }
        let _ = done.send(());
    }
}
