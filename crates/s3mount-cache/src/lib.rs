//! Blocks of object versions, held in memory for random readers.
//!
//! A read that belongs to no stream fetches a run of whole blocks; the run's blocks stay here, so
//! that a neighbour's read or a second one costs no request. Blocks are addressed by version and
//! index, so nothing here ever has to be made coherent. The payload lies in buffers of the memory
//! pool: the cache holds references, and lets go of them the moment a block leaves, because a
//! reader may be waiting for that memory.
//!
//! moka chooses what leaves when the cache is at its own share of memory (TinyLFU);
//! [`BlockCache::shed`] chooses, oldest use first, when the pool needs memory back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use moka::sync::Cache;
use s3mount_object::{ByteRange, ObjectId};

#[derive(Clone, PartialEq, Eq, Hash)]
struct BlockKey {
    object: ObjectId,
    index: u64,
}

/// A block: its place in the run that it came with. The blocks of a run lie in one buffer, so they
/// leave together: when the first of them does. moka drops values some time after they have left,
/// so the bytes are taken out by hand.
#[derive(Clone)]
struct Block(Arc<Run>);

struct Run {
    start: u64,
    bytes: Mutex<Option<Bytes>>,
    used: AtomicU64,
}

impl Block {
    fn lock(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Bytes> {
        self.lock().take()
    }
}

/// Blocks of a fixed size, least useful first out. All methods may be called from any thread.
pub struct BlockCache {
    block_bytes: u64,
    clock: AtomicU64,
    blocks: Cache<BlockKey, Block>,
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("block_bytes", &self.block_bytes).finish_non_exhaustive()
    }
}

impl BlockCache {
    /// A cache of at most `capacity_bytes` in blocks of `block_bytes`.
    pub fn new(block_bytes: u64, capacity_bytes: u64) -> Self {
        let weight = u32::try_from(block_bytes).unwrap_or(u32::MAX);
        let blocks = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(move |_, _| weight)
            .eviction_listener(|_, block: Block, _| drop(block.take()))
            .build();
        Self { block_bytes, clock: AtomicU64::new(0), blocks }
    }

    /// Size of a block in bytes; the last block of an object may be shorter.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// What the blocks take of the pool, in bytes. Approximate while blocks come and go.
    pub fn held_bytes(&self) -> u64 {
        self.blocks.run_pending_tasks();
        self.blocks.weighted_size()
    }

    /// The bytes from `offset` to the end of its block, if the block is here.
    pub fn get(&self, object: &ObjectId, offset: u64) -> Option<Bytes> {
        let key = BlockKey { object: object.clone(), index: offset / self.block_bytes };
        let block = self.blocks.get(&key)?;
        block.0.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let run = block.lock().clone()?;
        let end = (offset / self.block_bytes + 1) * self.block_bytes;
        let from = usize::try_from(offset - block.0.start).ok()?;
        let to = usize::try_from(end - block.0.start).ok()?.min(run.len());
        (from < to).then(|| run.slice(from..to))
    }

    /// Whether the block that holds `offset` is here.
    pub fn contains(&self, object: &ObjectId, offset: u64) -> bool {
        let key = BlockKey { object: object.clone(), index: offset / self.block_bytes };
        self.blocks.get(&key).is_some_and(|block| block.lock().is_some())
    }

