//! One object version, and the places where its bytes may be.

use std::sync::Arc;

use s3mount_cache::{DiskCache, DiskObject};
use s3mount_object::{ByteRange, ObjectId};

/// An object version that is being read.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) object: ObjectId,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// What the disk cache holds of it, if there is a disk cache.
    pub(crate) disk: Option<Arc<DiskObject>>,
}

impl Version {
    pub(crate) fn new(object: ObjectId, size: u64, disk: Option<&DiskCache>) -> Arc<Self> {
        let disk = disk.map(|disk| disk.object(&object, size));
        Arc::new(Self { object, size, disk })
    }

    /// The front of `range` that comes from one place, the disk or the store.
    pub(crate) fn front(&self, range: ByteRange) -> ByteRange {
        let Some(disk) = &self.disk else { return range };
        ByteRange::new(range.start(), disk.run(range.start()).end.min(range.end()))
    }

    /// The piece of `range` around the byte `at` that comes from one place.
    pub(crate) fn around(&self, at: u64, range: ByteRange) -> ByteRange {
        if self.disk.is_none() {
            return range;
        }
        let start = self.back(ByteRange::new(range.start(), at + 1)).start();
        ByteRange::new(start, self.front(ByteRange::new(at, range.end())).end())
    }

    /// The back of `range` that comes from one place, the disk or the store.
    pub(crate) fn back(&self, range: ByteRange) -> ByteRange {
        let Some(disk) = &self.disk else { return range };
        let mut start = range.start();
        loop {
            let end = disk.run(start).end;
            if end >= range.end() || end <= start {
                return ByteRange::new(start, range.end());
            }
            start = end;
        }
    }
}
