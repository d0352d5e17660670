//! Names of objects and of their versions.

use std::fmt;
use std::sync::Arc;

/// The ETag of an object as the store spells it, quotes included. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ETag(Arc<str>);

impl ETag {
    /// Takes the ETag as it stood in a header or in a listing.
    pub fn new(etag: &str) -> Self {
        Self(Arc::from(etag))
    }

    /// The ETag as it goes into an `If-Match` header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One version of one object: its whole key in the bucket, and its ETag. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectId {
    key: Arc<str>,
    etag: ETag,
}

impl ObjectId {
    /// Names the version `etag` of the object at `key`.
    pub fn new(key: &str, etag: ETag) -> Self {
        Self { key: Arc::from(key), etag }
    }

    /// The whole key, without the bucket and without a leading slash.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The version.
    pub fn etag(&self) -> &ETag {
        &self.etag
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.key, self.etag)
    }
}
