//! The block cache: blocks of object versions, held in memory for random readers.
//!
//! A read that belongs to no stream fetches an *extent*, which is neighbouring whole blocks. The extent stays
//! here, so a second read of it, or of its neighbourhood, costs no request. Blocks are addressed by version and number,
//! so they need no coherency. The payload lies in buffers of the memory pool. The cache holds references, and drops
//! them as soon as an extent is evicted, because a reader may be waiting for that memory.
//!
//! The blocks of an extent share a buffer, so the cached unit is the extent. It is admitted and evicted as a whole, and
//! its weight is the bytes of the pool that its buffer takes. An [index](index) finds the extent that holds a block.
//!
//! When the cache has used up its share of memory, moka chooses what to evict (TinyLFU). When the pool needs memory
//! back, [`BlockCache::shed`] evicts the least recently used extents.
//!
//! **Lock order:** the list of the oldest extents, then moka's locks, then a shard of the index.

mod index;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use moka::sync::Cache;
use s3mount_memory::UNIT_BYTES;
use s3mount_object::{ByteRange, ObjectId};

use index::{Extent, ExtentKey, Index, lock};

/// moka's value for an extent. moka drops values some time after their eviction, so a value must not keep the payload
/// alive.
#[derive(Clone)]
struct Entry {
    weight: u32,
    extent: Weak<Extent>,
}

/// A cache of blocks of a fixed size. All methods may be called in any thread.
pub struct BlockCache {
    block_bytes: u64,
    /// What moka keeps to.
    most_bytes: u64,
    /// The capacity of now.
    capacity_bytes: AtomicU64,
    clock: AtomicU64,
    index: Arc<Index>,
    extents: Cache<ExtentKey, Entry>,
    /// Extents with the time of their last use when this list was made, the oldest first. An extent whose
    /// time has changed since, or that came since, was used later than all others in the list.
    oldest: Mutex<VecDeque<(u64, Weak<Extent>)>>,
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("block_bytes", &self.block_bytes).finish_non_exhaustive()
    }
}

