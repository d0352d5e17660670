//! The state that all GETs and readers of a mount share: the store, the memory, and what was learnt about both.

use std::collections::HashSet;
use std::sync::Arc;

use s3mount_bucket::{Bucket, Class};
use s3mount_cache::{BlockCache, DiskCache};
use s3mount_memory::BufferPool;
use s3mount_object::ObjectId;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::backfill_queue::BackfillQueue;
use crate::learn::Learnt;
use crate::limits::ahead::AheadLimiter;
use crate::limits::hedge::HedgeBudget;
use crate::limits::latency::Latencies;
use crate::limits::request_permits::RequestPermits;
use crate::memory_view::Peaks;
use crate::sums::ledger::Ledgers;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::tiers::Tiers;
use crate::{PrefetchConfig, PrefetchMetrics};

/// The most versions with wrong bytes that are remembered until they are opened again. A network with more errors is
/// unusable.
const MOST_QUARANTINED: usize = 100_000;

/// Parts that are fetched for the disk cache alone may take this share of its write queue. The rest is for bytes that
/// readers bring, so that none of them is dropped.
const WARM_SHARE: u64 = 4;

/// That share in KiB, which the permits of a semaphore count.
fn warm_kib(tiers: &Tiers) -> u32 {
    let queue_bytes = tiers.disk.as_ref().map_or(0, DiskCache::queue_bytes);
    u32::try_from(queue_bytes / (WARM_SHARE << 10)).unwrap_or(u32::MAX)
}

/// The block cache has this share of the memory, for random blocks. The rest is for what streams read next.
const CACHE_SHARE: u64 = 4;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) bucket: Bucket,
    pub(crate) pool: BufferPool,
    pub(crate) cache: BlockCache,
    /// The places to try before the store.
    pub(crate) tiers: Tiers,
    pub(crate) config: PrefetchConfig,
    pub(crate) runtime: Handle,
    /// The number of streams of all readers that take a share of the memory.
    pub(crate) active_streams: AtomicUsize,
    /// Limits the GETs in flight.
    pub(crate) request_permits: Arc<RequestPermits>,
    /// The memory for versions that are fetched for the disk cache alone, in KiB.
    warm_share: Semaphore,
    /// Versions whose missing ranges on the disk will be fetched.
    pub(crate) backfill_queue: BackfillQueue,
    /// Limits the GETs ahead of their readers.
    pub(crate) ahead: Arc<AheadLimiter>,
    /// How many bytes the block cache held, or waited to be written to a tier, at the last tick of the
    /// housekeeper.
    cached_bytes: AtomicU64,
    /// The start of the time that the policies see.
    pub(crate) started: Instant,
    pub(crate) latencies: Latencies,
    learnt: Mutex<Learnt>,
    pub(crate) hedges: HedgeBudget,
    pub(crate) metrics: Arc<PrefetchMetrics>,
    /// How much memory was used lately, where the limit may change.
    pub(crate) peaks: Peaks,
    /// Versions with wrong bytes, whose pages the kernel may hold.
    quarantined: Mutex<HashSet<ObjectId>>,
    /// What came of the versions that were read last, under `--verify whole`.
    pub(crate) ledgers: Ledgers,
}

/// The bytes that may always be ahead of several streams, besides two parts for each: smaller parts would need more
/// requests. S3 brings 4 GB/s with it, and a faster link shows its rate within a second.
const ENOUGH_AHEAD_BYTES: u64 = 512 << 20;

impl Shared {
    /// Parts and random reads that are larger than the pool's largest buffer are cut to it.
    pub(crate) fn new(
        bucket: Bucket,
        pool: BufferPool,
        tiers: Tiers,
        mut config: PrefetchConfig,
        runtime: Handle,
    ) -> Arc<Self> {
        let largest = pool.max_buffer_bytes() as u64;
        config.part_bytes = config.part_bytes.min(largest);
        config.random_read_bytes = config.random_read_bytes.min(largest);
        config.small_object_bytes = config.small_object_bytes.min(largest);
        let budget = pool.budget().clone();
        let cache = BlockCache::new(config.random_read_bytes, budget.most_bytes() / CACHE_SHARE);
        if budget.is_adjustable() {
            cache.set_capacity(budget.limit_bytes() / CACHE_SHARE);
        }
        let warm_share = Semaphore::new(warm_kib(&tiers) as usize);
        config.max_requests = config.max_requests.min(bucket.limits().most(Class::Read));
        let request_permits = RequestPermits::new(config.max_requests);
        let ledgers = Ledgers::new(budget.least_bytes());
        let ahead =
            AheadLimiter::new(config.max_requests, config.part_bytes, request_permits.clone(), budget);
        Arc::new(Self {
            bucket,
            pool,
            cache,
            tiers,
            config,
            runtime,
            active_streams: AtomicUsize::new(0),
            request_permits,
            warm_share,
            backfill_queue: BackfillQueue::default(),
            ahead,
            cached_bytes: AtomicU64::new(0),
            started: Instant::now(),
            latencies: Latencies::default(),
            learnt: Mutex::default(),
            hedges: HedgeBudget::default(),
            metrics: Arc::default(),
            peaks: Peaks::default(),
            quarantined: Mutex::default(),
            ledgers,
        })
    }

