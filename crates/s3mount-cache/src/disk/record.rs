//! What is written down about a version that lies on the disk: when it was published, the checksum of each
//! block, and whose bytes they are. Pure.
//!
//! A record is a sequence of bytes, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `s3mc` |
//! | 1 | version of the record, 2 |
//! | 1 | size of a block as a power of two |
//! | 1 | 1 if a map of blocks follows |
//! | 1 | 1 if a name follows, and 2 more if the bytes were compared with the store's checksum |
//! | 16 | boot in which it was published |
//! | 8 | nanoseconds from the boot until then |
//! | 8 | size of the object |
//! | 2 + n, three times | the name, if there is one: source, key and ETag, each after its length |
//! | 8 for each 64 blocks | the map, if there is one |
//! | 8 for each block | CRC-64/NVME of the block |
//! | 8 | CRC-64/NVME of all that is before, and of the version's hash |
//!
//! The hash makes the record one of this version, so readers need no name. Without it, the record of an object
//! of one or two blocks has at most [`INODE_BYTES`].

use crate::disk::blocks::{self, BLOCK_LOG2, BlockSet};
use crate::disk::clock::{BootId, SinceBoot};
use crate::disk::layout::Hash;

const MAGIC: &[u8; 4] = b"s3mc";

const VERSION: u8 = 2;

/// The flag of bytes that were compared with the store's checksum.
const COMPARED: u8 = 2;

/// An extended attribute of this length lies inside of an inode of 256 bytes, the usual size on ext4, so reading
/// it takes no request to the disk. A record outside of it costs a file of 110 KiB a fifth of its speed.
#[cfg(test)]
pub(crate) const INODE_BYTES: usize = 64;

/// The largest object that S3 can hold is 50 TB. A record of a larger one is damaged.
const MAX_OBJECT_BYTES: u64 = 1 << 46;

/// What is written down about a version on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// In which boot of the machine the bytes were published.
    pub(crate) boot: BootId,
    /// When in that boot. All bytes were written before this time.
    pub(crate) published: SinceBoot,
    /// The object's size in bytes.
    pub(crate) size: u64,
    /// Whether all bytes were compared with a checksum of the store.
    pub(crate) is_compared: bool,
    /// Whose bytes they are, where nothing else says so.
    pub(crate) name: Option<Name>,
    /// Which blocks are there, where not all are.
    pub(crate) map: Option<BlockSet>,
    /// The CRC of each block. That of a block that is not there says nothing.
    pub(crate) sums: Vec<u64>,
}

/// The name of a version: what its hash is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The store: see [`DiskConfig::source`](crate::DiskConfig::source).
    pub(crate) source: String,
    pub(crate) key: String,
    pub(crate) etag: String,
}

impl Name {
    /// The name as bytes; `None` if a part of it is longer than 64 KiB.
    pub(crate) fn encode(&self, hash: &Hash) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.put(&mut out)?;
        Some(signed(out, hash))
    }

    /// The name that `bytes` hold; `None` if they are damaged, or of another version.
    pub(crate) fn decode(bytes: &[u8], hash: &Hash) -> Option<Self> {
        let mut rest = Rest(verified(bytes, hash)?);
        Self::take(&mut rest).filter(|_| rest.0.is_empty())
    }

    fn put(&self, out: &mut Vec<u8>) -> Option<()> {
        for text in [&self.source, &self.key, &self.etag] {
            out.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        Some(())
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Some(Self { source: rest.text()?, key: rest.text()?, etag: rest.text()? })
    }
}

/// The checksum of bytes that belong to one version.
fn sum(bytes: &[u8], hash: &Hash) -> u64 {
    blocks::sum_of(&[bytes, hash.bytes()])
}

/// The bytes with their checksum.
fn signed(mut bytes: Vec<u8>, hash: &Hash) -> Vec<u8> {
    let sum = sum(&bytes, hash);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The bytes without their checksum, if it is right.
fn verified<'a>(bytes: &'a [u8], hash: &Hash) -> Option<&'a [u8]> {
    let (body, found) = bytes.split_last_chunk()?;
    (sum(body, hash) == u64::from_le_bytes(*found)).then_some(body)
}

impl Record {
    /// The record as bytes; `None` if a part of the name is longer than 64 KiB.
    pub(crate) fn encode(&self, hash: &Hash) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(128 + 9 * self.sums.len());
        out.extend_from_slice(MAGIC);
        let (has_map, has_name) = (u8::from(self.map.is_some()), u8::from(self.name.is_some()));
        let flags = has_name | if self.is_compared { COMPARED } else { 0 };
        out.extend_from_slice(&[VERSION, BLOCK_LOG2, has_map, flags]);
        out.extend_from_slice(&self.boot.0);
        out.extend_from_slice(&self.published.0.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        if let Some(name) = &self.name {
            name.put(&mut out)?;
        }
        let words = self.map.as_ref().map(BlockSet::words).unwrap_or_default();
        for number in words.iter().chain(&self.sums) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        Some(signed(out, hash))
    }

