//! The checksums that S3 knows, and how those of parts become one of the object.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crc_fast::{CrcAlgorithm, checksum_combine};
use md5::Md5;
use s3mount_object::ChecksumAlgorithm;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    Crc(ChecksumAlgorithm),
    Sha1,
    Sha256,
}

/// The CRC as the library names it.
pub(crate) fn crc(algorithm: ChecksumAlgorithm) -> CrcAlgorithm {
    match algorithm {
        ChecksumAlgorithm::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
        ChecksumAlgorithm::Crc32c => CrcAlgorithm::Crc32Iscsi,
        ChecksumAlgorithm::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
    }
}

impl Sum {
    /// The kind of checksum that S3 computes if an upload brings none.
    pub(crate) const DEFAULT: Self = Self::Crc(ChecksumAlgorithm::Crc64Nvme);

    pub(crate) const ALL: [Self; 5] = [
        Self::DEFAULT,
        Self::Crc(ChecksumAlgorithm::Crc32c),
        Self::Crc(ChecksumAlgorithm::Crc32),
        Self::Sha1,
        Self::Sha256,
    ];

    /// The name in `x-amz-checksum-algorithm`, and at the end of the names of elements.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc(ChecksumAlgorithm::Crc64Nvme) => "CRC64NVME",
            Self::Crc(ChecksumAlgorithm::Crc32c) => "CRC32C",
            Self::Crc(ChecksumAlgorithm::Crc32) => "CRC32",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The header that carries it.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Crc(ChecksumAlgorithm::Crc64Nvme) => "x-amz-checksum-crc64nvme",
            Self::Crc(ChecksumAlgorithm::Crc32c) => "x-amz-checksum-crc32c",
            Self::Crc(ChecksumAlgorithm::Crc32) => "x-amz-checksum-crc32",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sum| sum.name().eq_ignore_ascii_case(name))
    }

    /// The checksum of no bytes, to which bytes are added.
    pub(crate) fn start(self) -> Running {
        match self {
            Self::Crc(algorithm) => Running::Crc(algorithm, crc_fast::Digest::new(crc(algorithm))),
            Self::Sha1 => Running::Sha1(Sha1::new()),
            Self::Sha256 => Running::Sha256(Sha256::new()),
        }
    }

    /// The checksum of the parts' checksums.
    fn of_parts(self, parts: &[(Value, u64)]) -> Value {
        let mut running = self.start();
        parts.iter().for_each(|(value, _)| running.update(&value.0));
        running.finish()
    }
}

/// A checksum that is being computed.
#[derive(Clone, Debug)]
pub(crate) enum Running {
    Crc(ChecksumAlgorithm, crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Running {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(_, digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Value {
        match self {
            Self::Crc(algorithm, digest) => Value::of_crc(algorithm, digest.finalize()),
            Self::Sha1(digest) => Value(digest.finalize().to_vec()),
            Self::Sha256(digest) => Value(digest.finalize().to_vec()),
        }
    }
}

/// A checksum's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value(Vec<u8>);

impl Value {
    pub(crate) fn of_crc(algorithm: ChecksumAlgorithm, value: u64) -> Self {
        let len = if algorithm == ChecksumAlgorithm::Crc64Nvme { 8 } else { 4 };
        Self(value.to_be_bytes()[8 - len..].to_vec())
    }

    pub(crate) fn base64(&self) -> String {
        BASE64_STANDARD.encode(&self.0)
    }

    pub(crate) fn hex(&self) -> String {
        hex(&self.0)
    }

    pub(crate) fn crc(&self) -> u64 {
        self.0.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }
}

/// How checksums of parts become one of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumType {
    /// It is the checksum of all bytes.
    FullObject,
    /// It is a checksum of the parts' checksums.
    Composite,
}

impl ChecksumType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }
}

