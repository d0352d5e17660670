//! Blocks: which bytes of a version each has, and the keys under which they lie in the shared bucket.

use std::fmt::Write as _;

use s3mount_object::{ByteRange, ObjectId};
use sha2::{Digest, Sha256};

/// Objects are cut into blocks of this many bytes; the last one may be shorter. It is the length of the
/// largest GET by default, so that one GET of the source fills a block.
pub const BLOCK_BYTES: u64 = 8 << 20;

/// Each piece of this many bytes has a checksum of its own, so that a random read of this length is verified
/// without the bytes around it. The checksums of a block take 700 of the 2,048 bytes that S3 has for metadata.
pub(crate) const PIECE_BYTES: u64 = 128 << 10;

/// The first part of each key after the prefix. It changes with the form of the blocks.
const LAYOUT: &str = "v1";

/// A version of an object of one bucket of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version([u8; 32]);

impl Version {
    /// The version `object` in `bucket` at `endpoint`. Each of the four fields has its length before it, so
    /// no two versions have the same text.
    pub(crate) fn new(endpoint: &str, bucket: &str, object: &ObjectId) -> Self {
        let mut hash = Sha256::new();
        for field in [endpoint, bucket, object.key(), object.etag().as_str()] {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        Self(hash.finalize().into())
    }

    /// The bytes that name it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One block of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Block {
    pub(crate) version: Version,
    /// Its place in the object: 0 for the first block.
    pub(crate) number: u64,
    /// Its bytes in the object.
    pub(crate) range: ByteRange,
}

impl Block {
    /// The block that `range` lies in, in a version of `size` bytes. `None` when the range is empty, lies
    /// beyond the object's end, or in several blocks.
    pub(crate) fn of(version: Version, size: u64, range: ByteRange) -> Option<Self> {
        let block = Self::at(version, size, range.start())?;
        (range.len() > 0 && block.range.covers(range)).then_some(block)
    }

    /// The block that the byte at `offset` lies in.
    pub(crate) fn at(version: Version, size: u64, offset: u64) -> Option<Self> {
        let number = offset / BLOCK_BYTES;
        let (start, end) = (number * BLOCK_BYTES, edge_after(offset).min(size));
        (offset < size).then(|| Self { version, number, range: ByteRange::new(start, end) })
    }

    pub(crate) fn len(&self) -> u64 {
        self.range.len()
    }

    /// The key of the block below `prefix`.
    pub(crate) fn key(&self, prefix: &str) -> String {
        let mut key = format!("{prefix}{LAYOUT}/");
        for byte in self.version.bytes() {
            // Writing to a string can't fail.
            let _ = write!(key, "{byte:02x}");
        }
        let _ = write!(key, "/{}", self.number);
        key
    }

    /// The key of the object by which one mount promises the others to fetch the block. In turn 1 it has no number.
    pub(crate) fn lease_key(&self, prefix: &str, turn: u32) -> String {
        let key = self.key(prefix) + ".lease";
        if turn > 1 { format!("{key}{turn}") } else { key }
    }

    /// The shortest range that has `range`, which lies in the block, and consists of whole pieces.
    pub(crate) fn widened(&self, range: ByteRange) -> ByteRange {
        let end = range.end().next_multiple_of(PIECE_BYTES).min(self.range.end());
        ByteRange::new(range.start() / PIECE_BYTES * PIECE_BYTES, end)
    }

    /// Where `range` of the object lies in the block.
    pub(crate) fn within(&self, range: ByteRange) -> ByteRange {
        ByteRange::new(range.start() - self.range.start(), range.end() - self.range.start())
    }
}

/// The first block edge behind `offset`.
pub(crate) fn edge_after(offset: u64) -> u64 {
    (offset / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
pub(crate) mod tests {
    use s3mount_object::{ByteRange, ETag, ObjectId};

    use super::{BLOCK_BYTES, Block, PIECE_BYTES, Version};

    /// A block of `len` bytes at the place `number` of its object.
    pub(crate) fn block(number: u64, len: u64) -> Block {
        let version = Version::new("e", "b", &ObjectId::new("k", ETag::new("\"1\"")));
        let start = number * BLOCK_BYTES;
        Block { version, number, range: ByteRange::new(start, start + len) }
    }

    #[test]
    fn each_field_of_a_version_counts_and_no_two_run_together() {
        let key = |endpoint: &str, bucket: &str, key: &str, etag: &str| {
            let version = Version::new(endpoint, bucket, &ObjectId::new(key, ETag::new(etag)));
            Block::at(version, 1, 0).expect("a block").key("p/")
        };
        let all = [
            key("e", "b", "k", "t"),
            key("f", "b", "k", "t"),
            key("e", "c", "k", "t"),
            key("e", "b", "l", "t"),
            key("e", "b", "k", "u"),
            key("eb", "", "k", "t"),
            key("e", "bk", "", "t"),
            key("e", "b", "kt", ""),
            key("", "eb", "k", "t"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one), "{one} stands for two versions");
            assert_eq!((one.len(), &one[..5]), (2 + 3 + 64 + 2, "p/v1/"));
        }
    }

    #[test]
    fn a_range_lies_in_one_block_or_in_none() {
        let of = |size, start, end| Block::of(block(0, 1).version, size, ByteRange::new(start, end));
        let range = |block: Option<Block>| block.map(|block| (block.number, block.range));
        let size = 2 * BLOCK_BYTES + 10;
        assert_eq!(range(of(size, 0, 1)), Some((0, ByteRange::new(0, BLOCK_BYTES))));
        assert_eq!(range(of(size, BLOCK_BYTES, 2 * BLOCK_BYTES)).map(|(number, _)| number), Some(1));
        assert_eq!(range(of(size, size - 1, size)), Some((2, ByteRange::new(2 * BLOCK_BYTES, size))));
        assert_eq!(of(size, BLOCK_BYTES - 1, BLOCK_BYTES + 1), None, "two blocks");
        assert_eq!(of(size, size - 1, size + 1), None, "beyond the end");
        assert_eq!(of(size, 5, 5), None, "empty");
        assert_eq!(of(0, 0, 0), None, "an empty object");
    }

    #[test]
    fn ranges_are_widened_to_pieces_and_not_beyond_the_block() {
        let block = block(1, 3 * PIECE_BYTES + 7);
        let start = BLOCK_BYTES;
        let widened = |from, to| block.within(block.widened(ByteRange::new(start + from, start + to)));
        assert_eq!(widened(0, PIECE_BYTES), ByteRange::new(0, PIECE_BYTES));
        assert_eq!(widened(1, PIECE_BYTES + 1), ByteRange::new(0, 2 * PIECE_BYTES));
        assert_eq!(widened(3 * PIECE_BYTES + 6, block.len()), ByteRange::new(3 * PIECE_BYTES, block.len()));
    }
}
