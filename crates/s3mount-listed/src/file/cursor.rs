//! A place in an index.

use crate::error::ListedError;
use crate::file::block::{BlockCursor, number};
use crate::file::blocks::Blocks;

/// A place in an index: on one of its names, or behind the last.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    blocks: &'a Blocks,
    /// The places in the blocks that lead to the leaf, from the root on, and in the leaf.
    path: Vec<BlockCursor>,
}

/// Where the block is that an entry leads to.
fn child(cursor: &BlockCursor) -> Result<(u64, u64), ListedError> {
    let mut value = cursor.value();
    number(&mut value).zip(number(&mut value)).ok_or(ListedError::Damaged("an entry leads nowhere"))
}

impl<'a> Cursor<'a> {
    /// The first name that is not before `target`.
    pub(super) fn at(blocks: &'a Blocks, target: &[u8]) -> Result<Self, ListedError> {
        let mut cursor = Self { blocks, path: Vec::with_capacity(blocks.levels + 1) };
        cursor.descend(target)?;
        Ok(cursor)
    }

    fn descend(&mut self, target: &[u8]) -> Result<(), ListedError> {
        self.path.clear();
        let mut place = self.blocks.root;
        for _ in 0..self.blocks.levels {
            let mut cursor = BlockCursor::new(self.blocks.block(place)?)?;
            cursor.seek_last(target)?;
            place = child(&cursor)?;
            self.path.push(cursor);
        }
        let mut leaf = BlockCursor::new(self.blocks.block(place)?)?;
        leaf.seek(target)?;
        self.path.push(leaf);
        self.leave_ends()
    }

    /// Goes from behind the last entry of a leaf to the first entry of the next leaf.
    fn leave_ends(&mut self) -> Result<(), ListedError> {
        while self.path.last().is_some_and(BlockCursor::is_behind) {
            self.path.pop();
            let Some(above) = self.path.last_mut() else { return Ok(()) };
            above.advance()?;
            if !above.is_behind() {
                while self.path.len() <= self.blocks.levels {
                    let place = child(self.path.last().expect("it was just looked at"))?;
                    self.path.push(BlockCursor::new(self.blocks.block(place)?)?);
                }
            }
        }
        Ok(())
    }

    /// The name here and the bytes of its version. `None` behind the last name.
    pub(super) fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.path.last().map(|leaf| (leaf.key(), leaf.value()))
    }

    /// Goes to the next name.
    pub(super) fn advance(&mut self) -> Result<(), ListedError> {
        let Some(leaf) = self.path.last_mut() else { return Ok(()) };
        leaf.advance()?;
        self.leave_ends()
    }

    /// Goes on to the first name that is not before `target`, which is not before the name here.
    pub(super) fn seek(&mut self, target: &[u8]) -> Result<(), ListedError> {
        let Some(leaf) = self.path.last_mut() else { return Ok(()) };
        // It mostly is in the same block.
        leaf.seek(target)?;
        if leaf.is_behind() { self.descend(target) } else { Ok(()) }
    }
}
