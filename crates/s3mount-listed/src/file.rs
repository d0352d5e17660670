//! The index on the disk.
//!
//! ```text
//! header   magic, id, length of the text, checksum; the text that says of which list the index is
//! blocks   of names and what the list says of them, in order; between them, the blocks that lead to them
//! footer   where the root is, how many levels and names there are, length of the file, magic, checksum
//! ```
//!
//! A block holds entries in the order of their keys, each without what its key has in common with the key before
//! ([`block`]). Leaves hold names. A block of a higher level holds the first key of each block below it, and where that
//! is. So a name is found by one block for each level: four for 100 million names. Each block has a checksum over the
//! index's id, its place and its bytes.

pub(crate) mod block;
pub(crate) mod blocks;
pub(crate) mod cursor;
pub(crate) mod frame;
pub(crate) mod index;
pub(crate) mod page;
pub(crate) mod version;
pub(crate) mod writer;

#[cfg(test)]
mod tests;
