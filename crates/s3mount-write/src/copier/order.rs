//! Orders of copies, their settings and their results.

use std::time::Duration;

use s3mount_object::{Condition, Description, Encryption, ObjectChecksum, ObjectError, ObjectId};

/// Is told how many bytes more have been copied.
pub type Progress<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// How objects are copied.
#[derive(Clone, Debug)]
pub struct CopyConfig {
    /// The length of the parts, in bytes: 5 MiB to 5 GiB. Objects of up to a part are copied by one request.
    /// `None`: it is chosen by the size of the object.
    pub part_bytes: Option<u64>,
    /// The most requests that copy at the same time, of all copies together.
    pub max_requests: usize,
    /// Whether the store is asked for the CRC-64/NVME of each part, and compares that of the whole.
    pub has_checksums: bool,
    /// How long a request may be made again. One that copies many bytes has longer.
    pub timeout: Duration,
    /// Whether a copy goes on with an upload that an earlier one has left, and leaves its own when it fails by
    /// something that passes, or its future is dropped. This needs a source with a CRC-64/NVME: nothing else
    /// tells what the parts were copied from.
    pub resumes: bool,
}

impl Default for CopyConfig {
    fn default() -> Self {
        Self {
            part_bytes: None,
            max_requests: 16,
            has_checksums: true,
            timeout: Duration::from_secs(60),
            resumes: false,
        }
    }
}

/// A version that can be copied.
#[derive(Clone, Debug)]
pub struct Source {
    /// The version.
    pub object: ObjectId,
    /// What a HEAD says of it.
    pub description: Description,
}

/// How the bytes of a copy are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Encrypted {
    /// As those of the source.
    Kept,
    /// As the bucket encrypts by itself.
    #[default]
    AsBucket,
    /// So.
    With(Encryption),
}

/// The target of a copy, and its differences from the source.
#[derive(Clone, Debug, Default)]
pub struct CopyOrder {
    /// The bucket of the source, if it is not that of the target.
    pub source_bucket: Option<String>,
    /// The key of the copy.
    pub key: String,
    /// The encryption.
    pub encrypted: Encrypted,
    /// The storage class; `None`: that of the source.
    pub storage_class: Option<String>,
    /// The condition on the key at the moment when the copy appears.
    pub condition: Option<Condition>,
}

impl CopyOrder {
    /// A copy to `key` in the bucket of the source.
    pub fn to(key: &str) -> Self {
        Self { key: key.to_owned(), ..Self::default() }
    }
}

/// How a copy is known to have the bytes of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Both have the same CRC.
    Checksum,
    /// Both have the same ETag.
    ETag,
    /// Both have the same length, and the store keeps nothing else that could be compared.
    Length,
}

/// A copy that was made.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The new version.
    pub object: ObjectId,
    /// Its length in bytes.
    pub size: u64,
    /// How many of its bytes an earlier, interrupted copy had copied.
    pub resumed_bytes: u64,
    /// How it was compared with its source.
    pub proof: Proof,
    /// Whether it has no tags because those of its source may not be read.
    pub lacks_tags: bool,
}

/// Why an object was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source was replaced or deleted after the copier had looked at it.
    #[error("{key:?} was replaced or deleted while it was copied")]
    SourceChanged {
        /// The key of the source.
        key: String,
    },
    /// The condition does not hold: another object is at the key of the copy, or not the one that was to be
    /// replaced.
    #[error("another object is at {key:?}")]
    Taken {
        /// The key of the copy.
        key: String,
    },
    /// The checksum of the copied bytes is not that of the source.
    #[error("the copy {key:?} differs from its source: it has {copy}, and not {expected}")]
    Differs {
        /// The key of the copy.
        key: String,
        /// The checksum of the source.
        expected: ObjectChecksum,
        /// The checksum of the copy.
        copy: ObjectChecksum,
    },
    /// The object is longer than 10,000 parts of 5 GiB.
    #[error("{key:?} has {size} bytes: S3 copies up to 10,000 parts of 5 GiB")]
    TooLong {
        /// The key of the source.
        key: String,
        /// Its length in bytes.
        size: u64,
    },
    /// The store refused a request, or did not answer it.
    #[error(transparent)]
    Object(#[from] ObjectError),
}
