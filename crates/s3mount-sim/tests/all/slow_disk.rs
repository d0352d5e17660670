//! A disk that answers every read, and late: its reads go to the store, until it is fast again. In virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use s3mount_cache::{DiskCache, DiskConfig, Hand, Op};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ByteRange, ErrorKind, ObjectId};
use s3mount_prefetch::{ObjectReader, PrefetchConfig, Prefetcher, Tiers};
use s3mount_testkit::{MemoryClient, check as check_content, content};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

const MIB: u64 = 1 << 20;

/// Each object has so many parts of 1 MiB.
const PARTS: u64 = 64;

/// What the store takes for a part.
const STORE: Duration = Duration::from_millis(20);

/// The machine has been up for so long.
const UP: Duration = Duration::from_secs(1_000);

/// How long each read of the disk takes, and how far its clock is ahead of the test's: a read takes its time at once, and
/// then the disk stands still for as long.
#[derive(Debug, Default)]
struct Delay {
    nanos: AtomicU64,
    ahead: AtomicU64,
}

/// A mount with a disk cache.
struct World {
    _folder: TempDir,
    disk: DiskCache,
    hand: Arc<Hand>,
    delay: Arc<Delay>,
    store: Arc<MemoryClient>,
    prefetcher: Prefetcher,
}

impl World {
    /// From now on each read of the disk takes this long.
    fn set_disk(&self, takes: Duration) {
        self.delay.nanos.store(takes.as_nanos() as u64, Ordering::Relaxed);
    }

    fn put(&self, key: &str) -> (ObjectId, Arc<ObjectReader>) {
        let object = self.store.put_synthetic(key, PARTS * MIB);
        let reader = self.prefetcher.open(&object, PARTS * MIB);
        (object, reader)
    }

    /// An object that the disk has, whole.
    async fn put_kept(&self, key: &str) -> Arc<ObjectReader> {
        let (object, reader) = self.put(key);
        let kept = self.disk.object(&object, PARTS * MIB);
        for part in 0..PARTS {
            let range = ByteRange::new(part * MIB, (part + 1) * MIB);
            kept.offer(range, &Bytes::from(content(key, range.start(), MIB as usize)));
            while !self.disk.is_idle() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(reader.is_whole(false).await);
        self.store.take_requests();
        reader
    }

    /// Reads these parts one after another. Returns how many of them the disk and the store have brought.
    async fn reads(&self, key: &str, reader: &ObjectReader, parts: std::ops::Range<u64>) -> (u64, usize) {
        let before = self.hand.metrics().reads.get();
        for part in parts {
            let (answer, answered) = oneshot::channel();
            let (offset, key) = (part * MIB, key.to_owned());
            reader.read_apart(offset, MIB as usize, move |result| {
                let checked = result.map(|bytes| (bytes.len(), check_content(&key, offset, bytes)));
                answer.send(checked.map_err(|error| error.to_string())).expect("the test waits");
            });
            let read = answered.await.expect("an answer");
            assert_eq!(read, Ok((MIB as usize, Ok(()))), "part {part}");
        }
        (self.hand.metrics().reads.get() - before, self.store.take_requests().get)
    }
}

/// Does what waits for the disk, one thing after another.
async fn work(hand: Arc<Hand>, delay: Arc<Delay>) {
    loop {
        if !hand.step(0) {
            tokio::select! {
                biased;
                () = hand.rings() => {}
                () = sleep(Duration::from_millis(100)) => {}
            }
        }
        sleep(Duration::from_nanos(delay.ahead.swap(0, Ordering::Relaxed))).await;
    }
}

/// Runs `test` with a clock that goes on only when all tasks wait.
fn check<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let config = DiskConfig {
            dirs: vec![folder.path().join("cache")],
            max_bytes: Some(1 << 40),
            source: "store".to_owned(),
            queue_bytes: 16 * MIB,
            ..DiskConfig::default()
        };
        let (started, delay) = (Instant::now(), Arc::<Delay>::default());
        let told = delay.clone();
        let now = move || (UP + started.elapsed()).as_nanos() as u64 + told.ahead.load(Ordering::Relaxed);
        let (disk, mut hands) = DiskCache::open_by_hand(&config, 1, now).expect("a folder of this test");
        let hand = Arc::new(hands.pop().expect("a hand for each folder"));
        let waits = delay.clone();
        hand.set_faults(move |op| {
            if op == Op::Read {
                waits.ahead.fetch_add(waits.nanos.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Ok(())
        });
        let working = tokio::spawn(work(hand.clone(), delay.clone()));
        let store = Arc::new(MemoryClient::new());
        store.set_latency(STORE);
        let pool = BufferPool::new(MemoryBudget::new(64 * MIB)).expect("a pool");
        let config = PrefetchConfig { hedge_share: 0.0, part_bytes: MIB, ..PrefetchConfig::default() };
        let tiers = Tiers { disk: Some(disk.clone()), ..Tiers::default() };
        let prefetcher = Prefetcher::with_tiers(store.clone(), pool, tiers, config, &Handle::current());
        test(World { _folder: folder, disk, hand, delay, store, prefetcher }).await;
        working.abort();
    });
}

