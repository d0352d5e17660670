//! Settings of writing.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::Journal;
use crate::part_layout::LEAST_PART;
use crate::spool_disk::{Directory, SpoolDisk};

/// How files are written.
#[derive(Clone, Debug)]
pub struct WriteConfig {
    /// The length of the first parts of an upload, in bytes. S3 takes 5 MiB to 5 GiB. A file of up to this
    /// many bytes becomes an object by one request.
    pub part_bytes: u64,
    /// The store takes no part below this many bytes, except as the last one of an upload. S3 takes 5 MiB.
    pub least_part_bytes: u64,
    /// The most bytes of the pool that all drafts may hold together. Tasks that gather the bytes of a part may take a
    /// quarter more, or a part where that is more.
    pub memory_bytes: u64,
    /// The most bytes that the client may take for bodies under way whose pieces it has to join, because the pool
    /// had no room for that. These bytes are beside those of the pool.
    pub body_bytes: u64,
    /// The most parts that all drafts upload at the same time.
    pub max_requests: usize,
    /// The spool for bytes that memory can't hold, if any.
    pub spool: Option<SpoolConfig>,
    /// Whether the CRC-64/NVME of everything is sent along and compared with the store's.
    pub has_checksums: bool,
    /// How long a call may wait for the store or for memory.
    pub timeout: Duration,
    /// Records what is under way at the store.
    pub journal: Journal,
    /// The time of day now. Later times are counted from here, by a clock that nobody sets.
    pub started_at: SystemTime,
}

impl WriteConfig {
    /// The most bytes of the pool that tasks may hold beside the drafts: the longest part.
    pub(crate) fn task_bytes(&self) -> u64 {
        (self.memory_bytes / 4).max(self.part_bytes).max(self.least_part_bytes)
    }
}

/// Room for bytes that memory can't hold, or that another process may have to go on with.
#[derive(Clone, Debug)]
pub struct SpoolConfig {
    /// Where the bytes go.
    pub disk: Arc<dyn SpoolDisk>,
    /// The most bytes that all drafts may hold there.
    pub limit_bytes: u64,
}

impl SpoolConfig {
    /// A spool in a directory, in which its files have no names.
    pub fn in_directory(directory: &Path, limit_bytes: u64) -> Self {
        Self { disk: Arc::new(Directory(directory.to_owned())), limit_bytes }
    }
}

impl Default for WriteConfig {
    fn default() -> Self {
        Self {
            part_bytes: 8 << 20,
            least_part_bytes: LEAST_PART,
            memory_bytes: 128 << 20,
            body_bytes: 128 << 20,
            // As many connections as 16 requests at S3's 0.1 s and 80 MB/s each fill 10 Gbit/s with.
            max_requests: 16,
            spool: None,
            has_checksums: true,
            timeout: Duration::from_secs(60),
            journal: Journal::default(),
            started_at: SystemTime::UNIX_EPOCH,
        }
    }
}