/// The checksum that a store keeps of an object.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) sum: Sum,
    pub(crate) kind: ChecksumType,
    /// The checksum in base64. One of parts ends in a hyphen and their number.
    pub(crate) text: String,
    /// The checksum and the length of each part, for one of parts.
    pub(crate) parts: Vec<(Value, u64)>,
}

impl Kept {
    /// The checksum of an object that was uploaded whole.
    pub(crate) fn whole(sum: Sum, value: &Value) -> Self {
        Self { sum, kind: ChecksumType::FullObject, text: value.base64(), parts: Vec::new() }
    }

    /// The checksum of an object that has these parts.
    pub(crate) fn joined(sum: Sum, kind: ChecksumType, parts: Vec<(Value, u64)>) -> Self {
        if let (Sum::Crc(algorithm), ChecksumType::FullObject) = (sum, kind) {
            let add = |whole: u64, (part, len): &(Value, u64)| {
                checksum_combine(crc(algorithm), whole, part.crc(), *len)
            };
            let mut parts = parts.iter();
            let first = parts.next().map_or(0, |(value, _)| value.crc());
            return Self::whole(sum, &Value::of_crc(algorithm, parts.fold(first, add)));
        }
        let text = format!("{}-{}", sum.of_parts(&parts).base64(), parts.len());
        Self { sum, kind: ChecksumType::Composite, text, parts }
    }
}

/// The tag of an object that was uploaded in parts: the MD5 of the parts' tags, which are hexadecimal, and
/// their number.
pub(crate) fn joined_tag<'a>(tags: impl IntoIterator<Item = &'a str>) -> String {
    let (mut digest, mut count) = (Md5::new(), 0);
    for tag in tags {
        let byte = |at| u8::from_str_radix(tag.get(at..at + 2)?, 16).ok();
        let bytes: Vec<u8> = (0..tag.len()).step_by(2).filter_map(byte).collect();
        digest.update(bytes);
        count += 1;
    }
    format!("{}-{count}", hex(&digest.finalize()))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use s3mount_object::ChecksumAlgorithm;

    use super::{ChecksumType, Kept, Sum, Value, joined_tag};

    fn sum_of(sum: Sum, bytes: &[u8]) -> Value {
        let mut running = sum.start();
        running.update(bytes);
        running.finish()
    }

    /// Catalogues of checksums give these values for the nine digits.
    #[test]
    fn checksums_are_those_of_the_catalogues() {
        let known = ["rosUhgp5mIg=", "4waSgw==", "y/Q5Jg==", "98O8HYCOBHMq32eZZczDTKeuNEE="];
        for (sum, text) in Sum::ALL.into_iter().zip(known) {
            assert_eq!(sum_of(sum, b"123456789").base64(), text, "{sum:?}");
        }
    }

    #[test]
    fn checksums_of_parts_become_that_of_the_whole() {
        for sum in Sum::ALL.into_iter().take(3) {
            let parts = [&b"1234"[..], b"", b"56789"];
            let parts = parts.iter().map(|part| (sum_of(sum, part), part.len() as u64)).collect();
            let kept = Kept::joined(sum, ChecksumType::FullObject, parts);
            assert_eq!(kept.text, sum_of(sum, b"123456789").base64(), "{sum:?}");
        }
        let sum = Sum::Crc(ChecksumAlgorithm::Crc32);
        let kept = Kept::joined(sum, ChecksumType::Composite, vec![(sum_of(sum, b"123456789"), 9)]);
        assert_eq!((kept.kind, kept.text.ends_with("-1")), (ChecksumType::Composite, true));
    }

    /// `md5(md5("a") || md5("b"))`.
    #[test]
    fn tags_are_joined_as_s3_does() {
        let tags = ["0cc175b9c0f1b6a831c399e269772661", "92eb5ffee6ae2fec3ad71c777531578f"];
        assert_eq!(joined_tag(tags), "96e024ba2074fe77e8e965ba43a704be-2");
    }
}