    /// Updates the gauges.
    pub(crate) fn refresh(&self) {
        let Self { metrics, pool, cache, .. } = self;
        metrics.active_streams.set_len(self.active_streams.load(Ordering::Relaxed));
        metrics.gets_ahead.set_len(self.ahead.running());
        metrics.memory_limit.set(pool.budget().limit_bytes());
        metrics.memory_used.set(pool.budget().used_bytes());
        metrics.memory_peak.set(pool.budget().peak_bytes());
        metrics.block_cache.set(cache.held_bytes());
    }

    /// What the mount has learnt about its files.
    pub(crate) fn learnt(&self) -> MutexGuard<'_, Learnt> {
        lock(&self.learnt)
    }

    /// Notes that wrong bytes of a version came, and drops its cached blocks.
    pub(crate) fn quarantine(&self, object: &ObjectId) {
        self.cache.forget(object);
        self.tiers.distrust(object);
        let mut quarantined = lock(&self.quarantined);
        if quarantined.len() < MOST_QUARANTINED && quarantined.insert(object.clone()) {
            self.metrics.objects_corrupt.inc();
        }
    }

    /// Waits until a part of `len` bytes may be fetched for the disk cache alone. The caller holds the permit until the
    /// part is written.
    pub(crate) async fn warm_share(&self, len: u64) -> Option<SemaphorePermit<'_>> {
        let most = warm_kib(&self.tiers);
        let kib = u32::try_from(len.div_ceil(1 << 10)).unwrap_or(u32::MAX).min(most);
        // The semaphore is never closed.
        self.warm_share.acquire_many(kib).await.ok()
    }

    /// Drops bytes that wait to be written to a tier. Returns how much of the `missing` bytes of memory this gave back:
    /// readers may still hold the same buffers.
    pub(crate) fn shed_unwritten(&self, missing: u64) -> u64 {
        let budget = self.pool.budget();
        let before = budget.used_bytes();
        self.tiers.shed(missing);
        before.saturating_sub(budget.used_bytes())
    }

    /// Whether wrong bytes of `object` came since the last call.
    pub(crate) fn take_quarantined(&self, object: &ObjectId) -> bool {
        self.config.verify_whole && lock(&self.quarantined).remove(object)
    }

    /// How many bytes one stream may have ahead of it. An eighth of the memory is left to readers that wait and to
    /// freshly consumed segments. The streams share the rest, less what the block cache holds.
    pub(crate) fn stream_share_bytes(&self) -> u64 {
        let limit = self.pool.budget().limit_bytes();
        let usable = limit - limit / 8 - self.cached_bytes.load(Ordering::Relaxed).min(limit / 4);
        let streams = self.active_streams.load(Ordering::Relaxed).max(1) as u64;
        let share =
            if streams == 1 { usable } else { usable.min(self.needed_ahead_bytes(streams)) / streams };
        // After a reader was starved, parts are as small as when memory is short.
        let bound = self.ahead.congestion.bound();
        bound.map_or(share, |bound| share.min((bound / streams).max(self.config.random_read_bytes)))
    }

    /// The most bytes that this many streams together need ahead of them: twice what the link, or the processor,
    /// carries in the time of a GET, as for a single stream. More would take untouched memory, and fetch bytes that may
    /// never be read.
    fn needed_ahead_bytes(&self, streams: u64) -> u64 {
        let part = self.config.part_bytes;
        let carried = self.latencies.link.carried(self.latencies.least_lately(part));
        (2 * carried).max(ENOUGH_AHEAD_BYTES).max(2 * streams * part)
    }

    /// Changes the limit on the memory to `bytes`, or to what is nearest of what it may be. What keeps a part of the
    /// limit by itself gives back what is too much. Readers have to be asked.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.pool.set_limit(bytes);
        self.cache.set_capacity(self.pool.budget().limit_bytes() / CACHE_SHARE);
        self.ahead.fit();
    }

    /// Called by the housekeeper once a second.
    pub(crate) fn tick(&self) {
        let now = self.started.elapsed();
        if self.latencies.age(now) {
            self.ahead.restart();
        }
        self.ahead.tick(now);
        self.cached_bytes.store(self.cache.held_bytes() + self.tiers.held_bytes(), Ordering::Relaxed);
        self.pool.tick();
    }
}
