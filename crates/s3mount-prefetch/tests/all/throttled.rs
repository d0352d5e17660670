//! How the read path uses a store that takes 500 requests a second, in virtual time. `cargo test -p
//! s3mount-prefetch --test all throttled -- --nocapture` prints the table.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use s3mount_bucket::Bucket;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ErrorKind, GetAnswer, GetObject, ObjectClient, ObjectError, PartBuffer};
use s3mount_prefetch::{ObjectReader, PrefetchConfig, Prefetcher};
use s3mount_testkit::{MemoryClient, NullClient, Sequence, mix};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// How many requests a second the store takes. It refuses more, except for a burst of a tenth of a second.
const LIMIT: f64 = 500.0;

/// The test counts requests after this time, and for as long again.
const SETTLED: Duration = Duration::from_secs(20);

/// The first byte comes after 25 ms (log-normal, sigma 0.5), and a refusal after 5 ms.
#[derive(Debug)]
struct ThrottlingStore {
    inner: NullClient,
    sequence: Sequence,
    state: Mutex<TokenBucket>,
}

#[derive(Debug)]
struct TokenBucket {
    limit: f64,
    tokens: f64,
    at: Instant,
    taken: u64,
    refused: u64,
}

impl ThrottlingStore {
    fn new(limit: f64) -> Arc<Self> {
        let state = TokenBucket { limit, tokens: 0.0, at: Instant::now(), taken: 0, refused: 0 };
        Arc::new(Self { inner: NullClient::new([]), sequence: Sequence::new(), state: Mutex::new(state) })
    }

    fn takes(&self) -> bool {
        let state = &mut *self.state.lock().expect("no panic");
        let passed = state.at.elapsed().as_secs_f64();
        state.at = Instant::now();
        state.tokens = (state.tokens + passed * state.limit).min(state.limit / 10.0);
        let is_taken = state.tokens >= 1.0;
        if is_taken {
            state.tokens -= 1.0;
            state.taken += 1;
        } else {
            state.refused += 1;
        }
        is_taken
    }

    /// How many requests were taken and refused since the last call.
    fn take_counts(&self) -> (u64, u64) {
        let state = &mut *self.state.lock().expect("no panic");
        (std::mem::take(&mut state.taken), std::mem::take(&mut state.refused))
    }
}

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for ThrottlingStore {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        async move {
            if !self.takes() {
                sleep(Duration::from_millis(5)).await;
                return Err(ObjectError::new(ErrorKind::Throttled, "GetObject", request.object.key()));
            }
            let first_byte = 0.025 * (0.5 * self.sequence.normal()).exp();
            sleep(Duration::from_secs_f64(first_byte + request.range.len() as f64 / 9e7)).await;
            self.inner.get_object(request, into).await
        }
        .boxed()
    }

    s3mount_testkit::delegate_metadata!(inner);
}

/// Reads, and returns how long the read took.
async fn read(reader: &ObjectReader, offset: u64, len: u64) -> Duration {
    let (start, (answer, answered)) = (Instant::now(), oneshot::channel());
    reader.read(offset, len as usize, move |result| {
        let read = result.map(<[u8]>::len).map_err(|error| error.to_string());
        answer.send(read).expect("the reader waits");
    });
    assert_eq!(answered.await.expect("an answer"), Ok(len as usize));
    start.elapsed()
}

#[derive(Clone, Copy, Debug)]
enum Job {
    /// Random reads of 128 KiB by this many threads.
    Random(u64),
    /// Files of 100 KiB that are fetched ahead of this many threads.
    Hinted(u64),
    /// Shards read by this many threads, in so little memory that parts have 1 MiB.
    Shards(u64),
}

