//! The checksums of a block, which lie in its metadata.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crc_fast::{CrcAlgorithm, Digest, checksum};
use s3mount_object::{ByteRange, UserMetadata};

use crate::block::{Block, PIECE_BYTES};

/// The name of the metadata.
const NAME: &str = "s3mount-sums";

/// Stands before everything that the checksum of the header covers.
const MAGIC: &[u8] = b"s3mount block 1";

/// The length of a CRC-64 in bytes.
const SUM_BYTES: usize = 8;

/// The CRC-64/NVME of each piece of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums(Vec<u8>);

impl Sums {
    /// The checksums of the bytes of a whole block.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.chunks(PIECE_BYTES as usize).flat_map(|piece| sum(piece).to_le_bytes()).collect())
    }

    /// The metadata of `block`, whose checksums these are: the CRC-64 of the header, then the checksums, in
    /// base64.
    pub(crate) fn to_metadata(&self, block: &Block) -> UserMetadata {
        let header = self.header_sum(block).to_le_bytes();
        UserMetadata::from([(NAME.to_owned(), BASE64_STANDARD.encode([&header, self.0.as_slice()].concat()))])
    }

    /// The checksums in the metadata of `block`. `None` when they are damaged, or of another block.
    pub(crate) fn from_metadata(metadata: &UserMetadata, block: &Block) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(metadata.get(NAME)?).ok()?;
        let (header, sums) = bytes.split_first_chunk::<SUM_BYTES>()?;
        let sums = Self(sums.to_vec());
        let count = usize::try_from(block.len().div_ceil(PIECE_BYTES)).ok()?;
        (sums.0.len() == count * SUM_BYTES && sums.header_sum(block) == u64::from_le_bytes(*header))
            .then_some(sums)
    }

    /// Whether `bytes` are those of `range` of the block. The range consists of whole pieces.
    pub(crate) fn hold(&self, block: &Block, range: ByteRange, bytes: &[u8]) -> bool {
        let first = (range.start() - block.range.start()) / PIECE_BYTES;
        let sums = self.0.chunks_exact(SUM_BYTES).skip(usize::try_from(first).unwrap_or(usize::MAX));
        let pieces = bytes.chunks(PIECE_BYTES as usize);
        bytes.len() as u64 == range.len()
            && sums.len() >= pieces.len()
            && pieces.zip(sums).all(|(piece, expected)| sum(piece).to_le_bytes() == expected)
    }

    /// The checksum of the checksums, and of which block of which version they are. So a block that was
    /// copied to another key is refused.
    fn header_sum(&self, block: &Block) -> u64 {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(MAGIC);
        digest.update(block.version.bytes());
        digest.update(&block.number.to_le_bytes());
        digest.update(&block.len().to_le_bytes());
        digest.update(&self.0);
        digest.finalize()
    }
}

fn sum(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use s3mount_object::{ByteRange, UserMetadata};

    use super::{NAME, Sums};
    use crate::block::tests::block;
    use crate::block::{BLOCK_BYTES, Block, PIECE_BYTES};

    fn bytes(len: u64) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn sums_of_a_whole_block_fit_the_metadata_of_s3() {
        let block = block(3, BLOCK_BYTES);
        let metadata = Sums::of(&bytes(BLOCK_BYTES)).to_metadata(&block);
        let length: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(length < 1000, "{length}");
        assert_eq!(Sums::from_metadata(&metadata, &block), Some(Sums::of(&bytes(BLOCK_BYTES))));
    }

    #[test]
    fn sums_of_another_block_version_or_length_are_refused() {
        let here = block(3, 1000);
        let metadata = Sums::of(&bytes(1000)).to_metadata(&here);
        assert!(Sums::from_metadata(&metadata, &here).is_some());
        assert_eq!(Sums::from_metadata(&metadata, &block(4, 1000)), None, "another block");
        assert_eq!(Sums::from_metadata(&metadata, &block(3, 1001)), None, "another length");
        let object = s3mount_object::ObjectId::new("k", s3mount_object::ETag::new("\"2\""));
        let other = Block { version: crate::block::Version::new("e", "b", &object), ..here };
        assert_eq!(Sums::from_metadata(&metadata, &other), None, "another version");
        assert_eq!(Sums::from_metadata(&UserMetadata::new(), &here), None, "no metadata");
        let odd = UserMetadata::from([(NAME.to_owned(), "?".to_owned())]);
        assert_eq!(Sums::from_metadata(&odd, &here), None, "no base64");
    }

    proptest! {
        #[test]
        fn one_flipped_bit_is_noticed(
            pieces in 1u64..6, rest in 1u64..PIECE_BYTES, from in 0u64..6, bit in any::<prop::sample::Index>(),
            header_bit in any::<prop::sample::Index>(),
        ) {
            let block = block(1, pieces * PIECE_BYTES + rest);
            let bytes = bytes(block.len());
            let sums = Sums::of(&bytes);
            let from = from.min(pieces) * PIECE_BYTES;
            let range = ByteRange::new(block.range.start() + from, block.range.end());
            let mut read = bytes[from as usize..].to_vec();
            prop_assert!(sums.hold(&block, range, &read));
            prop_assert!(!sums.hold(&block, range, &read[1..]), "a byte is missing");
            let bit = bit.index(read.len() * 8);
            read[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!sums.hold(&block, range, &read));
            let mut metadata = sums.to_metadata(&block);
            let text = metadata.get_mut(NAME).expect("the sums");
            let at = header_bit.index(text.len() * 6);
            // Each of these characters differs from the one that it replaces.
            let new = if &text[at / 6..=at / 6] == "A" { "B" } else { "A" };
            text.replace_range(at / 6..=at / 6, new);
            prop_assert_eq!(Sums::from_metadata(&metadata, &block), None);
        }
    }
}