    /// Keeps the whole blocks of `run`, which are the object's bytes at `range`. A block counts
    /// as whole when the run covers it, or covers it up to `object_size`.
    pub fn insert(&self, object: &ObjectId, object_size: u64, range: ByteRange, run: &Bytes) {
        let mut start = range.start().next_multiple_of(self.block_bytes);
        let block = Block(Arc::new(Run {
            start: range.start(),
            bytes: Mutex::new(Some(run.clone())),
            used: AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed)),
        }));
        while start < range.end() {
            let end = (start + self.block_bytes).min(object_size);
            if end > range.end() {
                break;
            }
            let key = BlockKey { object: object.clone(), index: start / self.block_bytes };
            self.blocks.insert(key, block.clone());
            start = end;
        }
    }

    /// Lets go of blocks, least recently used first, until `bytes` have left or none are here.
    /// Returns how many bytes left.
    pub fn shed(&self, bytes: u64) -> u64 {
        let mut by_age: Vec<_> = self
            .blocks
            .iter()
            .map(|(key, block)| (block.0.used.load(Ordering::Relaxed), key, block))
            .collect();
        by_age.sort_unstable_by_key(|(used, ..)| *used);
        let mut freed = 0;
        for (_, key, block) in by_age {
            if freed >= bytes {
                break;
            }
            if let Some(held) = block.take() {
                freed += held.len() as u64;
            }
            self.blocks.invalidate(&*key);
        }
        self.blocks.run_pending_tasks();
        freed
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use s3mount_object::{ByteRange, ETag, ObjectId};

    use super::BlockCache;

    const BLOCK: u64 = 1024;

    fn object() -> ObjectId {
        ObjectId::new("k", ETag::new("\"1\""))
    }

    fn run(len: u64) -> Bytes {
        (0..len).map(|at| u8::try_from(at / 100 % 256).expect("below 256")).collect()
    }

    #[test]
    fn keeps_whole_blocks_and_the_last_short_one() {
        let cache = BlockCache::new(BLOCK, 1 << 20);
        let bytes = run(3 * BLOCK);
        // 512..3584 of a 3500 byte object would end at 3500.
        let range = ByteRange::new(512, 3500);
        cache.insert(&object(), 3500, range, &bytes.slice(..2988));
        assert!(!cache.contains(&object(), 600), "the first block is not whole");
        assert_eq!(cache.get(&object(), 1500).as_deref(), Some(&bytes[988..1536]));
        assert_eq!(cache.get(&object(), 3499).map(|tail| tail.len()), Some(1));
        assert_eq!(cache.get(&ObjectId::new("k", ETag::new("\"2\"")), 1500), None);
    }

    #[test]
    fn stays_within_its_capacity_and_frees_at_once() {
        let cache = BlockCache::new(BLOCK, 8 * BLOCK);
        let bytes = run(BLOCK);
        for index in 0..100 {
            cache.insert(&object(), u64::MAX, ByteRange::new(index * BLOCK, (index + 1) * BLOCK), &bytes);
        }
        assert!(cache.held_bytes() <= 8 * BLOCK);
        assert!(bytes.is_unique() || cache.held_bytes() > 0);
        cache.shed(u64::MAX);
        assert_eq!(cache.held_bytes(), 0);
        assert!(bytes.is_unique(), "nothing refers to the run any more");
    }

    #[test]
    fn sheds_the_oldest_use_first() {
        let cache = BlockCache::new(BLOCK, 1 << 20);
        for start in [0, BLOCK, 2 * BLOCK, 3 * BLOCK] {
            cache.insert(&object(), u64::MAX, ByteRange::new(start, start + BLOCK), &run(BLOCK));
        }
        assert!(cache.get(&object(), 0).is_some());
        assert_eq!(cache.shed(2 * BLOCK), 2 * BLOCK);
        assert!(cache.contains(&object(), 0) && cache.contains(&object(), 3 * BLOCK));
        assert!(!cache.contains(&object(), BLOCK) && !cache.contains(&object(), 2 * BLOCK));
    }

    #[test]
    fn a_run_leaves_as_a_whole() {
        let cache = BlockCache::new(BLOCK, 1 << 20);
        let bytes = run(4 * BLOCK);
        cache.insert(&object(), u64::MAX, ByteRange::new(0, 4 * BLOCK), &bytes);
        assert_eq!(cache.get(&object(), 2 * BLOCK + 10).as_deref(), Some(&bytes[2058..3072]));
        assert_eq!(cache.shed(1), 4 * BLOCK);
        assert!(bytes.is_unique() && !cache.contains(&object(), 3 * BLOCK));
    }
}
