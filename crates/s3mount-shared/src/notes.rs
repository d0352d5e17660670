//! What this mount knows of blocks, in bounded memory. Pure.
//!
//! A note is a hint: forgetting one, or mistaking one block for another, costs a request and nothing else.

use std::collections::HashMap;

use crate::block::Block;

/// Notes of one generation. When it is full, the generation before it is forgotten. Both together take some
/// 2 MiB, and cover the blocks of 256 GiB at least.
const GENERATION: usize = 32_768;

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// Bytes that random reads fetched from the source because the block was absent.
    pub(crate) missed_bytes: u32,
    /// This mount has promised the block to the others.
    pub(crate) is_promised: bool,
    /// Another mount has promised the block, and it did not come within the wait. No read here waits for it again.
    pub(crate) is_overdue: bool,
    /// The block in the bucket is damaged, so it is written over.
    pub(crate) is_damaged: bool,
    /// The block waits here to be uploaded, or is being uploaded.
    pub(crate) is_queued: bool,
    /// The block is in the bucket.
    pub(crate) is_there: bool,
}

impl Note {
    /// Whether this mount may fetch the block without a lease, because it waits for nobody's promise.
    pub(crate) fn is_ours(self) -> bool {
        self.is_promised || self.is_overdue || self.is_damaged || self.is_queued
    }
}

/// The notes of the blocks that were asked for last.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    young: HashMap<u64, Note>,
    old: HashMap<u64, Note>,
}

impl Notes {
    pub(crate) fn get(&self, block: &Block) -> Note {
        let id = id(block);
        self.young.get(&id).or_else(|| self.old.get(&id)).copied().unwrap_or_default()
    }

    /// Changes the note of a block, and returns it.
    pub(crate) fn update(&mut self, block: &Block, change: impl FnOnce(&mut Note)) -> Note {
        let mut note = self.get(block);
        change(&mut note);
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id(block), note);
        note
    }
}

fn id(block: &Block) -> u64 {
    let (first, _) = block.version.bytes().split_first_chunk().expect("a version has 32 bytes");
    u64::from_le_bytes(*first) ^ block.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::{GENERATION, Note, Notes};
    use crate::block::tests::block;

    #[test]
    fn the_latest_blocks_are_remembered_and_the_memory_is_bounded() {
        let mut notes = Notes::default();
        let count = 5 * GENERATION as u64;
        for number in 0..count {
            notes.update(&block(number, 1), |note| note.missed_bytes = number as u32);
        }
        assert!(notes.young.len() + notes.old.len() <= 2 * GENERATION);
        for number in count - GENERATION as u64..count {
            assert_eq!(notes.get(&block(number, 1)).missed_bytes, number as u32);
        }
        assert_eq!(notes.get(&block(0, 1)), Note::default());
    }
}