    /// The record that `bytes` hold; `None` if they are damaged, of another version of the object, or from
    /// another version of the record.
    pub(crate) fn decode(bytes: &[u8], hash: &Hash) -> Option<Self> {
        let mut rest = Rest(verified(bytes, hash)?);
        let (has_map, has_name, is_compared) = match rest.array()? {
            [a, b, c, d, VERSION, BLOCK_LOG2, map @ 0..=1, flags @ 0..=3] if [a, b, c, d] == *MAGIC => {
                (map == 1, flags & 1 == 1, flags & COMPARED != 0)
            }
            _ => return None,
        };
        let boot = BootId(rest.array()?);
        let published = SinceBoot(rest.number()?);
        let size = rest.number().filter(|size| *size <= MAX_OBJECT_BYTES)?;
        let name = if has_name { Some(Name::take(&mut rest)?) } else { None };
        let count = blocks::count(size);
        let words = if has_map { count.div_ceil(64) } else { 0 };
        if rest.0.len() as u64 != (words + count) * 8 {
            return None;
        }
        let words: Option<Vec<_>> = (0..words).map(|_| rest.number()).collect();
        let map = if has_map { Some(BlockSet::from_words(count, words?)?) } else { None };
        let sums = (0..count).map(|_| rest.number()).collect::<Option<_>>()?;
        Some(Self { boot, published, size, is_compared, name, map, sums })
    }
}

/// What is left to decode.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let len = u16::from_le_bytes(self.array()?);
        let (text, rest) = self.0.split_at_checked(usize::from(len))?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use s3mount_object::{ETag, ObjectId};

    use super::{INODE_BYTES, Name, Record, signed};
    use crate::disk::blocks::{self, BLOCK_BYTES, BlockSet};
    use crate::disk::clock::{BootId, SinceBoot};
    use crate::disk::layout::Hash;

    fn hash(key: &str) -> Hash {
        Hash::of("s", &ObjectId::new(key, ETag::new("e")))
    }

    prop_compose! {
        fn records()(
            boot in any::<[u8; 16]>(),
            published in any::<u64>(),
            size in 0..200 * BLOCK_BYTES,
            (source, key, etag) in ("\\PC{0,40}", "\\PC{0,200}", "\\PC{0,40}"),
            has_name in any::<bool>(),
            is_compared in any::<bool>(),
            held in proptest::option::of(proptest::collection::vec(0u64..200, 0..50)),
            seed in any::<u64>(),
        ) -> Record {
            let count = blocks::count(size);
            let map = held.map(|held| {
                let mut set = BlockSet::new(count);
                held.into_iter().for_each(|block| { set.insert(block); });
                set
            });
            let sums = (0..count).map(|block| seed.wrapping_mul(block + 1)).collect();
            let (boot, published) = (BootId(boot), SinceBoot(published));
            let name = has_name.then_some(Name { source, key, etag });
            Record { boot, published, size, is_compared, name, map, sums }
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(record in records()) {
            let bytes = record.encode(&hash("a")).expect("a short name");
            let decoded = Record::decode(&bytes, &hash("a"));
            prop_assert_eq!(decoded.as_ref(), Some(&record));
            prop_assert_eq!(Record::decode(&bytes, &hash("b")), None, "it is one of another version");
            if let Some(name) = record.name {
                let bytes = name.encode(&hash("a")).expect("a short name");
                prop_assert_eq!(Name::decode(&bytes, &hash("a")), Some(name));
                prop_assert_eq!(Name::decode(&bytes, &hash("b")), None);
            }
        }

        #[test]
        fn a_damaged_record_is_none(record in records(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
            let mut bytes = record.encode(&hash("a")).expect("a short name");
            let at = at.index(bytes.len());
            prop_assert_eq!(Record::decode(&bytes[..at], &hash("a")), None);
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(Record::decode(&bytes, &hash("a")), None);
        }

        #[test]
        fn any_bytes_are_decoded_without_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), is_signed in any::<bool>()) {
            if is_signed {
                bytes = signed(bytes, &hash("a"));
            }
            Record::decode(&bytes, &hash("a"));
            Name::decode(&bytes, &hash("a"));
        }
    }

    fn record(blocks: u64, name: Option<Name>) -> Record {
        let (boot, published, size) = (BootId([0; 16]), SinceBoot(0), blocks * BLOCK_BYTES);
        let sums = vec![0; blocks as usize];
        Record { boot, published, size, is_compared: false, name, map: None, sums }
    }

    #[test]
    fn a_name_that_has_no_room_is_refused() {
        let name = Name { source: String::new(), key: "k".repeat(1 << 16), etag: String::new() };
        assert_eq!(name.encode(&hash("a")), None);
        assert_eq!(record(0, Some(name)).encode(&hash("a")), None);
    }

    #[test]
    fn the_record_of_a_small_object_has_room_in_its_inode() {
        let bytes = |blocks| record(blocks, None).encode(&hash("a")).expect("no name").len();
        assert!(bytes(1) < bytes(2) && bytes(2) <= INODE_BYTES, "{} and {} bytes", bytes(1), bytes(2));
    }
}
