//! The contents of a cache directory, for the commands that show and tidy it. All methods block, and work while mounts
//! use the directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use s3mount_object::{ETag, ObjectId};

use crate::disk::blocks::{self, BLOCK_BYTES, BlockSet};
use crate::disk::clock::file_time;
use crate::disk::evict::limit::{self, Limit, Space};
use crate::disk::evict::usage::{Counts, Usage};
use crate::disk::evict::use_history;
use crate::disk::io::{Attribute, Io, NAME_ATTRIBUTE, RECORD_ATTRIBUTE};
use crate::disk::layout::{Hash, Layout, MARKER_TEXT, SHARDS, is_marker};
use crate::disk::names::listings;
use crate::disk::object::record::{Name, Record};
use crate::disk::scan::{self, Held, Removed};

/// Why a cache directory can't be inspected. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// There is no cache.
    #[error("{0:?} is not a disk cache of s3mount; give the folder of a mount's --cache")]
    NotACache(PathBuf),
    /// The cache has another layout.
    #[error("the disk cache {path:?} has the layout {layout:?}; use the version of s3mount that has made it")]
    Layout {
        /// The directory.
        path: PathBuf,
        /// What its marker file says.
        layout: String,
    },
    /// The layout of the cache is unknown.
    #[error(
        "the marker file of the disk cache {path:?} is damaged; delete {marker:?}, and mount with this --cache once"
    )]
    Marker {
        /// The directory.
        path: PathBuf,
        /// Its marker file.
        marker: PathBuf,
    },
    /// The cache belongs to another user, who could have put anything there.
    #[error("the disk cache {path:?} belongs to user {owner}; run the command as that user")]
    Owner {
        /// The directory.
        path: PathBuf,
        /// The user who owns it.
        owner: u32,
    },
    /// An operation failed.
    #[error("cannot {operation} {path:?}: {source}; {}", advice(source))]
    Io {
        /// What was to be done.
        operation: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// What to do about a failed operation.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run the command as the user who mounts",
        _ => {
            "the disk may fail, as the kernel's log (dmesg) tells; what a mount can't read there, it fetches"
        }
    }
}

/// A cache directory, as the commands see it.
#[derive(Debug)]
pub struct CacheDir {
    pub(crate) layout: Layout,
    pub(crate) io: Io,
    pub(super) usage: Usage,
}

/// A version that lies in a cache directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    pub(crate) hash: Hash,
    /// The object's size in bytes.
    pub size: u64,
    /// How many bytes of the disk its files take.
    pub disk_bytes: u64,
    /// Whether the whole object is there, or a part of it.
    pub is_whole: bool,
    /// When it was used last, since the Unix epoch.
    pub used: Duration,
    /// When it was written last, since the Unix epoch.
    pub written: Duration,
}

/// The name of a cached version, and how much of it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The store and the bucket: see [`DiskConfig::source`](crate::DiskConfig::source).
    pub source: String,
    /// The object's key.
    pub key: String,
    /// The version's ETag.
    pub etag: String,
    /// How many bytes of the object are there.
    pub held_bytes: u64,
}

/// The kept listings in a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listings {
    /// How many there are.
    pub count: u64,
    /// How many bytes of the disk they take.
    pub bytes: u64,
}

/// Statistics of a whole cache directory.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// How many bytes may be in use; `None` leaves 5 % of the file system free. It is the limit of the mounts that use
    /// the directory, or last used it.
    pub max_bytes: Option<u64>,
    /// How many bytes are in use, by the mounts' counts; `None` if there are none.
    pub counted_bytes: Option<u64>,
    /// How many bytes of the file system are free.
    pub free_bytes: u64,
    /// How large the file system is in bytes.
    pub total_bytes: u64,
    /// The time within which nearly all objects are used again; `None` if it is unknown.
    pub reuse_time: Option<Duration>,
    /// Versions that were not used for this time may be evicted when there is no room.
    pub idle: Duration,
    /// Whether a mount uses the directory.
    pub is_used: bool,
}

/// The result of evicting a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The eviction freed this many bytes of the disk.
    Bytes(u64),
    /// A mount is filling the object, so it stays.
    Filling,
}

impl CacheDir {
    /// The number of shards that a cache's versions are spread over.
    pub const SHARDS: u16 = SHARDS;

