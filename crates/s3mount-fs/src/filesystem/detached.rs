//! Names that have just got another inode.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::numbers::InodeNo;
use crate::sync::{Mutex, lock};

/// How long an open may take from the look-up that gave it another inode.
const LOOKED_UP: Duration = Duration::from_secs(10);

/// Names that have just got another inode, each for one program that opens it next.
#[derive(Debug, Default)]
pub(super) struct Detached(Mutex<HashMap<(InodeNo, Arc<str>), Instant>>);

impl Detached {
    /// Notes that a name has just got another inode.
    pub(super) fn note(&self, parent: InodeNo, name: &Arc<str>) {
        let mut names = lock(&self.0);
        names.retain(|_, since| since.elapsed() < LOOKED_UP);
        names.insert((parent, name.clone()), Instant::now());
    }

    /// Whether a name has just got another inode.
    pub(super) fn has(&self, parent: InodeNo, name: &Arc<str>) -> bool {
        let names = lock(&self.0);
        names.get(&(parent, name.clone())).is_some_and(|since| since.elapsed() < LOOKED_UP)
    }

    /// As [`has`](Self::has), for the one program.
    pub(super) fn take(&self, parent: InodeNo, name: &Arc<str>) -> bool {
        let since = lock(&self.0).remove(&(parent, name.clone()));
        since.is_some_and(|since| since.elapsed() < LOOKED_UP)
    }
}
