//! What a client of an object store can do: reading. Writing is a second trait, in `writer.rs`
//! (`docs/decisions/0022-reading-and-writing-are-two-traits.md`).

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::{ByteRange, ETag, KeptChecksum, ObjectError, ObjectId, UploadParts};

/// Memory that a client fills with the bytes of one part. The caller who asks for the part lends it.
///
/// The caller has paid for it (it holds a reservation of the memory budget) before it asks, so a
/// client never waits for memory and never allocates for payload.
pub trait PartBuffer: AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static> PartBuffer for T {}

/// One ranged GET of one version.
#[derive(Clone, Debug)]
pub struct GetObject {
    /// What to read. Sent as `If-Match`, and compared again with the answer.
    pub object: ObjectId,
    /// Which bytes; not empty, and inside the object.
    pub range: ByteRange,
}

/// Where the bytes of an answer come from.
///
/// Code that learns from answers how fast the store is matches on this without a wildcard. A client that
/// answers from somewhere nearer than the store adds a variant, and the compiler then shows each such place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The store sent them for this request.
    Store,
}

/// What a GET brings.
#[derive(Clone, Debug)]
pub struct GetAnswer {
    /// The bytes of the range, in the memory that was lent.
    pub bytes: Bytes,
    /// Where they come from.
    pub origin: Origin,
    /// Whether they are all bytes of the object, and were compared with a checksum of it that the store has sent.
    pub is_compared: bool,
    /// How long after the request the first byte came, if the client knows.
    pub first_byte: Option<Duration>,
}

/// What a HEAD says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// The version, spelled alike in HEADs and in listings: with its quotes.
    pub etag: ETag,
    /// Size in bytes.
    pub size: u64,
    /// When this version was written.
    pub last_modified: SystemTime,
    /// Storage class, if the store names one (`GLACIER`, `STANDARD_IA`, ...). S3 names `STANDARD` in
    /// listings only.
    pub storage_class: Option<String>,
}

/// One page of a ListObjectsV2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListObjects {
    /// Only keys that begin with this prefix are listed, the key that equals the prefix (a folder's marker)
    /// included.
    pub prefix: String,
    /// Whether keys are rolled up at the next `/` after the prefix.
    pub delimiter: bool,
    /// The [`ListPage::next`] of the page before. Prefix and delimiter have to be those of that page.
    pub continuation: Option<String>,
    /// For the first page: only keys and rolled-up prefixes after this key are listed, whether it exists or
    /// not. Some stores also list the rolled-up prefix that contains it; S3 does not.
    pub start_after: Option<String>,
    /// At most this many keys and prefixes; the store's own limit is 1,000. There may be fewer on a page
    /// that is not the last.
    pub max_keys: Option<u32>,
}

/// One object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// The whole key.
    pub key: String,
    /// What a HEAD of the object would say. The time may be finer than in a HEAD, which has whole seconds.
    pub meta: ObjectMeta,
}

/// One page of a listing, in the store's order (by UTF-8 bytes of the key). All of its keys and prefixes
/// come before those of the next page, if the client [lists in order](ObjectClient::lists_in_order).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The objects.
    pub objects: Vec<ListedObject>,
    /// The rolled-up prefixes, each ending in `/`.
    pub common_prefixes: Vec<String>,
    /// The continuation of the next page; `None` on the last.
    pub next: Option<String>,
}

impl ListPage {
    /// The keys and prefixes that are in the store's order. Where a key is no text, a NUL stands for what is not.
    fn in_order(&self) -> impl Iterator<Item = &str> {
        let keys = self.objects.iter().map(|object| object.key.as_str());
        keys.chain(self.common_prefixes.iter().map(String::as_str)).filter(|key| !key.contains('\0'))
    }

    /// The first key or prefix, in the store's order.
    pub fn first_key(&self) -> Option<&str> {
        self.in_order().min()
    }

    /// The last key or prefix, in the store's order.
    pub fn last_key(&self) -> Option<&str> {
        self.in_order().max()
    }
}

/// What a HEAD of the bucket says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// The bucket's region, if the store names it.
    pub region: Option<String>,
}

