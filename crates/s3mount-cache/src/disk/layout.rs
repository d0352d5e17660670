//! The paths in a cache directory, layout 1.
//!
//! ```text
//! DIR/s3mount-cache                      says that the directory is a cache, and of which layout
//! DIR/s3mount-cache.number               a number by which objects are spread over several directories
//! DIR/lock                               locked by the process that evicts
//! DIR/usage                              how many bytes are in use
//! DIR/limit                              how many bytes may be in use, held by all who use the directory
//! DIR/pace                               how much time passes between two uses of an object
//! DIR/ghosts                             when objects were used that may not be here
//! DIR/durable                            up to which time everything is on the disk
//! DIR/v1/<3 digits>/<64 digits>          a whole object, byte for byte
//! DIR/v1/<3 digits>/<64 digits>.record   its record, where an extended attribute has no room for it
//! DIR/v1/<3 digits>/<64 digits>.part     a partly fetched object: sparse, as long as the object
//! DIR/v1/<3 digits>/<64 digits>.map      which of its blocks are there
//! DIR/names/<3 digits>/<64 digits>       a kept listing
//! ```
//!
//! The digits are those of the version's [`Hash`], and the folder is named by the first three. All that
//! belongs to a version lies in one folder, so publishing it is a rename within that folder.

use std::fmt;
use std::path::{Path, PathBuf};

use s3mount_object::ObjectId;
use sha2::{Digest, Sha256};

/// The text of the marker file.
pub(crate) const MARKER_TEXT: &str = "s3mount cache, layout 1\n";

/// How the text of a marker file begins, whatever the layout.
const MARKER_START: &str = "s3mount cache, layout ";

/// Whether `text` is the undamaged text of a marker file, of any layout.
pub(crate) fn is_marker(text: &[u8]) -> bool {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.strip_prefix(MARKER_START));
    number.and_then(|number| number.strip_suffix('\n')).is_some_and(|number| number.parse::<u32>().is_ok())
}

/// How many folders the objects are spread over: three hexadecimal digits.
pub(crate) const SHARDS: u16 = 1 << 12;

/// Names one version of one object of one store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Hash([u8; 32]);

impl Hash {
    /// The hash of `object` in the store that `source` names. Each field is hashed with its length, so no two versions
    /// give the same text.
    pub(crate) fn of(source: &str, object: &ObjectId) -> Self {
        let mut hasher = Sha256::new();
        for field in [source, object.key(), object.etag().as_str()] {
            hasher.update((field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
        Self(hasher.finalize().into())
    }

    /// The folder of the version.
    pub(crate) fn shard(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]]) >> 4
    }

    /// The 32 bytes of the hash.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Bits that differ from version to version, and that do not choose the folder.
    pub(crate) fn spread(&self) -> u64 {
        u64::from_be_bytes(self.0[24..].try_into().expect("a hash has 32 bytes"))
    }

    /// Parses a hash from `name`, its 64 digits.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if name.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(name.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The paths in one cache directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The marker file, which says that the directory is a cache, and of which layout.
    pub(crate) fn marker(&self) -> PathBuf {
        self.root.join("s3mount-cache")
    }

    /// The file with the number of the directory among others.
    pub(crate) fn number(&self) -> PathBuf {
        self.root.join("s3mount-cache.number")
    }

    /// The file that the evicting process locks.
    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The file that counts the bytes in use.
    pub(crate) fn usage(&self) -> PathBuf {
        self.root.join("usage")
    }

    /// The file with the times between two uses of an object.
    pub(crate) fn pace(&self) -> PathBuf {
        self.root.join("pace")
    }

    /// The file with the last uses of objects that may not be here.
    pub(crate) fn ghosts(&self) -> PathBuf {
        self.root.join("ghosts")
    }

    /// The file that says how many bytes may be in use. Each process that uses the directory holds a lock on it.
    pub(crate) fn limit(&self) -> PathBuf {
        self.root.join("limit")
    }

    /// The file that says up to which time everything is on the disk.
    pub(crate) fn durable(&self) -> PathBuf {
        self.root.join("durable")
    }

    /// Whether housekeepers make a file of this name, or rename a file of this name to one.
    pub(crate) fn is_of_housekeepers(name: &str) -> bool {
        let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
        ["lock", "usage", "pace", "ghosts", "limit", "durable"].contains(&stem)
    }

    /// The folder of all objects.
    pub(crate) fn objects(&self) -> PathBuf {
        self.root.join("v1")
    }

    /// The folder of all kept listings.
    pub(crate) fn names(&self) -> PathBuf {
        self.root.join("names")
    }

    /// The kept listing of the directory with this `hash`.
    pub(crate) fn listing(&self, hash: &Hash) -> PathBuf {
        self.names().join(format!("{:03x}", hash.shard())).join(hash.to_string())
    }

    /// One of the [`SHARDS`] folders of objects.
    pub(crate) fn shard(&self, shard: u16) -> PathBuf {
        self.objects().join(format!("{shard:03x}"))
    }

    /// The file of a whole object.
    pub(crate) fn whole(&self, hash: &Hash) -> PathBuf {
        self.shard(hash.shard()).join(hash.to_string())
    }

    /// The record of a whole object, where an extended attribute has no room for it.
    pub(crate) fn record(&self, hash: &Hash) -> PathBuf {
        self.shard(hash.shard()).join(format!("{hash}.record"))
    }

    /// The sparse file of a partly fetched object.
    pub(crate) fn part(&self, hash: &Hash) -> PathBuf {
        self.shard(hash.shard()).join(format!("{hash}.part"))
    }

    /// The map of the blocks of a partly fetched object.
    pub(crate) fn map(&self, hash: &Hash) -> PathBuf {
        self.shard(hash.shard()).join(format!("{hash}.map"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use s3mount_object::{ETag, ObjectId};

    use super::{Hash, Layout, SHARDS};

    fn hash(source: &str, key: &str, etag: &str) -> Hash {
        Hash::of(source, &ObjectId::new(key, ETag::new(etag)))
    }

    #[test]
    fn each_field_tells_versions_apart() {
        let hashes = [
            hash("s", "k", "e"),
            hash("sk", "", "e"),
            hash("", "sk", "e"),
            hash("s", "ke", ""),
            hash("s", "k", "e2"),
            hash("s2", "k", "e"),
        ];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash), "{index}");
        }
    }

    #[test]
    fn paths_follow_from_the_hash() {
        let hash = hash("https://s3.example|bucket", "a/b.bin", "\"1\"");
        let (digits, layout) = (hash.to_string(), Layout::new(Path::new("/d")));
        assert_eq!(digits.len(), 64);
        assert_eq!(Hash::parse(&digits), Some(hash));
        assert!(hash.shard() < SHARDS);
        assert_eq!(layout.whole(&hash), Path::new("/d/v1").join(&digits[..3]).join(&digits));
        assert_eq!(layout.map(&hash), layout.whole(&hash).with_extension("map"));
        assert_eq!(Hash::parse(&digits[1..]), None);
        assert_eq!(Hash::parse(&digits.replace(&digits[..1], "A")), None);
    }

    /// A change of this test is a change of the layout.
    #[test]
    fn the_hash_stays_what_it_is() {
        assert_eq!(
            hash("s", "k", "e").to_string(),
            "461d30aa9397c7c18a12bdcb1d8c6f7beb1996516d01a50b10e722e34072baaa"
        );
    }
}
