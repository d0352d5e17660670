//! Settings of the filesystem, as plain data.

use std::time::{Duration, SystemTime};

use globset::GlobSet;

use s3mount_names::NamesConfig;

/// Returns how many bytes the page cache may hold for a process.
pub type PageCacheBytes = fn(pid: u32) -> u64;

/// The settings of the filesystem.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// The mount shows only keys below this prefix. It is empty, or ends in `/`.
    pub prefix: String,
    /// When the bucket was mounted. Directories show this time as their own.
    pub mounted_at: SystemTime,
    /// When this daemon has begun: later than that, if it has taken over. Times that programs set to now count from here.
    pub started_at: SystemTime,
    /// The user who has mounted, and may see what each user does.
    pub mounted_by: u32,
    /// The owner of all files and directories.
    pub uid: u32,
    /// The group of all files and directories.
    pub gid: u32,
    /// Permission bits of directories.
    pub dir_mode: u16,
    /// Permission bits of files.
    pub file_mode: u16,
    /// How long a name from a listing is cached as present.
    pub metadata_ttl: MetadataTtl,
    /// How long a name that is not in a listing is cached as absent.
    pub negative_metadata_ttl: Duration,
    /// Memory for the pages of listings, in bytes.
    pub metadata_limit_bytes: usize,
    /// How much of the memory limit is not the pool's, in bytes. The file that shows the memory counts it in.
    pub memory_beside_bytes: u64,
    /// How many files the kernel may know. Above this number, it is asked to forget the oldest. Each file takes
    /// [`INODE_BYTES`](crate::INODE_BYTES).
    pub inode_limit: usize,
    /// Files that are read around the kernel's page cache, by their paths below the root.
    pub direct_io: GlobSet,
    /// If set, other large files are read around the page cache, too, if it does not help them.
    pub direct_auto: Option<PageCacheBytes>,
    /// Whether objects may be written, so that listings must not be kept for later mounts.
    pub allows_writes: bool,
    /// Whether the store tells of changes ([`Filesystem::was_told`](crate::Filesystem::was_told)).
    pub is_told: bool,
    /// Whether the names are the bucket's own, so that listings may be kept for later mounts.
    pub keeps_listings: bool,
    /// The time after which a request for metadata fails, including its retries.
    pub timeout: Duration,
}

/// A whole bucket. Root owns it, it was mounted in 1970, names are cached for a minute, and there is room for 16 MiB of
/// names and a million files.
impl Default for FsConfig {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            prefix: String::new(),
            mounted_at: SystemTime::UNIX_EPOCH,
            started_at: SystemTime::UNIX_EPOCH,
            mounted_by: 0,
            uid: 0,
            gid: 0,
            dir_mode: 0o755,
            file_mode: 0o644,
            metadata_ttl: MetadataTtl::For(minute),
            negative_metadata_ttl: minute,
            metadata_limit_bytes: 16 << 20,
            memory_beside_bytes: 0,
            inode_limit: 1 << 20,
            direct_io: GlobSet::empty(),
            direct_auto: None,
            allows_writes: false,
            is_told: false,
            keeps_listings: true,
            timeout: minute,
        }
    }
}

impl FsConfig {
    /// The settings of names.
    pub(crate) fn names(&self) -> NamesConfig {
        NamesConfig {
            root: self.prefix.clone(),
            started_at: self.started_at,
            ttl: self.metadata_ttl.duration(),
            negative_ttl: self.negative_metadata_ttl,
            is_immutable: self.metadata_ttl == MetadataTtl::Indefinite,
            limit_bytes: self.metadata_limit_bytes,
            allows_writes: self.allows_writes,
            is_told: self.is_told,
            timeout: self.timeout,
        }
    }
}

/// How long metadata is cached before the store is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataTtl {
    /// Ask the store each time the kernel asks.
    Minimal,
    /// For this time.
    For(Duration),
    /// For ever: for data sets that never change.
    Indefinite,
}

impl MetadataTtl {
    /// How long a fresh answer is cached.
    pub fn duration(self) -> Duration {
        match self {
            MetadataTtl::Minimal => Duration::ZERO,
            MetadataTtl::For(duration) => duration,
            // A century instead of for ever, because the kernel's arithmetic of times must not overflow.
            MetadataTtl::Indefinite => Duration::from_secs(100 * 365 * 86_400),
        }
    }
}
