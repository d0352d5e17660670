//! One version of an object: what the disk holds of it, as this process knows. All of this blocks.
//!
//! **Lock order:** `looking`, then `state`. No file is touched while `state` is held.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use s3mount_object::ByteRange;

use crate::disk::blocks;
use crate::disk::dir::Dir;
use crate::disk::metrics::{Dropped, Found};
use crate::disk::read::{Fault, Source};
use crate::disk::whole::{self, Named, Whole};

/// What the disk holds of a version.
#[derive(Clone, Debug)]
enum Held {
    /// Nobody has looked.
    Unknown,
    Nothing,
    Whole(Arc<Whole>),
}

/// Bytes of the store that are kept: see [`DiskObject::offer`](crate::DiskObject::offer).
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) version: Arc<Version>,
    pub(crate) range: ByteRange,
    pub(crate) bytes: Bytes,
}

/// One version of an object.
#[derive(Debug)]
pub(crate) struct Version {
    dir: Arc<Dir>,
    pub(crate) named: Named,
    /// Held by the one who finds out what is there.
    looking: Mutex<()>,
    state: Mutex<Held>,
}

impl Version {
    pub(crate) fn new(dir: Arc<Dir>, named: Named) -> Self {
        Self { dir, named, looking: Mutex::default(), state: Mutex::new(Held::Unknown) }
    }

    fn state(&self) -> MutexGuard<'_, Held> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> Held {
        self.state().clone()
    }

    /// Whether anybody has looked.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(*self.state(), Held::Unknown)
    }

    /// Whether the byte at `offset` is here, and where the run of bytes with that answer ends.
    pub(crate) fn run(&self, offset: u64) -> (bool, u64) {
        let is_here = offset < self.named.size && matches!(*self.state(), Held::Whole(_));
        (is_here, self.named.size)
    }

    /// Whether all of `range` is here, or nobody has looked.
    pub(crate) fn may_have(&self, range: ByteRange) -> bool {
        !self.is_known() || self.run(range.start()) == (true, self.named.size)
    }

    /// The file of the whole object, if the kernel may have it.
    pub(crate) fn whole_file(&self) -> Option<Arc<File>> {
        match &*self.state() {
            Held::Whole(whole) if whole.is_trusted() => Some(whole.file.clone()),
            Held::Whole(_) | Held::Nothing | Held::Unknown => None,
        }
    }

    /// Finds out what is there.
    pub(crate) fn look(&self) {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_known() {
            return;
        }
        let held = match whole::open(&self.dir, &self.named) {
            Ok(Some(whole)) => Held::Whole(Arc::new(whole)),
            Ok(None) => Held::Nothing,
            Err(error) => {
                self.on_error("look for", &error);
                Held::Nothing
            }
        };
        let (found, file) = match &held {
            Held::Whole(whole) => (Found::Whole, Some(&*whole.file)),
            Held::Nothing | Held::Unknown => (Found::Nothing, None),
        };
        self.dir.metrics.looks.at(found).inc();
        self.dir.room.on_use(&self.named.hash, file, file.is_some());
        *self.state() = held;
    }

    /// Reads `range` into `into`, if all of it is here.
    pub(crate) fn read(&self, range: ByteRange, into: &mut [u8]) -> bool {
        self.look();
        let Held::Whole(whole) = self.held() else { return false };
        let touched = blocks::touched(range);
        let Some(sums) = usize::try_from(touched.start)
            .ok()
            .zip(usize::try_from(touched.end).ok())
            .and_then(|(start, end)| whole.sums.get(start..end))
        else {
            return false;
        };
        let (io, size) = (&self.dir.io, self.named.size);
        let source = Source { io, file: &whole.file, is_direct: whole.is_direct, size };
        match source.read(range, sums, into) {
            Ok(()) => {
                self.dir.metrics.reads.inc();
                self.dir.metrics.read_bytes.add(range.len());
                true
            }
            Err(Fault::Io(error)) => {
                self.on_error("read", &error);
                false
            }
            Err(Fault::Corrupt) => {
                tracing::warn!(object = ?self.named.object, "delete a file of the disk cache: its bytes are wrong");
                self.dir.metrics.corrupt.inc();
                self.forget();
                false
            }
        }
    }

    /// Writes what was offered.
    pub(crate) fn keep(&self, range: ByteRange, bytes: &[u8]) {
        self.look();
        let is_all = range.start() == 0 && range.end() == self.named.size;
        if !is_all || !matches!(self.held(), Held::Nothing) {
            return;
        }
        match whole::publish(&self.dir, &self.named, bytes) {
            Ok(true) => {
                *self.state() = Held::Unknown;
                self.look();
            }
            Ok(false) => self.dir.metrics.dropped_bytes.at(Dropped::Room).add(range.len()),
            Err(error) => {
                self.dir.metrics.dropped_bytes.at(Dropped::Disk).add(range.len());
                self.on_error("write", &error);
            }
        }
    }

    /// Deletes all of it.
    pub(crate) fn forget(&self) {
        *self.state() = Held::Nothing;
        if let Err(error) = whole::remove(&self.dir, &self.named) {
            self.on_error("delete", &error);
        }
    }

    fn on_error(&self, operation: &str, error: &io::Error) {
        tracing::debug!(%error, object = ?self.named.object, "{operation} a file of the disk cache");
    }
}
