//! A block of entries, each without what its key has in common with the key before.
//!
//! An entry: how many bytes of the former key its key begins with; the length of the rest; the rest; the length of the
//! value; the value. Numbers are varints of seven bits each, the lowest first.

use std::ops::Range;
use std::sync::Arc;

use crate::error::ListedError;

/// A block is closed when it has so many bytes: some 200 names. A look-up reads a block for each level and goes through
/// half of each, so smaller blocks would cost more reads, and larger ones more time.
pub(crate) const BLOCK_BYTES: usize = 8 << 10;

/// Adds a number.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number off. `None` if there is none.
pub(crate) fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes so many bytes off.
pub(crate) fn slice<'a>(bytes: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// A block that is being written.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    first: Vec<u8>,
    last: Vec<u8>,
    entries: u32,
}

impl BlockBuilder {
    /// Adds an entry. Its key comes after that of the entry before.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        if self.bytes.is_empty() {
            self.first = key.to_vec();
        }
        let shared = self.last.iter().zip(key).take_while(|(last, new)| last == new).count();
        put_number(&mut self.bytes, shared as u64);
        put_number(&mut self.bytes, (key.len() - shared) as u64);
        self.bytes.extend_from_slice(&key[shared..]);
        put_number(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(value);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether it has `most` bytes, and more than one entry: else each level would have as many blocks as the one below.
    pub(crate) fn is_full(&self, most: usize) -> bool {
        self.bytes.len() >= most && self.entries > 1
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key of the first entry.
    pub(crate) fn first(&self) -> &[u8] {
        &self.first
    }

    /// Begins the next block.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.last.clear();
        self.entries = 0;
    }
}

/// A place in a block: on one of its entries, or behind the last.
#[derive(Clone, Debug)]
pub(crate) struct BlockCursor {
    block: Arc<[u8]>,
    /// Where the next entry begins.
    next: usize,
    key: Vec<u8>,
    value: Range<usize>,
    is_behind: bool,
}

impl BlockCursor {
    /// The first entry.
    pub(crate) fn new(block: Arc<[u8]>) -> Result<Self, ListedError> {
        let mut cursor = Self { block, next: 0, key: Vec::new(), value: 0..0, is_behind: false };
        cursor.advance()?;
        Ok(cursor)
    }

    /// Goes to the next entry.
    pub(crate) fn advance(&mut self) -> Result<(), ListedError> {
        if self.next == self.block.len() {
            self.is_behind = true;
            return Ok(());
        }
        self.decode().ok_or(ListedError::Damaged("an entry is cut off"))
    }

    fn decode(&mut self) -> Option<()> {
        let mut rest = &self.block[self.next..];
        let shared = usize::try_from(number(&mut rest)?).ok()?;
        let len = number(&mut rest)?;
        let suffix = slice(&mut rest, len)?;
        let value_len = number(&mut rest)?;
        let start = self.block.len() - rest.len();
        slice(&mut rest, value_len)?;
        if shared > self.key.len() {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        self.next = self.block.len() - rest.len();
        self.value = start..self.next;
        Some(())
    }

    /// Whether this is behind the last entry.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The key of the entry.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// What the entry says of the key.
    pub(crate) fn value(&self) -> &[u8] {
        &self.block[self.value.clone()]
    }

    /// Goes on to the first entry from here whose key is not before `target`.
    pub(crate) fn seek(&mut self, target: &[u8]) -> Result<(), ListedError> {
        while !self.is_behind && *self.key < *target {
            self.advance()?;
        }
        Ok(())
    }

    /// Goes on to the last entry from here whose key is not after `target`, or stays, if all are after it.
    pub(crate) fn seek_last(&mut self, target: &[u8]) -> Result<(), ListedError> {
        let mut ahead = self.clone();
        loop {
            ahead.advance()?;
            if ahead.is_behind || *ahead.key > *target {
                return Ok(());
            }
            self.next = ahead.next;
            self.value = ahead.value.clone();
            self.key.clone_from(&ahead.key);
        }
    }
}