    /// Opens a cache directory.
    ///
    /// # Errors
    /// When there is no cache, or one that can't be read, or that belongs to another user.
    pub fn open(path: &Path) -> Result<Self, WalkError> {
        Self::open_as(path, rustix::process::geteuid().as_raw())
    }

    /// Opens the directory for `user`: links in another user's folder could lead root anywhere.
    pub(super) fn open_as(path: &Path, user: u32) -> Result<Self, WalkError> {
        let (io, layout) = (Io::new(), Layout::new(path));
        match io.load(&layout.marker()) {
            Ok(text) if text == MARKER_TEXT.as_bytes() => {}
            Ok(text) if !is_marker(&text) => {
                return Err(WalkError::Marker { path: path.to_owned(), marker: layout.marker() });
            }
            Ok(text) => {
                let layout = String::from_utf8_lossy(&text).trim().to_owned();
                return Err(WalkError::Layout { path: path.to_owned(), layout });
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(WalkError::NotACache(path.to_owned()));
            }
            Err(error) => return Err(failed("read", &layout.marker(), error)),
        }
        let owner = std::fs::metadata(path).ok().map(|metadata| metadata.uid());
        if let Some(owner) = owner.filter(|owner| *owner != user) {
            return Err(WalkError::Owner { path: path.to_owned(), owner });
        }
        let usage = Usage::open(&layout.usage()).map_err(|error| failed("open", &layout.usage(), error))?;
        Ok(Self { layout, io, usage })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.layout.root()
    }

    /// The versions in shard `number`, which is less than [`SHARDS`](Self::SHARDS).
    ///
    /// # Errors
    /// When the shard can't be read.
    pub fn shard(&self, number: u16) -> Result<Vec<Cached>, WalkError> {
        let shard = scan::shard(&self.layout, number, file_time());
        let shard = shard.map_err(|error| failed("list", &self.layout.shard(number), error))?;
        Ok(shard.versions.iter().map(cached).collect())
    }

    /// The kept listings in shard `number`, which is less than [`SHARDS`](Self::SHARDS).
    ///
    /// # Errors
    /// When the shard can't be read.
    pub fn listings(&self, number: u16) -> Result<Listings, WalkError> {
        let folder = listings::folder(&self.layout, number);
        let mut found = Listings::default();
        let each = listings::each_in(&folder, |listing| {
            found.count += 1;
            found.bytes += listing.bytes;
        });
        each.map(|()| found).map_err(|error| failed("list", &folder, error))
    }

