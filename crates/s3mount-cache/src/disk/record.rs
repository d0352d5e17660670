//! What is written down about a version that lies on the disk: whose bytes they are, when they were
//! published, and the checksum of each block. Pure.
//!
//! A record is a sequence of bytes, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `s3mc` |
//! | 1 | version of the record, 1 |
//! | 1 | size of a block as a power of two |
//! | 1 | 1 if a map of blocks follows |
//! | 1 | 0 |
//! | 16 | boot in which it was published |
//! | 8 | nanoseconds from the boot until then |
//! | 8 | size of the object |
//! | 2 + n, three times | source, key and ETag, each after its length |
//! | 8 for each 64 blocks | the map, if there is one |
//! | 8 for each block | CRC-64/NVME of the block |
//! | 8 | CRC-64/NVME of all that is before |

use crate::disk::blocks::{self, BLOCK_LOG2, BlockSet};
use crate::disk::clock::{BootId, SinceBoot};

const MAGIC: &[u8; 4] = b"s3mc";

const VERSION: u8 = 1;

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
    /// The store: see [`DiskConfig::source`](crate::DiskConfig::source).
    pub(crate) source: String,
    pub(crate) key: String,
    pub(crate) etag: String,
    /// Which blocks are there, where not all are.
    pub(crate) map: Option<BlockSet>,
    /// The CRC of each block. That of a block that is not there says nothing.
    pub(crate) sums: Vec<u64>,
}

impl Record {
    /// The record as bytes; `None` if a name is longer than 64 KiB.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(128 + self.key.len() + 9 * self.sums.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, BLOCK_LOG2, u8::from(self.map.is_some()), 0]);
        out.extend_from_slice(&self.boot.0);
        out.extend_from_slice(&self.published.0.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        for text in [&self.source, &self.key, &self.etag] {
            out.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        let words = self.map.as_ref().map(BlockSet::words).unwrap_or_default();
        for number in words.iter().chain(&self.sums) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let sum = blocks::sum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        Some(out)
    }

    /// The record that `bytes` hold; `None` if they are damaged, or from another version of the record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk()?;
        if blocks::sum(body) != u64::from_le_bytes(*sum) {
            return None;
        }
        let mut rest = Rest(body);
        let has_map = match rest.array()? {
            [a, b, c, d, VERSION, BLOCK_LOG2, map @ 0..=1, 0] if [a, b, c, d] == *MAGIC => map == 1,
            _ => return None,
        };
        let boot = BootId(rest.array()?);
        let published = SinceBoot(rest.number()?);
        let size = rest.number().filter(|size| *size <= MAX_OBJECT_BYTES)?;
        let (source, key, etag) = (rest.text()?, rest.text()?, rest.text()?);
        let count = blocks::count(size);
        let words = if has_map { count.div_ceil(64) } else { 0 };
        if rest.0.len() as u64 != (words + count) * 8 {
            return None;
        }
        let words: Option<Vec<_>> = (0..words).map(|_| rest.number()).collect();
        let map = if has_map { Some(BlockSet::from_words(count, words?)?) } else { None };
        let sums = (0..count).map(|_| rest.number()).collect::<Option<_>>()?;
        Some(Self { boot, published, size, source, key, etag, map, sums })
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

    use super::Record;
    use crate::disk::blocks::{self, BLOCK_BYTES, BlockSet};
    use crate::disk::clock::{BootId, SinceBoot};

    prop_compose! {
        fn records()(
            boot in any::<[u8; 16]>(),
            published in any::<u64>(),
            size in 0..200 * BLOCK_BYTES,
            (source, key, etag) in ("\\PC{0,40}", "\\PC{0,200}", "\\PC{0,40}"),
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
            Record { boot, published, size, source, key, etag, map, sums }
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(record in records()) {
            let bytes = record.encode().expect("short names");
            prop_assert_eq!(Record::decode(&bytes), Some(record));
        }

        #[test]
        fn a_damaged_record_is_none(record in records(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
            let mut bytes = record.encode().expect("short names");
            let at = at.index(bytes.len());
            prop_assert_eq!(Record::decode(&bytes[..at]), None);
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(Record::decode(&bytes), None);
        }

        #[test]
        fn any_bytes_are_decoded_without_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), is_signed in any::<bool>()) {
            if is_signed {
                let sum = blocks::sum(&bytes);
                bytes.extend_from_slice(&sum.to_le_bytes());
            }
            Record::decode(&bytes);
        }
    }

    #[test]
    fn a_name_that_has_no_room_is_refused() {
        let key = "k".repeat(1 << 16);
        let record = Record {
            boot: BootId([0; 16]),
            published: SinceBoot(0),
            size: 0,
            source: String::new(),
            key,
            etag: String::new(),
            map: None,
            sums: Vec::new(),
        };
        assert_eq!(record.encode(), None);
    }
}