/// Runs one thread of the job for ever, and notes how long each read took.
async fn work(
    job: Job,
    number: u64,
    prefetcher: Prefetcher,
    store: Arc<ThrottlingStore>,
    took: Arc<Mutex<Vec<Duration>>>,
) {
    let note = |time| took.lock().expect("no panic").push(time);
    match job {
        Job::Random(_) => {
            let reader = prefetcher.open(&store.inner.object("k"), 100 * GIB);
            for turn in 0.. {
                let at = mix(number << 32 | turn) % (100 * GIB / (128 * KIB)) * 128 * KIB;
                note(read(&reader, at, 128 * KIB).await);
            }
        }
        Job::Hinted(_) => {
            let open =
                |turn: u64| prefetcher.open(&store.inner.object(&format!("{number}/{turn}")), 100 * KIB);
            let mut window: std::collections::VecDeque<_> = std::collections::VecDeque::new();
            for turn in 0.. {
                while window.len() < 32 {
                    let reader = open(turn + window.len() as u64);
                    if reader.fetch_ahead(None).is_none() && !window.is_empty() {
                        break;
                    }
                    window.push_back(reader);
                }
                let reader = window.pop_front().expect("it was filled");
                note(read(&reader, 0, 100 * KIB).await);
            }
        }
        Job::Shards(_) => {
            for turn in 0.. {
                let reader = prefetcher.open(&store.inner.object(&format!("{number}/{turn}")), GIB);
                for at in (0..GIB).step_by(MIB as usize) {
                    note(read(&reader, at, MIB).await);
                    sleep(Duration::from_micros(100)).await;
                }
            }
        }
    }
}

/// The result of a job once it has settled: requests taken and refused, and how long reads took.
struct Outcome {
    goodput: f64,
    refused: f64,
    median: Duration,
    p99: Duration,
}

fn run(job: Job, memory: u64, limit: f64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let store = ThrottlingStore::new(limit);
        let pool = BufferPool::new(MemoryBudget::new(memory)).expect("a pool");
        let config = PrefetchConfig { hedge_share: 0.05, max_requests: 512, ..PrefetchConfig::default() };
        let prefetcher = Prefetcher::new(store.clone(), pool, config, &Handle::current());
        let took = Arc::new(Mutex::new(Vec::new()));
        let (Job::Random(threads) | Job::Hinted(threads) | Job::Shards(threads)) = job;
        let threads: Vec<_> = (0..threads)
            .map(|number| tokio::spawn(work(job, number, prefetcher.clone(), store.clone(), took.clone())))
            .collect();
        sleep(SETTLED).await;
        store.take_counts();
        took.lock().expect("no panic").clear();
        sleep(SETTLED).await;
        let (taken, refused) = store.take_counts();
        threads.iter().for_each(tokio::task::JoinHandle::abort);
        let _ended = join_all(threads).await;
        let mut took = took.lock().expect("no panic").clone();
        took.sort_unstable();
        Outcome {
            goodput: taken as f64 / limit / SETTLED.as_secs_f64(),
            refused: refused as f64 / (taken + refused) as f64,
            median: took[took.len() / 2],
            p99: took[took.len() * 99 / 100],
        }
    })
}

#[test]
fn a_store_with_a_limit_is_asked_for_little_more_than_it_takes() {
    let mut bad = Vec::new();
    for (job, memory) in [
        (Job::Random(32), GIB),
        (Job::Random(128), GIB),
        (Job::Hinted(1), GIB),
        (Job::Hinted(16), GIB),
        (Job::Shards(16), 128 * MIB),
    ] {
        let Outcome { goodput, refused, median, p99 } = run(job, memory, LIMIT);
        println!(
            "{job:<12?} goodput {goodput:.3}, refused {:.1} %, reads {median:.0?} (p99 {p99:.0?})",
            refused * 100.0
        );
        bad.extend((refused > 0.05 || goodput < 0.9).then_some(job));
    }
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn what_failed_ahead_is_asked_for_again_within_the_budget_of_retries() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let client = Arc::new(MemoryClient::new());
        client.set_latency(Duration::from_millis(20));
        let object = client.put_synthetic("k", GIB);
        let bucket: Bucket = client.clone().into();
        let pool = BufferPool::new(MemoryBudget::new(256 * MIB)).expect("a pool");
        let config = PrefetchConfig { hedge_share: 0.0, part_bytes: MIB, ..PrefetchConfig::default() };
        let prefetcher = Prefetcher::new(bucket.clone(), pool, config, &Handle::current());
        let reader = prefetcher.open(&object, GIB);
        // Every second GET fails, which is more than the budget has retries for.
        client.fail_by_chance(0.2, 1);
        for at in (0..400 * MIB).step_by(MIB as usize) {
            read(&reader, at, MIB).await;
        }
        client.fail_by_chance(0.0, 1);
        let (sent, came) = (client.requests().get as u64, prefetcher.metrics().get_requests.get());
        let retries = bucket.budget().metrics().retries.get();
        println!("{sent} GETs, {came} of which brought their bytes, and {retries} retries");
        assert!(sent - came > 100 && sent - came <= retries + 8);
    });
}
