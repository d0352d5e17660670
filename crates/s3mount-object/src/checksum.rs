//! Checksums that a store keeps of objects, and of the parts in which they were uploaded.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The CRCs that S3 knows. The CRC of an object can be computed from the CRCs of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumAlgorithm {
    /// CRC-64/NVME, which S3 computes of each upload that brings no other checksum.
    Crc64Nvme,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-32 as of zip.
    Crc32,
}

impl ChecksumAlgorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Crc64Nvme, Self::Crc32c, Self::Crc32];

    /// The length of a checksum in bytes.
    fn len(self) -> usize {
        match self {
            Self::Crc64Nvme => 8,
            Self::Crc32c | Self::Crc32 => 4,
        }
    }

    /// The name that S3 has for it.
    fn name(self) -> &'static str {
        match self {
            Self::Crc64Nvme => "CRC64NVME",
            Self::Crc32c => "CRC32C",
            Self::Crc32 => "CRC32",
        }
    }
}

/// A CRC of all bytes of one object version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectChecksum {
    /// Which CRC it is.
    pub algorithm: ChecksumAlgorithm,
    /// The CRC; one of 32 bits lies in the lower half.
    pub value: u64,
}

impl ObjectChecksum {
    /// Reads a checksum as S3 writes it in headers: its bytes, highest first, in base64. `None` for
    /// text that is not a checksum of this algorithm.
    pub fn from_base64(algorithm: ChecksumAlgorithm, text: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(text).ok().filter(|bytes| bytes.len() == algorithm.len())?;
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        Some(Self { algorithm, value })
    }

    /// Writes the checksum as S3 does.
    pub fn to_base64(self) -> String {
        let bytes = self.value.to_be_bytes();
        BASE64_STANDARD.encode(&bytes[bytes.len() - self.algorithm.len()..])
    }
}

impl fmt::Display for ObjectChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm.name(), self.to_base64())
    }
}

/// What a store keeps of the bytes of one object version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptChecksum {
    /// Nothing that can be computed from the CRCs of ranges.
    None,
    /// A CRC of all bytes.
    Whole(ObjectChecksum),
    /// A CRC of each part in which the object was uploaded.
    OfParts,
}

/// One part in which an object was uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadPart {
    /// Its length in bytes.
    pub len: u64,
    /// The CRC of its bytes.
    pub checksum: ObjectChecksum,
}

/// Some of the parts in which an object was uploaded, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadParts {
    /// The parts.
    pub parts: Vec<UploadPart>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::{ChecksumAlgorithm, ObjectChecksum};

    #[test]
    fn is_written_as_it_was_read() {
        for (algorithm, text) in [
            (ChecksumAlgorithm::Crc64Nvme, "rosUhgp5mIg="),
            (ChecksumAlgorithm::Crc32c, "4waSgw=="),
            (ChecksumAlgorithm::Crc32, "y/Q5Jg=="),
        ] {
            let checksum = ObjectChecksum::from_base64(algorithm, text).expect("a checksum");
            assert_eq!(checksum.to_base64(), text);
            assert!(checksum.to_string().ends_with(text));
        }
        let nvme = ObjectChecksum::from_base64(ChecksumAlgorithm::Crc64Nvme, "rosUhgp5mIg=");
        assert_eq!(nvme.map(|checksum| checksum.value), Some(0xae8b_1486_0a79_9888));
        for odd in ["", "!", "4waSgw==", "rosUhgp5mIg=-3"] {
            assert_eq!(ObjectChecksum::from_base64(ChecksumAlgorithm::Crc64Nvme, odd), None, "{odd}");
        }
    }
}
