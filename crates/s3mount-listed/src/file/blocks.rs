//! The blocks of an index, and what is around them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::ListedError;
use crate::file::frame;
use crate::file::writer::{FOOTER_BYTES, HEADER_BYTES, MAGIC};

/// Blocks that stay in memory: 4 MiB. The kernel's page cache has the others that are used, and a read of one from there
/// takes 2 µs. The blocks of the higher levels stay: there are few of them.
const CACHED_BLOCKS: usize = 512;

/// The longest text that says of which list an index is.
const MOST_ABOUT: u64 = 64 << 10;

/// A block in memory, and where it lies in the file.
type CachedBlock = Mutex<Option<(u64, Arc<[u8]>)>>;

/// The blocks of an index.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) file: File,
    /// The number that no other index has.
    pub(crate) id: u64,
    pub(crate) about: String,
    /// Where the root is, and how long it is.
    pub(crate) root: (u64, u64),
    /// How many levels of blocks lead to the leaves.
    pub(crate) levels: usize,
    pub(crate) keys: u64,
    /// The length of the file.
    pub(crate) bytes: u64,
    cached: Box<[CachedBlock]>,
}

fn numbers<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut numbers = [0; COUNT];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().expect("a chunk has eight bytes"));
    }
    numbers
}

impl Blocks {
    /// Reads the beginning, the end and the root of an index.
    ///
    /// # Errors
    /// `Damaged`, or those of reading the file.
    pub(crate) fn open(file: File) -> Result<Self, ListedError> {
        let failed = |source| ListedError::File { action: "read the index".to_owned(), source };
        let bytes = file.metadata().map_err(failed)?.len();
        let end = bytes.checked_sub(FOOTER_BYTES as u64).filter(|end| *end >= HEADER_BYTES as u64);
        let end = end.ok_or(ListedError::Damaged("it is too short"))?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut footer, end).map_err(failed)?;
        let (fields, sum) = footer.split_at(FOOTER_BYTES - 8);
        if header[..8] != *MAGIC || fields[40..] != *MAGIC {
            return Err(ListedError::Damaged("it is not one of this version of s3mount"));
        }
        let [id, about_len, about_sum] = numbers(&header[8..]);
        let [root, root_len, levels, keys, len] = numbers(fields);
        if sum != frame::sum(id, end, fields).to_le_bytes() || len != bytes || about_len > MOST_ABOUT.min(end)
        {
            return Err(ListedError::Damaged("its end does not fit it"));
        }
        let mut about = vec![0; usize::try_from(about_len).unwrap_or(0)];
        file.read_exact_at(&mut about, HEADER_BYTES as u64).map_err(failed)?;
        if frame::sum(id, 0, &about) != about_sum {
            return Err(ListedError::Damaged("its beginning does not fit it"));
        }
        let about = String::from_utf8(about).map_err(|_| ListedError::Damaged("it is of no list"))?;
        let cached = (0..CACHED_BLOCKS).map(|_| Mutex::new(None)).collect();
        let levels = usize::try_from(levels).unwrap_or(0);
        let blocks = Self { file, id, about, root: (root, root_len), levels, keys, bytes, cached };
        blocks.block(blocks.root)?;
        Ok(blocks)
    }

    /// A block, by where it is and how long.
    pub(crate) fn block(&self, (place, len): (u64, u64)) -> Result<Arc<[u8]>, ListedError> {
        // Neighbours are some 8 KiB apart, so places are spread by more than their low bits.
        let slot = (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % CACHED_BLOCKS;
        let cached = || self.cached[slot].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, block)) = cached().as_ref().filter(|(cached, _)| *cached == place) {
            return Ok(block.clone());
        }
        // Nobody waits for the disk under a lock.
        let block = frame::read(&self.file, (self.id, place), len)?;
        *cached() = Some((place, block.clone()));
        Ok(block)
    }
}
