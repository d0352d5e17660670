//! Whole objects: a file of the same bytes and the same length, and its record.
//!
//! The file gets its name last, so a file that is found is complete.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use s3mount_object::ObjectId;

use crate::disk::blocks::{self, BLOCK_BYTES};
use crate::disk::clock::{BootId, SinceBoot};
use crate::disk::dir::Dir;
use crate::disk::io::{ALIGN, Attribute, NAME_ATTRIBUTE, RECORD_ATTRIBUTE, Unnamed};
use crate::disk::layout::Hash;
use crate::disk::object::read::{Fault, Source};
use crate::disk::object::record::Record;
use crate::disk::scan;

/// The start of a file's attribute if the record lies in its own file. The record's checksum, its last 8 bytes,
/// follows, which binds the two together.
const ELSEWHERE: &[u8; 4] = b"s3mr";

/// How many blocks are compared with their checksums at a time.
const PIECE_BLOCKS: u64 = 8;

/// The bytes of these blocks: one operation of a disk, for which no disk takes seconds.
pub(crate) const PIECE_BYTES: usize = (PIECE_BLOCKS * BLOCK_BYTES) as usize;

/// A version of an object, and its size.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) object: ObjectId,
    pub(crate) size: u64,
    pub(crate) hash: Hash,
}

/// A whole object that is open.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) file: Arc<File>,
    /// Whether reads of the file bypass the page cache.
    pub(crate) is_direct: bool,
    /// The CRC of each block.
    pub(crate) sums: Vec<u64>,
    /// The boot and the time of its publication.
    published: (BootId, SinceBoot),
    /// Whether the bytes are certainly those that were written, so that the kernel, which compares no checksums, may
    /// have the file.
    is_trusted: AtomicBool,
    /// Whether the bytes were compared with a checksum of the store.
    is_compared: AtomicBool,
}

impl Whole {
    /// The whole object that a partial one has become.
    pub(crate) fn of_part(dir: &Dir, file: &Arc<File>, is_direct: bool, record: Record) -> Self {
        Self::new(dir, file.clone(), is_direct, record, true)
    }

    /// A file with its record. `is_bound`: the record was certainly made for this file.
    fn new(dir: &Dir, file: Arc<File>, is_direct: bool, record: Record, is_bound: bool) -> Self {
        let Record { boot, published, sums, is_compared, .. } = record;
        let is_trusted = AtomicBool::new(is_bound && dir.durable.is_trusted(boot, published));
        let is_compared = AtomicBool::new(is_compared);
        Self { file, is_direct, sums, published: (boot, published), is_trusted, is_compared }
    }

    pub(crate) fn is_compared(&self) -> bool {
        self.is_compared.load(Ordering::Acquire)
    }

    /// Notes that the bytes were compared with the store's checksum, for later mounts, too.
    pub(crate) fn on_compared(&self, dir: &Dir, named: &Named) -> io::Result<()> {
        self.is_compared.store(true, Ordering::Release);
        let (boot, published) = self.published;
        let record = dir.record(named.size, self.sums.clone());
        save_record(dir, named, &self.file, &Record { boot, published, is_compared: true, ..record })
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Acquire)
    }

    /// Compares a piece, from block `first` on, with its checksums, in memory of [`PIECE_BYTES`]. Returns the first
    /// block of the next piece. After the last piece, the file may be trusted, in this boot and in later ones: what
    /// was read is on the disk.
    pub(crate) fn check_piece(
        &self,
        dir: &Dir,
        named: &Named,
        first: u64,
        memory: &mut [u8],
    ) -> Result<Option<u64>, Fault> {
        let count = self.sums.len() as u64;
        let end = count.min(first + PIECE_BLOCKS);
        let sums = self.sums.get(first as usize..end as usize).unwrap_or_default();
        if !sums.is_empty() {
            let range = blocks::bytes(&(first..end), named.size);
            let into = usize::try_from(range.len()).ok().and_then(|len| memory.get_mut(..len));
            let source =
                Source { io: &dir.io, file: &self.file, is_direct: self.is_direct, size: named.size };
            source.read(range, sums, into.ok_or(Fault::Corrupt)?)?;
        }
        if end < count {
            return Ok(Some(end));
        }
        if !self.is_trusted() {
            let record = dir.record(named.size, self.sums.clone());
            let record = Record { is_compared: self.is_compared(), ..record };
            save_record(dir, named, &self.file, &record)?;
            dir.durable.on_published();
            self.is_trusted.store(true, Ordering::Release);
        }
        Ok(None)
    }
}

/// How many bytes of the disk a file of `bytes` takes.
pub(crate) fn disk_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN as u64)
}

