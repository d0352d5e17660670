//! What a client can do that may also write.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{ByteRange, ObjectClient, ObjectError, PartBuffer};

/// Text that a store keeps beside an object, by name. Names are lower-case letters, digits and hyphens,
/// without the `x-amz-meta-` of their headers. Values are visible ASCII without spaces at their ends. S3 takes
/// up to 2 KiB of both together.
pub type UserMetadata = BTreeMap<String, String>;

/// One upload of a whole object.
#[derive(Clone, Debug)]
pub struct PutObject {
    /// The whole key.
    pub key: String,
    /// All bytes of the object.
    pub bytes: Bytes,
    /// What the store keeps beside the bytes.
    pub metadata: UserMetadata,
    /// Writes only where no object is (`If-None-Match: *`).
    pub only_new: bool,
}

/// What became of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutAnswer {
    /// The store has the object.
    Written,
    /// Another object is at the key, or is being written there, and stays. Only uploads with
    /// [`only_new`](PutObject::only_new) end so.
    Exists,
}

/// What a GET of whichever version is there brings.
#[derive(Clone, Debug)]
pub struct LatestAnswer {
    /// The bytes of the range, in the memory that was lent.
    pub bytes: Bytes,
    /// What the store keeps beside the object.
    pub metadata: UserMetadata,
}

/// A store that may be written to.
///
/// Every future may be dropped at any time. An upload that is dropped may still be done by the store.
pub trait ObjectWriter: ObjectClient {
    /// Writes an object whole, in one request.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for an upload with
    /// [`only_new`](PutObject::only_new) to a store that says that it knows no conditions;
    /// [`Forbidden`](crate::ErrorKind::Forbidden) when the caller may not write.
    fn put_object(&self, request: PutObject) -> BoxFuture<'_, Result<PutAnswer, ObjectError>>;

    /// Reads a range of whichever version is at `key`, like [`get_object`](ObjectClient::get_object), and
    /// brings the version's metadata with it.
    ///
    /// # Errors
    /// Those of `get_object`, except that no version can be the wrong one.
    fn get_latest<'a>(
        &'a self,
        key: &'a str,
        range: ByteRange,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'a, Result<LatestAnswer, ObjectError>>;
}
