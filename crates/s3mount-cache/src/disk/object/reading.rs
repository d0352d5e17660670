//! Reading what the disk holds of a version.

use std::time::Duration;

use bytes::Bytes;
use s3mount_object::{ByteRange, PartBuffer};

use super::{DiskObject, Run};

impl DiskObject {
    /// Whether the byte at `offset` is on the disk, and the end of the run of bytes for which that is the same. Answers
    /// from memory, without I/O. Before [`look`](Self::look), and while the disk is not read, every byte is missing.
    pub fn run(&self, offset: u64) -> Run {
        if !self.disk.dir.health.may_read() {
            return Run { is_here: false, end: self.version.named.size };
        }
        let (is_here, end) = self.version.run(offset);
        Run { is_here, end }
    }

    /// The first bytes of `range` that are not on the disk. Answers from memory, as [`run`](Self::run).
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

    /// Whether to ask the source for `range`, which the disk may hold, and for how long: the disk is slow. If the time
    /// that the source takes is unknown, one read after a late one asks it.
    pub fn asks_source(&self, range: ByteRange, is_source_known: bool) -> Option<Duration> {
        let health = &self.disk.dir.health;
        if !health.may_begin() || !self.version.may_have(range) {
            return None;
        }
        health.slow.asks_source(is_source_known)
    }

    /// Reads the disk again: the source was too slow for bytes that the disk holds.
    pub fn on_source_slow(&self) {
        self.disk.dir.health.slow.on_source_slow();
    }

    /// Reads `range` into the front of `into`, which is at least that long, and compares it with its
    /// checksums. [Looks](Self::look) first if that was not done. A disk that takes several times as long as the
    /// `source`, if that is known, is not read for a while.
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
            // The clock starts here, because a wait for a thread is a wait for other readers, not for the disk.
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
