//! Writes the offered bytes of a version, and counts why others are dropped.

use super::{Offer, Version};
use crate::disk::io::health;
use crate::disk::metrics::Dropped;

impl Version {
    /// Writes the offered bytes.
    pub(crate) fn keep(&self, offer: &Offer) {
        let mut kept = self.try_keep(offer);
        if kept.as_ref().is_err_and(health::is_full) && self.dir.room.make_way(offer.range.len()) {
            kept = self.try_keep(offer);
        }
        let dropped = match kept {
            Ok(None) => return,
            Ok(Some(reason)) => reason,
            Err(error) if health::is_too_long(&error) => {
                self.on_too_long();
                Dropped::Long
            }
            Err(error) => {
                self.dir.health.on_error("write", &error);
                Dropped::Disk
            }
        };
        self.dir.metrics.dropped_bytes.at(dropped).add(offer.range.len());
    }

    /// Notes that the file system has no files of this length.
    fn on_too_long(&self) {
        if !std::mem::replace(&mut self.state().is_too_long, true) {
            let (dir, key) = (self.dir.layout.root().display(), self.named.object.key());
            tracing::warn!(
                %dir, key, bytes = self.named.size,
                "the object is longer than a file can be on the disk of the cache, so it is not kept there"
            );
        }
    }
}
