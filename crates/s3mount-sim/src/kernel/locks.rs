//! Locks of files, which the kernel keeps by itself: the mount asks for none of them.

use std::sync::Mutex;

use tokio::sync::Notify;

use super::common::lock;

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// `flock`: an open file description.
    File(u64),
    /// `fcntl`: a process.
    Process(u32),
}

/// The locks of one inode, each on the whole file.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    held: Mutex<Vec<(Owner, bool)>>,
    changed: Notify,
}

impl FileLocks {
    /// Takes a lock, alone or together with others, if nobody is in the way. `flock` and `fcntl` do not see each other.
    pub(super) fn try_take(&self, owner: Owner, is_alone: bool) -> bool {
        let mut held = lock(&self.held);
        let is_kin = |other: &Owner| matches!(other, Owner::File(_)) == matches!(owner, Owner::File(_));
        let conflicts =
            held.iter().any(|(other, alone)| *other != owner && is_kin(other) && (is_alone || *alone));
        if conflicts {
            return false;
        }
        held.retain(|(other, _)| *other != owner);
        held.push((owner, is_alone));
        true
    }

    /// Takes a lock once nobody is in the way.
    pub(super) async fn take(&self, owner: Owner, is_alone: bool) {
        loop {
            let changed = self.changed.notified();
            if self.try_take(owner, is_alone) {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn release(&self, owner: Owner) {
        lock(&self.held).retain(|(other, _)| *other != owner);
        self.changed.notify_waiters();
    }

    pub(super) fn release_of_file(&self, handle: u64) {
        self.release(Owner::File(handle));
    }
}
