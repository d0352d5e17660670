//! Where bytes are looked for before the store is asked.

use std::sync::Arc;

use globset::GlobSet;
use s3mount_cache::{DiskCache, DiskObject};
use s3mount_object::ObjectId;
use s3mount_shared::SharedTier;

/// The places between the memory and the store, the nearest first. None of them has to be there.
#[derive(Clone, Debug, Default)]
pub struct Tiers {
    /// A disk of this machine.
    pub disk: Option<DiskCache>,
    /// Which objects are kept on the disk.
    pub kept: KeyFilter,
    /// A bucket near the machines of a fleet.
    pub shared: Option<SharedTier>,
}

/// Which objects are meant, by the part of their keys behind the prefix of a mount. By default all are.
#[derive(Clone, Debug, Default)]
pub struct KeyFilter {
    prefix: String,
    include: GlobSet,
    exclude: GlobSet,
}

impl KeyFilter {
    /// The objects below `prefix` that one of `include` matches (all, if that is empty), less those that one of `exclude`
    /// matches.
    pub fn new(prefix: &str, include: GlobSet, exclude: GlobSet) -> Self {
        Self { prefix: prefix.to_owned(), include, exclude }
    }

    /// Whether the object of this key is meant.
    pub fn has(&self, key: &str) -> bool {
        let path = key.strip_prefix(&*self.prefix).unwrap_or(key);
        (self.include.is_empty() || self.include.is_match(path)) && !self.exclude.is_match(path)
    }
}

impl Tiers {
    /// What the disk cache holds of a version of `size` bytes, if it is kept there.
    pub(crate) fn on_disk(&self, object: &ObjectId, size: u64) -> Option<Arc<DiskObject>> {
        let disk = self.disk.as_ref().filter(|_| self.kept.has(object.key()))?;
        Some(disk.object(object, size))
    }

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
