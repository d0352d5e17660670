//! Files that the daemon before was writing.

use std::sync::Arc;

use super::Tables;
use crate::numbers::InodeNo;

/// A file that the daemon before was writing. Its bytes are lost.
#[derive(Debug)]
pub(super) struct LostDraft {
    pub(super) parent: InodeNo,
    pub(super) name: Arc<str>,
    /// Whether its name has to be looked up again.
    pub(super) is_outdated: bool,
}

impl Tables {
    /// Forgets those that no program has open. The daemon before may have had their FORGET.
    pub(super) fn forget_lost(&mut self) {
        let Some(handover) = self.handover.clone() else { return };
        let closed: Vec<_> = self.lost.keys().copied().filter(|ino| !handover.is_open(*ino)).collect();
        for ino in closed {
            self.lost.remove(&ino);
            self.record(ino);
        }
    }
}