#[test]
fn a_slow_disk_is_left_for_the_store_until_it_is_fast_again() {
    check(async |world| {
        let kept = world.put_kept("kept").await;
        assert_eq!(world.reads("kept", &kept, 0..4).await, (4, 0));
        world.set_disk(Duration::from_millis(1500));
        // The GET behind the first late read asks how long the store takes.
        assert_eq!(world.reads("kept", &kept, 4..5).await, (1, 0));
        assert_eq!(world.reads("kept", &kept, 5..6).await, (0, 1));
        assert_eq!(world.reads("kept", &kept, 6..10).await, (4, 0), "five late ones in a row");
        assert_eq!(world.reads("kept", &kept, 10..20).await, (0, 10));
        assert!(!kept.is_whole(false).await, "the kernel does not get the file");
        // What the store brings meanwhile is not written.
        let (_, other) = world.put("other");
        let written = world.hand.metrics().written_bytes.get();
        assert_eq!(world.reads("other", &other, 0..4).await, (0, 4));
        sleep(Duration::from_secs(5)).await;
        assert_eq!(world.hand.metrics().written_bytes.get(), written);
        // After the pause one read tries it.
        sleep(Duration::from_secs(30)).await;
        assert_eq!(world.reads("kept", &kept, 20..21).await, (1, 0));
        assert_eq!(world.reads("kept", &kept, 21..25).await, (0, 4));
        sleep(Duration::from_secs(59)).await;
        world.set_disk(Duration::from_millis(1));
        assert_eq!(world.reads("kept", &kept, 25..26).await, (0, 1), "the next pause is twice as long");
        sleep(Duration::from_secs(6)).await;
        assert_eq!(world.reads("kept", &kept, 26..64).await, (38, 0));
        assert!(kept.is_whole(false).await);
        world.reads("other", &other, 4..8).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.hand.metrics().written_bytes.get(), written + 4 * MIB);
    });
}

#[test]
fn a_disk_that_brings_a_part_within_a_second_costs_no_get() {
    check(async |world| {
        let kept = world.put_kept("kept").await;
        world.set_disk(Duration::from_millis(950));
        assert_eq!(world.reads("kept", &kept, 0..20).await, (20, 0));
        // The store is known to be faster.
        let (_, other) = world.put("other");
        assert_eq!(world.reads("other", &other, 0..1).await, (0, 1));
        assert_eq!(world.reads("kept", &kept, 20..64).await, (44, 0));
    });
}

#[test]
fn a_slow_disk_is_read_where_the_store_brings_nothing() {
    check(async |world| {
        let kept = world.put_kept("kept").await;
        world.set_disk(Duration::from_millis(1500));
        assert_eq!(world.reads("kept", &kept, 0..8).await, (5, 3));
        // The version is gone from the store, or another has taken its place.
        world.store.fail_next([ErrorKind::PreconditionFailed]);
        assert_eq!(world.reads("kept", &kept, 8..9).await.0, 1);
        assert_eq!(world.reads("kept", &kept, 9..11).await, (0, 2), "the other reads go on to ask the store");
        world.store.fail_all(Some(ErrorKind::Server));
        assert_eq!(world.reads("kept", &kept, 11..14).await.0, 3);
        world.store.fail_all(None);
        assert_eq!(world.reads("kept", &kept, 14..15).await, (1, 0), "the store was no faster");
    });
}
