//! Mounts over the store, each with a kernel, as the product joins them.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use s3mount_bucket::WritableBucket;
use s3mount_fs::{Filesystem, FsConfig, MetadataTtl, Rights, Writes};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::NewObject;
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_write::{WriteConfig, Writer};
use tokio::runtime::Handle;

use crate::draw::Draw;
use crate::kernel::{Kernel, KernelConfig};
use crate::store::client::MountClient;
use crate::store::{BEGIN, SimStore};

/// The deadline of a call to the store.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// How a mount is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPlan {
    /// The memory of all.
    pub memory_bytes: u64,
    /// How long names are believed; `None`: the store is asked each time.
    pub metadata_ttl: Option<Duration>,
    /// Whether fsync publishes long files, too.
    pub publishes_on_fsync: bool,
    /// How long a `close` after appending may leave the file unpublished.
    pub append_delay: Duration,
}

/// One mount.
#[derive(Debug)]
pub struct SimMount {
    /// The mount's way to the store.
    pub client: Arc<MountClient>,
    /// Its filesystem.
    pub fs: Arc<Filesystem>,
    /// The kernel on top.
    pub kernel: Arc<Kernel>,
    /// The writer.
    pub writer: Writer,
    /// The memory.
    pub pool: BufferPool,
}

impl SimMount {
    /// Mounts the bucket, as the mount of this number.
    ///
    /// # Panics
    /// When the machine has no memory.
    pub fn new(store: &Arc<SimStore>, number: usize, plan: &MountPlan, draw: Arc<Draw>) -> Self {
        let runtime = Handle::current();
        let client = MountClient::new(store.clone(), number);
        let bucket = WritableBucket::seeded(client.clone(), 64, draw.next());
        let pool = BufferPool::new(MemoryBudget::new(plan.memory_bytes)).expect("memory");
        let prefetch = PrefetchConfig {
            read_timeout: TIMEOUT,
            small_object_bytes: 64 << 10,
            max_requests: 32,
            ..PrefetchConfig::default()
        };
        let prefetcher = Prefetcher::new(bucket.reader(), pool.clone(), prefetch, &runtime);
        let write = WriteConfig {
            memory_bytes: plan.memory_bytes / 2,
            body_bytes: plan.memory_bytes / 2,
            max_requests: 8,
            timeout: TIMEOUT,
            started_at: UNIX_EPOCH + BEGIN,
            ..WriteConfig::default()
        };
        let readers = prefetcher.clone();
        let writer = Writer::with(bucket.clone(), pool.clone(), write, &runtime, move || {
            readers.reclaim();
        });
        let writes = Writes {
            writer: writer.clone(),
            rights: Rights { may_delete: true, may_overwrite: true, folder_rename_limit: 1000 },
            object: NewObject::default(),
            append_delay: plan.append_delay,
            publishes_on_fsync: plan.publishes_on_fsync,
        };
        let config = FsConfig {
            mounted_at: UNIX_EPOCH + BEGIN,
            metadata_ttl: plan.metadata_ttl.map_or(MetadataTtl::Minimal, MetadataTtl::For),
            negative_metadata_ttl: Duration::from_secs(1),
            allows_writes: true,
            timeout: TIMEOUT,
            ..FsConfig::default()
        };
        let fs = Filesystem::new(bucket, prefetcher, config, &runtime).with_writes(writes);
        writer.register(fs.registry());
        let fs = Arc::new(fs);
        let kernel = Kernel::new(fs.clone(), KernelConfig::new(draw));
        Self { client, fs, kernel, writer, pool }
    }

    /// The daemon is killed: what it has sent may still be done, and nothing else.
    pub fn kill(&self) {
        self.client.die();
        self.kernel.kill();
    }

    /// Whether the mount holds nothing any more.
    ///
    /// # Errors
    /// What it holds.
    pub fn is_at_rest(&self) -> Result<(), String> {
        // This brings the metrics up to date.
        drop(self.fs.registry().snapshot());
        let (fs, writer) = (self.fs.metrics(), self.writer.metrics());
        let held = [
            ("open files", fs.open_files.get()),
            ("open folders", fs.open_folders.get()),
            ("requests of drafts", writer.in_flight.get()),
            ("bytes of drafts", writer.memory.get()),
            ("waits for memory", self.pool.waiting()),
        ];
        let held: Vec<String> = held
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        if held.is_empty() { Ok(()) } else { Err(held.join(", ")) }
    }
}
