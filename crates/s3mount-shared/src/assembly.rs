//! Blocks that come in parts: a stream that begins fetches 1 MiB, and then the rest of the block. Pure.
//!
//! The parts are kept by reference, so they hold memory of the pool for as long as they wait.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use s3mount_object::ByteRange;

use crate::block::{Block, Version};

/// Blocks of which some parts are in memory.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    blocks: HashMap<Block, Parts>,
    /// The blocks in the order in which their first parts came.
    order: BTreeMap<u64, Block>,
    bytes: u64,
    next: u64,
}

/// The parts of one block, by their offsets in the object.
#[derive(Debug)]
struct Parts {
    number: u64,
    parts: BTreeMap<u64, Bytes>,
}

impl Parts {
    fn bytes(&self) -> u64 {
        self.parts.values().map(|part| part.len() as u64).sum()
    }
}

impl Assembly {
    /// The bytes of all parts.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps the part `range` of a block. Returns all parts in order once the block is complete; they are not
    /// kept any longer. A part that overlaps another one is dropped.
    pub(crate) fn add(&mut self, block: &Block, range: ByteRange, bytes: Bytes) -> Option<Vec<Bytes>> {
        let Self { blocks, order, next, .. } = self;
        let kept = blocks.entry(*block).or_insert_with(|| {
            *next += 1;
            order.insert(*next, *block);
            Parts { number: *next, parts: BTreeMap::new() }
        });
        let before = kept.parts.range(..range.end()).next_back();
        if before.is_none_or(|(start, part)| start + part.len() as u64 <= range.start()) {
            self.bytes += bytes.len() as u64;
            kept.parts.insert(range.start(), bytes);
        }
        (kept.bytes() == block.len()).then(|| self.take(block)).flatten()
    }

    /// Drops the parts of a block that has come whole in another way.
    pub(crate) fn forget(&mut self, block: &Block) {
        self.take(block);
    }

    /// Drops the parts of all blocks of a version.
    pub(crate) fn forget_version(&mut self, version: &Version) {
        let blocks: Vec<_> = self.blocks.keys().filter(|block| block.version == *version).copied().collect();
        blocks.iter().for_each(|block| self.forget(block));
    }

    /// Drops the parts of the block that has waited for longest. Returns how many bytes that gives back; 0
    /// when nothing is kept.
    pub(crate) fn drop_oldest(&mut self) -> u64 {
        let before = self.bytes;
        if let Some(block) = self.order.values().next().copied() {
            self.take(&block);
        }
        before - self.bytes
    }

    fn take(&mut self, block: &Block) -> Option<Vec<Bytes>> {
        let kept = self.blocks.remove(block)?;
        self.order.remove(&kept.number);
        self.bytes -= kept.bytes();
        Some(kept.parts.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use s3mount_object::ByteRange;

    use super::Assembly;
    use crate::block::BLOCK_BYTES;
    use crate::block::tests::block;

    fn part(start: u64, end: u64) -> Bytes {
        (start..end).map(|at| (at % 251) as u8).collect::<Vec<_>>().into()
    }

    proptest! {
        #[test]
        fn parts_in_any_order_make_the_block_once(cuts in prop::collection::btree_set(1u64..999, 0..8), seed in any::<u64>()) {
            let block = block(2, 1000);
            let start = 2 * BLOCK_BYTES;
            let edges: Vec<u64> = [0].into_iter().chain(cuts).chain([1000]).collect();
            let mut parts: Vec<_> = edges.windows(2).map(|pair| (pair[0], pair[1])).collect();
            parts.sort_by_key(|(from, _)| (from ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut assembly = Assembly::default();
            let last = parts.len() - 1;
            for (index, (from, to)) in parts.iter().enumerate() {
                let range = ByteRange::new(start + from, start + to);
                // The same part twice is kept once.
                if index < last {
                    prop_assert!(assembly.add(&block, range, part(*from, *to)).is_none());
                }
                let whole = assembly.add(&block, range, part(*from, *to));
                prop_assert_eq!(whole.is_some(), index == last);
                if let Some(whole) = whole {
                    prop_assert!(whole.concat() == part(0, 1000));
                }
            }
            prop_assert_eq!(assembly.bytes(), 0);
        }
    }

    #[test]
    fn the_oldest_block_goes_first() {
        let mut assembly = Assembly::default();
        for number in 0..3 {
            let start = number * BLOCK_BYTES;
            assert!(
                assembly.add(&block(number, 100), ByteRange::new(start, start + 10), part(0, 10)).is_none()
            );
        }
        assert_eq!((assembly.bytes(), assembly.drop_oldest(), assembly.bytes()), (30, 10, 20));
        let rest = ByteRange::new(BLOCK_BYTES + 10, BLOCK_BYTES + 100);
        assert!(assembly.add(&block(1, 100), rest, part(10, 100)).is_some(), "the second one is still here");
        assert_eq!((assembly.drop_oldest(), assembly.drop_oldest(), assembly.bytes()), (10, 0, 0));
    }
}
