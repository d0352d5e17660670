//! Closed files that wait, and what daemons that were killed leave of them.

use std::sync::{Arc, PoisonError};

use s3mount_outbox::SimulatedDisk;

use super::{Begin, LIVES, Place, SimMount};

impl Place {
    pub(super) fn outbox(&self) -> Option<Arc<SimulatedDisk>> {
        self.outbox.as_ref().map(|disk| disk.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// What a daemon that is killed leaves on the outbox's disk.
    pub(super) fn leave_outbox(&self) {
        if let Some(outbox) = &self.outbox {
            let mut disk = outbox.lock().unwrap_or_else(PoisonError::into_inner);
            *disk = Arc::new(disk.left());
            if self.plan.loses_power {
                disk.cut(|len| self.draw.below(len as u64 + 1) as usize);
            }
        }
    }

    /// The mount of the next daemon, with what those before have left.
    pub(super) async fn mount_anew(&self, number: usize) -> SimMount {
        let outbox = self.outbox();
        if outbox.is_some() {
            // What waits there says what the daemons before have seen.
            self.store.pass_all_on(|before| before % (LIVES / 8) == self.number, number);
        }
        let disks = self.disks(outbox.as_ref());
        SimMount::new((&self.store, number), &self.plan, self.draw.clone(), disks, Begin::Alone).await
    }

    /// Has all that waits uploaded, unless the daemon dies before. Returns whether it lives.
    pub async fn flush(&self) -> bool {
        let (mount, life) = (self.mount(), self.life());
        if !life.1 {
            return false;
        }
        tokio::select! {
            biased;
            _ = self.life.wait_for(|now| now != life) => false,
            () = mount.fs.flush_outbox() => self.life() == life,
        }
    }

    /// A daemon mounts, uploads what the one before has left in the outbox, and ends. Returns how many files the store has
    /// refused.
    ///
    /// # Panics
    /// When the machine has no memory, or no room for journals.
    pub async fn upload_left(&self) -> u64 {
        if self.outbox.is_none() {
            return 0;
        }
        let number = self.number + LIVES * (self.life().0 as usize + 1) + LIVES / 4;
        let between = self.mount_anew(number).await;
        between.fs.flush_outbox().await;
        let refused = between.fs.metrics().outbox_failed.get();
        between.fs.end_writes().await;
        between.client.die();
        between.kernel.kill();
        refused
    }
}
