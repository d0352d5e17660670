//! What a stream costs in heap allocations: nothing for a read that is answered at once, a constant
//! for a part, whatever its size.
#![expect(unsafe_code, reason = "a counting allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_prefetch::{ObjectReader, PrefetchConfig, Prefetcher};
use s3mount_testkit::NullClient;

const MIB: u64 = 1 << 20;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: it came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Reads `bytes` from `start` on in blocks, each when the one before is there.
fn read(reader: &Arc<ObjectReader>, start: u64, bytes: u64, block: u64) {
    let (done, is_done) = mpsc::sync_channel(1);
    for offset in (start..start + bytes).step_by(block as usize) {
        let done = done.clone();
        reader.read(offset, block as usize, move |result| {
            assert_eq!(result.map(<[u8]>::len).ok(), Some(block as usize));
            done.send(()).expect("the test waits");
        });
        is_done.recv_timeout(Duration::from_secs(30)).expect("an answer");
    }
}

/// Allocations for each MiB, once a stream of reads of `block` bytes in parts of `part` has ramped.
fn allocations(part_bytes: u64, block: u64) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let pool = BufferPool::new(MemoryBudget::new(256 * MIB)).expect("a pool");
    let config = PrefetchConfig { part_bytes, ..PrefetchConfig::default() };
    let client = Arc::new(NullClient::new([]));
    let prefetcher = Prefetcher::new(client.clone(), pool, config, runtime.handle());
    let reader = prefetcher.open(&client.object("k"), 1 << 40);
    read(&reader, 0, 512 * MIB, block);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    read(&reader, 512 * MIB, 512 * MIB, block);
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / 512.0
}

#[test]
fn a_part_takes_a_constant_and_a_read_nothing() {
    // Another test beside this one would be counted, too.
    let (large, small) = (allocations(8 * MIB, MIB), allocations(MIB, MIB));
    assert!(small <= 16.0, "{small} allocations for a part of 1 MiB");
    assert!(large <= small, "{large} for each MiB in parts of 8 MiB, {small} in parts of 1 MiB");
    let many_reads = allocations(8 * MIB, MIB / 16);
    assert!(many_reads <= large + 1.0, "{many_reads} for 16 reads, {large} for one");
}
