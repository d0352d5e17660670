//! Where bytes are looked for before the store is asked.

use s3mount_cache::DiskCache;
use s3mount_object::ObjectId;
use s3mount_shared::SharedTier;

/// The places between the memory and the store, the nearest first. None of them has to be there.
#[derive(Clone, Debug, Default)]
pub struct Tiers {
    /// A disk of this machine.
    pub disk: Option<DiskCache>,
    /// A bucket near the machines of a fleet.
    pub shared: Option<SharedTier>,
}

impl Tiers {
    /// How many bytes wait to be written to any of them.
    pub(crate) fn held_bytes(&self) -> u64 {
        let disk = self.disk.as_ref().map_or(0, DiskCache::held_bytes);
        disk + self.shared.as_ref().map_or(0, SharedTier::held_bytes)
    }

    /// Whether nothing waits to be written to any of them, but for a disk that hangs.
    pub(crate) fn are_idle(&self) -> bool {
        self.disk.as_ref().is_none_or(DiskCache::is_idle)
            && self.shared.as_ref().is_none_or(|shared| shared.held_bytes() == 0)
    }

    /// Drops bytes that wait to be written, until some `bytes` are given back.
    pub(crate) fn shed(&self, bytes: u64) {
        let shed = self.shared.as_ref().map_or(0, |shared| shared.shed(bytes));
        if let Some(disk) = self.disk.as_ref().filter(|_| shed < bytes) {
            disk.shed(bytes - shed);
        }
    }

    /// Wrong bytes of a version came: what is there of it is not used any more.
    pub(crate) fn distrust(&self, object: &ObjectId) {
        if let Some(disk) = &self.disk {
            disk.forget(object);
        }
        if let Some(shared) = &self.shared {
            shared.distrust(object);
        }
    }
}
