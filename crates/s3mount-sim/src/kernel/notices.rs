//! What the daemon asks of the kernel (`mount.rs` and `kernel.rs` of s3mount-fuse): names and pages that it must not use
//! any more, and files that it has to forget.

use std::sync::{Arc, Weak};
use std::time::Duration;

use s3mount_fs::{InodeNo, KnownName};
use tokio::time::Instant;

use super::cache::page_of;
use super::common::lock;
use super::core::Kernel;
use super::daemon::Daemon;
use super::daemon::service::Service;

/// How long a file that the kernel has to forget waits for the lock of its folder, and how long to wait before the next
/// look at what it knows.
const OLDEST_PATIENCE: Duration = Duration::from_millis(200);
const FORGET_PAUSE: Duration = Duration::from_millis(200);

/// Starts the tasks that send notices.
pub(super) fn listen(kernel: &Arc<Kernel>) {
    let daemon = kernel.daemon.clone();
    let task = drop_stale_names(Arc::downgrade(kernel), daemon.clone());
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = daemon.died() => {}
            () = task => {}
        }
    });
    listen_to_service(kernel);
}

/// Starts those of the daemon that serves the mount now.
pub(super) fn listen_to_service(kernel: &Arc<Kernel>) {
    let (daemon, service) = (kernel.daemon.clone(), kernel.daemon.service());
    spawn(&service, tell_outdated(Arc::downgrade(kernel), daemon, service.clone()));
    spawn(&service, forget_oldest(Arc::downgrade(kernel), service.clone()));
    spawn(&service, drop_refused_pages(Arc::downgrade(kernel), service.clone()));
}

fn spawn(service: &Arc<Service>, task: impl Future<Output = ()> + Send + 'static) {
    let service = service.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = service.died() => {}
            () = task => {}
        }
    });
}

/// `tell_outdated`
async fn tell_outdated(kernel: Weak<Kernel>, daemon: Arc<Daemon>, service: Arc<Service>) {
    loop {
        let was_released = daemon.was_released();
        while let Some((folder, names)) = service.fs.take_outdated(|folder| !daemon.is_held(folder)) {
            let Some(kernel) = kernel.upgrade() else { return };
            let left = kernel.drop_names(folder, names, Instant::now()).await;
            service.fs.put_back_outdated(folder, &left);
        }
        tokio::select! {
            biased;
            () = service.fs.wait_for_outdated() => {}
            () = was_released => {}
        }
    }
}

/// `forget_oldest`
async fn forget_oldest(kernel: Weak<Kernel>, service: Arc<Service>) {
    loop {
        let mut oldest: Vec<_> = service.fs.oldest().await.into_iter().collect();
        oldest.sort_by_key(|(folder, _)| *folder);
        for (folder, names) in oldest {
            let Some(kernel) = kernel.upgrade() else { return };
            drop(kernel.drop_names(folder, names, Instant::now() + OLDEST_PATIENCE).await);
        }
        tokio::time::sleep(FORGET_PAUSE).await;
    }
}

/// `drop_pages`
async fn drop_refused_pages(kernel: Weak<Kernel>, service: Arc<Service>) {
    loop {
        let (ino, range) = service.fs.refused_pages().await;
        let Some(kernel) = kernel.upgrade() else { return };
        if range.len() > 0 {
            kernel.drop_pages(ino, range.start(), range.end() - 1).await;
        }
    }
}

/// `fail_read`
async fn drop_stale_names(kernel: Weak<Kernel>, daemon: Arc<Daemon>) {
    let Some(mut drops) = daemon.take_drops() else { return };
    while let Some(wanted) = drops.recv().await {
        let Some(kernel) = kernel.upgrade() else { return };
        tokio::spawn(async move {
            drop(kernel.drop_names(wanted.folder, wanted.names, wanted.deadline).await);
            // The reader may be gone.
            let _heard = wanted.done.send(());
        });
    }
}

impl Kernel {
    /// Drops names of a folder while nobody holds its lock. Returns those that it could not be told of until the
    /// deadline.
    async fn drop_names(
        &self,
        folder: InodeNo,
        mut names: Vec<KnownName>,
        deadline: Instant,
    ) -> Vec<KnownName> {
        while !names.is_empty() && self.is_released(folder, deadline).await {
            while let Some(known) = names.pop() {
                self.drop_name(folder, &known.name).await;
                if self.daemon.is_held(folder) {
                    break;
                }
            }
        }
        names
    }

    async fn is_released(&self, folder: InodeNo, deadline: Instant) -> bool {
        loop {
            let was_released = self.daemon.was_released();
            if !self.daemon.is_held(folder) {
                return true;
            }
            if tokio::time::timeout_at(deadline, was_released).await.is_err() {
                return false;
            }
        }
    }

    /// What the next daemon tells of files whose bytes were lost with the one before (`take_over`).
    pub(crate) fn drop_unsaved(self: &Arc<Self>, inodes: impl IntoIterator<Item = InodeNo>) {
        let (kernel, mut inodes) = (Arc::downgrade(self), inodes.into_iter().collect::<Vec<_>>());
        inodes.sort_unstable();
        spawn(&self.daemon.service(), async move {
            for ino in inodes {
                let Some(kernel) = kernel.upgrade() else { return };
                kernel.drop_pages(ino, 0, u64::MAX).await;
            }
        });
    }

    /// `fuse_reverse_inval_entry`
    async fn drop_name(&self, folder: InodeNo, name: &str) {
        self.daemon.pause().await;
        let Some(dir) = lock(&self.inodes).get(&folder.0).and_then(Weak::upgrade) else { return };
        let _alone = dir.rwsem.write().await;
        if self.expire(&dir, name) {
            dir.note_listing_changed();
        }
    }

    /// `fuse_reverse_inval_inode`
    async fn drop_pages(&self, ino: InodeNo, first: u64, last: u64) {
        self.daemon.pause().await;
        let Some(inode) = lock(&self.inodes).get(&ino.0).and_then(Weak::upgrade) else { return };
        {
            let mut state = inode.state();
            state.attr_version = self.next_attr_version();
            state.stale = super::inode::stale::ALL;
        }
        inode.drop_pages(page_of(first), page_of(last)).await;
    }
}
