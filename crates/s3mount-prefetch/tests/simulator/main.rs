//! The policy over stores that are far away, or fast, or both: the real readers read from a model of a store, in
//! virtual time. `cargo test -p s3mount-prefetch --test simulator -- --nocapture` prints the table.
//!
//! The traces are those of loaders. Only the pattern of their reads matters, so bytes are not compared here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{GetAnswer, GetObject, ObjectClient, ObjectError, PartBuffer};
use s3mount_prefetch::{ObjectReader, OpenReader, PrefetchConfig, Prefetcher};
use s3mount_testkit::{NullClient, Sequence, mix};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

mod left;
mod links;
mod patterns;
mod small;
mod streams;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A store: its milliseconds to the first byte (log-normal, sigma 0.5), and the bytes a second that a connection and
/// the link carry.
#[derive(Clone, Copy, Debug)]
struct Model {
    name: &'static str,
    first_byte_ms: f64,
    connection: f64,
    link: f64,
    /// The bytes of one answer that the link carries before it turns to another.
    turn: u64,
}

impl Model {
    const fn new(name: &'static str, first_byte_ms: f64, connection: f64, link: f64) -> Self {
        Self { name, first_byte_ms, connection, link, turn: u64::MAX }
    }

    /// All answers have their share of the link at once, as connections have behind the kernel's queue. So the bytes
    /// of many GETs come at the end of all of them.
    fn shared(self) -> Self {
        Self { turn: 64 * KIB, ..self }
    }
}

const MODELS: [Model; 4] = [
    Model::new("near, 25 Gbit/s", 1.0, 1e9, 3.1e9),
    Model::new("S3, 25 Gbit/s", 25.0, 9e7, 3.1e9),
    Model::new("S3, 100 Gbit/s", 25.0, 9e7, 12.5e9),
    Model::new("far, 10 Gbit/s", 200.0, 9e7, 1.25e9),
];

#[derive(Debug)]
struct SimulatedStore {
    model: Model,
    inner: NullClient,
    /// The number of GETs in flight now. `busiest` is the largest number of them so far.
    in_flight: AtomicU64,
    busiest: AtomicU64,
    /// How many bytes a second the link carries now.
    link: Mutex<f64>,
    link_free_at: Mutex<Instant>,
    sequence: Sequence,
    fetched: AtomicU64,
    requests: AtomicU64,
    /// GETs that were given up before their answer came.
    cancelled: AtomicU64,
}

/// A GET in flight. It counts as cancelled unless `is_answered` is set.
struct Sent<'a> {
    store: &'a SimulatedStore,
    is_answered: bool,
}

impl<'a> Sent<'a> {
    fn new(store: &'a SimulatedStore) -> Self {
        let in_flight = store.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        store.busiest.fetch_max(in_flight, Ordering::Relaxed);
        Self { store, is_answered: false }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.store.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.store.cancelled.fetch_add(u64::from(!self.is_answered), Ordering::Relaxed);
    }
}

impl SimulatedStore {
    fn new(model: Model) -> Self {
        Self {
            model,
            inner: NullClient::new([]),
            in_flight: AtomicU64::new(0),
            busiest: AtomicU64::new(0),
            link: Mutex::new(model.link),
            link_free_at: Mutex::new(Instant::now()),
            sequence: Sequence::new(),
            fetched: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
        }
    }

    /// The time to the first byte: log-normal, from a sequence that is the same each time.
    fn first_byte(&self) -> Duration {
        Duration::from_secs_f64(self.model.first_byte_ms / 1e3 * (0.5 * self.sequence.normal()).exp())
    }
}

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for SimulatedStore {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        let len = request.range.len();
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.fetched.fetch_add(len, Ordering::Relaxed);
        async move {
            let mut sent = Sent::new(self);
            let took = self.first_byte() + Duration::from_secs_f64(len as f64 / self.model.connection);
            let landed = Instant::now() + took;
            let mut left = len;
            while left > 0 {
                let turn = left.min(self.model.turn);
                let through = {
                    let link = *self.link.lock().await;
                    let mut free_at = self.link_free_at.lock().await;
                    *free_at = (*free_at).max(Instant::now()) + Duration::from_secs_f64(turn as f64 / link);
                    *free_at
                };
                sleep_until(through).await;
                left -= turn;
            }
            sleep_until(landed).await;
            sent.is_answered = true;
            self.inner.get_object(request, into).await
        }
        .boxed()
    }

    s3mount_testkit::delegate_metadata!(inner);
}

/// The reads of several threads, as (offset, length), of an object of a size.
struct Trace {
    name: &'static str,
    size: u64,
    threads: Vec<Vec<(u64, u64)>>,
}