    /// The name and the held bytes of a version, from its record. `None` if there is no record, or if it was evicted
    /// meanwhile.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn describe(&self, version: &Cached) -> Result<Option<Described>, WalkError> {
        let Some(record) = self.record(version)? else { return Ok(None) };
        let held_bytes = match &record.map {
            Some(map) => held_bytes(map, record.size),
            None => record.size,
        };
        let name = record.name.map_or_else(|| self.name(version), |name| Ok(Some(name)))?;
        let is_named_so = |name: &Name| {
            Hash::of(&name.source, &ObjectId::new(&name.key, ETag::new(&name.etag))) == version.hash
        };
        let described = |Name { source, key, etag }| Described { source, key, etag, held_bytes };
        Ok(name.filter(is_named_so).map(described))
    }

    /// The name of a whole version whose record has none.
    fn name(&self, version: &Cached) -> Result<Option<Name>, WalkError> {
        let path = self.layout.whole(&version.hash);
        let found = File::open(&path).and_then(|file| self.io.attribute(&file, NAME_ATTRIBUTE));
        let found =
            found.map(Some).or_else(missing).map_err(|error| failed("read the name of", &path, error))?;
        Ok(match found {
            Some(Attribute::Value(bytes)) => Name::decode(&bytes, &version.hash),
            Some(Attribute::Missing | Attribute::Unsupported) | None => None,
        })
    }

    /// The record of a version, if it belongs to this version.
    pub(crate) fn record(&self, version: &Cached) -> Result<Option<Record>, WalkError> {
        let bytes = if version.is_whole { self.record_of_whole(version) } else { self.map(version) };
        let path = self.file_of(version);
        let bytes = bytes.or_else(missing).map_err(|error| failed("read the record of", &path, error))?;
        let record = bytes.and_then(|bytes| Record::decode(&bytes, &version.hash));
        let is_like = |record: &Record| record.map.is_none() == version.is_whole;
        Ok(record.filter(|record| record.size == version.size && is_like(record)))
    }

    fn record_of_whole(&self, version: &Cached) -> io::Result<Option<Vec<u8>>> {
        let file = File::open(self.layout.whole(&version.hash))?;
        match self.io.attribute(&file, RECORD_ATTRIBUTE)? {
            Attribute::Value(bytes) if Record::decode(&bytes, &version.hash).is_some() => Ok(Some(bytes)),
            Attribute::Value(_) | Attribute::Missing | Attribute::Unsupported => {
                self.io.load(&self.layout.record(&version.hash)).map(Some)
            }
        }
    }

    fn map(&self, version: &Cached) -> io::Result<Option<Vec<u8>>> {
        self.io.load(&self.layout.map(&version.hash)).map(Some)
    }

    /// The file with the bytes of a version.
    pub fn file_of(&self, version: &Cached) -> PathBuf {
        if version.is_whole { self.layout.whole(&version.hash) } else { self.layout.part(&version.hash) }
    }

    /// Deletes a version. Processes that have it open can go on reading.
    ///
    /// # Errors
    /// When its files can't be deleted.
    pub fn evict(&self, version: &Cached) -> Result<Evicted, WalkError> {
        let removed = scan::remove(&self.layout, &version.hash);
        let Removed { bytes, is_filling, .. } =
            removed.map_err(|error| failed("delete", &self.file_of(version), error))?;
        self.change_counts(|counts| counts.remove(bytes))?;
        Ok(if is_filling && bytes == 0 { Evicted::Filling } else { Evicted::Bytes(bytes) })
    }

    /// The statistics of the whole directory.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn stats(&self) -> Result<Stats, WalkError> {
        let read = |error| failed("read the statistics of", self.path(), error);
        let (limit, is_used) = limit::look(&self.layout).map_err(read)?;
        let space = Space::of(&self.layout).map_err(read)?;
        let ageing = match File::open(self.layout.pace()) {
            Ok(file) => use_history::load(&file).map_err(read)?,
            Err(error) => missing(error).map_err(read)?.unwrap_or_default(),
        };
        let max_bytes = match limit {
            Some(Limit::Bytes(bytes)) => Some(bytes),
            Some(Limit::LeaveFree) | None => None,
        };
        Ok(Stats {
            max_bytes,
            counted_bytes: self.counts()?.map(|counts| counts.used),
            free_bytes: space.free,
            total_bytes: space.total,
            reuse_time: Some(ageing.reuse_time()).filter(|time| !time.is_zero()),
            idle: ageing.idle(),
            is_used,
        })
    }

    pub(crate) fn counts(&self) -> Result<Option<Counts>, WalkError> {
        self.usage.read().map_err(|error| failed("read", &self.layout.usage(), error))
    }

    pub(crate) fn change_counts(&self, change: impl FnOnce(&mut Counts)) -> Result<(), WalkError> {
        let changed = self.usage.change(|counts| counts.as_mut().map(change));
        changed.map(|_| ()).map_err(|error| failed("change", &self.layout.usage(), error))
    }
}

fn cached(held: &Held) -> Cached {
    let Held { hash, disk_bytes, used, written, size, is_whole, .. } = *held;
    Cached { hash, size, disk_bytes, is_whole, used, written }
}

/// How many bytes of an object of `size` bytes the blocks in `map` hold. Only the last block is shorter.
fn held_bytes(map: &BlockSet, size: u64) -> u64 {
    let last = blocks::count(size).saturating_sub(1);
    let missing = if map.has(last) { BLOCK_BYTES - (size - last * BLOCK_BYTES) } else { 0 };
    map.held() * BLOCK_BYTES - missing
}

pub(crate) fn failed(operation: &'static str, path: &Path, source: io::Error) -> WalkError {
    WalkError::Io { operation, path: path.to_owned(), source }
}

/// `None`, if a file is missing.
pub(crate) fn missing<T>(error: io::Error) -> io::Result<Option<T>> {
    if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
}
