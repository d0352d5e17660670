//! Stores under test, and the objects that they have.

use std::collections::BTreeMap;

use bytes::Bytes;
use s3mount_object::{ByteRange, ErrorKind, GetObject, ObjectClient, ObjectError, ObjectId};

use super::lend::lend;
use crate::content::content;

/// The key of the object that is uploaded in parts, where the store has uploads in parts.
pub const PARTS_KEY: &str = "in-parts.bin";

/// The length in bytes of each part of that upload but the last. S3 allows no shorter part.
pub const PART_BYTES: u64 = 5 << 20;

/// The key of an object that has several blocks of content, and a length that is no multiple of one.
pub(super) const LARGE: &str = "large.bin";

/// The key of an object without a byte.
pub(super) const EMPTY: &str = "empty";

/// The key of an object of a few bytes.
pub(super) const SMALL: &str = "order/z";

/// A key with no object at it or below it.
pub(super) const NOTHING: &str = "nothing";

/// The lengths in bytes of the large and the empty objects.
const LENGTHS: [(&str, u64); 5] = [
    (LARGE, (3 << 20) + 17),
    (PARTS_KEY, PART_BYTES + 1000),
    (EMPTY, 0),
    ("folder/", 0),
    ("marker-alone/", 0),
];

/// The keys of small objects.
const SMALL_KEYS: &[&str] = &[
    // The order of keys is that of UTF-8 bytes. Capitals come first, and `!` comes before `/`, which comes
    // before `0`. Characters beyond U+FFFF come last, while UTF-16 puts them before U+E000.
    "order/A",
    "order/Z",
    "order/a",
    "order/a!",
    "order/a/b",
    "order/a/b!",
    "order/a/b/c",
    "order/a0",
    "order/ab",
    SMALL,
    "order/é",
    "order/\u{e000}",
    "order/\u{ff46}",
    "order/😀",
    // These keys have characters with a special meaning in URLs, XML or shells.
    "odd/ space first",
    "odd/space last ",
    "odd/100%",
    "odd/a%20b",
    "odd/a%2Fb",
    "odd/a b",
    "odd/a+b",
    "odd/a?b=c",
    "odd/a#b",
    "odd/a&b;c=d",
    "odd/a&amp;b",
    "odd/q'uo\"te",
    "odd/<tag>",
    "odd/back\\slash",
    "odd/~:,@$!*()[]{}|^`",
    "odd/new\nline",
    "odd/tab\t",
    // Unicode has two spellings of this letter. They are two keys.
    "odd/n\u{e9}e",
    "odd/ne\u{301}e",
    // These keys have components with a special meaning in paths.
    "odd//double",
    "odd/./here",
    "odd/../there",
    "folder/file",
    "rolled/1/x",
    "rolled/1/y",
    "rolled/2",
    "rolled/3/x",
    "rolled/3/y/z",
    "rolled/4",
];

/// The objects that the suite asks for, by key.
pub fn objects() -> BTreeMap<String, Bytes> {
    let small = SMALL_KEYS.iter().zip(1..).map(|(key, len)| (*key, len));
    let bytes = |key: &str, len: u64| Bytes::from(content(key, 0, usize::try_from(len).unwrap_or(0)));
    small.chain(LENGTHS).map(|(key, len)| (key.to_owned(), bytes(key, len))).collect()
}

/// A store under test, and the differences from S3 that it is allowed to have.
#[derive(Debug)]
pub struct Store<'a> {
    /// The client of a bucket that holds [`objects`], without those that the store refuses.
    pub client: &'a dyn ObjectClient,
    /// The client of a bucket that is not there, or `None` where a client always has a bucket.
    pub missing_bucket: Option<&'a dyn ObjectClient>,
    /// Keys of [`objects`] that the store does not take.
    pub refused_keys: &'a [&'a str],
    /// Whether the store keeps a CRC of each object that was uploaded whole.
    pub has_checksums: bool,
    /// Whether the store lists the parts of [`PARTS_KEY`] with their CRCs. A store may say that it keeps
    /// these CRCs, and still not list them.
    pub tells_part_checksums: bool,
    /// Whether a listing that starts after a key still has the rolled-up prefix of that key. S3 leaves this
    /// prefix out.
    pub keeps_prefixes: bool,
}

impl<'a> Store<'a> {
    /// A store that lacks nothing that S3 has.
    pub fn new(client: &'a dyn ObjectClient, missing_bucket: &'a dyn ObjectClient) -> Self {
        Self {
            client,
            missing_bucket: Some(missing_bucket),
            refused_keys: &[],
            has_checksums: true,
            tells_part_checksums: true,
            keeps_prefixes: false,
        }
    }

    /// The objects that the store has.
    pub(super) fn objects(&self) -> BTreeMap<String, Bytes> {
        let mut objects = objects();
        objects.retain(|key, _| !self.refused_keys.contains(&key.as_str()));
        objects
    }

    /// The version that is at `key` now.
    pub(super) async fn version(&self, key: &str) -> ObjectId {
        let meta = self.client.head_object(key).await.expect("a HEAD of an object");
        ObjectId::new(key, meta.etag)
    }

    /// Gets a range of a version, into a buffer that is exactly as long as the range.
    pub(super) async fn get(&self, object: &ObjectId, start: u64, end: u64) -> Result<Bytes, ObjectError> {
        let (buffer, _loan) = lend(end - start);
        let request = GetObject { object: object.clone(), range: ByteRange::new(start, end) };
        Ok(self.client.get_object(request, buffer).await?.bytes)
    }
}

/// The kind of the error that a request ended with.
pub(super) fn kind<T>(result: Result<T, ObjectError>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind().clone())
}
