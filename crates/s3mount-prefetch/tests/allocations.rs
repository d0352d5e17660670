//! How many heap allocations a stream costs: none for a read that is answered at once, and a constant number
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

/// Reads `bytes` from `start` on in blocks. Each read begins after the answer to the one before.
fn read(reader: &Arc<ObjectReader>, start: u64, bytes: u64, block: u64) {
    let (done, is_done) = mpsc::sync_channel(1);
    for offset in (start..start + bytes).step_by(block as usize) {
        let done = done.clone();
        reader.read(offset, block as usize, move |result| {
            assert_eq!(result.map(<[u8]>::len).ok(), Some(block as usize));
            done.send(()).expect("the test waits");
        });
        is_done.recv_timeout(Duration::from_secs(100)).expect("an answer");
    }
}

/// Reads a stream in blocks of `block` bytes until it has ramped, goes on, and checks how many allocations
/// that costs.
fn check(part_bytes: u64, block: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let pool = BufferPool::new(MemoryBudget::new(256 * MIB)).expect("a pool");
    let config = PrefetchConfig { part_bytes, ..PrefetchConfig::default() };
    let client = Arc::new(NullClient::new([]));
    let prefetcher = Prefetcher::new(client.clone(), pool, config, runtime.handle());
    let reader = prefetcher.open(&client.object("k"), 1 << 40);
    read(&reader, 0, 512 * MIB, block);
    let metrics = prefetcher.metrics();
    let counts = || (metrics.get_requests.get(), metrics.waits.get());
    let (before, (parts_before, waits_before)) = (ALLOCATIONS.load(Ordering::Relaxed), counts());
    read(&reader, 512 * MIB, 512 * MIB, block);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let (parts, waits) = counts();
    let (parts, waits) = (parts - parts_before, waits - waits_before);
    // A read that waits keeps its reply on the heap. Its thread allocates what it waits on.
    let most = 16 * (parts + 2) + 6 * waits + 64;
    let reads = 512 * MIB / block;
    assert!(
        allocations <= most,
        "{allocations} allocations for {parts} parts and {reads} reads, {waits} of which waited"
    );
}

#[test]
fn a_part_takes_a_constant_and_a_read_nothing() {
    // These run one after the other, because the allocations of a test that runs at the same time would be
    // counted, too.
    for (part_bytes, block) in [(8 * MIB, MIB), (MIB, MIB), (8 * MIB, MIB / 32)] {
        check(part_bytes, block);
    }
}
