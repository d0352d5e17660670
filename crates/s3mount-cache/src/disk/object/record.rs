//! The record of a version on the disk: when it was published, the checksum of each block, and the version's name.
//! Pure.
//!
//! A record is a sequence of bytes, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `s3mc` |
//! | 1 | version of the record, 2 |
//! | 1 | size of a block as a power of two |
//! | 1 | 2 if only some blocks are there, see below |
//! | 1 | 1 if a name follows, and 2 more if the bytes were compared with the store's checksum |
//! | 16 | boot in which the version was published |
//! | 8 | nanoseconds from the boot until then |
//! | 8 | size of the object |
//! | 2 + n, three times | the name, if there is one: source, key and ETag, each after its length |
//! | 8 for each block | CRC-64/NVME of the block |
//! | 8 | CRC-64/NVME of all bytes before, and of the version's hash |
//!
//! If only some blocks are there, pages of 1,024 blocks follow the name, in order. Pages of which no block is there are
//! left out:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | number of the page |
//! | 128 | a bit for each of its blocks: whether the block is there |
//! | 8 for each block that is there | CRC-64/NVME of the block |
//!
//! The hash binds the record to this version, so readers need no name. Without it, the record of an object of one or
//! two blocks has at most [`INODE_BYTES`].

use crate::disk::blocks::{self, BLOCK_LOG2, BlockSet};
use crate::disk::clock::{BootId, SinceBoot};
use crate::disk::layout::Hash;

const MAGIC: &[u8; 4] = b"s3mc";

const VERSION: u8 = 2;

/// The kind of a record with pages of blocks. Earlier versions of s3mount used 1 for a map of all blocks, and all
/// checksums.
const PAGES: u8 = 2;

/// The words of 64 blocks in a page.
const PAGE_WORDS: usize = 16;

/// The flag of bytes that were compared with the store's checksum.
const COMPARED: u8 = 2;

/// An extended attribute of this length lies inside of an inode of 256 bytes, the usual size on ext4, so reading
/// it takes no request to the disk. A record outside of it costs a file of 110 KiB a fifth of its speed.
#[cfg(test)]
pub(crate) const INODE_BYTES: usize = 64;

/// The largest object that S3 can hold is 50 TB. A record of a larger one is damaged.
const MAX_OBJECT_BYTES: u64 = 1 << 46;

/// The record of a version on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The boot of the machine in which the bytes were published.
    pub(crate) boot: BootId,
    /// The time in that boot. All bytes were written before it.
    pub(crate) published: SinceBoot,
    /// The object's size in bytes.
    pub(crate) size: u64,
    /// Whether all bytes were compared with a checksum of the store.
    pub(crate) is_compared: bool,
    /// The version's name, unless it is stored elsewhere.
    pub(crate) name: Option<Name>,
    /// The blocks that are there, unless all are.
    pub(crate) map: Option<BlockSet>,
    /// The CRC of each block; 0 for one that is not there.
    pub(crate) sums: Vec<u64>,
}

/// The name of a version, from which its hash is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The store: see [`DiskConfig::source`](crate::DiskConfig::source).
    pub(crate) source: String,
    pub(crate) key: String,
    pub(crate) etag: String,
}

