//! The prefetcher opens readers and does their housekeeping.

pub(crate) mod lately;
pub(crate) mod warm_cache;

use std::sync::{Arc, Weak};
use std::time::Duration;

use s3mount_bucket::Bucket;
use s3mount_cache::DiskCache;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_metrics::Registry;
use s3mount_object::ObjectId;
use tokio::runtime::Handle;

use crate::fill::backfill::backfill;
use crate::prefetcher::lately::LatelyClosed;
use crate::readers::Readers;
use crate::shared::Shared;
use crate::sync::spawn;
use crate::{MemoryView, ObjectReader, OpenReader, PrefetchConfig, PrefetchMetrics, ReaderView, Tiers};

/// How often the housekeeper runs over streams, readers and memory.
const TICK: Duration = Duration::from_secs(1);

/// Pages of the pool that were not used for this many ticks go back to the kernel. A training loop that reads
/// once in a step of some seconds keeps its pages. Otherwise the kernel would fill them with zeros at each
/// step, which takes longer than receiving the bytes that go into them.
const UNUSED_TICKS: u32 = 60;

/// Opens [`ObjectReader`]s, one for each version. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    shared: Arc<Shared>,
    readers: Arc<Readers<ObjectReader>>,
    lately: Arc<LatelyClosed>,
}

impl Prefetcher {
    /// A prefetcher that reads from `bucket` into `pool`. Its GETs and its housekeeper run on
    /// `runtime`, which must have time enabled.
    ///
    /// Parts and random reads that are larger than the pool's largest buffer are cut to it.
    pub fn new(
        bucket: impl Into<Bucket>,
        pool: BufferPool,
        config: PrefetchConfig,
        runtime: &Handle,
    ) -> Self {
        Self::with_tiers(bucket, pool, Tiers::default(), config, runtime)
    }

    /// Like [`new`](Self::new). Reads from `tiers` what they hold, and lets them keep what the store brings.
    pub fn with_tiers(
        bucket: impl Into<Bucket>,
        pool: BufferPool,
        tiers: Tiers,
        config: PrefetchConfig,
        runtime: &Handle,
    ) -> Self {
        let shared = Shared::new(bucket.into(), pool, tiers, config, runtime.clone());
        let (readers, lately) = (Arc::default(), Arc::default());
        let house = keep_house(Arc::downgrade(&shared), Arc::downgrade(&readers), Arc::downgrade(&lately));
        spawn(runtime, house);
        if shared.tiers.disk.is_some() {
            spawn(runtime, backfill(Arc::downgrade(&shared)));
        }
        Self { shared, readers, lately }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The reader of the version `object`, which is `size` bytes long. All handles of the version share the reader.
    /// Dropping the last of them gives the reader's memory back.
    pub fn open(&self, object: &ObjectId, size: u64) -> Arc<ObjectReader> {
        let make = || ObjectReader::new(self.shared.clone(), self.readers.clone(), object.clone(), size);
        self.readers.get_or_insert(object, make)
    }

    /// Opens a handle on the reader of a version. [`OpenReader`] tells what dropping it does.
    pub fn handle(&self, reader: Arc<ObjectReader>) -> OpenReader {
        OpenReader::new(reader, &self.lately)
    }

    /// Whether wrong bytes of `object` came since the last call. Then the caller must drop the kernel's pages of the
    /// object.
    pub fn take_quarantined(&self, object: &ObjectId) -> bool {
        self.shared.take_quarantined(object)
    }

    /// The metrics of all its readers.
    pub fn metrics(&self) -> &PrefetchMetrics {
        &self.shared.metrics
    }

    /// Shows its metrics in `registry`.
    pub fn register(&self, registry: &Registry) {
        let Tiers { disk, shared, .. } = &self.shared.tiers;
        if let Some(disk) = disk {
            disk.register(registry);
        }
        if let Some(shared) = shared {
            shared.register(registry);
        }
        registry.add(self.shared.bucket.budget().metrics().clone(), || {});
        registry.add(self.shared.bucket.rate_metrics().clone(), || {});
        let shared = self.shared.clone();
        registry.add(self.shared.metrics.clone(), move || shared.refresh());
    }

    /// The disk cache, if there is one.
    pub fn disk(&self) -> Option<&DiskCache> {
        self.shared.tiers.disk.as_ref()
    }

    /// The bound on payload memory, and how much of it is in use.
    pub fn budget(&self) -> &MemoryBudget {
        self.shared.pool.budget()
    }

    /// Changes the limit on payload memory to `bytes`, or to what is nearest of what it may be
    /// ([`MemoryBudget::between`]). Returns at once: what is in use above a limit that has fallen is given back from now
    /// on, and [`memory`](Self::memory) shows how far that is.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.shared.set_limit(bytes);
        self.readers.fit(&self.shared);
    }

    /// The payload memory as it is now.
    pub fn memory(&self) -> MemoryView {
        let Shared { pool, peaks, .. } = &*self.shared;
        let budget = pool.budget();
        MemoryView {
            least_bytes: budget.least_bytes(),
            limit_bytes: budget.limit_bytes(),
            most_bytes: budget.most_bytes(),
            used_bytes: budget.used_bytes(),
            away_bytes: pool.away_bytes(),
            waiting_bytes: pool.waiting_bytes(),
            peak_bytes: peaks.most(budget),
        }
    }

    /// Makes readers give back the memory that waits in the pool's queue. For callers other than readers that have
    /// begun to wait there.
    pub fn reclaim(&self) {
        self.readers.reclaim(&self.shared);
    }

    /// The current state of each open version's readers.
    pub fn views(&self) -> Vec<ReaderView> {
        self.readers.all().iter().map(|reader| reader.view()).collect()
    }

    /// The number of open versions.
    pub fn open_readers(&self) -> usize {
        self.readers.all().len()
    }
}

/// The housekeeper ages streams, and returns memory that was not used for a while to the kernel.
async fn keep_house(shared: Weak<Shared>, readers: Weak<Readers<ObjectReader>>, lately: Weak<LatelyClosed>) {
    loop {
        tokio::time::sleep(TICK).await;
        let (Some(shared), Some(readers), Some(lately)) =
            (shared.upgrade(), readers.upgrade(), lately.upgrade())
        else {
            return;
        };
        lately.tick();
        if shared.pool.budget().is_adjustable() {
            shared.peaks.tick(shared.pool.budget());
            readers.fit(&shared);
        }
        for reader in readers.all() {
            reader.tick();
        }
        shared.tick();
        while shared.pool.trim(UNUSED_TICKS) > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests;
