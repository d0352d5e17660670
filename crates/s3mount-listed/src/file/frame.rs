//! How a block lies in its file: its length and its level before it, a checksum behind it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest};

use crate::error::ListedError;

/// Length and level.
pub(crate) const HEAD_BYTES: usize = 8;

/// The checksum.
pub(crate) const SUM_BYTES: usize = 8;

/// No block is longer: one that is nearly full takes an entry with the longest key, and the longest value.
const MOST_BYTES: usize = 64 << 10;

/// A checksum over the bytes of a block, its place, and the `id` of its index: a block at another's place is seen, and one
/// of another index that was copied over this one.
pub(crate) fn sum(id: u64, place: u64, bytes: &[u8]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&id.to_le_bytes());
    digest.update(&place.to_le_bytes());
    digest.update(bytes);
    digest.finalize()
}

/// Writes a block of the index `id` that lies at `place`. Returns its length with all around it.
pub(crate) fn write(
    out: &mut impl Write,
    (id, place): (u64, u64),
    level: u8,
    block: &[u8],
) -> io::Result<u64> {
    let mut head = [0; HEAD_BYTES];
    // Blocks are shorter than 64 KiB.
    head[..4].copy_from_slice(&(block.len() as u32).to_le_bytes());
    head[4] = level;
    out.write_all(&head)?;
    out.write_all(block)?;
    out.write_all(&sum(id, place, block).to_le_bytes())?;
    Ok((HEAD_BYTES + block.len() + SUM_BYTES) as u64)
}

fn u32_of(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn checked((id, place): (u64, u64), mut bytes: Vec<u8>) -> Result<Arc<[u8]>, ListedError> {
    let at = bytes.len().checked_sub(SUM_BYTES).ok_or(ListedError::Damaged("a block is cut off"))?;
    let read = bytes.split_off(at);
    if read != sum(id, place, &bytes).to_le_bytes() {
        return Err(ListedError::Damaged("the checksum of a block differs"));
    }
    Ok(bytes.into())
}

/// Reads the block of the index `id` at `place` that has so many bytes with all around it.
pub(crate) fn read(file: &File, (id, place): (u64, u64), len: u64) -> Result<Arc<[u8]>, ListedError> {
    let len = usize::try_from(len).ok().filter(|len| (HEAD_BYTES..MOST_BYTES + 16).contains(len));
    let len = len.ok_or(ListedError::Damaged("a block has no length"))?;
    let mut bytes = vec![0; len - HEAD_BYTES];
    let read = file.read_exact_at(&mut bytes, place + HEAD_BYTES as u64);
    read.map_err(|source| ListedError::File { action: "read the index".to_owned(), source })?;
    checked((id, place), bytes)
}

/// Reads the next block of the index `id`, which is read from front to back, and moves `place` behind it. Returns the level,
/// too.
pub(crate) fn next(from: &mut impl Read, id: u64, place: &mut u64) -> Result<(u8, Arc<[u8]>), ListedError> {
    let failed = |source| ListedError::File { action: "read a sorted part of the list".to_owned(), source };
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head).map_err(failed)?;
    let len = u32_of(&head[..4]);
    if len > MOST_BYTES {
        return Err(ListedError::Damaged("a block has no length"));
    }
    let mut bytes = vec![0; len + SUM_BYTES];
    from.read_exact(&mut bytes).map_err(failed)?;
    let block = checked((id, *place), bytes)?;
    *place += (HEAD_BYTES + len + SUM_BYTES) as u64;
    Ok((head[4], block))
}
