//! Tests of what the mount fetches for the disk cache while it is idle, by counts of GETs, in virtual time.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use s3mount_cache::{DiskCache, DiskConfig};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ByteRange, GetAnswer, GetObject, ObjectClient, ObjectError, PartBuffer};
use s3mount_testkit::NullClient;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::{ObjectReader, PrefetchConfig, Prefetcher, Tiers};

const MIB: u64 = 1 << 20;

/// An object of 8 parts and a bit.
const SIZE: u64 = 8 * MIB + 77;

/// A store that answers each GET after 2 s, and notes the GETs.
#[derive(Debug)]
struct Slow {
    inner: NullClient,
    gets: Mutex<Vec<(String, ByteRange)>>,
    /// GETs of "k", and all others.
    flights: [Flights; 2],
}

/// How many GETs are in flight, and the most at once so far.
#[derive(Debug, Default)]
struct Flights {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for Slow {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        self.gets.lock().expect("no panic").push((request.object.key().to_owned(), request.range));
        async move {
            let flight = Flight::new(self.flights(request.object.key()));
            sleep(Duration::from_secs(2)).await;
            drop(flight);
            self.inner.get_object(request, into).await
        }
        .boxed()
    }

    s3mount_testkit::delegate_metadata!(inner);
}

impl Slow {
    fn flights(&self, key: &str) -> &Flights {
        &self.flights[usize::from(key != "k")]
    }
}

/// A GET in flight.
struct Flight<'a>(&'a Flights);

impl<'a> Flight<'a> {
    fn new(flights: &'a Flights) -> Self {
        let now = flights.now.fetch_add(1, Ordering::Relaxed) + 1;
        flights.most.fetch_max(now, Ordering::Relaxed);
        Self(flights)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A mount with a disk cache.
struct World {
    _folder: TempDir,
    disk: DiskCache,
    store: Arc<Slow>,
    prefetcher: Prefetcher,
}

impl World {
    /// Puts blocks of `key` on the disk, as an earlier reading did.
    fn has_kept(&self, key: &str, parts: Range<u64>) {
        let range = ByteRange::new(parts.start * MIB, (parts.end * MIB).min(SIZE));
        let object = self.disk.object(&self.store.inner.object(key), SIZE);
        object.offer(range, &Bytes::from(vec![0; range.len() as usize]));
        assert!(self.disk.flush(Duration::from_secs(20)));
    }

    /// Opens and closes `key`.
    async fn visit(&self, key: &str) {
        let reader = self.prefetcher.open(&self.store.inner.object(key), SIZE);
        reader.is_whole(false).await;
    }

    async fn is_whole(&self, key: &str) -> bool {
        let object = self.disk.object(&self.store.inner.object(key), SIZE);
        object.look().await;
        object.whole_file().is_some()
    }

    async fn becomes_whole(&self, key: &str) {
        for _ in 0..10_000 {
            if self.is_whole(key).await {
                return;
            }
            pause(Duration::from_millis(50)).await;
        }
        panic!("{key} lacks ranges: {:?}", self.gets(key));
    }

    /// Lets a minute go by.
    async fn wait(&self) {
        for _ in 0..600 {
            pause(Duration::from_millis(100)).await;
        }
    }

    /// The ranges that were asked for, in order of their beginnings.
    fn gets(&self, key: &str) -> Vec<ByteRange> {
        let gets = self.store.gets.lock().expect("no panic");
        let mut gets: Vec<_> = gets.iter().filter(|(of, _)| of == key).map(|(_, range)| *range).collect();
        gets.sort_by_key(|range| range.start());
        gets
    }

    fn backfilled(&self) -> u64 {
        self.prefetcher.metrics().refilled_bytes.get()
    }
}

/// Lets time pass, and the threads of the cache do their work.
async fn pause(time: Duration) {
    std::thread::sleep(Duration::from_millis(1));
    sleep(time).await;
}

async fn read(reader: Arc<ObjectReader>, offset: u64, len: u64) {
    let (answer, answered) = oneshot::channel();
    reader.read_apart(offset, len as usize, move |result| {
        let read = result.map(<[u8]>::len).map_err(|error| error.to_string());
        answer.send(read).expect("the test waits");
    });
    assert_eq!(answered.await.expect("an answer"), Ok(len as usize));
}

/// Runs `test` on a mount with 64 MiB of memory and a cache of `max_bytes`. The clock advances only when all tasks
/// wait.
fn check<F: Future<Output = ()>>(max_bytes: u64, test: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let config = DiskConfig {
            dirs: vec![folder.path().join("cache")],
            max_bytes: Some(max_bytes),
            source: "store".to_owned(),
            queue_bytes: 16 * MIB,
            ..DiskConfig::default()
        };
        let disk = DiskCache::open(&config).expect("a directory of this test");
        let store = Arc::new(Slow {
            inner: NullClient::new([]),
            gets: Mutex::default(),
            flights: Default::default(),
        });
        let pool = BufferPool::new(MemoryBudget::new(64 * MIB)).expect("a pool");
        // The clock also advances while a task waits for a thread of the cache.
        let read_timeout = Duration::from_secs(3600);
        let config =
            PrefetchConfig { hedge_share: 0.0, part_bytes: MIB, read_timeout, ..PrefetchConfig::default() };
        let tiers = Tiers { disk: Some(disk.clone()), ..Tiers::default() };
        let prefetcher = Prefetcher::with_tiers(store.clone(), pool, tiers, config, &Handle::current());
        test(World { _folder: folder, disk, store, prefetcher }).await;
    });
}

