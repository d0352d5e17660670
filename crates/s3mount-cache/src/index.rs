//! The index from a block to the run that holds it.
//!
//! Runs are cut into shards by their object, and each shard has a lock of its own. The readers of one
//! object meet at that object's lock before they come here, so more shards would not help them.
//!
//! **Lock order:** a shard's lock is taken last, and no payload is dropped while it is held.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use s3mount_object::ObjectId;

/// Readers of different objects rarely meet in one of so many shards.
const SHARDS: usize = 16;

/// The name of a run: its object and the number of its first block. A run that is fetched again after
/// it has left has the same name, so moka remembers how often it was asked for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct RunKey {
    pub(crate) object: ObjectId,
    pub(crate) first_block: u64,
}

/// The bytes of one random read, which lie in one buffer.
pub(crate) struct Run {
    pub(crate) key: RunKey,
    /// Numbers of the blocks that it holds whole.
    pub(crate) blocks: Range<u64>,
    /// Where its bytes start in the object.
    pub(crate) start: u64,
    pub(crate) bytes: Bytes,
    /// What its buffer takes of the pool.
    pub(crate) reserved_bytes: u64,
    /// When it was used last, by the cache's clock.
    pub(crate) used: AtomicU64,
}

/// By the number of the block. **Invariant:** there is no empty one in a shard.
type Blocks = HashMap<u64, Arc<Run>>;

pub(crate) struct Index {
    shards: [Mutex<HashMap<ObjectId, Blocks>>; SHARDS],
    hasher: RandomState,
    /// Sum of `reserved_bytes` of all runs in the index.
    held_bytes: AtomicU64,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            held_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The run that holds `block`.
    pub(crate) fn get(&self, object: &ObjectId, block: u64) -> Option<Arc<Run>> {
        self.shard(object).get(object)?.get(&block).cloned()
    }

    /// Whether any block is still found in `run`.
    pub(crate) fn holds(&self, run: &Arc<Run>) -> bool {
        self.shard(&run.key.object).get(&run.key.object).is_some_and(|blocks| is_found(blocks, run))
    }

    /// Adds `run`, which takes the place of other runs for the blocks that it holds, and of one of the
    /// same name altogether. Returns the runs that hold nothing any more because of that.
    pub(crate) fn insert(&self, run: &Arc<Run>) -> Vec<Arc<Run>> {
        self.held_bytes.fetch_add(run.reserved_bytes, Ordering::Relaxed);
        let mut shard = self.shard(&run.key.object);
        let blocks = shard.entry(run.key.object.clone()).or_default();
        let mut replaced: Vec<Arc<Run>> = Vec::new();
        for block in run.blocks.clone() {
            let before = blocks.insert(block, run.clone());
            replaced.extend(before.filter(|before| !replaced.iter().any(|other| Arc::ptr_eq(other, before))));
        }
        for same in replaced.iter().filter(|other| other.key == run.key) {
            take_out(blocks, same);
        }
        replaced.retain(|other| !is_found(blocks, other));
        for other in &replaced {
            self.held_bytes.fetch_sub(other.reserved_bytes, Ordering::Relaxed);
        }
        replaced
    }

    /// Takes `run` out; false when it was not there.
    pub(crate) fn remove(&self, run: &Arc<Run>) -> bool {
        let mut shard = self.shard(&run.key.object);
        let Entry::Occupied(mut object) = shard.entry(run.key.object.clone()) else { return false };
        let blocks = object.get_mut();
        let before = blocks.len();
        take_out(blocks, run);
        let was_there = blocks.len() < before;
        if was_there {
            self.held_bytes.fetch_sub(run.reserved_bytes, Ordering::Relaxed);
        }
        if blocks.is_empty() {
            object.remove();
        }
        was_there
    }

    /// The runs of a version, some of them more than once.
    pub(crate) fn of(&self, object: &ObjectId) -> Vec<Arc<Run>> {
        self.shard(object).get(object).map(|blocks| blocks.values().cloned().collect()).unwrap_or_default()
    }

    /// All runs with the time of their last use, oldest first.
    pub(crate) fn by_age(&self) -> Vec<(u64, Weak<Run>)> {
        let mut runs = Vec::new();
        for shard in &self.shards {
            for blocks in lock(shard).values() {
                let firsts = blocks.iter().filter(|(block, run)| is_first_found(blocks, **block, run));
                runs.extend(firsts.map(|(_, run)| (run.used.load(Ordering::Relaxed), Arc::downgrade(run))));
            }
        }
        runs.sort_unstable_by_key(|(used, _)| *used);
        runs
    }

    fn shard(&self, object: &ObjectId) -> MutexGuard<'_, HashMap<ObjectId, Blocks>> {
        let number = self.hasher.hash_one(object) % SHARDS as u64;
        lock(&self.shards[number as usize])
    }
}

/// Removes the blocks that are found in `run`.
fn take_out(blocks: &mut Blocks, run: &Arc<Run>) {
    for block in run.blocks.clone() {
        if blocks.get(&block).is_some_and(|other| Arc::ptr_eq(other, run)) {
            blocks.remove(&block);
        }
    }
}

/// Whether any of the blocks of `run` is found in it.
fn is_found(blocks: &Blocks, run: &Arc<Run>) -> bool {
    run.blocks.clone().any(|block| blocks.get(&block).is_some_and(|other| Arc::ptr_eq(other, run)))
}

/// Whether `block` is the first that is found in `run`: each run has one of these.
fn is_first_found(blocks: &Blocks, block: u64, run: &Arc<Run>) -> bool {
    let mut before = run.blocks.start..block;
    !before.any(|block| blocks.get(&block).is_some_and(|other| Arc::ptr_eq(other, run)))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
