//! The filesystem that serves a mount, until its daemon dies.

use std::sync::Arc;

use s3mount_fs::Filesystem;

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