impl Name {
    /// Encodes the name; `None` if a field of it is longer than 64 KiB.
    pub(crate) fn encode(&self, hash: &Hash) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.put(&mut out)?;
        Some(signed(out, hash))
    }

    /// Decodes a name; `None` if the bytes are damaged, or of another version.
    pub(crate) fn decode(bytes: &[u8], hash: &Hash) -> Option<Self> {
        let mut rest = Decoder(verified(bytes, hash)?);
        Self::take(&mut rest).filter(|_| rest.0.is_empty())
    }

    fn put(&self, out: &mut Vec<u8>) -> Option<()> {
        for text in [&self.source, &self.key, &self.etag] {
            out.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        Some(())
    }

    fn take(rest: &mut Decoder<'_>) -> Option<Self> {
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
    /// Encodes the record of a whole object; `None` if a field of the name is longer than 64 KiB.
    pub(crate) fn encode(&self, hash: &Hash) -> Option<Vec<u8>> {
        let mut out = self.head(0, 8 * self.sums.len())?;
        put(&mut out, &self.sums);
        Some(signed(out, hash))
    }

    /// Encodes the record of a partial object, with the blocks `here` and their CRCs `sums`; `None` if a field of the
    /// name is longer than 64 KiB.
    pub(crate) fn encode_map(&self, here: &BlockSet, sums: &[u64], hash: &Hash) -> Option<Vec<u8>> {
        let mut out = self.head(PAGES, 9 * here.held() as usize)?;
        for (number, (words, sums)) in
            here.words().chunks(PAGE_WORDS).zip(sums.chunks(PAGE_WORDS * 64)).enumerate()
        {
            if words.iter().all(|word| *word == 0) {
                continue;
            }
            let mut page = [0; PAGE_WORDS];
            page[..words.len()].copy_from_slice(words);
            put(&mut out, &[number as u64]);
            put(&mut out, &page);
            bits(&page).for_each(|at| put(&mut out, &sums[at..=at]));
        }
        Some(signed(out, hash))
    }

    /// The bytes before the checksums, with room for `room` bytes of these.
    fn head(&self, kind: u8, room: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(256 + room);
        out.extend_from_slice(MAGIC);
        let flags = u8::from(self.name.is_some()) | if self.is_compared { COMPARED } else { 0 };
        out.extend_from_slice(&[VERSION, BLOCK_LOG2, kind, flags]);
        out.extend_from_slice(&self.boot.0);
        put(&mut out, &[self.published.0, self.size]);
        if let Some(name) = &self.name {
            name.put(&mut out)?;
        }
        Some(out)
    }

    /// Decodes a record; `None` if the bytes are damaged, of another version of the object, or in another version of
    /// the format.
    pub(crate) fn decode(bytes: &[u8], hash: &Hash) -> Option<Self> {
        let mut rest = Decoder(verified(bytes, hash)?);
        let (has_pages, has_name, is_compared) = match rest.array()? {
            [a, b, c, d, VERSION, BLOCK_LOG2, kind @ (0 | PAGES), flags @ 0..=3]
                if [a, b, c, d] == *MAGIC =>
            {
                (kind == PAGES, flags & 1 == 1, flags & COMPARED != 0)
            }
            _ => return None,
        };
        let boot = BootId(rest.array()?);
        let published = SinceBoot(rest.number()?);
        let size = rest.number().filter(|size| *size <= MAX_OBJECT_BYTES)?;
        let name = if has_name { Some(Name::take(&mut rest)?) } else { None };
        let count = blocks::count(size);
        let (map, sums) = if has_pages {
            let (map, sums) = rest.pages(count)?;
            (Some(map), sums)
        } else {
            let has_all = rest.0.len() as u64 == count * 8;
            (None, has_all.then(|| (0..count).map_while(|_| rest.number()).collect())?)
        };
        Some(Self { boot, published, size, is_compared, name, map, sums })
    }
}

fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

/// The numbers of the bits that are 1.
fn bits(page: &[u64; PAGE_WORDS]) -> impl Iterator<Item = usize> {
    (0..PAGE_WORDS * 64).filter(|at| page[at / 64] >> (at % 64) & 1 == 1)
}

/// The bytes that are left to decode.
struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Decodes all pages of an object of `count` blocks: which blocks are there, and the CRC of each. The CRCs of
    /// missing blocks take no memory: the kernel allocates a page only when it is written.
    fn pages(&mut self, count: u64) -> Option<(BlockSet, Vec<u64>)> {
        let (mut words, mut sums) = (vec![0; count.div_ceil(64) as usize], vec![0; count as usize]);
        let mut next = 0;
        while !self.0.is_empty() {
            let number = self.number().filter(|number| *number >= next)?;
            next = number + 1;
            let mut page = [0; PAGE_WORDS];
            for word in &mut page {
                *word = self.number()?;
            }
            let first = usize::try_from(number).ok()?.checked_mul(PAGE_WORDS)?;
            for at in bits(&page) {
                *sums.get_mut(first.checked_mul(64)? + at)? = self.number()?;
            }
            let into = words.get_mut(first..)?;
            let len = into.len().min(PAGE_WORDS);
            into[..len].copy_from_slice(&page[..len]);
        }
        Some((BlockSet::from_words(count, words)?, sums))
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
            size in 0..5000 * BLOCK_BYTES,
            (source, key, etag) in ("\\PC{0,40}", "\\PC{0,200}", "\\PC{0,40}"),
            has_name in any::<bool>(),
            is_compared in any::<bool>(),
            held in proptest::option::of(proptest::collection::vec(0u64..5000, 0..50)),
            seed in any::<u64>(),
        ) -> Record {
            let count = blocks::count(size);
            let map = held.map(|held| {
                let mut set = BlockSet::new(count);
                held.into_iter().for_each(|block| { set.insert(block); });
                set
            });
            let is_here = |block: &u64| map.as_ref().is_none_or(|map| map.has(*block));
            let sum = |block: u64| if is_here(&block) { seed.wrapping_mul(block + 1) } else { 0 };
            let sums = (0..count).map(sum).collect();
            let (boot, published) = (BootId(boot), SinceBoot(published));
            let name = has_name.then_some(Name { source, key, etag });
            Record { boot, published, size, is_compared, name, map, sums }
        }
    }

    fn encoded(record: &Record) -> Vec<u8> {
        let bytes = match &record.map {
            Some(here) => record.encode_map(here, &record.sums, &hash("a")),
            None => record.encode(&hash("a")),
        };
        bytes.expect("a short name")
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(record in records()) {
            let bytes = encoded(&record);
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
            let mut bytes = encoded(&record);
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
    fn the_map_of_a_huge_object_is_as_long_as_what_is_there() {
        let record = Record { size: 2 << 40, ..record(0, None) };
        let count = blocks::count(record.size);
        let (mut here, mut sums) = (BlockSet::new(count), vec![0; count as usize]);
        for block in (0..2400).map(|block| count - 1 - block) {
            here.insert(block);
            sums[block as usize] = block;
        }
        let bytes = record.encode_map(&here, &sums, &hash("a")).expect("no name");
        assert!(bytes.len() < 2400 * 8 + 4 * 136 + 100, "{} bytes", bytes.len());
        let decoded = Record::decode(&bytes, &hash("a")).expect("a map");
        assert_eq!((decoded.map, decoded.sums), (Some(here), sums));
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
