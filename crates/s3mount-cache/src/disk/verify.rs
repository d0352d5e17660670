//! Compares the versions in a cache directory with the checksums that were taken when they were fetched.

use std::io;

use crate::disk::blocks::{self, BLOCK_BYTES};
use crate::disk::io::health;
use crate::disk::object::read::{Fault, Source};
use crate::disk::object::record::Record;
use crate::disk::walk::{CacheDir, Cached, WalkError, failed, missing};

/// How many blocks are read at a time: 1 MiB.
const BLOCKS_AT_ONCE: u64 = 8;

/// The result of verifying a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All bytes that are there are right.
    Right,
    /// Some bytes are wrong, or their object is unknown. The text says what is wrong.
    Wrong(&'static str),
    /// A mount began to fetch the version, and has not yet saved a map. Nothing reads its bytes.
    Unknown,
    /// The version was evicted meanwhile.
    Gone,
}

impl CacheDir {
    /// Reads all bytes that are there of a version, and compares them with their checksums. Calls `on_bytes` with the
    /// number of bytes read.
    ///
    /// # Errors
    /// When the version can't be read.
    pub fn verify(&self, version: &Cached, mut on_bytes: impl FnMut(u64)) -> Result<Verdict, WalkError> {
        let path = self.file_of(version);
        let opened = self.io.open(&path).map(Some).or_else(missing);
        let opened = opened.map_err(|error| failed("open", &path, error))?;
        let Some((file, is_direct)) = opened else { return Ok(Verdict::Gone) };
        let Some(record) = self.record(version)? else {
            return Ok(match (path.exists(), version.is_whole) {
                (false, _) => Verdict::Gone,
                (true, true) => Verdict::Wrong("it has no record of which object it is"),
                (true, false) => Verdict::Unknown,
            });
        };
        let source = Source { io: &self.io, file: &file, is_direct, size: record.size };
        match compare(&source, &record, &mut on_bytes) {
            Ok(()) => Ok(Verdict::Right),
            Err(Fault::Corrupt) => Ok(Verdict::Wrong("its bytes differ from their checksums")),
            // A sector that can't be read any more.
            Err(Fault::Io(error)) if health::is_damage(&error) => {
                Ok(Verdict::Wrong("the disk can't read it"))
            }
            Err(Fault::Io(error)) => Err(failed("read", &path, error)),
        }
    }
}

fn compare(source: &Source<'_>, record: &Record, on_bytes: &mut impl FnMut(u64)) -> Result<(), Fault> {
    let mut buffer = vec![0; (BLOCKS_AT_ONCE * BLOCK_BYTES) as usize];
    let count = record.sums.len() as u64;
    let mut at = 0;
    while at < count {
        let is_here = |block| record.map.as_ref().is_none_or(|map| map.has(block));
        let end = (at..count.min(at + BLOCKS_AT_ONCE)).find(|block| !is_here(*block));
        let end = end.unwrap_or(count.min(at + BLOCKS_AT_ONCE));
        if at < end {
            let range = blocks::bytes(&(at..end), record.size);
            let length =
                usize::try_from(range.len()).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            source.read(range, &record.sums[at as usize..end as usize], &mut buffer[..length])?;
            on_bytes(range.len());
        }
        at = end.max(at + 1);
    }
    Ok(())
}
