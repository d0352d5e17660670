//! One object version, and the places where its bytes may be.

use std::sync::Arc;

use s3mount_cache::DiskObject;
use s3mount_object::{ByteRange, ObjectId};
use s3mount_shared::SharedTier;

use crate::tiers::Tiers;

/// An object version that is being read.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) object: ObjectId,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// What the disk cache holds of it, if there is a disk cache.
    pub(crate) disk: Option<Arc<DiskObject>>,
    /// Whether there is a shared tier, whose blocks no GET crosses.
    pub(crate) has_blocks: bool,
}

impl Version {
    pub(crate) fn new(object: ObjectId, size: u64, tiers: &Tiers) -> Arc<Self> {
        let disk = tiers.on_disk(&object, size);
        Arc::new(Self { object, size, disk, has_blocks: tiers.shared.is_some() })
    }

    /// The end of the run of bytes from `at` on that come from one place, whichever that is.
    fn end_of_place(&self, at: u64) -> u64 {
        let run = self.disk.as_ref().map(|disk| disk.run(at));
        let is_on_disk = run.as_ref().is_some_and(|run| run.is_here);
        let block = if self.has_blocks && !is_on_disk { SharedTier::block_edge(at) } else { u64::MAX };
        run.map_or(block, |run| run.end.min(block))
    }

    /// The front of `range` that comes from one place: the disk, one block of the shared tier, or the store.
    pub(crate) fn front(&self, range: ByteRange) -> ByteRange {
        ByteRange::new(range.start(), self.end_of_place(range.start()).min(range.end()))
    }

    /// The piece of `range` around the byte `at` that comes from one place.
    pub(crate) fn around(&self, at: u64, range: ByteRange) -> ByteRange {
        if self.disk.is_none() && !self.has_blocks {
            return range;
        }
        let start = self.back(ByteRange::new(range.start(), at + 1)).start();
        ByteRange::new(start, self.front(ByteRange::new(at, range.end())).end())
    }

    /// The back of `range` that comes from one place.
    pub(crate) fn back(&self, range: ByteRange) -> ByteRange {
        let mut start = range.start();
        loop {
            let end = self.end_of_place(start);
            if end >= range.end() || end <= start {
                return ByteRange::new(start, range.end());
            }
            start = end;
        }
    }
}
