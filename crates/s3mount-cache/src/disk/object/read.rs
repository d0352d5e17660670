//! Reading blocks and comparing them with their checksums.
//!
//! A read covers whole blocks, because a checksum does. Bytes of the first and the last block that the caller has not
//! asked for go into memory of the thread. Without the page cache, reads also begin and end at multiples of [`ALIGN`],
//! in the file and in memory. One call brings all of it, unless the caller's memory is not aligned: then the bytes are
//! copied.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSliceMut};

use crc_fast::{CrcAlgorithm, Digest};
use s3mount_object::ByteRange;

use crate::disk::blocks::{self, BLOCK_BYTES};
use crate::disk::io::{ALIGN, Io};

/// Memory of a thread for bytes that the caller has not asked for: up to one block before and one after the range.
const SPARE_BYTES: usize = 2 * (BLOCK_BYTES as usize + ALIGN);

thread_local! {
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a read brought nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The file system failed.
    Io(io::Error),
    /// A block differs from its checksum, or the file ends too early.
    Corrupt,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

/// A file with blocks of an object of `size` bytes.
pub(crate) struct Source<'a> {
    pub(crate) io: &'a Io,
    pub(crate) file: &'a File,
    /// Whether reads of the file bypass the page cache.
    pub(crate) is_direct: bool,
    pub(crate) size: u64,
}

impl Source<'_> {
    /// Reads `range` into `into`, which is as long. `sums` are the checksums of the blocks that `range` touches.
    pub(crate) fn read(&self, range: ByteRange, sums: &[u64], into: &mut [u8]) -> Result<(), Fault> {
        SPARE.with_borrow_mut(|spare| {
            let spare = aligned(spare);
            let is_aligned = !self.is_direct
                || (range.start().is_multiple_of(ALIGN as u64) && into.as_ptr().align_offset(ALIGN) == 0);
            if is_aligned {
                self.read_once(range, sums, into, spare)
            } else {
                self.copy(range, sums, into, spare)
            }
        })
    }

    /// Reads `range` by one call. The requested bytes begin at a multiple of [`ALIGN`].
    fn read_once(
        &self,
        range: ByteRange,
        sums: &[u64],
        into: &mut [u8],
        spare: &mut [u8],
    ) -> Result<(), Fault> {
        let cover = blocks::bytes(&blocks::touched(range), self.size);
        let before = to_usize(range.start() - cover.start());
        // The last bytes for the caller, if less than a sector, go through the spare memory, together with the bytes
        // after them.
        let in_place = if self.is_direct { into.len() / ALIGN * ALIGN } else { into.len() };
        let behind = to_usize(cover.end() - range.start()) - in_place;
        let (head, tail) = spare.split_at_mut(before.next_multiple_of(ALIGN));
        let asked_behind = if self.is_direct { behind.next_multiple_of(ALIGN) } else { behind };
        let (wanted, last) = into.split_at_mut(in_place);
        let mut pieces = [
            IoSliceMut::new(&mut head[..before]),
            IoSliceMut::new(wanted),
            IoSliceMut::new(&mut tail[..asked_behind]),
        ];
        let first = pieces.iter().position(|piece| !piece.is_empty()).unwrap_or(0);
        let count = self.io.read(self.file, &mut pieces[first..], cover.start())?;
        if (count as u64) < cover.len() {
            return Err(Fault::Corrupt);
        }
        let pieces = [&head[..before], wanted, &tail[..behind]];
        check(&pieces, sums)?;
        last.copy_from_slice(&tail[..last.len()]);
        Ok(())
    }

    /// Reads `range` block by block into the spare memory, and copies the requested bytes.
    fn copy(&self, range: ByteRange, sums: &[u64], into: &mut [u8], spare: &mut [u8]) -> Result<(), Fault> {
        let touched = blocks::touched(range);
        for (block, sum) in touched.zip(sums) {
            let bytes = blocks::bytes(&(block..block + 1), self.size);
            let len = to_usize(bytes.len());
            let mut piece = [IoSliceMut::new(&mut spare[..len.next_multiple_of(ALIGN)])];
            if self.io.read(self.file, &mut piece, bytes.start())? < len {
                return Err(Fault::Corrupt);
            }
            check(&[&spare[..len]], std::slice::from_ref(sum))?;
            let (from, to) = (bytes.start().max(range.start()), bytes.end().min(range.end()));
            into[to_usize(from - range.start())..to_usize(to - range.start())]
                .copy_from_slice(&spare[to_usize(from - bytes.start())..to_usize(to - bytes.start())]);
        }
        Ok(())
    }
}

