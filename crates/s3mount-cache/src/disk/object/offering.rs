//! The bytes of a version that readers offer to the disk, and what they know of it.

use bytes::Bytes;
use s3mount_object::ByteRange;

use super::DiskObject;
use crate::disk::blocks;
use crate::disk::metrics::Dropped;
use crate::disk::object::version::Offer;

impl DiskObject {
    /// Whether the disk would keep `bytes` more of the version: it is healthy, and has room. Evicts idle versions for
    /// that.
    pub async fn makes_room(&self, bytes: u64) -> bool {
        if !self.is_writable() {
            return false;
        }
        let dir = self.disk.dir.clone();
        let make = move || {
            let has_room = dir.room.reserve(bytes);
            if has_room {
                dir.room.give_back(bytes);
            }
            has_room
        };
        self.disk.readers.run(self.disk.dir.clock.now(), make).await.unwrap_or(false)
    }

    /// Whether the version's directory may be written now: it works, and was not found full a moment ago.
    pub fn is_writable(&self) -> bool {
        self.disk.dir.health.works()
    }

    /// Whether the write queue of the version's directory has room for `bytes` more, now.
    pub fn has_room_to_write(&self, bytes: u64) -> bool {
        self.disk.queue.has_room(bytes)
    }

    /// Whether the write queue of the version's directory is empty.
    pub fn is_idle(&self) -> bool {
        self.disk.queue.is_idle()
    }

    /// Whether the whole version is on the disk, and was compared with the store's checksum. Answers from memory, as
    /// [`run`](Self::run).
    pub fn is_compared(&self) -> bool {
        self.version.is_compared()
    }

    /// Notes that all bytes of the version were compared with the store's checksums, and that `crc` is their
    /// CRC-64/NVME. Once the version is whole on the disk, its CRC is compared with `crc`: without waiting for it, and
    /// without reading it.
    pub fn confirm(&self, crc: u64) {
        let version = self.version.clone();
        drop(self.disk.readers.run(self.disk.dir.clock.now(), move || version.confirm(crc)));
    }

    /// Offers the object's bytes at `range` to the disk. Never waits and does no I/O: they are written later, or
    /// dropped when too many wait, when the disk is not healthy, or when the cache is full.
    pub fn offer(&self, range: ByteRange, bytes: &Bytes) {
        self.offer_as(range, bytes, false);
    }

    /// As [`offer`](Self::offer), for bytes that were compared with a checksum of the store.
    pub fn offer_compared(&self, range: ByteRange, bytes: &Bytes) {
        self.offer_as(range, bytes, true);
    }

    fn offer_as(&self, range: ByteRange, bytes: &Bytes, is_compared: bool) {
        debug_assert_eq!(range.len(), bytes.len() as u64, "the bytes are those of the range");
        let blocks = blocks::covered(range, self.version.named.size);
        let (is_here, end) = self.version.run(range.start());
        if blocks.is_empty() || (is_here && end >= range.end()) {
            return;
        }
        let reason = if !self.disk.dir.health.may_write() {
            Some(Dropped::Disk)
        } else {
            let (version, bytes) = (self.version.clone(), bytes.clone());
            let given_up = version.given_up();
            let offer = Offer { version, range, bytes, is_compared, given_up };
            self.disk.queue.push(offer, range.len()).is_err().then_some(Dropped::Queue)
        };
        if let Some(reason) = reason {
            self.disk.dir.metrics.dropped_bytes.at(reason).add(range.len());
        }
    }
}
