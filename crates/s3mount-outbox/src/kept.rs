//! Entries with their bytes.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::SegmentFile;
use crate::entry::{Entry, EntryId};
use crate::record::crc_of;

/// Where the bytes of an entry are.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) segment: u64,
    pub(crate) file: Arc<dyn SegmentFile>,
    pub(crate) start: u64,
    /// How long the whole record is.
    pub(crate) record_bytes: u64,
}

/// The bytes of an entry. They can be read as long as this lives, also when the entry is over. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KeptBytes {
    location: Arc<Mutex<Location>>,
    size: u64,
    /// Their CRC when they were written.
    crc: u64,
}

impl KeptBytes {
    pub(crate) fn at(location: Location, size: u64, crc: u64) -> Self {
        Self { location: Arc::new(Mutex::new(location)), size, crc }
    }

    /// Their CRC when they were written.
    pub(crate) fn crc(&self) -> u64 {
        self.crc
    }

    /// Whether these are all of them, as they were written.
    pub fn are(&self, pieces: &[Bytes]) -> bool {
        crc_of(pieces) == self.crc
    }

    pub(crate) fn location(&self) -> MutexGuard<'_, Location> {
        self.location.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads `into.len()` bytes at `offset`. Blocks.
    ///
    /// # Errors
    /// The disk's. `UnexpectedEof` where there are fewer.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Location { file, start, .. } = self.location().clone();
        file.read(start + offset, into)
    }
}

/// An entry that was taken.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its number.
    pub id: EntryId,
    /// Its bytes.
    pub bytes: KeptBytes,
}

/// A file that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Its number.
    pub id: EntryId,
    /// What is to become of it.
    pub entry: Entry,
    /// Its length in bytes.
    pub size: u64,
    /// Why the store does not take it: it waits until somebody decides.
    pub failed: Option<String>,
    /// Whether the store may have been told already that the file is gone, or that another one has its name. Then it is
    /// over if its condition does not hold.
    pub is_ending: bool,
    /// Its bytes.
    pub bytes: KeptBytes,
}
