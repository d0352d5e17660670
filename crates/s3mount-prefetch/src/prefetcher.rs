//! What all readers share: the store, and the memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use s3mount_cache::BlockCache;
use s3mount_memory::{Buffer, BufferPool, MemoryBudget, Priority};
use s3mount_metrics::Registry;
use s3mount_object::{ObjectClient, ObjectId};
use s3mount_requests::RetryBudget;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::ahead::AheadGets;
use crate::fetch::Hedges;
use crate::latency::Latencies;
use crate::learn::Learnt;
use crate::relief::Relief;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, at_most, lock, spawn};
use crate::turns::Turns;
use crate::{ObjectReader, PrefetchConfig, PrefetchMetrics};

/// How often the housekeeper looks: idle streams stop taking a share of the memory after
/// [`IDLE_TICKS`] of these, keep nothing after [`LEFT_TICKS`], and pages of the pool that nobody used
/// go back to the kernel after [`UNUSED_TICKS`].
const TICK: Duration = Duration::from_secs(1);

/// A stream that was not read for this many ticks takes no share of the memory.
pub(crate) const IDLE_TICKS: u32 = 3;

/// A stream that was not read for this many ticks gives back what it has fetched ahead. A reader that
/// goes on after a minute can wait for one GET; an open file that is forgotten shall cost nothing.
pub(crate) const LEFT_TICKS: u32 = 60;

/// Pages of the pool that were not used for this many ticks go back to the kernel. A training loop that
/// reads once in a step of some seconds keeps its pages: the kernel would fill them with zeros anew at
/// each step, which takes longer than to receive what goes into them.
const UNUSED_TICKS: u32 = 60;

/// Versions of which wrong bytes came, and that were not opened since, at most. A network with so many
/// errors is not fit for use.
const MOST_CONDEMNED: usize = 100_000;

/// After this time, a reader that still waits for memory asks for it again: what cancelled GETs held may
/// not have come back.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Gives out [`ObjectReader`]s, one for each version. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Prefetcher(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Arc<dyn ObjectClient>,
    pub(crate) pool: BufferPool,
    pub(crate) cache: BlockCache,
    pub(crate) config: PrefetchConfig,
    pub(crate) runtime: Handle,
    readers: Mutex<HashMap<ObjectId, Weak<ObjectReader>>>,
    /// Streams that take a share of the memory, over all readers.
    pub(crate) active_streams: AtomicUsize,
    /// GETs ahead of their readers that are in flight.
    pub(crate) ahead: AheadGets,
    /// GETs in flight, and whose turn is next.
    pub(crate) turns: Arc<Turns>,
    cached_bytes: AtomicU64,
    /// What the policies' time counts from.
    pub(crate) started: Instant,
    pub(crate) latencies: Latencies,
    learnt: Mutex<Learnt>,
    pub(crate) hedges: Hedges,
    pub(crate) retry_budget: Arc<RetryBudget>,
    pub(crate) relief: Relief,
    pub(crate) metrics: Arc<PrefetchMetrics>,
    /// Versions of which wrong bytes came, and whose pages the kernel may hold.
    condemned: Mutex<HashSet<ObjectId>>,
}

impl Prefetcher {
    /// A prefetcher that reads through `client` into `pool`. Its GETs and its housekeeper run on
    /// `runtime`, which must have time enabled.
    ///
    /// Parts and random reads that are larger than the pool's largest buffer are cut to it.
    pub fn new(
        client: Arc<dyn ObjectClient>,
        pool: BufferPool,
        mut config: PrefetchConfig,
        runtime: &Handle,
    ) -> Self {
        let largest = pool.max_buffer_bytes() as u64;
        config.part_bytes = config.part_bytes.min(largest);
        config.random_read_bytes = config.random_read_bytes.min(largest);
        config.small_object_bytes = config.small_object_bytes.min(largest);
        // A quarter of the memory for random blocks; the rest is for what streams read next.
        let cache = BlockCache::new(config.random_read_bytes, pool.budget().limit_bytes() / 4);
        let (turns, ahead) =
            (Turns::new(config.max_requests), AheadGets::new(config.max_requests, config.part_bytes));
        let shared = Arc::new(Shared {
            client,
            pool,
            cache,
            ahead,
            config,
            runtime: runtime.clone(),
            readers: Mutex::default(),
            active_streams: AtomicUsize::new(0),
            turns,
            cached_bytes: AtomicU64::new(0),
            started: Instant::now(),
            latencies: Latencies::default(),
            learnt: Mutex::default(),
            hedges: Hedges::default(),
            retry_budget: Arc::default(),
            relief: Relief::default(),
            metrics: Arc::default(),
            condemned: Mutex::default(),
        });
        spawn(runtime, keep_house(Arc::downgrade(&shared)));
        Self(shared)
    }

    /// The reader of the version `object`, which is `size` bytes long. It is shared by all who
    /// have it open, and what it holds is given back when the last of them drops it.
    pub fn open(&self, object: &ObjectId, size: u64) -> Arc<ObjectReader> {
        let mut readers = self.0.lock_readers();
        if let Some(reader) = readers.get(object).and_then(Weak::upgrade) {
            return reader;
        }
        let reader = ObjectReader::new(self.0.clone(), object.clone(), size);
        readers.insert(object.clone(), Arc::downgrade(&reader));
        reader
    }