/// Compares the blocks in the consecutive `pieces` with their checksums.
fn check(pieces: &[&[u8]], sums: &[u64]) -> Result<(), Fault> {
    let mut pieces = pieces.iter().copied().filter(|piece| !piece.is_empty());
    let mut piece: &[u8] = pieces.next().unwrap_or_default();
    for sum in sums {
        let mut left = BLOCK_BYTES as usize;
        let found = if piece.len() >= left {
            let (block, rest) = piece.split_at(left);
            piece = rest;
            blocks::sum(block)
        } else {
            let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
            while left > 0 && !piece.is_empty() {
                let (part, rest) = piece.split_at(piece.len().min(left));
                digest.update(part);
                left -= part.len();
                piece = if rest.is_empty() { pieces.next().unwrap_or_default() } else { rest };
            }
            digest.finalize()
        };
        if piece.is_empty() {
            piece = pieces.next().unwrap_or_default();
        }
        if found != *sum {
            return Err(Fault::Corrupt);
        }
    }
    Ok(())
}

/// The part of `memory` that begins at a multiple of [`ALIGN`]: [`SPARE_BYTES`].
fn aligned(memory: &mut Vec<u8>) -> &mut [u8] {
    memory.resize(SPARE_BYTES + ALIGN, 0);
    let start = memory.as_ptr().align_offset(ALIGN);
    &mut memory[start..start + SPARE_BYTES]
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a read fits the address space")
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};

    use proptest::prelude::*;
    use s3mount_object::ByteRange;

    use super::{Fault, Source};
    use crate::disk::blocks::{self, BLOCK_BYTES};
    use crate::disk::io::{ALIGN, Io};

    const SIZE: u64 = 5 * BLOCK_BYTES + 4096 * 3 + 77;

    fn pattern(len: u64) -> Vec<u8> {
        (0..len).map(|at| (at / 7 % 251) as u8 ^ (at >> 15) as u8).collect()
    }

    proptest! {
        /// Reads any range into any memory, by both ways of reading: the bytes are right. A wrong bit in one of the
        /// blocks is found.
        #[test]
        fn any_range_is_read_and_checked(a in 0..SIZE, b in 0..SIZE, is_rounded in any::<bool>(), odd in 0usize..2, wrong in 0..SIZE) {
            let (mut start, end) = (a.min(b), a.max(b) + 1);
            if is_rounded {
                start = start / ALIGN as u64 * ALIGN as u64;
            }
            let range = ByteRange::new(start, end);
            let bytes = pattern(SIZE);
            let sums: Vec<_> = blocks::sums(&bytes).collect();
            let touched = blocks::touched(range);
            let sums = &sums[touched.start as usize..touched.end as usize];
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("file");
            std::fs::write(&path, &bytes).expect("written");
            let io = Io::new();
            let mut memory = vec![0u8; range.len() as usize + 2 * ALIGN];
            let from = memory.as_ptr().align_offset(ALIGN) + odd * 13;
            let (file, is_direct) = io.open(&path).expect("opened");
            let plain = std::fs::File::open(&path).expect("opened");
            for (file, is_direct) in [(&file, is_direct), (&plain, false)] {
                memory.fill(0);
                let into = &mut memory[from..from + range.len() as usize];
                let source = Source { io: &io, file, is_direct, size: SIZE };
                source.read(range, sums, into).expect("right bytes");
                prop_assert!(into == &bytes[start as usize..end as usize]);
            }
            let mut changed = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
            changed.seek(SeekFrom::Start(wrong)).expect("a file");
            changed.write_all(&[bytes[wrong as usize] ^ 1]).expect("written");
            let into = &mut memory[from..from + range.len() as usize];
            let result = Source { io: &io, file: &file, is_direct, size: SIZE }.read(range, sums, into);
            if touched.contains(&(wrong / BLOCK_BYTES)) {
                prop_assert!(matches!(result, Err(Fault::Corrupt)));
            } else {
                prop_assert!(result.is_ok());
            }
            changed.set_len(end - 1).expect("cut");
            let result = Source { io: &io, file: &file, is_direct, size: SIZE }.read(range, sums, into);
            prop_assert!(matches!(result, Err(Fault::Corrupt)));
        }
    }
}
