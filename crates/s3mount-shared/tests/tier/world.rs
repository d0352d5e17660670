//! A source and a shared bucket in memory, and mounts that read through the tier.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_bucket::Bucket;
use s3mount_memory::{BufferPool, MemoryBudget, Priority};
use s3mount_object::{ByteRange, ObjectError, ObjectId};
use s3mount_shared::{SharedConfig, SharedTier};
use s3mount_testkit::{MemoryClient, check};
use tokio::runtime::Handle;
use tokio::time::sleep;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) const KIB: u64 = 1 << 10;

/// The connections of one mount to the source.
const CONNECTIONS: usize = 64;

/// The stores of a fleet.
pub(crate) struct World {
    pub(crate) source: Arc<MemoryClient>,
    pub(crate) shared: Arc<MemoryClient>,
}

/// One mount of the fleet.
#[derive(Clone)]
pub(crate) struct Mount {
    pub(crate) tier: SharedTier,
    pub(crate) pool: BufferPool,
    source: Bucket,
}

impl World {
    /// The source takes 25 ms for a request, and the shared bucket takes 2 ms.
    pub(crate) fn new() -> Self {
        let world = Self { source: Arc::default(), shared: Arc::default() };
        world.source.set_latency(Duration::from_millis(25));
        world.shared.set_latency(Duration::from_millis(2));
        world
    }

    pub(crate) fn mount(&self) -> Mount {
        self.mount_of("bucket", 512 * MIB)
    }

    /// A mount of this bucket of the source, whose queue holds `queue_bytes`.
    pub(crate) fn mount_of(&self, bucket: &str, queue_bytes: u64) -> Mount {
        let config = SharedConfig {
            prefix: "fleet/".to_owned(),
            source_endpoint: "https://source".to_owned(),
            source_bucket: bucket.to_owned(),
            queue_bytes,
        };
        let pool = BufferPool::new(MemoryBudget::new(1024 * MIB)).expect("memory");
        let (shared, source) = (self.shared.clone(), self.source.clone());
        let tier = SharedTier::new(config, shared, source.clone(), pool.clone(), &Handle::current());
        Mount { tier, pool, source: Bucket::new(source, CONNECTIONS) }
    }

    /// The bytes that were fetched from the source since this was last asked.
    pub(crate) fn source_bytes(&self) -> u64 {
        self.source.take_ranges().iter().map(|(_, range)| range.end - range.start).sum()
    }

    /// The keys of the blocks in the shared bucket, without leases.
    pub(crate) fn blocks(&self) -> Vec<String> {
        self.shared.keys().into_iter().filter(|key| !key.contains(".lease")).collect()
    }
}

impl Mount {
    /// Reads a range as the prefetcher does: the tier first, then the source. The bytes are checked. Returns
    /// whether the tier served them.
    pub(crate) async fn read(&self, object: &ObjectId, size: u64, start: u64, end: u64) -> bool {
        let range = ByteRange::new(start, end);
        let len = usize::try_from(range.len()).expect("a short range");
        let buffer = self.pool.try_buffer(len, Priority::Demand).expect("a buffer");
        let (bytes, is_hit) = match self.tier.get(object, size, range, None, buffer).await {
            Ok(bytes) => (bytes, true),
            Err(miss) => {
                drop(miss.buffer.expect("the buffer is back"));
                let bytes = self.read_source(object, range).await;
                self.tier.offer(object, size, range, &bytes);
                drop(miss.lease);
                (bytes, false)
            }
        };
        assert_eq!(bytes.len(), len);
        check(object.key(), start, &bytes).expect("the right bytes");
        is_hit
    }

    /// Reads a range from the source, as if there were no tier. The bytes are checked.
    pub(crate) async fn read_source(&self, object: &ObjectId, range: ByteRange) -> Bytes {
        let buffer = || async { Ok::<_, ObjectError>(vec![0; range.len() as usize]) };
        let bytes = self.source.get(object, range, buffer).await.expect("the source works");
        check(object.key(), range.start(), &bytes).expect("the right bytes");
        bytes
    }

    /// Reads each block of a version whole, one after another. Returns how many the tier served.
    pub(crate) async fn read_blocks(&self, object: &ObjectId, size: u64) -> usize {
        let mut hits = 0;
        let mut at = 0;
        while at < size {
            let end = SharedTier::block_edge(at).min(size);
            hits += usize::from(self.read(object, size, at, end).await);
            at = end;
        }
        hits
    }

    /// Waits until nothing waits to be uploaded.
    pub(crate) async fn settle(&self) {
        for _ in 0..100_000 {
            if self.tier.held_bytes() == 0 {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
        panic!("{} bytes still wait to be uploaded", self.tier.held_bytes());
    }
}