fn forward(start: u64, end: u64, block: u64) -> Vec<(u64, u64)> {
    (start..end).step_by(block as usize).map(|at| (at, block.min(end - at))).collect()
}

/// A tar shard, read from end to end.
fn shard() -> Trace {
    Trace { name: "tar shard", size: 2 * GIB, threads: vec![forward(0, 2 * GIB, MIB)] }
}

/// Four workers that divide one file.
fn divided() -> Trace {
    let threads = (0..4).map(|quarter| forward(quarter * GIB / 2, (quarter + 1) * GIB / 2, MIB)).collect();
    Trace { name: "divided by 4", size: 2 * GIB, threads }
}

/// Tensors of 64 MiB, in a shuffled order after the header. Each is read from end to end.
fn safetensors() -> Trace {
    let mut reads = vec![(0, 8), (8, 64 * KIB)];
    for turn in 0..16 {
        let tensor = MIB + turn * 7 % 16 * 64 * MIB;
        reads.extend(forward(tensor, tensor + 64 * MIB, MIB));
    }
    Trace { name: "safetensors", size: 16 * 64 * MIB + MIB, threads: vec![reads] }
}

/// A parquet file: the end, the footer, then some column chunks of each row group.
fn parquet() -> Trace {
    let size = GIB;
    let mut reads = vec![(size - 8, 8), (size - MIB, MIB - 8)];
    for group in 0..8 {
        for column in [0, 3, 11] {
            let chunk = group * 128 * MIB + column * 8 * MIB;
            reads.extend(forward(chunk, chunk + 4 * MIB, 128 * KIB));
        }
    }
    Trace { name: "parquet columns", size, threads: vec![reads] }
}

/// Records of 150 KiB at random, by eight workers.
fn records() -> Trace {
    let reads = |worker: u64| {
        let spot = move |turn: u64| (mix(worker << 32 | turn) % (16 * GIB - MIB), 150 * KIB);
        (0..100).map(spot).collect()
    };
    Trace { name: "random records", size: 16 * GIB, threads: (0..8).map(reads).collect() }
}

/// Loaders as `traces/record.py` has recorded them.
fn recorded() -> Vec<Trace> {
    let parse = |name, text: &str| {
        let mut lines = text.lines();
        let size = lines.next().expect("a size").parse().expect("a number");
        let mut threads: Vec<Vec<(u64, u64)>> = Vec::new();
        for line in lines {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            let [process, offset, len] = numbers[..] else { panic!("{line}") };
            threads.resize((process as usize + 1).max(threads.len()), Vec::new());
            // The kernel asks for whole pages, even at the end.
            threads[process as usize].push((offset, len.min(size - offset)));
        }
        Trace { name, size, threads }
    };
    vec![
        parse("tar (rec.)", include_str!("../traces/tar.txt")),
        parse("interleaved (rec.)", include_str!("../traces/interleaved.txt")),
        parse("safetensors (rec.)", include_str!("../traces/safetensors.txt")),
        parse("torch.load (rec.)", include_str!("../traces/torch-load.txt")),
        parse("npz (rec.)", include_str!("../traces/npz.txt")),
        parse("parquet (rec.)", include_str!("../traces/parquet.txt")),
    ]
}

/// The result of a run.
struct Outcome {
    read: u64,
    fetched: u64,
    requests: u64,
    peak: u64,
    seconds: f64,
}

impl Outcome {
    fn rate(&self) -> f64 {
        self.read as f64 / self.seconds
    }

    fn waste(&self) -> f64 {
        self.fetched as f64 / self.read as f64
    }
}

/// The pace of a reader that never waits, in bytes a second.
const PACE: f64 = 4e9;

/// Reads at the reader's own pace while it does not wait. `done` counts the bytes.
async fn read_all(
    reader: Arc<ObjectReader>,
    reads: impl IntoIterator<Item = (u64, u64)>,
    done: Arc<AtomicU64>,
) {
    let mut owed = 0.0;
    for (offset, len) in reads {
        let (answer, answered) = oneshot::channel();
        reader.read(offset, len as usize, move |result| {
            let read = result.map(<[u8]>::len).map_err(|error| error.to_string());
            answer.send(read).expect("the trace waits");
        });
        assert_eq!(answered.await.expect("an answer"), Ok(len as usize), "at {offset}");
        done.fetch_add(len, Ordering::Relaxed);
        // The clock ticks in milliseconds.
        owed += len as f64 / PACE;
        if owed >= 0.002 {
            sleep(Duration::from_secs_f64(owed)).await;
            owed = 0.0;
        }
    }
}

