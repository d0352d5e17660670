//! Reading what the disk holds of a version.

use std::time::Duration;

use bytes::Bytes;
use s3mount_object::{ByteRange, PartBuffer};

use super::{DiskObject, Run};

impl DiskObject {
    /// Whether the byte at `offset` is on the disk, and where the run of bytes with that answer ends. From
    /// memory, without I/O. Before [`look`](Self::look), nothing is there, and nothing while the disk is not read.
    pub fn run(&self, offset: u64) -> Run {
        if !self.disk.dir.health.may_read() {
            return Run { is_here: false, end: self.version.named.size };
        }
        let (is_here, end) = self.version.run(offset);
        Run { is_here, end }
    }

    /// The first bytes of `range` that are not on the disk. From memory, as [`run`](Self::run).
    pub fn first_missing(&self, range: ByteRange) -> Option<ByteRange> {
        let mut at = range.start();
        while at < range.end() {
            let run = self.run(at);
            if !run.is_here {
                return Some(ByteRange::new(at, run.end.min(range.end())));
            }
            at = run.end;
        }
        None
    }

    /// Whether the source is to be asked for `range`, which the disk may hold, and how long: the disk is slow. Where it
    /// is not known how long the source takes, one read after a late one asks it.
    pub fn asks_source(&self, range: ByteRange, is_source_known: bool) -> Option<Duration> {
        let health = &self.disk.dir.health;
        if !health.may_begin() || !self.version.may_have(range) {
            return None;
        }
        health.slow.asks_source(is_source_known)
    }

    /// The source did not bring in time what the disk holds: the disk is read again.
    pub fn on_source_slow(&self) {
        self.disk.dir.health.slow.on_source_slow();
    }

    /// Reads `range` into the front of `into`, which is at least that long, and compares it with its
    /// checksums. [Looks](Self::look) first if nobody has. A disk that takes several times as long as the `source`,
    /// if that is known, is not read for a while.
    ///
    /// # Errors
    /// When not all of the range is on the disk, or it can't be read, or its bytes are wrong. That gives the
    /// buffer back, unless a read that hangs still writes to it.
    pub async fn read<B: PartBuffer>(
        &self,
        range: ByteRange,
        source: Option<Duration>,
        into: B,
    ) -> Result<Bytes, Option<B>> {
        if !self.version.may_have(range) || !self.disk.dir.health.slow.admit() {
            return Err(Some(into));
        }
        self.read_anyway(range, source, into).await
    }

    /// As [`read`](Self::read), though the disk may be slow.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_anyway<B: PartBuffer>(
        &self,
        range: ByteRange,
        source: Option<Duration>,
        mut into: B,
    ) -> Result<Bytes, Option<B>> {
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let is_inside = range.end() <= self.version.named.size && 0 < len && len <= into.as_ref().len();
        if !is_inside || !self.version.may_have(range) || !self.disk.dir.health.may_begin() {
            return Err(Some(into));
        }
        let (disk, version) = (self.disk.clone(), self.version.clone());
        let answer = self.disk.readers.run(self.disk.dir.clock.now(), move || {
            // Who waits for a thread waits for other readers, and not for the disk.
            let began = disk.dir.clock.now();
            let is_read = version.read(range, &mut into.as_mut()[..len]);
            if is_read {
                let took = disk.dir.clock.now().since(began);
                disk.dir.health.slow.note(range.len(), took, source);
            }
            disk.check_later(&version);
            if is_read { Ok(into) } else { Err(into) }
        });
        match answer.await {
            Ok(Ok(into)) => Ok(Bytes::from_owner(into).slice(..len)),
            Ok(Err(into)) => Err(Some(into)),
            Err(_) => Err(None),
        }
    }
}