impl BlockCache {
    /// A cache of at most `capacity_bytes` of the pool, in blocks of `block_bytes`.
    pub fn new(block_bytes: u64, capacity_bytes: u64) -> Self {
        let index = Arc::new(Index::new());
        let indexed = index.clone();
        let extents = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_, entry: &Entry| entry.weight)
            .eviction_listener(move |_, entry: Entry, _| {
                if let Some(extent) = entry.extent.upgrade() {
                    indexed.remove(&extent);
                }
            })
            .build();
        let (clock, oldest) = (AtomicU64::new(0), Mutex::default());
        let (most_bytes, capacity_bytes) = (capacity_bytes, AtomicU64::new(capacity_bytes));
        Self { block_bytes, most_bytes, capacity_bytes, clock, index, extents, oldest }
    }

    /// Lets the cache take at most `bytes` of the pool from now on, or what it was made for if that is less. What is too
    /// much is dropped at once, the least recently used first.
    pub fn set_capacity(&self, bytes: u64) {
        self.capacity_bytes.store(bytes.min(self.most_bytes), Ordering::Relaxed);
        self.keep_to_capacity();
    }

    fn keep_to_capacity(&self) {
        let capacity_bytes = self.capacity_bytes.load(Ordering::Relaxed);
        let held_bytes = self.held_bytes();
        if capacity_bytes < self.most_bytes && held_bytes > capacity_bytes {
            self.shed(held_bytes - capacity_bytes);
        } else if held_bytes > self.most_bytes {
            // Otherwise moka evicts only some time later.
            self.extents.run_pending_tasks();
        }
    }

    /// The size of a block in bytes. The last block of an object may be shorter.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// How many bytes of the pool the extents take.
    pub fn held_bytes(&self) -> u64 {
        self.index.held_bytes()
    }

    /// The bytes from `offset` to the end of its block, if the block is here.
    pub fn get(&self, object: &ObjectId, offset: u64) -> Option<Bytes> {
        let block = offset / self.block_bytes;
        let Some(extent) = self.index.get(object, block) else {
            // The extent that will be fetched now starts with this block. moka counts the miss, so that it is
            // more likely to admit the extent.
            self.extents.get(&ExtentKey { object: object.clone(), first_block: block });
            return None;
        };
        self.extents.get(&extent.key);
        extent.used.store(self.now(), Ordering::Relaxed);
        let end = (block + 1) * self.block_bytes;
        let from = usize::try_from(offset - extent.start).ok()?;
        let to = usize::try_from(end - extent.start).ok()?.min(extent.bytes.len());
        (from < to).then(|| extent.bytes.slice(from..to))
    }

    /// Whether the block that holds `offset` is here.
    pub fn contains(&self, object: &ObjectId, offset: u64) -> bool {
        self.index.get(object, offset / self.block_bytes).is_some()
    }

    /// Inserts the whole blocks of `extent`, the object's bytes at `range`. A block is whole when the extent
    /// covers it, or covers it up to `object_size`.
    pub fn insert(&self, object: &ObjectId, object_size: u64, range: ByteRange, extent: &Bytes) {
        let first_block = range.start().div_ceil(self.block_bytes);
        let end_block = if range.end() < object_size {
            range.end() / self.block_bytes
        } else {
            range.end().div_ceil(self.block_bytes)
        };
        if first_block >= end_block {
            return;
        }
        let reserved_bytes = range.len().next_multiple_of(UNIT_BYTES as u64);
        let extent = Arc::new(Extent {
            key: ExtentKey { object: object.clone(), first_block },
            blocks: first_block..end_block,
            start: range.start(),
            bytes: extent.clone(),
            reserved_bytes,
            used: AtomicU64::new(self.now()),
        });
        // This also removes an extent with the same key: moka miscounts when the weight of an entry changes
        // in its place.
        for replaced in self.index.insert(&extent) {
            self.extents.invalidate(&replaced.key);
        }
        let weight = u32::try_from(reserved_bytes).unwrap_or(u32::MAX);
        self.extents.insert(extent.key.clone(), Entry { weight, extent: Arc::downgrade(&extent) });
        if !self.index.holds(&extent) {
            // `shed` removed it before moka knew it.
            self.extents.invalidate(&extent.key);
        }
        self.keep_to_capacity();
    }

    /// Drops extents, the least recently used first, until `bytes` of the pool are given back or the cache is
    /// empty. Returns how many bytes were given back.
    ///
    /// One call sorts all extents, and later calls use up this order. So a call for a few bytes costs little.
    pub fn shed(&self, bytes: u64) -> u64 {
        let mut oldest = lock(&self.oldest);
        let mut is_new = false;
        let mut freed = 0;
        while freed < bytes {
            let Some((used, extent)) = oldest.pop_front() else {
                if is_new {
                    break;
                }
                *oldest = self.index.by_age().into();
                is_new = true;
                continue;
            };
            let Some(extent) = extent.upgrade() else { continue };
            if extent.used.load(Ordering::Relaxed) == used && self.index.remove(&extent) {
                self.extents.invalidate(&extent.key);
                freed += extent.reserved_bytes;
            }
        }
        freed
    }

    /// Drops all blocks of a version.
    pub fn forget(&self, object: &ObjectId) {
        for extent in self.index.of(object) {
            self.index.remove(&extent);
            self.extents.invalidate(&extent.key);
        }
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use s3mount_object::{ByteRange, ETag, ObjectId};

    use super::BlockCache;

    /// A unit of the pool. An extent of whole blocks then reserves exactly its length.
    const BLOCK: u64 = 64 << 10;

    fn object() -> ObjectId {
        ObjectId::new("k", ETag::new("\"1\""))
    }

    fn extent(len: u64) -> Bytes {
        (0..len).map(|at| u8::try_from(at / 100 % 256).expect("below 256")).collect()
    }

    /// Inserts the blocks `first..first + count`, and returns their bytes.
    fn insert(cache: &BlockCache, first: u64, count: u64) -> Bytes {
        let bytes = extent(count * BLOCK);
        cache.insert(&object(), u64::MAX, ByteRange::new(first * BLOCK, (first + count) * BLOCK), &bytes);
        bytes
    }

    #[test]
    fn keeps_whole_blocks_and_the_last_short_one() {
        let cache = BlockCache::new(BLOCK, 1 << 20);
        let size = 3 * BLOCK + 300;
        let bytes = extent(size - 512);
        cache.insert(&object(), size, ByteRange::new(512, size), &bytes);
        assert!(!cache.contains(&object(), 600), "the first block is not whole");
        let (from, to) = (BLOCK as usize + 100 - 512, 2 * BLOCK as usize - 512);
        assert_eq!(cache.get(&object(), BLOCK + 100).as_deref(), Some(&bytes[from..to]));
        assert_eq!(cache.get(&object(), size - 1).map(|tail| tail.len()), Some(1));
        assert_eq!(cache.get(&ObjectId::new("k", ETag::new("\"2\"")), BLOCK + 100), None);
        assert_eq!(cache.held_bytes(), 3 * BLOCK, "what the buffer takes of the pool");
    }

    #[test]
    fn forgets_one_version() {
        let cache = BlockCache::new(BLOCK, 1 << 20);
        let (bytes, other) = (insert(&cache, 0, 2), ObjectId::new("k", ETag::new("\"2\"")));
        cache.insert(&other, u64::MAX, ByteRange::new(0, 2 * BLOCK), &extent(2 * BLOCK));
        cache.forget(&object());
        assert!(bytes.is_unique() && !cache.contains(&object(), 0) && !cache.contains(&object(), BLOCK));
        assert!(cache.contains(&other, 0) && cache.contains(&other, BLOCK));
        assert_eq!(cache.held_bytes(), 2 * BLOCK);
    }

    #[test]
    fn stays_within_its_capacity_and_frees_at_once() {
        let cache = BlockCache::new(BLOCK, 8 * BLOCK);
        let extents: Vec<_> = (0..100).map(|index| insert(&cache, index, 1)).collect();
        assert!(cache.held_bytes() <= 8 * BLOCK);
        assert!(extents.iter().any(|extent| !extent.is_unique()), "some are here");
        cache.shed(u64::MAX);
        assert_eq!(cache.held_bytes(), 0);
        assert!(extents.iter().all(Bytes::is_unique), "nothing refers to the extents any more");
    }

    #[test]
    fn counts_what_it_holds_and_holds_what_it_counts() {
        let cache = BlockCache::new(BLOCK, 64 * BLOCK);
        // Extents of many lengths, some of which are read again and again.
        let extents: Vec<_> = (0..400)
            .map(|turn| {
                let first = turn * 7 % 100 * 16;
                cache.get(&object(), first * BLOCK);
                insert(&cache, first, turn % 8 + 1)
            })
            .collect();
        let alive = extents
            .iter()
            .filter(|extent| !extent.is_unique())
            .map(|extent| extent.len() as u64)
            .sum::<u64>();
        assert_eq!(cache.held_bytes(), alive);
        assert!((32 * BLOCK..=64 * BLOCK).contains(&alive), "{} blocks are here", alive / BLOCK);
    }

    #[test]
    fn sheds_the_oldest_use_first() {
        let cache = BlockCache::new(BLOCK, 1 << 20);
        (0..4).for_each(|block| drop(insert(&cache, block, 1)));
        assert!(cache.get(&object(), 0).is_some());
        assert_eq!(cache.shed(2 * BLOCK), 2 * BLOCK);
        assert!(cache.contains(&object(), 0) && cache.contains(&object(), 3 * BLOCK));
        assert!(!cache.contains(&object(), BLOCK) && !cache.contains(&object(), 2 * BLOCK));
        // The rest of the order is still right when extents come and are used.
        insert(&cache, 9, 1);
        assert!(cache.get(&object(), 3 * BLOCK).is_some());
        assert_eq!(cache.shed(1), BLOCK);
        assert!(!cache.contains(&object(), 0) && cache.contains(&object(), 9 * BLOCK));
        assert_eq!(cache.shed(1), BLOCK);
        assert!(!cache.contains(&object(), 9 * BLOCK) && cache.contains(&object(), 3 * BLOCK));
    }

    #[test]
    fn a_run_leaves_as_a_whole() {
        let cache = BlockCache::new(BLOCK, 1 << 20);
        let bytes = insert(&cache, 0, 4);
        let (from, to) = (2 * BLOCK as usize + 10, 3 * BLOCK as usize);
        assert_eq!(cache.get(&object(), from as u64).as_deref(), Some(&bytes[from..to]));
        assert_eq!(cache.shed(1), 4 * BLOCK);
        assert!(bytes.is_unique() && !cache.contains(&object(), 3 * BLOCK));
    }

    proptest! {
        /// Inserts, overlaps and evicts extents: the count equals the held bytes, each block is found with its own
        /// bytes, and nothing leaks.
        #[test]
        fn keeps_its_books(steps in proptest::collection::vec((0u64..24, 1u64..5, 0u64..4), 1..80)) {
            let cache = BlockCache::new(BLOCK, 12 * BLOCK);
            let mut extents = Vec::new();
            for (first, count, action) in steps {
                match action {
                    0 => {
                        cache.shed(count * BLOCK);
                    }
                    1 => drop(cache.get(&object(), first * BLOCK)),
                    _ => {
                        let bytes: Bytes = (0..count)
                            .flat_map(|block| vec![u8::try_from(first + block).expect("small"); BLOCK as usize])
                            .collect();
                        let range = ByteRange::new(first * BLOCK, (first + count) * BLOCK);
                        cache.insert(&object(), u64::MAX, range, &bytes);
                        extents.push(bytes);
                    }
                }
                let alive = extents.iter().filter(|extent| !extent.is_unique()).map(|extent| extent.len() as u64).sum::<u64>();
                prop_assert_eq!(cache.held_bytes(), alive);
                prop_assert!(alive <= 12 * BLOCK);
                for block in 0..28 {
                    // The order of these two matters: moka may evict by the clock when an extent is looked
                    // up.
                    let is_here = cache.contains(&object(), block * BLOCK);
                    let found = cache.get(&object(), block * BLOCK);
                    prop_assert_eq!(found.is_some(), is_here);
                    if let Some(found) = found {
                        prop_assert_eq!(found.len() as u64, BLOCK);
                        prop_assert!(found.iter().all(|byte| u64::from(*byte) == block));
                    }
                }
            }
            cache.shed(u64::MAX);
            prop_assert!(cache.held_bytes() == 0 && extents.iter().all(Bytes::is_unique));
        }
    }
}