/// A mount in front of a simulated store.
struct Bed {
    store: Arc<SimulatedStore>,
    pool: BufferPool,
    prefetcher: Prefetcher,
}

impl Bed {
    fn new(model: Model, memory: u64) -> Self {
        let store = Arc::new(SimulatedStore::new(model));
        let pool = BufferPool::new(MemoryBudget::new(memory)).expect("a pool");
        let config =
            PrefetchConfig { max_window_bytes: (memory / 4 * 3).min(2 * GIB), ..PrefetchConfig::default() };
        let prefetcher = Prefetcher::new(store.clone(), pool.clone(), config, &Handle::current());
        Self { store, pool, prefetcher }
    }

    fn open(&self, key: &str, size: u64) -> Arc<ObjectReader> {
        self.prefetcher.open(&self.store.inner.object(key), size)
    }

    /// Opens a file as a program does.
    fn handle(&self, key: &str, size: u64) -> OpenReader {
        self.prefetcher.handle(self.open(key, size))
    }

    fn cancelled(&self) -> u64 {
        self.store.cancelled.load(Ordering::Relaxed)
    }

    fn fetched(&self) -> u64 {
        self.store.fetched.load(Ordering::Relaxed)
    }
}

/// Runs in one thread with a paused clock: time passes only when all tasks wait, so every run is the same.
fn simulate<T>(model: Model, memory: u64, body: impl AsyncFnOnce(&Bed) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async { body(&Bed::new(model, memory)).await })
}

fn run(trace: &Trace, model: Model, memory: u64) -> Outcome {
    simulate(model, memory, async |bed| {
        let reader = bed.open("k", trace.size);
        let (watched, peak) = (bed.pool.clone(), Arc::new(AtomicU64::new(0)));
        let seen = peak.clone();
        let watch = tokio::spawn(async move {
            loop {
                seen.fetch_max(watched.budget().used_bytes(), Ordering::Relaxed);
                sleep(Duration::from_millis(1)).await;
            }
        });
        let start = Instant::now();
        let done = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = trace
            .threads
            .iter()
            .map(|reads| tokio::spawn(read_all(reader.clone(), reads.clone(), done.clone())))
            .collect();
        for thread in threads {
            thread.await.expect("a reader");
        }
        let seconds = start.elapsed().as_secs_f64();
        watch.abort();
        Outcome {
            read: done.load(Ordering::Relaxed),
            fetched: bed.fetched(),
            requests: bed.store.requests.load(Ordering::Relaxed),
            peak: peak.load(Ordering::Relaxed),
            seconds,
        }
    })
}

#[test]
fn loaders_over_stores() {
    println!(
        "{:<18} {:<18} {:>7} {:>6} {:>7} {:>6} {:>9}",
        "trace", "store", "memory", "GB/s", "f/read", "reqs", "peak MiB"
    );
    let traces = [shard(), divided(), safetensors(), parquet(), records()].into_iter().chain(recorded());
    for trace in traces {
        for model in MODELS {
            for memory in [128 * MIB, GIB, 4 * GIB] {
                let outcome = run(&trace, model, memory);
                println!(
                    "{:<18} {:<18} {:>7} {:>6.2} {:>7.2} {:>6} {:>9}",
                    trace.name,
                    model.name,
                    memory / MIB,
                    outcome.rate() / 1e9,
                    outcome.waste(),
                    outcome.requests,
                    outcome.peak / MIB,
                );
                assert!(outcome.peak <= memory);
                let reads: usize = trace.threads.iter().map(Vec::len).sum();
                assert!(outcome.requests <= 2 * reads as u64, "{} GETs for {reads} reads", outcome.requests);
            }
        }
    }
}

/// The rate as a share of what the link and the reader allow.
fn efficiency(trace: &Trace, model: Model, memory: u64) -> f64 {
    run(trace, model, memory).rate() / model.link.min(PACE)
}

#[test]
fn a_shard_streams_at_the_link_s_speed() {
    let [near, s3, fast, far] = MODELS;
    for (model, memory, least) in [
        (near, 256 * MIB, 0.8),
        (s3, GIB, 0.5),
        (s3, 256 * MIB, 0.3),
        (fast, 4 * GIB, 0.4),
        (far, 2 * GIB, 0.3),
    ] {
        let reached = efficiency(&shard(), model, memory);
        assert!(reached >= least, "{}: {reached:.2}", model.name);
    }
}

