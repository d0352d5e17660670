//! The filesystem that serves a mount, until its daemon dies.

use std::sync::Arc;

use s3mount_fs::Filesystem;

use super::Daemon;
use super::modes::Modes;
use crate::watched::Watched;

/// One daemon, from its begin to its death.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) fs: Arc<Filesystem>,
    pub(super) modes: Modes,
    is_dead: Watched<bool>,
}

impl Service {
    pub(super) fn new(fs: Arc<Filesystem>) -> Self {
        Self { fs, modes: Modes::default(), is_dead: Watched::new(false) }
    }

    pub(super) fn die(&self) {
        self.is_dead.set(true);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.get()
    }

    /// Resolves when the daemon has died.
    pub(crate) async fn died(&self) {
        self.is_dead.wait_for(|is_dead| is_dead).await;
    }
}

/// A request that one daemon has.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) daemon: Arc<Daemon>,
    pub(super) service: Arc<Service>,
    /// A daemon before had it, and may have done it (`FUSE_UNIQUE_RESEND`).
    pub(super) is_resent: bool,
}

impl Turn {
    pub(super) fn fs(&self) -> Arc<Filesystem> {
        self.service.fs.clone()
    }

    /// Between what the filesystem has done and its answer, the daemon may die.
    pub(super) async fn pause_before_answer(&self) {
        if self.fs().handover().is_some() && self.daemon.happens(300) {
            self.daemon.pause().await;
        }
    }

    /// Does the work, and comes to the answer.
    pub(super) async fn answer<T>(&self, work: impl Future<Output = T>) -> T {
        let made = work.await;
        self.pause_before_answer().await;
        made
    }
}
