//! Settings of the filesystem, as plain data.

use std::time::{Duration, SystemTime};

use globset::GlobSet;

/// Tells how much the page cache may hold for a process, in bytes.
pub type PageCacheBytes = fn(pid: u32) -> u64;

/// What the mount looks like.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// Only keys below this are shown; empty, or ending in `/`.
    pub prefix: String,
    /// When it was mounted: the time that directories show.
    pub mounted_at: SystemTime,
    /// Owner of everything.
    pub uid: u32,
    /// Group of everything.
    pub gid: u32,
    /// Permission bits of directories.
    pub dir_mode: u16,
    /// Permission bits of files.
    pub file_mode: u16,
    /// How long a name that was seen is believed.
    pub metadata_ttl: MetadataTtl,
    /// How long it is believed that a name stands for nothing, where a listing has told.
    pub negative_metadata_ttl: Duration,
    /// Memory for what listings have told, in bytes.
    pub metadata_limit_bytes: usize,
    /// Files that the kernel may know before it is asked to forget the oldest. Each takes
    /// [`INODE_BYTES`](crate::INODE_BYTES).
    pub inode_limit: usize,
    /// Files, by their paths below the root, that are read without the kernel's page cache.
    pub direct_io: GlobSet,
    /// Has other large files read so where the page cache gives them nothing.
    pub direct_auto: Option<PageCacheBytes>,
    /// A request for metadata that has no answer after this long fails, retries included.
    pub timeout: Duration,
}

/// A whole bucket that belongs to root, mounted in 1970, believed for a minute, with 16 MiB for its names and a million files.
impl Default for FsConfig {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            prefix: String::new(),
            mounted_at: SystemTime::UNIX_EPOCH,
            uid: 0,
            gid: 0,
            dir_mode: 0o755,
            file_mode: 0o644,
            metadata_ttl: MetadataTtl::For(minute),
            negative_metadata_ttl: minute,
            metadata_limit_bytes: 16 << 20,
            inode_limit: 1 << 20,
            direct_io: GlobSet::empty(),
            direct_auto: None,
            timeout: minute,
        }
    }
}

/// How long metadata is believed before the store is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataTtl {
    /// Ask each time the kernel asks.
    Minimal,
    /// For this long.
    For(Duration),
    /// For ever: for data sets that never change.
    Indefinite,
}

impl MetadataTtl {
    /// The time a fresh answer is good for.
    pub fn duration(self) -> Duration {
        match self {
            MetadataTtl::Minimal => Duration::ZERO,
            MetadataTtl::For(duration) => duration,
            // The kernel's own clock arithmetic must not overflow: a century is for ever.
            MetadataTtl::Indefinite => Duration::from_secs(100 * 365 * 86_400),
        }
    }
}