/// How many bytes of the disk a whole object takes, with its record. An attribute may take a block of its own.
pub(crate) fn taken_bytes(dir: &Dir, hash: &Hash) -> u64 {
    let paths = [dir.layout.whole(hash), dir.layout.record(hash)];
    let taken = |path: PathBuf| std::fs::symlink_metadata(path).map_or(0, |file| scan::taken_bytes(&file));
    paths.into_iter().map(taken).sum()
}

/// Opens the file of a whole object, if there is one with a record. Deletes a file that is of no use.
pub(crate) fn open(dir: &Dir, named: &Named) -> io::Result<Option<Whole>> {
    let path = dir.layout.whole(&named.hash);
    let (file, is_direct) = match dir.io.open(&path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let record = if file.metadata()?.len() == named.size {
        match load_record(dir, named, &file) {
            // A file whose record can't be read is useless.
            Err(error) if dir.health.on_read_error(&named.hash, "read the record of", &error) => None,
            record => record?,
        }
    } else {
        None
    };
    let Some((record, is_bound)) = record else {
        remove(dir, named)?;
        return Ok(None);
    };
    Ok(Some(Whole::new(dir, Arc::new(file), is_direct, record, is_bound)))
}

/// The record of an open file, and whether it was certainly made for this file. A record in its own file may belong to
/// a deleted file of the same name.
fn load_record(dir: &Dir, named: &Named, file: &File) -> io::Result<Option<(Record, bool)>> {
    let (bytes, is_bound) = match dir.io.attribute(file, RECORD_ATTRIBUTE)? {
        Attribute::Value(bytes) if !bytes.starts_with(ELSEWHERE) => (bytes, true),
        attribute => match dir.io.load(&dir.layout.record(&named.hash)) {
            Ok(bytes) => {
                let is_bound = attribute == Attribute::Value(reference(&bytes));
                (bytes, is_bound)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    let record = Record::decode(&bytes, &named.hash);
    let record = record.filter(|record| record.map.is_none() && record.size == named.size);
    Ok(record.map(|record| (record, is_bound)))
}

/// The attribute of a file whose record lies in its own file.
fn reference(record: &[u8]) -> Vec<u8> {
    [ELSEWHERE, &record[record.len().saturating_sub(8)..]].concat()
}

/// Writes the record of `file`, before the file gets its name.
pub(crate) fn save_record(dir: &Dir, named: &Named, file: &File, record: &Record) -> io::Result<()> {
    let name = dir.name(&named.object);
    let name_bytes = name.encode(&named.hash).ok_or_else(too_long)?;
    if dir.io.set_attribute(file, RECORD_ATTRIBUTE, &encode(record, named)?)?
        && dir.io.set_attribute(file, NAME_ATTRIBUTE, &name_bytes)?
    {
        return Ok(());
    }
    let bytes = encode(&Record { name: Some(name), ..record.clone() }, named)?;
    dir.io.replace(&dir.layout.record(&named.hash), &bytes)?;
    dir.io.set_attribute(file, RECORD_ATTRIBUTE, &reference(&bytes))?;
    Ok(())
}

/// The record as bytes.
pub(crate) fn encode(record: &Record, named: &Named) -> io::Result<Vec<u8>> {
    record.encode(&named.hash).ok_or_else(too_long)
}

pub(crate) fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a name is longer than 64 KiB")
}

/// Publishes an object that one GET has brought. `is_compared`: it was compared with the store's checksum. Returns
/// whether there was room for it.
pub(crate) fn publish(dir: &Dir, named: &Named, bytes: &[u8], is_compared: bool) -> io::Result<bool> {
    let taken = disk_bytes(named.size);
    if !dir.room.reserve(taken) {
        return Ok(false);
    }
    let path = dir.layout.whole(&named.hash);
    let published = dir.io.create(&path).and_then(|unnamed| {
        let written = fill(dir, named, &unnamed, bytes, is_compared);
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
        dir.room.settle(taken, taken_bytes(dir, &named.hash));
        dir.metrics.written_bytes.add(named.size);
        dir.durable.on_published();
    }
    published.map(|_| true)
}

fn fill(dir: &Dir, named: &Named, unnamed: &Unnamed, bytes: &[u8], is_compared: bool) -> io::Result<()> {
    dir.io.write(&unnamed.file, bytes, 0)?;
    let record = dir.record(named.size, blocks::sums(bytes).collect());
    save_record(dir, named, &unnamed.file, &Record { is_compared, ..record })
}

/// Deletes the file of a whole object and its record.
pub(crate) fn remove(dir: &Dir, named: &Named) -> io::Result<()> {
    let bytes = taken_bytes(dir, &named.hash);
    if dir.io.remove(&dir.layout.whole(&named.hash))? {
        dir.room.give_back(bytes);
    }
    dir.io.remove(&dir.layout.record(&named.hash))?;
    Ok(())
}