const ROOM: u64 = 1 << 40;

#[test]
fn the_missing_ranges_of_what_is_opened_again_are_fetched_once() {
    check(ROOM, async |world| {
        world.has_kept("k", 1..4);
        world.has_kept("k", 6..8);
        world.visit("k").await;
        world.becomes_whole("k").await;
        let end = ByteRange::new(8 * MIB, SIZE);
        let missing = [0, 4, 5].map(|part| ByteRange::new(part * MIB, (part + 1) * MIB));
        let expected: Vec<_> = missing.into_iter().chain([end]).collect();
        assert_eq!(world.gets("k"), expected);
        assert_eq!(world.backfilled(), 3 * MIB + 77);
        assert_eq!(world.store.flights("k").most.load(Ordering::Relaxed), 1, "one at a time");
        world.visit("k").await;
        world.wait().await;
        assert_eq!(world.gets("k").len(), 4, "and nothing after that");
    });
}

#[test]
fn what_was_not_there_before_or_is_there_for_less_than_half_is_left_alone() {
    check(ROOM, async |world| {
        world.has_kept("little", 1..4);
        world.visit("little").await;
        // The first reading of this one.
        let first = world.prefetcher.open(&world.store.inner.object("first"), SIZE);
        first.is_whole(false).await;
        join_all((0..8).map(|part| read(first.clone(), part * MIB, 700_000))).await;
        let gets = world.gets("first");
        drop(first);
        world.wait().await;
        assert_eq!((world.gets("little"), world.gets("first"), world.backfilled()), (vec![], gets, 0));
        // More of it has come since.
        world.has_kept("little", 4..6);
        world.visit("little").await;
        world.becomes_whole("little").await;
    });
}

#[test]
fn nothing_is_fetched_that_the_cache_has_no_room_for() {
    check(6 * MIB, async |world| {
        world.has_kept("k", 0..5);
        world.visit("k").await;
        world.wait().await;
        assert_eq!(world.backfilled(), MIB, "as much as there is room for");
        assert_eq!(world.gets("k"), [ByteRange::new(5 * MIB, 6 * MIB)]);
    });
}

#[test]
fn while_any_get_is_in_flight_nothing_is_fetched() {
    check(ROOM, async |world| {
        world.has_kept("k", 0..5);
        let busy = world.prefetcher.open(&world.store.inner.object("busy"), 1 << 30);
        let again = world.prefetcher.open(&world.store.inner.object("k"), SIZE);
        // No thread of the cache is asked later.
        let _ = (busy.is_whole(false).await, again.is_whole(false).await);
        let reads = (0..100u32).map(|turn| {
            let busy = busy.clone();
            async move {
                sleep(Duration::from_secs(1) * turn).await;
                read(busy, u64::from(turn) * 10 * MIB, 4096).await;
            }
        });
        let reads = tokio::spawn(join_all(reads));
        sleep(Duration::from_millis(100)).await;
        drop(again);
        sleep(Duration::from_secs(30)).await;
        assert!(!reads.is_finished() && world.gets("k").is_empty());
        reads.await.expect("no panic");
        world.becomes_whole("k").await;
    });
}

/// How many GETs of 70 readers were in flight at once, and how many were sent for the disk cache.
fn with_readers(is_backfilled: bool) -> (usize, usize) {
    let (result, results) = std::sync::mpsc::channel();
    check(ROOM, async |world| {
        world.has_kept("k", 0..7);
        let readers: Vec<_> = (0..70)
            .map(|number| world.prefetcher.open(&world.store.inner.object(&number.to_string()), MIB))
            .collect();
        // No thread of the cache is asked later.
        join_all(readers.iter().map(|reader| reader.is_whole(false))).await;
        if is_backfilled {
            world.visit("k").await;
            while world.gets("k").is_empty() {
                pause(Duration::from_millis(50)).await;
            }
        }
        join_all(readers.into_iter().map(|reader| read(reader, 0, MIB))).await;
        let most = world.store.flights("0").most.load(Ordering::Relaxed);
        if is_backfilled {
            world.becomes_whole("k").await;
            assert_eq!(world.backfilled(), MIB + 77, "each byte came once");
        }
        result.send((most, world.gets("k").len())).expect("the test waits");
    });
    results.recv().expect("a result")
}

#[test]
fn readers_get_the_memory_of_a_get_that_nobody_waits_for() {
    let (most, none) = with_readers(false);
    assert!(most >= 60 && none == 0, "{most} readers fill the memory");
    let (beside, gets) = with_readers(true);
    assert_eq!((beside, gets), (most, 3), "the first GET was given up for them");
}
