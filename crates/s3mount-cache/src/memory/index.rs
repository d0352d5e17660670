//! The index from a block to the extent that holds it.
//!
//! Extents are spread over shards by their object, and each shard has its own lock. The readers of one object take that
//! object's lock first, so more shards would not help them.
//!
//! **Lock order:** a shard's lock is taken last. No payload is dropped while it is held.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use s3mount_object::ObjectId;

/// With this many shards, readers of different objects rarely share one.
const SHARDS: usize = 16;

/// The key of an extent: its object and the number of its first block. An evicted extent that is fetched again has the
/// same key, so moka remembers how often it was read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ExtentKey {
    pub(crate) object: ObjectId,
    pub(crate) first_block: u64,
}

/// Neighbouring blocks that one GET of a random read has brought into one buffer.
pub(crate) struct Extent {
    pub(crate) key: ExtentKey,
    /// The numbers of the blocks that it holds completely.
    pub(crate) blocks: Range<u64>,
    /// Where its bytes start in the object.
    pub(crate) start: u64,
    pub(crate) bytes: Bytes,
    /// How many bytes of the pool its buffer takes.
    pub(crate) reserved_bytes: u64,
    /// The cache's clock when it was used last.
    pub(crate) used: AtomicU64,
}

/// The extents of an object by block number. **Invariant:** no map in a shard is empty.
type Blocks = HashMap<u64, Arc<Extent>>;

pub(crate) struct Index {
    shards: [Mutex<HashMap<ObjectId, Blocks>>; SHARDS],
    hasher: RandomState,
    /// The sum of `reserved_bytes` of all extents in the index.
    held_bytes: AtomicU64,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            #[expect(
                clippy::disallowed_methods,
                reason = "keys that are chosen to collide must not; no order shows"
            )]
            hasher: RandomState::new(),
            held_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The extent that holds `block`.
    pub(crate) fn get(&self, object: &ObjectId, block: u64) -> Option<Arc<Extent>> {
        self.shard(object).get(object)?.get(&block).cloned()
    }

    /// Whether the index still maps any block to `extent`.
    pub(crate) fn holds(&self, extent: &Arc<Extent>) -> bool {
        self.shard(&extent.key.object).get(&extent.key.object).is_some_and(|blocks| is_found(blocks, extent))
    }

    /// Adds `extent`. It replaces other extents for the blocks that it holds, and it replaces an extent with
    /// the same key altogether. Returns the extents that hold no block any more.
    pub(crate) fn insert(&self, extent: &Arc<Extent>) -> Vec<Arc<Extent>> {
        self.held_bytes.fetch_add(extent.reserved_bytes, Ordering::Relaxed);
        let mut shard = self.shard(&extent.key.object);
        let blocks = shard.entry(extent.key.object.clone()).or_default();
        let mut replaced: Vec<Arc<Extent>> = Vec::new();
        for block in extent.blocks.clone() {
            let before = blocks.insert(block, extent.clone());
            replaced.extend(before.filter(|before| !replaced.iter().any(|other| Arc::ptr_eq(other, before))));
        }
        for same in replaced.iter().filter(|other| other.key == extent.key) {
            take_out(blocks, same);
        }
        replaced.retain(|other| !is_found(blocks, other));
        for other in &replaced {
            self.held_bytes.fetch_sub(other.reserved_bytes, Ordering::Relaxed);
        }
        replaced
    }

    /// Removes `extent`. Returns `false` if it was not there.
    pub(crate) fn remove(&self, extent: &Arc<Extent>) -> bool {
        let mut shard = self.shard(&extent.key.object);
        let Entry::Occupied(mut object) = shard.entry(extent.key.object.clone()) else { return false };
        let blocks = object.get_mut();
        let before = blocks.len();
        take_out(blocks, extent);
        let was_there = blocks.len() < before;
        if was_there {
            self.held_bytes.fetch_sub(extent.reserved_bytes, Ordering::Relaxed);
        }
        if blocks.is_empty() {
            object.remove();
        }
        was_there
    }

    /// The extents of a version. Some of them are returned more than once.
    pub(crate) fn of(&self, object: &ObjectId) -> Vec<Arc<Extent>> {
        self.shard(object).get(object).map(|blocks| blocks.values().cloned().collect()).unwrap_or_default()
    }

    /// All extents with the time of their last use, the oldest first.
    pub(crate) fn by_age(&self) -> Vec<(u64, Weak<Extent>)> {
        let mut extents = Vec::new();
        for shard in &self.shards {
            for blocks in lock(shard).values() {
                let firsts = blocks.iter().filter(|(block, extent)| is_first_found(blocks, **block, extent));
                extents.extend(
                    firsts.map(|(_, extent)| (extent.used.load(Ordering::Relaxed), Arc::downgrade(extent))),
                );
            }
        }
        extents.sort_unstable_by_key(|(used, _)| *used);
        extents
    }

    fn shard(&self, object: &ObjectId) -> MutexGuard<'_, HashMap<ObjectId, Blocks>> {
        let number = self.hasher.hash_one(object) % SHARDS as u64;
        lock(&self.shards[number as usize])
    }
}

/// Removes the blocks that map to `extent`.
fn take_out(blocks: &mut Blocks, extent: &Arc<Extent>) {
    for block in extent.blocks.clone() {
        if blocks.get(&block).is_some_and(|other| Arc::ptr_eq(other, extent)) {
            blocks.remove(&block);
        }
    }
}

/// Whether any block maps to `extent`.
fn is_found(blocks: &Blocks, extent: &Arc<Extent>) -> bool {
    extent.blocks.clone().any(|block| blocks.get(&block).is_some_and(|other| Arc::ptr_eq(other, extent)))
}

/// Whether `block` is the first block that maps to `extent`. Each extent has one such block.
fn is_first_found(blocks: &Blocks, block: u64, extent: &Arc<Extent>) -> bool {
    let mut before = extent.blocks.start..block;
    !before.any(|block| blocks.get(&block).is_some_and(|other| Arc::ptr_eq(other, extent)))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