#[test]
fn nothing_is_fetched_twice_or_in_vain() {
    for model in MODELS {
        for (trace, most) in [(shard(), 1.02), (divided(), 1.02), (safetensors(), 1.1), (records(), 1.9)] {
            let waste = run(&trace, model, GIB).waste();
            assert!(waste <= most, "{}, {}: {waste:.3}", trace.name, model.name);
        }
        // A stream's window is at most three times as long as what it has read. So short streams cost the
        // most: arrays of 8 MiB taken out of a zip.
        for (trace, most) in recorded().iter().zip([1.02, 1.15, 1.2, 1.02, 3.0, 1.5]) {
            let waste = run(trace, model, GIB).waste();
            assert!(waste <= most, "{}, {}: {waste:.3}", trace.name, model.name);
        }
    }
}

/// Reads shards of `size` bytes one after another, in the order of a folder's names. When a reader comes near
/// a shard's end, it learns which shard follows. Returns what [`shards`] returns.
async fn shards_in_order(bed: &Bed, readers: u64, each: u64, size: u64) -> (f64, f64) {
    let (start, fetched) = (Instant::now(), bed.fetched());
    let loops = (0..readers).map(async |reader| {
        let open = |turn: u64| bed.open(&format!("d/{reader}-{turn}.tar"), size);
        // The shards that are open, or expected.
        let mut objects = VecDeque::from([open(0)]);
        for turn in 0..each {
            let object = objects[0].clone();
            for read in forward(0, size, MIB) {
                read_all(object.clone(), [read], Arc::default()).await;
                let next = turn + objects.len() as u64;
                if let Some(asked) = object.take_near_end().filter(|_| next < each) {
                    objects.push_back(open(next));
                    asked.go_on_with(objects.back().expect("was pushed"));
                }
            }
            objects.pop_front();
            if objects.is_empty() {
                objects.push_back(open(turn + 1));
            }
        }
    });
    futures::future::join_all(loops).await;
    let read = readers * each * size;
    (read as f64 / start.elapsed().as_secs_f64(), (bed.fetched() - fetched) as f64 / read as f64)
}

/// Each reader reads the first `bytes` of `each` files of `size` bytes, one after another. Returns the bytes
/// read a second, and the bytes fetched for each byte read.
async fn shards(bed: &Bed, readers: u64, each: u64, size: u64, bytes: u64) -> (f64, f64) {
    let (start, fetched) = (Instant::now(), bed.fetched());
    let reads = move || (0..bytes).step_by(MIB as usize).map(move |at| (at, MIB.min(bytes - at)));
    let loops = (0..readers).map(async |reader| {
        for turn in 0..each {
            let object = bed.open(&format!("d/{bytes}-{reader}-{turn}.tar"), size);
            read_all(object, reads(), Arc::default()).await;
        }
    });
    futures::future::join_all(loops).await;
    let read = readers * each * bytes;
    (read as f64 / start.elapsed().as_secs_f64(), (bed.fetched() - fetched) as f64 / read as f64)
}

/// How many bytes a second this many readers get, each of a huge object, once they have ramped.
fn ramped(model: Model, memory: u64, readers: u64) -> f64 {
    simulate(model, memory, async |bed| {
        let done = Arc::new(AtomicU64::new(0));
        for reader in 0..readers {
            let object = bed.open(&format!("huge/{reader}"), 1 << 40);
            tokio::spawn(read_all(object, (0..1 << 20).map(|at| (at * MIB, MIB)), done.clone()));
        }
        sleep(Duration::from_secs(3)).await;
        let (before, seconds) = (done.load(Ordering::Relaxed), 3);
        sleep(Duration::from_secs(seconds)).await;
        (done.load(Ordering::Relaxed) - before) as f64 / seconds as f64
    })
}

#[test]
fn a_fast_link_is_filled_by_default() {
    let fast = MODELS[2];
    let rate = ramped(fast, 8 * GIB, 16);
    println!("{} by 16 readers: {:.2} GB/s", fast.name, rate / 1e9);
    assert!(rate >= 0.95 * fast.link, "{rate}");
}

/// How much longer a stream takes for the first 2 GiB of a huge object than for as many bytes once it has
/// ramped. The unit is the round trip, the mean time to the first byte.
fn ramp_round_trips(model: Model, memory: u64) -> f64 {
    let bytes = 2 * GIB;
    let seconds = simulate(model, memory, async |bed| {
        let object = bed.open("huge", 1 << 40);
        let start = Instant::now();
        let read = |from: u64| read_all(object.clone(), forward(from, from + bytes, MIB), Arc::default());
        read(0).await;
        let first = start.elapsed();
        read(bytes).await;
        let before = start.elapsed();
        read(2 * bytes).await;
        read(3 * bytes).await;
        first.as_secs_f64() - (start.elapsed() - before).as_secs_f64() / 2.0
    });
    seconds / (model.first_byte_ms / 1e3 * 0.125_f64.exp())
}

