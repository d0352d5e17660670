//! Stores under test, and the objects that they have.

use std::collections::BTreeMap;

use bytes::Bytes;
use s3mount_object::{ByteRange, ErrorKind, GetObject, ObjectClient, ObjectError, ObjectId};

use super::lend::lend;
use crate::content::content;

/// The key of the object that is uploaded in parts, by stores that take it so.
pub const PARTS_KEY: &str = "in-parts.bin";

/// The length of its parts but the last, in bytes: S3's least.
pub const PART_BYTES: u64 = 5 << 20;

/// An object of more than one block of content, and no round length.
pub(super) const LARGE: &str = "large.bin";

/// An object without a byte.
pub(super) const EMPTY: &str = "empty";

/// An object of a few bytes.
pub(super) const SMALL: &str = "order/z";

/// A key below which there is nothing.
pub(super) const NOTHING: &str = "nothing";

/// Lengths in bytes of the objects that are not small.
const LENGTHS: [(&str, u64); 5] = [
    (LARGE, (3 << 20) + 17),
    (PARTS_KEY, PART_BYTES + 1000),
    (EMPTY, 0),
    ("folder/", 0),
    ("marker-alone/", 0),
];

/// Keys of small objects.
const SMALL_KEYS: &[&str] = &[
    // The order is that of UTF-8 bytes: capitals first, `!` before `/` before `0`, and characters beyond
    // U+FFFF last, which UTF-16 puts before U+E000.
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
    // What URLs, XML and shells take for something else.
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
    // The same letter in two spellings: two keys.
    "odd/n\u{e9}e",
    "odd/ne\u{301}e",
    // What paths take for something else.
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

/// A store under test, and where it differs from S3 by right.
#[derive(Debug)]
pub struct Store<'a> {
    /// The client of a bucket that holds [`objects`], without those that the store refuses.
    pub client: &'a dyn ObjectClient,
    /// The client of a bucket that is not there; `None` for a client that can only have one that is.
    pub missing_bucket: Option<&'a dyn ObjectClient>,
    /// Keys of [`objects`] that the store does not take.
    pub refused_keys: &'a [&'a str],
    /// Whether the store keeps a CRC of each object that was uploaded whole.
    pub has_checksums: bool,
    /// Whether the store tells the CRCs of the parts of [`PARTS_KEY`]. One that says that it keeps them may
    /// still not tell them.
    pub tells_part_checksums: bool,
    /// Whether a listing that starts after a key tells the prefix of that key, as S3 does not.
    pub keeps_prefixes: bool,
}

impl<'a> Store<'a> {
    /// One that lacks nothing.
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

    /// The objects that it has.
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

    /// A GET of a version, into a buffer of just its length.
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