    /// Whether wrong bytes of `object` came since this was last asked, so that what the kernel holds of
    /// it has to go.
    pub fn take_condemned(&self, object: &ObjectId) -> bool {
        self.0.config.verify_whole && lock(&self.0.condemned).remove(object)
    }

    /// What it counts and measures.
    pub fn metrics(&self) -> &PrefetchMetrics {
        &self.0.metrics
    }

    /// Shows its metrics in `registry`.
    pub fn register(&self, registry: &Registry) {
        registry.add(self.0.retry_budget.metrics().clone(), || {});
        let me = self.clone();
        registry.add(self.0.metrics.clone(), move || me.0.refresh());
    }

    /// The bound on payload memory, and what is taken of it.
    pub fn budget(&self) -> &MemoryBudget {
        self.0.pool.budget()
    }

    /// What all retries of a mount are taken out of, those of metadata too.
    pub fn retry_budget(&self) -> Arc<RetryBudget> {
        self.0.retry_budget.clone()
    }

    /// How many versions are open.
    pub fn open_readers(&self) -> usize {
        self.0.readers().len()
    }
}

impl Shared {
    /// Brings the gauges up to date.
    fn refresh(&self) {
        let Self { metrics, pool, cache, .. } = self;
        metrics.active_streams.set_len(self.active_streams.load(Ordering::Relaxed));
        metrics.gets_ahead.set_len(self.ahead.running());
        metrics.memory_limit.set(pool.budget().limit_bytes());
        metrics.memory_used.set(pool.budget().used_bytes());
        metrics.memory_peak.set(pool.budget().peak_bytes());
        metrics.block_cache.set(cache.held_bytes());
    }

    fn lock_readers(&self) -> MutexGuard<'_, HashMap<ObjectId, Weak<ObjectReader>>> {
        lock(&self.readers)
    }

    /// What is learnt of the files that were read.
    pub(crate) fn learnt(&self) -> MutexGuard<'_, Learnt> {
        lock(&self.learnt)
    }

    fn readers(&self) -> Vec<Arc<ObjectReader>> {
        self.lock_readers().values().filter_map(Weak::upgrade).collect()
    }

    /// Forgets the reader of `object`, which is being dropped.
    pub(crate) fn forget(&self, object: &ObjectId) {
        let mut readers = self.lock_readers();
        // Another reader of the same version may have come meanwhile.
        if readers.get(object).is_some_and(|reader| reader.strong_count() == 0) {
            readers.remove(object);
        }
    }

    /// Drops a version of which wrong bytes came: whoever opens it from now on fetches it anew.
    pub(crate) fn condemn(&self, object: &ObjectId) {
        self.lock_readers().remove(object);
        self.cache.forget(object);
        let mut condemned = lock(&self.condemned);
        if condemned.len() < MOST_CONDEMNED && condemned.insert(object.clone()) {
            self.metrics.objects_corrupt.inc();
        }
    }

    /// How many bytes one stream may have ahead of it: its share of the memory, a part of which
    /// is left to readers that wait and to what was consumed a moment ago.
    pub(crate) fn stream_share_bytes(&self) -> u64 {
        let limit = self.pool.budget().limit_bytes();
        let usable = limit - limit / 8 - self.cached_bytes.load(Ordering::Relaxed).min(limit / 4);
        usable / self.active_streams.load(Ordering::Relaxed).max(1) as u64
    }

    /// A buffer for a reader that waits. Others give memory back for it; it has no deadline of
    /// its own.
    pub(crate) async fn demand_buffer(&self, len: usize) -> Buffer {
        if let Some(buffer) = self.pool.try_buffer(len, Priority::Demand) {
            return buffer;
        }
        let mut buffer = std::pin::pin!(self.pool.buffer(len));
        loop {
            self.relieve();
            if let Some(buffer) = at_most(ASK_AGAIN, &mut buffer).await {
                return buffer;
            }
        }
    }

    /// A buffer for a second GET of `len` bytes, if the budget and the memory have room for one.
    pub(crate) fn hedge_buffer(&self, len: u64) -> Option<Buffer> {
        let len = usize::try_from(len).ok()?;
        let buffer = self.pool.try_buffer(len, Priority::Prefetch)?;
        self.hedges.spend().then(|| {
            self.metrics.hedges.inc();
            buffer
        })
    }
}

/// Ages streams, and returns memory to the kernel that was not used for a while.
async fn keep_house(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(shared) = shared.upgrade() else { return };
        for reader in shared.readers() {
            reader.tick();
        }
        shared.latencies.age();
        shared.ahead.tick();
        shared.cached_bytes.store(shared.cache.held_bytes(), Ordering::Relaxed);
        shared.pool.tick();
        while shared.pool.trim(UNUSED_TICKS) > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
#[path = "prefetcher_tests.rs"]
mod tests;
