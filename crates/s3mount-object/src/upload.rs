//! What is said of objects that are written: their bytes, what is kept beside these, and how far an upload is.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};

use crate::{ETag, ObjectChecksum, ObjectId, ObjectMeta};

/// Text that a store keeps beside an object, by name. Names are lower-case letters, digits and hyphens,
/// without the `x-amz-meta-` of their headers. Values are visible ASCII without spaces at their ends. S3 takes
/// up to 2 KiB of both together.
pub type UserMetadata = BTreeMap<String, String>;

/// The bytes of one upload: pieces of memory, one after the other. Cheap to clone.
///
/// The memory is the caller's, so the caller pays for it (it holds a reservation of the memory budget). A
/// client holds the pieces until the request has ended, also when the future of the request was dropped.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pieces: Vec<Bytes>,
    len: u64,
    checksum: Option<ObjectChecksum>,
}

impl Body {
    /// The bytes of `pieces`, in order. A client that can't send several pieces joins them in new memory, so
    /// long bodies had better be one piece.
    pub fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: Vec<Bytes> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces, len, checksum: None }
    }

    /// Adds the CRC of the bytes. The store compares it with the bytes that it has received.
    #[must_use]
    pub fn with_checksum(mut self, checksum: ObjectChecksum) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The CRC that the caller has computed of the bytes.
    pub fn checksum(&self) -> Option<ObjectChecksum> {
        self.checksum
    }

    /// The pieces. None of them is empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// All bytes in one piece. Only several pieces are copied.
    pub fn into_bytes(mut self) -> Bytes {
        if self.pieces.len() < 2 {
            return self.pieces.pop().unwrap_or_default();
        }
        let mut joined = BytesMut::with_capacity(self.pieces.iter().map(Bytes::len).sum());
        self.pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined.freeze()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::new([bytes])
    }
}

/// How a store encrypts an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// The method as S3 names it: `AES256`, `aws:kms` or `aws:kms:dsse`.
    pub method: String,
    /// The key of the key management service. Without it, the bucket's own key is used.
    pub kms_key_id: Option<String>,
}

/// What a new object has beside its bytes. By default, the store decides on everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewObject {
    /// The media type (`Content-Type`).
    pub content_type: Option<String>,
    /// How long, and by whom, answers may be cached (`Cache-Control`).
    pub cache_control: Option<String>,
    /// Under which name a browser saves the object (`Content-Disposition`).
    pub content_disposition: Option<String>,
    /// How the bytes are encoded, such as `gzip` (`Content-Encoding`).
    pub content_encoding: Option<String>,
    /// The language of the text (`Content-Language`).
    pub content_language: Option<String>,
    /// Until when answers may be cached (`Expires`).
    pub expires: Option<String>,
    /// Text of the user.
    pub metadata: UserMetadata,
    /// The storage class (`STANDARD_IA`, ...).
    pub storage_class: Option<String>,
    /// How the store encrypts the bytes.
    pub encryption: Option<Encryption>,
    /// The tags, encoded as the query of a URL (`a=1&b=2`).
    pub tags: Option<String>,
}

/// What has to be true at the moment at which an object is written or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No object is at the key (`If-None-Match: *`).
    Absent,
    /// This version is at the key (`If-Match`).
    Matches(ETag),
}

impl Condition {
    /// The version that has to be at the key.
    pub fn etag(&self) -> Option<&ETag> {
        match self {
            Self::Matches(etag) => Some(etag),
            Self::Absent => None,
        }
    }
}

/// A version that the store has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The new version.
    pub etag: ETag,
    /// The CRC of all bytes, if the store tells it.
    pub checksum: Option<ObjectChecksum>,
    /// Whether the client had sent the request before, and got no answer. The store may still carry that out.
    pub may_come_again: bool,
}

/// An object that the store has deleted, or that was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// As [`Written::may_come_again`].
    pub may_come_again: bool,
}

/// An upload in parts that is not complete yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UploadId {
    /// The key that the object will have.
    pub key: String,
    /// The store's name of the upload.
    pub id: String,
}

/// A part of an upload that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenPart {
    /// The number of the part. Its bytes follow those of all parts with lower numbers.
    pub number: u32,
    /// The store's tag of the part's bytes.
    pub etag: ETag,
    /// Its length in bytes.
    pub len: u64,
    /// The CRC of its bytes, if the store tells it.
    pub checksum: Option<ObjectChecksum>,
}

/// How an upload is completed.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    /// What has to be true of the key.
    pub condition: Option<Condition>,
    /// The CRC of all bytes of the object, if the upload was begun with checksums, and only then. The store
    /// compares it with what it computed.
    pub checksum: Option<ObjectChecksum>,
}

/// The version that a copy is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// The bucket, if it is not the client's own.
    pub bucket: Option<String>,
    /// The version. A copy of another version is refused.
    pub object: ObjectId,
}

/// An upload that a store lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedUpload {
    /// The upload.
    pub upload: UploadId,
    /// When it was begun.
    pub initiated: SystemTime,
}

/// One page of uploads that are not complete, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadsPage {
    /// The uploads.
    pub uploads: Vec<ListedUpload>,
    /// The upload after which the next page begins; `None` on the last.
    pub next: Option<UploadId>,
}

/// One page of the parts that the store has of an upload, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenParts {
    /// The parts.
    pub parts: Vec<WrittenPart>,
    /// The part number after which the next page begins; `None` on the last.
    pub next: Option<u32>,
}

/// All that a HEAD says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What a HEAD always says.
    pub meta: ObjectMeta,
    /// What an object has to be written with so that it has the same beside its bytes. The tags are missing:
    /// a HEAD does not tell them.
    pub object: NewObject,
    /// How many tags the object has, as far as the caller may read them.
    pub tag_count: u32,
    /// The CRC of all bytes, if the store keeps one.
    pub checksum: Option<ObjectChecksum>,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Body;

    #[test]
    fn one_piece_is_not_copied_and_several_are_joined() {
        let piece = Bytes::from(vec![7; 100]);
        let body = Body::new([Bytes::new(), piece.clone(), Bytes::new()]);
        assert_eq!((body.len(), body.pieces().len()), (100, 1));
        assert_eq!(body.into_bytes().as_ptr(), piece.as_ptr());
        let several = Body::new([piece.slice(..3), Bytes::from_static(b"ab")]);
        assert_eq!(several.into_bytes(), [7, 7, 7, b'a', b'b'].as_slice());
        assert!(Body::default().is_empty() && Body::default().into_bytes().is_empty());
    }
}
