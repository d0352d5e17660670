//! Writes an index, from keys that come in order.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufWriter, Write as _};

use crate::file::block::{BLOCK_BYTES, BlockBuilder, put_number};
use crate::file::frame;

/// What an index begins and ends with: the format's name and version.
pub(crate) const MAGIC: &[u8; 8] = b"s3mlst02";

/// The magic, the id of the index, the length of the text, and the checksum of the text.
pub(crate) const HEADER_BYTES: usize = 32;

/// Five numbers of eight bytes, the magic, and a checksum.
pub(crate) const FOOTER_BYTES: usize = 56;

/// The bytes that wait to be written.
const BUFFER_BYTES: usize = 256 << 10;

/// An index that is being written.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    out: BufWriter<File>,
    /// A number that no other index has, so that the blocks of two are told apart. It is less than 2^63.
    id: u64,
    place: u64,
    /// The block that is filled at each level, the leaves first.
    levels: Vec<BlockBuilder>,
    keys: u64,
    block_bytes: usize,
}

/// A number below 2^63 that no other index has.
#[expect(clippy::disallowed_methods, reason = "two indexes of one list are to differ, too")]
fn new_id() -> u64 {
    // The standard library has its keys from the kernel's random numbers.
    RandomState::new().hash_one(MAGIC) >> 1
}

impl IndexWriter {
    /// Begins an index in an empty file. `about` says of which list.
    pub(crate) fn new(file: File, about: &str) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let id = new_id();
        out.write_all(MAGIC)?;
        out.write_all(&id.to_le_bytes())?;
        out.write_all(&(about.len() as u64).to_le_bytes())?;
        out.write_all(&frame::sum(id, 0, about.as_bytes()).to_le_bytes())?;
        out.write_all(about.as_bytes())?;
        let place = (HEADER_BYTES + about.len()) as u64;
        let levels = vec![BlockBuilder::default()];
        Ok(Self { out, id, place, levels, keys: 0, block_bytes: BLOCK_BYTES })
    }

    /// Makes blocks of another size, for tests of indexes with many levels and few names.
    #[cfg(test)]
    pub(crate) fn with_block_bytes(self, block_bytes: usize) -> Self {
        Self { block_bytes, ..self }
    }

    /// Adds a key that comes after all before it.
    pub(crate) fn push(&mut self, key: &[u8], version: &[u8]) -> io::Result<()> {
        self.keys += 1;
        self.levels[0].push(key, version);
        if self.levels[0].is_full(self.block_bytes) { self.close(0) } else { Ok(()) }
    }

    /// Writes the block of a level, and an entry for it to the level above.
    fn close(&mut self, level: usize) -> io::Result<()> {
        let (place, len) = self.write(level)?;
        let mut value = Vec::with_capacity(12);
        put_number(&mut value, place);
        put_number(&mut value, len);
        if self.levels.len() == level + 1 {
            self.levels.push(BlockBuilder::default());
        }
        let first = self.levels[level].first().to_vec();
        self.levels[level].clear();
        self.levels[level + 1].push(&first, &value);
        if self.levels[level + 1].is_full(self.block_bytes) { self.close(level + 1) } else { Ok(()) }
    }

    fn write(&mut self, level: usize) -> io::Result<(u64, u64)> {
        let place = self.place;
        // There are few levels: each has at most a hundredth of the blocks of the one below it.
        let len = frame::write(&mut self.out, (self.id, place), level as u8, self.levels[level].bytes())?;
        self.place += len;
        Ok((place, len))
    }

    /// Completes the index, and returns its file and how many names it has.
    pub(crate) fn finish(mut self) -> io::Result<(File, u64)> {
        let mut level = 0;
        // The topmost block is the root, and no other one is above it.
        while level + 1 < self.levels.len() {
            if !self.levels[level].is_empty() {
                self.close(level)?;
            }
            level += 1;
        }
        let (root, root_len) = self.write(level)?;
        let mut footer = Vec::with_capacity(FOOTER_BYTES);
        let len = self.place + FOOTER_BYTES as u64;
        for number in [root, root_len, level as u64, self.keys, len] {
            footer.extend_from_slice(&number.to_le_bytes());
        }
        footer.extend_from_slice(MAGIC);
        footer.extend_from_slice(&frame::sum(self.id, self.place, &footer).to_le_bytes());
        self.out.write_all(&footer)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((file, self.keys))
    }
}
