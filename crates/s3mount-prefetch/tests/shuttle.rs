//! Readers of one object under a model checker. It tries thousands of interleavings of a few threads, and of
//! the GETs that they start. The tests run by
//! `cargo test -p s3mount-prefetch --features shuttle --test shuttle`.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::{BoxFuture, join_all};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ErrorKind, GetAnswer, GetObject, ObjectClient, ObjectError, PartBuffer};
use s3mount_prefetch::{ObjectReader, PrefetchConfig, Prefetcher};
use s3mount_testkit::NullClient;
use shuttle::future::{block_on, yield_now};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Config, Runner, thread};

const RUNS: usize = 1_000;

/// The stack of a thread. The usual 60 KiB are too few where little is optimized.
const STACK_BYTES: usize = 1 << 20;

const KIB: u64 = 1 << 10;

/// A store whose answers come at any later point. Some GETs fail.
#[derive(Debug)]
struct Store {
    inner: NullClient,
    gets: AtomicU64,
    /// How often each block of 4 KiB was fetched.
    fetched: Mutex<[u32; 256]>,
    /// Each GET whose number is a multiple of this fails for good. With 0, none fails.
    fails_each: u64,
}

impl Store {
    fn new(fails_each: u64) -> Arc<Self> {
        let (gets, fetched) = (AtomicU64::new(0), Mutex::new([0; 256]));
        Arc::new(Self { inner: NullClient::new([]), gets, fetched, fails_each })
    }
}

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for Store {
    fn get_object(
        &self,
        request: GetObject,
        mut into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        async move {
            yield_now().await;
            let turn = self.gets.fetch_add(1, Ordering::SeqCst) + 1;
            if self.fails_each > 0 && turn.is_multiple_of(self.fails_each) {
                return Err(ObjectError::new(ErrorKind::Forbidden, "GetObject", request.object.key()));
            }
            // Each block holds its number.
            let first = (request.range.start() / 4096) as usize;
            for (number, block) in (first..).zip((*into).as_mut().chunks_mut(4096)) {
                block[0] = number as u8;
                self.fetched.lock().expect("no panic")[number] += 1;
            }
            yield_now().await;
            self.inner.get_object(request, into).await
        }
        .boxed()
    }

    s3mount_testkit::delegate_metadata!(inner);
}

/// Reads, and checks that the right bytes come.
fn read(reader: &ObjectReader, offset: u64, len: usize) -> oneshot::Receiver<Result<(), String>> {
    let (sender, reply) = oneshot::channel();
    reader.read(offset, len, move |result| {
        let result = result.map_err(|error| error.to_string()).map(|bytes| {
            assert_eq!(bytes.len(), len);
            assert_eq!(u64::from(bytes[0]), offset / 4096, "others' bytes");
        });
        sender.send(result).expect("somebody waits");
    });
    reply
}

/// Two threads make one half of `reads` each, with `memory` bytes. Then everything is closed. Returns the
/// results of their reads.
fn run(store: &Arc<Store>, memory: u64, reads: [&'static [(u64, usize)]; 2]) -> Vec<Result<(), String>> {
    let pool = BufferPool::new(MemoryBudget::new(memory)).expect("a pool");
    let budget = pool.budget().clone();
    let config = PrefetchConfig {
        part_bytes: 256 * KIB,
        initial_window_bytes: 128 * KIB,
        random_read_bytes: 64 * KIB,
        small_object_bytes: 0,
        hedge_share: 0.0,
        ..PrefetchConfig::default()
    };
    let runtime = tokio::runtime::Handle::current();
    let prefetcher = Prefetcher::new(store.clone(), pool, config, &runtime);
    let object = store.inner.object("a");
    let threads: Vec<_> = reads
        .into_iter()
        .map(|reads| {
            let (prefetcher, object) = (prefetcher.clone(), object.clone());
            thread::spawn(move || {
                let reader = prefetcher.open(&object, 1 << 20);
                let replies: Vec<_> =
                    reads.iter().map(|(offset, len)| read(&reader, *offset, *len)).collect();
                (reader, replies)
            })
        })
        .collect();
    let (readers, replies): (Vec<_>, Vec<_>) =
        threads.into_iter().map(|thread| thread.join().expect("no panic")).unzip();
    // A read that is never answered is a deadlock, which the checker reports.
    let ends = block_on(join_all(replies.into_iter().flatten()));
    drop(readers);
    assert!(budget.peak_bytes() <= memory);
    // A GET that lands at this moment still holds its reader, and a cancelled GET its buffer. If either never
    // came back, the run would not end, which the checker reports.
    block_on(async {
        while prefetcher.open_readers() > 0 {
            yield_now().await;
        }
        drop(prefetcher);
        while budget.used_bytes() > 0 {
            yield_now().await;
        }
    });
    ends.into_iter().map(|end| end.expect("an answer")).collect()
}

/// Runs `test` in many orders. Time stands still, so no time-out comes.
fn check(test: impl Fn() + Send + Sync + Clone + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(RUNS), config.clone()).run(test.clone());
    Runner::new(PctScheduler::new(3, RUNS), config).run(test);
}

#[test]
fn the_same_bytes_are_fetched_once() {
    const READS: &[(u64, usize)] = &[(0, 64 << 10), (64 << 10, 64 << 10), (128 << 10, 64 << 10)];
    check(|| {
        // This is enough memory: nothing is dropped between the first read of it and the last.
        let store = Store::new(0);
        let replies = run(&store, 16 * 1024 * KIB, [READS, READS]);
        assert!(replies.iter().all(Result::is_ok));
        assert!(store.fetched.lock().expect("no panic").iter().all(|times| *times <= 1));
    });
}

#[test]
fn random_reads_of_one_block_share_its_get() {
    const READS: &[(u64, usize)] = &[(512 << 10, 4096), (512 << 10, 4096)];
    check(|| {
        let store = Store::new(0);
        assert!(run(&store, 2048 * KIB, [READS, READS]).iter().all(Result::is_ok));
        let fetched = store.fetched.lock().expect("no panic");
        assert_eq!(fetched.iter().sum::<u32>(), 64 / 4, "one unit");
    });
}

#[test]
fn every_read_is_answered_in_the_least_memory() {
    // There are no random reads, because the checker does not know the cache's own locks.
    const FINE: &[(u64, usize)] = &[(0, 64 << 10), (64 << 10, 64 << 10), (96 << 10, 128 << 10)];
    const COARSE: &[(u64, usize)] = &[(0, 96 << 10), (96 << 10, 128 << 10)];
    check(|| {
        let store = Store::new(0);
        assert!(run(&store, 256 * KIB, [FINE, COARSE]).iter().all(Result::is_ok));
    });
}

#[test]
fn a_failed_get_answers_all_who_wait_for_it() {
    const READS: &[(u64, usize)] = &[(0, 64 << 10), (64 << 10, 64 << 10), (300 << 10, 4096)];
    check(|| {
        let replies = run(&Store::new(3), 2048 * KIB, [READS, READS]);
        assert_eq!(replies.len(), 6);
    });
}