#[test]
fn a_lone_stream_far_away_ramps_in_about_six_round_trips() {
    for mbits in [1e3, 1e4] {
        // The stores differ a little, and the mean over them is judged, because in each store other GETs are
        // slow.
        let trips =
            [180.0, 190.0, 200.0, 210.0, 220.0].map(|ms| ramp_round_trips(link(mbits * 125e3, ms), GIB));
        println!("{mbits:>8} Mbit/s, 200 ms: {trips:5.1?} round trips");
        assert!(trips.iter().sum::<f64>() / 5.0 <= 6.2, "{mbits} Mbit/s: {trips:.1?}");
    }
}

#[test]
fn a_loader_of_shards_ramps_once() {
    let s3 = MODELS[1];
    println!(
        "{:>8} {:>9} {:>7} {:>7} {:>6} {:>7}",
        "readers", "shard MiB", "GB/s", "ramped", "share", "f/read"
    );
    for (readers, least) in [(1, [0.18, 0.35, 0.7]), (4, [0.5, 0.85, 0.85]), (16, [0.85; 3])] {
        let most = ramped(s3, GIB, readers);
        for (size, least) in [64 * MIB, 256 * MIB, GIB].into_iter().zip(least) {
            let each = (16 * GIB / size / readers).clamp(3, 32);
            let (rate, waste) = simulate(s3, GIB, async |bed| shards(bed, readers, each, size, size).await);
            let share = rate / most;
            println!(
                "{readers:>8} {:>9} {:>7.2} {:>7.2} {share:>6.2} {waste:>7.2}",
                size / MIB,
                rate / 1e9,
                most / 1e9
            );
            assert!(share >= least && waste <= 1.05, "{readers} of {size}: {share:.2}, {waste:.2} fetched");
        }
    }
}

#[test]
fn a_loader_of_shards_in_order_reads_them_as_one_stream() {
    let s3 = MODELS[1];
    println!("in order, share of one object that is ramped");
    for readers in [1, 4, 16] {
        let most = ramped(s3, GIB, readers);
        for size in [64 * MIB, 256 * MIB, GIB] {
            let each = (16 * GIB / size / readers).clamp(3, 96);
            let (rate, waste) =
                simulate(s3, GIB, async |bed| shards_in_order(bed, readers, each, size).await);
            let share = rate / most;
            println!("{readers:>8} {:>9} {:>7.2} {share:>14.2} {waste:>7.2}", size / MIB, rate / 1e9);
            assert!(share >= 0.85 && waste <= 1.05, "{readers} of {size}: {share:.2}, {waste:.2} fetched");
        }
    }
}

#[test]
fn readers_of_headers_fetch_little_and_a_job_may_change() {
    let header = 64 * KIB;
    simulate(MODELS[1], GIB, async |bed| {
        let headers = async |count| shards(bed, 1, count, GIB, header).await.1 * header as f64;
        let files = async |count| shards(bed, 1, count, 64 * MIB, 64 * MIB).await;
        let first = headers(4).await;
        assert!(first <= 2.0 * MIB as f64, "{first} bytes a header");
        let learnt = headers(1000).await;
        assert!(learnt <= 256.0 * KIB as f64, "{learnt} bytes a header");
        // Whole files follow headers. From the fifth on, they are fetched as if there had been no headers.
        files(4).await;
        let (rate, waste) = files(8).await;
        assert!(rate > 4e8 && waste <= 1.05, "{rate}, {waste} fetched");
        // Headers follow again. The first one costs a window. After four of them, headers are expected again.
        let (first, more) = (headers(1).await, headers(3).await);
        assert!(first <= 513.0 * MIB as f64 && more <= 2.0 * MIB as f64, "{first}, then {more}");
        let learnt = headers(100).await;
        assert!(learnt <= 256.0 * KIB as f64, "{learnt} bytes a header");
    });
}

#[test]
fn two_short_readers_of_one_file_leave_little_unread() {
    let threads = [0, GIB].map(|start| forward(start, start + 48 * MIB, MIB)).into();
    let trace = Trace { name: "two of 48 MiB", size: 16 * GIB, threads };
    let waste = run(&trace, MODELS[0], GIB).waste();
    assert!(waste <= 1.5, "{waste:.2}");
}

/// A link of this many bytes a second to a store that is this many milliseconds away.
fn link(bytes_per_second: f64, first_byte_ms: f64) -> Model {
    let connection = if first_byte_ms > 1.0 { 9e7 } else { 1e9 };
    Model::new("", first_byte_ms, connection, bytes_per_second)
}
