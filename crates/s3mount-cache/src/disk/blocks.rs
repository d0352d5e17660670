//! Blocks of an object: the unit in which the disk cache knows, and checks, what it holds. Pure.

use std::ops::Range;

use s3mount_object::{ByteRange, ChecksumAlgorithm, FollowedBy};

/// The size of a block in bytes, as a power of two. A random read asks for 128 KiB, and must be checked
/// without reading more than that.
pub(crate) const BLOCK_LOG2: u8 = 17;

/// The size of a block in bytes. The last block of an object may be shorter.
pub(crate) const BLOCK_BYTES: u64 = 1 << BLOCK_LOG2;

/// How many blocks an object of `size` bytes has.
pub(crate) fn count(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES)
}

/// The blocks that `range` covers wholly, or up to the object's end.
pub(crate) fn covered(range: ByteRange, size: u64) -> Range<u64> {
    let end = if range.end() >= size { count(size) } else { range.end() / BLOCK_BYTES };
    let start = range.start().div_ceil(BLOCK_BYTES);
    start..end.max(start)
}

/// The blocks that `range` touches.
pub(crate) fn touched(range: ByteRange) -> Range<u64> {
    let start = range.start() / BLOCK_BYTES;
    start..count(range.end()).max(start)
}

/// The bytes of some blocks.
pub(crate) fn bytes(blocks: &Range<u64>, size: u64) -> ByteRange {
    let end = (blocks.end * BLOCK_BYTES).min(size);
    ByteRange::new((blocks.start * BLOCK_BYTES).min(end), end)
}

/// The CRC-64/NVME of some bytes.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// The CRC-64/NVME of consecutive pieces.
pub(crate) fn sum_of(pieces: &[&[u8]]) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}

/// The CRC of each block of an object's beginning, or of some blocks from a block's beginning on.
pub(crate) fn sums(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(BLOCK_BYTES as usize).map(sum)
}

/// The CRC-64/NVME of an object of `size` bytes whose blocks have the CRCs `sums`.
pub(crate) fn joined(sums: &[u64], size: u64) -> u64 {
    let Some((last, front)) = sums.split_last() else { return 0 };
    let join = |len| FollowedBy::new(ChecksumAlgorithm::Crc64Nvme, len);
    let (block, rest) = (join(BLOCK_BYTES), join(size - front.len() as u64 * BLOCK_BYTES));
    let front = front.iter().fold(0, |joined, sum| block.join(joined, *sum));
    rest.join(front, *last)
}

/// A set of an object's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockSet {
    /// How many blocks the object has.
    count: u64,
    /// How many of them are in the set.
    held: u64,
    /// One bit for each block; the bits beyond the last block are 0.
    words: Vec<u64>,
}

impl BlockSet {
    /// The empty set of an object with `count` blocks.
    pub(crate) fn new(count: u64) -> Self {
        Self { count, held: 0, words: vec![0; count.div_ceil(64) as usize] }
    }

    /// The set with the bits `words`, if `count` blocks need that many words and no bit lies beyond `count`.
    pub(crate) fn from_words(count: u64, words: Vec<u64>) -> Option<Self> {
        let behind = count % 64;
        let is_clean = behind == 0 || words.last().is_none_or(|last| last >> behind == 0);
        let held = words.iter().map(|word| u64::from(word.count_ones())).sum();
        (words.len() as u64 == count.div_ceil(64) && is_clean).then_some(Self { count, held, words })
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn has(&self, block: u64) -> bool {
        block < self.count && self.words[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    /// Whether all of `blocks` are in the set.
    pub(crate) fn has_all(&self, blocks: Range<u64>) -> bool {
        blocks.start >= blocks.end
            || (self.has(blocks.start) && self.run_end(blocks.start, blocks.end) >= blocks.end)
    }

    /// How many blocks are in the set.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn is_full(&self) -> bool {
        self.held == self.count
    }

    /// Adds `block`. Returns whether it is new.
    pub(crate) fn insert(&mut self, block: u64) -> bool {
        let is_new = block < self.count && !self.has(block);
        if is_new {
            self.words[(block / 64) as usize] |= 1 << (block % 64);
            self.held += 1;
        }
        is_new
    }

    /// Takes `block` out.
    pub(crate) fn remove(&mut self, block: u64) {
        if self.has(block) {
            self.words[(block / 64) as usize] &= !(1 << (block % 64));
            self.held -= 1;
        }
    }

    /// Where the run of blocks that are like `block`, in the set or not, ends. Looks no further than `until`.
    pub(crate) fn run_end(&self, block: u64, until: u64) -> u64 {
        let is_in = self.has(block);
        let until = until.min(self.count);
        let mut at = block + 1;
        while at < until {
            // Bits that differ from `block`'s are 1.
            let word = self.words[(at / 64) as usize] ^ if is_in { u64::MAX } else { 0 };
            match word >> (at % 64) {
                0 => at = (at / 64 + 1) * 64,
                rest => {
                    at += u64::from(rest.trailing_zeros());
                    break;
                }
            }
        }
        at.min(until)
    }

    /// The parts of `blocks` that are not in the set.
    pub(crate) fn missing(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let (mut at, mut missing) = (blocks.start, Vec::new());
        while at < blocks.end {
            let end = self.run_end(at, blocks.end).min(blocks.end);
            if !self.has(at) {
                missing.push(at..end);
            }
            at = end;
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use s3mount_object::ByteRange;

    use super::{BLOCK_BYTES, BlockSet, covered, touched};

    #[test]
    fn a_block_is_covered_wholly_or_to_the_objects_end() {
        let size = 3 * BLOCK_BYTES + 5;
        assert_eq!(covered(ByteRange::new(0, size), size), 0..4);
        assert_eq!(covered(ByteRange::new(1, size - 1), size), 1..3);
        assert_eq!(covered(ByteRange::new(1, 5), size), 1..1);
        assert_eq!(covered(ByteRange::new(3 * BLOCK_BYTES, size), size), 3..4);
        assert_eq!(touched(ByteRange::new(1, 5)), 0..1);
        assert_eq!(touched(ByteRange::new(BLOCK_BYTES - 1, BLOCK_BYTES + 1)), 0..2);
    }

    proptest! {
        #[test]
        fn a_set_of_blocks_is_a_set(count in 1u64..300, steps in proptest::collection::vec((0u64..300, any::<bool>()), 0..200)) {
            let (mut set, mut model) = (BlockSet::new(count), BTreeSet::new());
            for (block, inserts) in steps {
                if inserts {
                    prop_assert_eq!(set.insert(block), block < count && model.insert(block));
                } else {
                    set.remove(block);
                    model.remove(&block);
                }
            }
            prop_assert_eq!(set.held(), model.len() as u64);
            prop_assert_eq!(set.is_full(), model.len() as u64 == count);
            for block in 0..count {
                let end = (block..count).find(|other| model.contains(other) != model.contains(&block));
                prop_assert_eq!(set.run_end(block, u64::MAX), end.unwrap_or(count));
                prop_assert_eq!(set.run_end(block, block + 7), end.unwrap_or(count).min(block + 7));
            }
            let missing: Vec<_> = set.missing(0..count).into_iter().flatten().collect();
            let expected: Vec<_> = (0..count).filter(|block| !model.contains(block)).collect();
            prop_assert_eq!(missing, expected);
            prop_assert_eq!(BlockSet::from_words(count, set.words().to_vec()), Some(set));
        }
    }
}
