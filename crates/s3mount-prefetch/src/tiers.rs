//! The places to try before the store.

use std::sync::Arc;

use globset::GlobSet;
use s3mount_cache::{DiskCache, DiskObject};
use s3mount_object::ObjectId;
use s3mount_shared::SharedTier;

/// The places between the memory and the store, the nearest first. Each is optional.
#[derive(Clone, Debug, Default)]
pub struct Tiers {
    /// A disk of this machine.
    pub disk: Option<DiskCache>,
    /// The objects to keep on the disk.
    pub kept: KeyFilter,
    /// A bucket near the machines of a fleet.
    pub shared: Option<SharedTier>,
}

/// Selects objects by the part of their keys behind the prefix of a mount. The default selects all.
#[derive(Clone, Debug, Default)]
pub struct KeyFilter {
    prefix: String,
    include: GlobSet,
    exclude: GlobSet,
}

impl KeyFilter {
    /// Selects the objects below `prefix` that a glob in `include` matches (all, if it is empty), except those that a
    /// glob in `exclude` matches.
    pub fn new(prefix: &str, include: GlobSet, exclude: GlobSet) -> Self {
        Self { prefix: prefix.to_owned(), include, exclude }
    }

    /// Whether the filter selects the object of this key.
    pub fn has(&self, key: &str) -> bool {
        let path = key.strip_prefix(&*self.prefix).unwrap_or(key);
        (self.include.is_empty() || self.include.is_match(path)) && !self.exclude.is_match(path)
    }
}

impl Tiers {
    /// The disk cache's object for a version of `size` bytes, if the filter selects it.
    pub(crate) fn on_disk(&self, object: &ObjectId, size: u64) -> Option<Arc<DiskObject>> {
        let disk = self.disk.as_ref().filter(|_| self.kept.has(object.key()))?;
        Some(disk.object(object, size))
    }

    /// The bytes that wait to be written to any tier.
    pub(crate) fn held_bytes(&self) -> u64 {
        let disk = self.disk.as_ref().map_or(0, DiskCache::held_bytes);
        disk + self.shared.as_ref().map_or(0, SharedTier::held_bytes)
    }

    /// Whether no bytes wait to be written to any tier, except to a disk that hangs.
    pub(crate) fn are_idle(&self) -> bool {
        self.disk.as_ref().is_none_or(DiskCache::is_idle)
            && self.shared.as_ref().is_none_or(|shared| shared.held_bytes() == 0)
    }

    /// Drops bytes that wait to be written, until about `bytes` are given back.
    pub(crate) fn shed(&self, bytes: u64) {
        let shed = self.shared.as_ref().map_or(0, |shared| shared.shed(bytes));
        if let Some(disk) = self.disk.as_ref().filter(|_| shed < bytes) {
            disk.shed(bytes - shed);
        }
    }

    /// Stops using the tiers' bytes of a version, because wrong bytes of it came.
    pub(crate) fn distrust(&self, object: &ObjectId) {
        if let Some(disk) = &self.disk {
            disk.forget(object);
        }
        if let Some(shared) = &self.shared {
            shared.distrust(object);
        }
    }
}