/// An object store, bound to one bucket.
///
/// Every future may be dropped at any time. Its request is then cancelled, and the lent buffer is given back
/// as soon as nothing writes to it any more. A GET that fails gives its buffer back in the same way.
///
/// A key is any text: no character and no `.`, `..` or `//` in it means anything but itself. Requests to a
/// bucket that does not exist fail with [`ErrorKind::NoSuchBucket`](crate::ErrorKind::NoSuchBucket), except
/// HEADs, which can't tell a missing bucket from a missing object.
///
/// The test kit's module `contract` checks these promises. A client that hands requests on to another client
/// denies `clippy::missing_trait_methods`, so that no default method answers in the other client's place.
pub trait ObjectClient: fmt::Debug + Send + Sync + 'static {
    /// Reads `request.range` into the front of `into`, which is at least that long, and returns
    /// exactly the range's bytes, in that same memory, and where they come from.
    ///
    /// # Errors
    /// [`ErrorKind::PreconditionFailed`](crate::ErrorKind::PreconditionFailed) when the object is
    /// another version by now, whether or not the store understands `If-Match`;
    /// [`NotFound`](crate::ErrorKind::NotFound) when there is no object;
    /// [`RangeNotSatisfiable`](crate::ErrorKind::RangeNotSatisfiable) when the range begins at the object's
    /// end or behind it; [`Integrity`](crate::ErrorKind::Integrity) when the body is not the range that was
    /// asked for, also when the range ends behind the object's end. Without a request,
    /// [`Rejected`](crate::ErrorKind::Rejected) for an empty range and for one longer than `into`, and
    /// [`NoEtag`](crate::ErrorKind::NoEtag) for a version whose ETag is empty.
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>>;

    /// Metadata of the object at `key`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) when there is none, also where other keys begin
    /// with `key` and a slash.
    fn head_object<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>>;

    /// The checksum that the store keeps of a version.
    ///
    /// # Errors
    /// [`ErrorKind::PreconditionFailed`](crate::ErrorKind::PreconditionFailed) when the object is
    /// another version by now; [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) when there is none.
    fn checksum<'a>(&'a self, object: &'a ObjectId) -> BoxFuture<'a, Result<KeptChecksum, ObjectError>> {
        let _ = object;
        async { Ok(KeptChecksum::None) }.boxed()
    }

    /// One page of the parts in which a version was uploaded: those after part number `after`. The page is
    /// empty if the store does not list parts.
    ///
    /// # Errors
    /// [`ErrorKind::PreconditionFailed`](crate::ErrorKind::PreconditionFailed) when the object is
    /// another version by now; [`ErrorKind::Forbidden`](crate::ErrorKind::Forbidden) for a caller who
    /// may read the object, and may not ask for its attributes.
    fn upload_parts<'a>(
        &'a self,
        object: &'a ObjectId,
        after: u32,
    ) -> BoxFuture<'a, Result<UploadParts, ObjectError>> {
        let _ = (object, after);
        async { Ok(UploadParts::default()) }.boxed()
    }

    /// One page of keys.
    ///
    /// # Errors
    /// Those of the request. A page without keys and prefixes is a success.
    fn list_objects(&self, request: ListObjects) -> BoxFuture<'_, Result<ListPage, ObjectError>>;

    /// Whether the bucket exists and may be used.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Forbidden`, `WrongRegion`, or why the store can't be reached.
    fn head_bucket(&self) -> BoxFuture<'_, Result<BucketInfo, ObjectError>>;

    /// How many answers asked to slow down (503, 429): those of requests that failed, and those of requests
    /// that the client sent again by itself. A client that sends nothing again may leave this at 0.
    fn refused_requests(&self) -> u64 {
        0
    }

    /// How many requests the client has sent again by itself.
    fn repeated_requests(&self) -> u64 {
        0
    }

    /// Whether listings are in the order of their keys, and can begin behind a key. The directory buckets of S3
    /// list in no order: there [`ListObjects::start_after`] is an error, and [`ListObjects::prefix`] has to be
    /// empty or to end in `/`.
    fn lists_in_order(&self) -> bool {
        true
    }
}
