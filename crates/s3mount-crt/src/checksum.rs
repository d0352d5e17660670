//! The checksums that S3 keeps of objects. We compare a checksum when it covers exactly the bytes that we
//! fetched.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mountpoint_s3_crt::checksums::{crc32, crc32c, crc64nvme, sha1, sha256};
use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::http::request_response::Headers;
use s3mount_object::{ChecksumAlgorithm, ObjectChecksum};

/// The header that asks the store for checksums.
pub(crate) const MODE: (&str, &str) = ("x-amz-checksum-mode", "ENABLED");

/// The algorithms of the checksums that S3 keeps. The fastest algorithms come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Crc64nvme,
    Crc32c,
    Crc32,
    Sha1,
    Sha256,
}

const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("x-amz-checksum-crc64nvme", Algorithm::Crc64nvme),
    ("x-amz-checksum-crc32c", Algorithm::Crc32c),
    ("x-amz-checksum-crc32", Algorithm::Crc32),
    ("x-amz-checksum-sha1", Algorithm::Sha1),
    ("x-amz-checksum-sha256", Algorithm::Sha256),
];

/// Whether the headers say that the store keeps a CRC of each part in which the object was uploaded. An old
/// store does not send the type of a checksum. We do not believe such a store: it may not know the request
/// for the checksums of the parts, and may answer that request with the object. The CRT's callbacks call
/// this, so it can't fail.
pub(crate) fn is_of_parts(headers: &Headers) -> bool {
    let text = |name: &str| headers.get_as_optional_string(name).ok().flatten();
    let (crcs, _) = ALGORITHMS.split_at(3);
    text("x-amz-checksum-type").is_some_and(|kind| kind == "COMPOSITE")
        && crcs.iter().any(|(name, _)| text(name).is_some())
}

/// The header that carries a CRC.
pub(crate) fn header(checksum: ObjectChecksum) -> (String, String) {
    let name = match checksum.algorithm {
        ChecksumAlgorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
        ChecksumAlgorithm::Crc32c => "x-amz-checksum-crc32c",
        ChecksumAlgorithm::Crc32 => "x-amz-checksum-crc32",
    };
    (name.to_owned(), checksum.to_base64())
}

/// The checksum of a whole object, as the headers of an answer have it.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    algorithm: Algorithm,
    /// The checksum in base64.
    value: String,
}

impl Checksum {
    /// The checksum in the headers, unless it is a checksum of the parts' checksums. The CRT's callbacks call
    /// this, so it can't fail.
    pub(crate) fn of(headers: &Headers) -> Option<Self> {
        let text = |name: &str| headers.get_as_optional_string(name).ok().flatten();
        let (algorithm, value) =
            ALGORITHMS.into_iter().find_map(|(name, algorithm)| Some((algorithm, text(name)?)))?;
        let is_of_parts = text("x-amz-checksum-type").is_some_and(|kind| kind == "COMPOSITE");
        // S3 writes a checksum of parts as the value, a hyphen and the number of the parts.
        (!is_of_parts && !value.contains('-')).then_some(Self { algorithm, value })
    }

    /// The checksum as a number, if it is a CRC.
    pub(crate) fn crc(&self) -> Option<ObjectChecksum> {
        let algorithm = match self.algorithm {
            Algorithm::Crc64nvme => ChecksumAlgorithm::Crc64Nvme,
            Algorithm::Crc32c => ChecksumAlgorithm::Crc32c,
            Algorithm::Crc32 => ChecksumAlgorithm::Crc32,
            Algorithm::Sha1 | Algorithm::Sha256 => return None,
        };
        ObjectChecksum::from_base64(algorithm, &self.value)
    }

    /// Whether the value is base64.
    pub(crate) fn is_readable(&self) -> bool {
        BASE64_STANDARD.decode(&self.value).is_ok()
    }

    /// Whether `bytes` have this checksum. Also true if the value is not base64: then nothing can be
    /// compared.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> Result<bool, CrtError> {
        let Ok(expected) = BASE64_STANDARD.decode(&self.value) else { return Ok(true) };
        Ok(match self.algorithm {
            Algorithm::Crc64nvme => crc64nvme::checksum(bytes).value().to_be_bytes() == *expected,
            Algorithm::Crc32c => crc32c::checksum(bytes).value().to_be_bytes() == *expected,
            Algorithm::Crc32 => crc32::checksum(bytes).value().to_be_bytes() == *expected,
            Algorithm::Sha1 => *sha1::checksum(bytes)?.value() == *expected,
            Algorithm::Sha256 => *sha256::checksum(bytes)?.value() == *expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, Checksum};

    /// Catalogues of checksums give these values for the nine digits.
    #[test]
    fn known_checksums_hold_and_others_do_not() {
        // OpenSSL's hashes work only after the CRT is initialised. A client initialises it.
        let _client = crate::CrtClient::new(crate::CrtConfig::new("b")).expect("a client");
        let cases = [
            (Algorithm::Crc64nvme, "rosUhgp5mIg="),
            (Algorithm::Crc32c, "4waSgw=="),
            (Algorithm::Crc32, "y/Q5Jg=="),
            (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
            (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ];
        for (algorithm, value) in cases {
            let checksum = Checksum { algorithm, value: value.to_owned() };
            assert!(checksum.is_of(b"123456789").expect("a checksum"), "{algorithm:?}");
            assert!(!checksum.is_of(b"123456788").expect("a checksum"), "{algorithm:?}");
        }
        let odd = Checksum { algorithm: Algorithm::Crc32, value: "!".to_owned() };
        assert!(odd.is_of(b"123456789").expect("no checksum"));
        let short = Checksum { algorithm: Algorithm::Crc32, value: "y/Q=".to_owned() };
        assert!(!short.is_of(b"123456789").expect("another checksum"));
    }
}
