//! Vocabulary and contract of the object store.
//!
//! Every layer above speaks of objects in these words, and reaches the store only through
//! [`ObjectClient`]. Nothing here does I/O, and nothing waits.
//!
//! **Invariant:** bytes are addressed by [`ObjectId`], key and ETag together. A version never
//! changes, so whatever is known of it stays true for ever.

mod breaker;
mod checksum;
mod client;
mod crc;
mod error;
mod id;
mod names;
mod range;
mod upload;
mod writer;

pub use breaker::{Breaker, Change, Fault, LATE, Rule, late_after};
pub use checksum::{ChecksumAlgorithm, KeptChecksum, ObjectChecksum, UploadPart, UploadParts};
pub use client::{
    BucketInfo, GetAnswer, GetObject, ListObjects, ListPage, ListedObject, ObjectClient, ObjectMeta, Origin,
    PartBuffer,
};
pub use crc::FollowedBy;
pub use error::{ErrorKind, ObjectError, S3Detail};
pub use id::{ETag, ObjectId};
pub use names::{extension, folder_and_name};
pub use range::ByteRange;
pub use upload::{
    Body, Completion, Condition, CopySource, Deletion, Description, Encryption, ListedUpload, NewObject,
    UploadId, UploadsPage, UserMetadata, Written, WrittenPart, WrittenParts,
};
pub use writer::{LatestAnswer, ObjectWriter, PutAnswer, PutObject};
