//! Whole objects: a file of the same bytes and the same length, and its record.
//!
//! The file gets its name last, so whoever finds it finds all of it.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use s3mount_object::ObjectId;

use crate::disk::blocks;
use crate::disk::dir::Dir;
use crate::disk::io::{ALIGN, MAX_ATTRIBUTE_BYTES, Unnamed};
use crate::disk::layout::Hash;
use crate::disk::record::Record;

/// What a file's attribute begins with where the record lies in a file of its own. The record's last 8 bytes
/// follow, its checksum, so that the two belong together.
const ELSEWHERE: &[u8; 4] = b"s3mr";

/// A whole object that is open.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) file: Arc<File>,
    /// Whether reads of the file leave the page cache out.
    pub(crate) is_direct: bool,
    /// The CRC of each block.
    pub(crate) sums: Vec<u64>,
    /// Whether the file may be handed to the kernel, which does not compare checksums.
    is_trusted: AtomicBool,
}

impl Whole {
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Acquire)
    }
}

/// A version of an object, and how large it is.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) object: ObjectId,
    pub(crate) size: u64,
    pub(crate) hash: Hash,
}

/// How many bytes of the disk a file of `bytes` takes.
pub(crate) fn disk_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN as u64)
}

/// Opens the file of a whole object, if there is one with a record. What is no use is deleted.
pub(crate) fn open(dir: &Dir, named: &Named) -> io::Result<Option<Whole>> {
    let path = dir.layout.whole(&named.hash);
    let (file, is_direct) = match dir.io.open(&path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let record = if file.metadata()?.len() == named.size { load_record(dir, named, &file)? } else { None };
    let Some((record, is_bound)) = record else {
        remove(dir, named)?;
        return Ok(None);
    };
    let is_trusted = AtomicBool::new(is_bound && record.boot == dir.clock.boot());
    Ok(Some(Whole { file: Arc::new(file), is_direct, sums: record.sums, is_trusted }))
}

/// The record of an open file, and whether it was surely made for this file.
fn load_record(dir: &Dir, named: &Named, file: &File) -> io::Result<Option<(Record, bool)>> {
    let attribute = dir.io.attribute(file)?;
    let is_elsewhere = attribute.as_ref().is_none_or(|bytes| bytes.starts_with(ELSEWHERE));
    let (bytes, is_bound) = match attribute {
        Some(bytes) if !is_elsewhere => (bytes, true),
        attribute => match dir.io.load(&dir.layout.record(&named.hash)) {
            Ok(bytes) => {
                let is_bound = attribute.is_none_or(|attribute| attribute == reference(&bytes));
                (bytes, is_bound)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    let record = Record::decode(&bytes).filter(|record| record.map.is_none());
    Ok(record
        .filter(|record| dir.is_record_of(record, &named.object, named.size))
        .map(|record| (record, is_bound)))
}

/// What stands in the attribute of a file whose record is elsewhere.
fn reference(record: &[u8]) -> Vec<u8> {
    [ELSEWHERE, &record[record.len().saturating_sub(8)..]].concat()
}

/// Writes the record of `file`, before the file gets its name.
pub(crate) fn save_record(dir: &Dir, named: &Named, file: &File, record: &Record) -> io::Result<()> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "a name is longer than 64 KiB");
    let bytes = record.encode().ok_or_else(too_long)?;
    if bytes.len() <= MAX_ATTRIBUTE_BYTES && dir.io.set_attribute(file, &bytes)? {
        return Ok(());
    }
    dir.io.replace(&dir.layout.record(&named.hash), &bytes)?;
    dir.io.set_attribute(file, &reference(&bytes))?;
    Ok(())
}

/// Publishes an object that one GET has brought. Returns whether there was room for it.
pub(crate) fn publish(dir: &Dir, named: &Named, bytes: &[u8]) -> io::Result<bool> {
    let taken = disk_bytes(named.size);
    if !dir.room.reserve(taken) {
        return Ok(false);
    }
    let path = dir.layout.whole(&named.hash);
    let published = dir.io.create(&path).and_then(|unnamed| {
        let written = fill(dir, named, &unnamed, bytes);
        match written {
            Ok(()) => dir.io.publish(&unnamed, &path),
            Err(error) => {
                dir.io.discard(unnamed);
                Err(error)
            }
        }
    });
    if !matches!(published, Ok(true)) {
        dir.room.give_back(taken);
    }
    if matches!(published, Ok(true)) {
        dir.metrics.written_bytes.add(named.size);
    }
    published.map(|_| true)
}

fn fill(dir: &Dir, named: &Named, unnamed: &Unnamed, bytes: &[u8]) -> io::Result<()> {
    dir.io.write(&unnamed.file, bytes, 0)?;
    let record = dir.record(&named.object, named.size, blocks::sums(bytes).collect());
    save_record(dir, named, &unnamed.file, &record)
}

/// Deletes the file of a whole object and its record.
pub(crate) fn remove(dir: &Dir, named: &Named) -> io::Result<()> {
    if dir.io.remove(&dir.layout.whole(&named.hash))? {
        dir.room.give_back(disk_bytes(named.size));
    }
    dir.io.remove(&dir.layout.record(&named.hash))?;
    Ok(())
}
