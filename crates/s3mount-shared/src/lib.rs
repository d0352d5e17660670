//! The shared tier: blocks of object versions in a bucket near the machines of a fleet, so that the fleet
//! fetches each byte of the source about once.
//!
//! The caller asks [`SharedTier::get`] before the source, and gives [`SharedTier::offer`] the bytes that the source has
//! brought. A block is 8 MiB of a version, or all of a smaller one. Its key is a hash of endpoint, bucket, key and
//! ETag, and the block's number. Its metadata has a checksum of each 128 KiB.
//!
//! Invariants:
//! - The tier never fails a read. Every failure is a [`Miss`], and the caller asks the source. Each wait has a limit,
//!   and a tier that fails is left alone for a while (`Breaker` of `s3mount-object`).
//! - No byte leaves the tier that does not match its checksum (`sums.rs`).
//! - The queue of uploads is bounded; blocks beyond it are dropped (`upload.rs`).
//! - A reader that misses a range fetches that range from the source and no more. Blocks behind random reads are filled
//!   once a quarter of their bytes was fetched (`fill.rs`).
//!
//! **Leases.** Two mounts that come to the same block at once would both fetch it. So a mount that is about to fetch
//! most of a block with one GET writes a lease first, on the condition that none is there. A mount that finds a lease
//! waits for the block, for a short while. A lease has no time in it, because clocks differ: a mount that has waited
//! for a block in vain does not wait for it again.
//!
//! **Lock order:** the books are locked before the policy, and neither is held across a request.

mod ask;
mod assembly;
mod block;
mod books;
mod fill;
mod holders;
mod lease;
mod lent;
mod metrics;
mod notes;
mod patience;
mod sums;
mod tier_state;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_bucket::{Bucket, WritableBucket};
use s3mount_memory::BufferPool;
use s3mount_metrics::Registry;
use s3mount_object::{ByteRange, ObjectId, PartBuffer};
use tokio::runtime::Handle;

pub use block::BLOCK_BYTES;
pub use lease::Lease;
pub use metrics::{LeaseOutcome, MissReason, PutOutcome, SharedMetrics};

use crate::tier_state::TierState;

/// The objects that the tier serves, and the memory that it may take.
#[derive(Clone, Debug)]
pub struct SharedConfig {
    /// What the keys in the shared bucket begin with: nothing, or a text that ends in a slash.
    pub prefix: String,
    /// The endpoint of the source. All mounts of a fleet have to spell it alike.
    pub source_endpoint: String,
    /// The bucket of the source.
    pub source_bucket: String,
    /// The most bytes of the pool that may wait to be uploaded.
    pub queue_bytes: u64,
}

/// A range that the tier does not serve.
#[derive(Debug)]
pub struct Miss<B> {
    /// The buffer that was lent, unless something may still write to it.
    pub buffer: Option<B>,
    /// This mount has promised the whole block to the others. Keep it until the range was offered; drop it if the range
    /// can't be fetched.
    pub lease: Option<Lease>,
}

/// The blocks in a shared bucket. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedTier(Arc<TierState>);

impl SharedTier {
    /// The tier in the bucket `blocks`, for objects of `source`. Buffers come from `pool`. Blocks are
    /// uploaded by tasks on `runtime`, which must have time enabled.
    pub fn new(
        config: SharedConfig,
        blocks: impl Into<WritableBucket>,
        source: impl Into<Bucket>,
        pool: BufferPool,
        runtime: &Handle,
    ) -> Self {
        Self(TierState::new(config, blocks.into(), source.into(), pool, runtime.clone()))
    }

    /// Reads `range` of a version of `size` bytes into the front of `into`. The range has to lie in one block
    /// ([`block_edge`](Self::block_edge)); otherwise it is a miss. If the time of the `source` is known, a tier that
    /// takes several times as long is left alone.
    ///
    /// # Errors
    /// A [`Miss`]: the caller fetches the range from the source and offers it.
    pub async fn get<B: PartBuffer>(
        &self,
        object: &ObjectId,
        size: u64,
        range: ByteRange,
        source: Option<Duration>,
        into: B,
    ) -> Result<Bytes, Miss<B>> {
        self.0.get(object, size, range, source, into).await
    }

    /// Whether the last GET took so long that the source may be faster.
    pub fn may_be_slow(&self) -> bool {
        self.0.policy().patience.is_slow()
    }

    /// Offers what the source has brought of a version of `size` bytes. Never waits. Whole blocks are
    /// uploaded; parts of blocks are kept until the block is complete, or until memory is short.
    pub fn offer(&self, object: &ObjectId, size: u64, range: ByteRange, bytes: &Bytes) {
        self.0.offer(object, size, range, bytes);
    }

    /// The first edge of a block behind `offset`. A GET that ends there lies in one block.
    pub fn block_edge(offset: u64) -> u64 {
        block::edge_after(offset)
    }

    /// Notes that wrong bytes of a version came. Its waiting blocks are not uploaded. From now on the tier serves none
    /// of its blocks to this mount, and newly offered blocks replace those in the bucket.
    pub fn distrust(&self, object: &ObjectId) {
        self.0.distrust(object);
    }

    /// Drops blocks that wait to be uploaded, until `bytes` of the pool are given back. Returns the bytes given back.
    pub fn shed(&self, bytes: u64) -> u64 {
        self.0.shed(bytes)
    }

    /// How many bytes wait to be uploaded, or are being uploaded.
    pub fn held_bytes(&self) -> u64 {
        self.0.held_bytes()
    }

    /// The metrics.
    pub fn metrics(&self) -> &SharedMetrics {
        &self.0.metrics
    }

    /// Shows the metrics in `registry`.
    pub fn register(&self, registry: &Registry) {
        let tier = self.0.clone();
        registry.add(self.0.metrics.clone(), move || tier.refresh());
    }
}
