//! Readers over a client in memory: their bytes are right, and their GETs and bytes are counted.
#![expect(clippy::disallowed_methods, reason = "a test waits for other threads")]

use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use proptest::prelude::*;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ErrorKind, ObjectId};
use s3mount_prefetch::{ObjectReader, PrefetchConfig, Prefetcher, ReadError};
use s3mount_testkit::{MemoryClient, check, content, mix};
use tokio::runtime::Runtime;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const LIMIT: Duration = Duration::from_secs(100);

struct Bed {
    client: Arc<MemoryClient>,
    pool: BufferPool,
    prefetcher: Prefetcher,
    _runtime: Runtime,
}

/// A configuration without second GETs. On a slow machine, second GETs would be sent and counted.
fn quiet() -> PrefetchConfig {
    PrefetchConfig { hedge_share: 0.0, ..PrefetchConfig::default() }
}

fn bed(memory_bytes: u64, config: PrefetchConfig) -> Bed {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = Arc::new(MemoryClient::new());
    let pool = BufferPool::new(MemoryBudget::new(memory_bytes)).expect("a pool");
    let prefetcher = Prefetcher::new(client.clone(), pool.clone(), config, runtime.handle());
    Bed { client, pool, prefetcher, _runtime: runtime }
}

impl Bed {
    fn open(&self, key: &str, size: u64) -> (Arc<ObjectReader>, ObjectId) {
        let object = self.client.put_synthetic(key, size);
        (self.prefetcher.open(&object, size), object)
    }

    fn fetched(&self) -> u64 {
        self.client.take_ranges().into_iter().map(|(_, range)| range.end - range.start).sum()
    }

    /// Waits until no GET is in flight.
    fn settle(&self) {
        for _ in 0..3000 {
            if self.client.running().0 == 0 {
                std::thread::sleep(Duration::from_millis(5));
                if self.client.running().0 == 0 {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("GETs are still in flight");
    }

    fn wait_for_memory(&self, bytes: u64) {
        for _ in 0..1000 {
            if self.pool.budget().used_bytes() <= bytes {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} bytes are still reserved", self.pool.budget().used_bytes());
    }
}

/// Starts a read. The answer is checked when it is received.
fn start(reader: &ObjectReader, offset: u64, len: usize) -> mpsc::Receiver<Result<Vec<u8>, ReadError>> {
    let (send, receive) = mpsc::channel();
    reader.read(offset, len, move |result| {
        // A failed test no longer listens.
        let _ = send.send(result.map(<[u8]>::to_vec));
    });
    receive
}

fn read(reader: &ObjectReader, offset: u64, len: usize) -> Result<Vec<u8>, ReadError> {
    start(reader, offset, len).recv_timeout(LIMIT).expect("an answer in time")
}

fn read_checked(reader: &ObjectReader, offset: u64, len: usize) {
    let bytes = read(reader, offset, len).expect("bytes");
    let want = reader.size().saturating_sub(offset).min(len as u64);
    assert_eq!(bytes.len() as u64, want, "at {offset}");
    check(reader.object().key(), offset, &bytes).expect("right bytes");
}

#[test]
fn a_whole_object_is_fetched_once() {
    for step in [4096, 100_000, 128 << 10, 1 << 20, 3 << 20] {
        let bed = bed(256 * MIB, quiet());
        let size = 40 * MIB + 12_345;
        let (reader, _) = bed.open("k", size);
        for offset in (0..size).step_by(step) {
            read_checked(&reader, offset, step);
        }
        bed.settle();
        assert_eq!(bed.fetched(), size, "in steps of {step}");
        drop(reader);
        bed.wait_for_memory(0);
    }
}

#[test]
fn behind_the_end_is_nothing() {
    let bed = bed(64 * MIB, quiet());
    let (reader, _) = bed.open("k", 1000);
    assert_eq!(read(&reader, 1000, 10).expect("nothing"), b"");
    assert_eq!(read(&reader, u64::MAX, 10).expect("nothing"), b"");
    assert_eq!(bed.fetched(), 0);
    read_checked(&reader, 990, 100);
    assert_eq!(bed.client.take_ranges(), [("k".to_owned(), 0..1000)], "a small object comes whole");
}

#[test]
fn random_reads_fetch_what_they_ask_for() {
    let bed = bed(256 * MIB, quiet());
    let (reader, _) = bed.open("k", 1024 * MIB);
    let block = 128 << 10;
    for index in 1..100u64 {
        let offset = mix(index) % (1000 * MIB) + MIB;
        read_checked(&reader, offset, 4096);
        bed.settle();
        let ranges = bed.client.take_ranges();
        let [(_, Range { start, end })] = &ranges[..] else { panic!("one GET: {ranges:?}") };
        assert!(*start <= offset && offset + 4096 <= *end && end - start <= 2 * block, "{ranges:?}");
        read_checked(&reader, offset, 4096);
        assert_eq!(bed.fetched(), 0, "the block is cached");
    }
}

#[test]
fn many_readers_of_one_place_share_one_fetch() {
    let bed = bed(256 * MIB, quiet());
    let (reader, object) = bed.open("k", 64 * MIB);
    bed.client.freeze(true);
    let answers: Vec<_> = (0..32).map(|_| start(&reader, 32 * MIB, 65_536)).collect();
    let again = bed.prefetcher.open(&object, 64 * MIB);
    assert!(Arc::ptr_eq(&reader, &again), "one reader for each version");
    bed.client.freeze(false);
    for answer in answers {
        let bytes = answer.recv_timeout(LIMIT).expect("in time").expect("bytes");
        check("k", 32 * MIB, &bytes).expect("right bytes");
    }
    let ahead = bed.client.take_ranges();
    assert_eq!(ahead.iter().filter(|(_, range)| range.contains(&(32 * MIB))).count(), 1, "{ahead:?}");
}

#[test]
fn interleaved_readers_fetch_each_byte_once() {
    let bed = bed(256 * MIB, quiet());
    let size = 128 * MIB;
    let (reader, _) = bed.open("k", size);
    let half = size / 2;
    for offset in (0..half).step_by(MIB as usize) {
        read_checked(&reader, offset, MIB as usize);
        read_checked(&reader, half + offset, MIB as usize);
    }
    bed.settle();
    let fetched = bed.fetched();
    assert!(fetched as f64 <= size as f64 * 1.05, "{fetched} bytes for {size}");
}

#[test]
fn who_reads_backwards_is_read_ahead_of_too() {
    let bed = bed(256 * MIB, quiet());
    let size = 100 * MIB + 12_345;
    let (reader, _) = bed.open("k", size);
    let starts: Vec<_> = (0..size).step_by(MIB as usize).collect();
    for start in starts.iter().rev() {
        read_checked(&reader, *start, MIB as usize);
    }
    bed.settle();
    assert_eq!(bed.fetched(), size);
    let gets = bed.client.take_ranges().len();
    assert!(gets < starts.len() / 2, "{gets} GETs for {} reads", starts.len());
}

#[test]
fn the_rest_of_a_window_comes_by_the_same_get() {
    let bed = bed(256 * MIB, quiet());
    let (reader, _) = bed.open("k", 1024 * MIB);
    // These are the page before the last one of a block, the page before that one, and a larger piece.
    for (offset, len, blocks) in [(120, 4, 2), (116, 4, 1), (64, 60, 1)] {
        let (send, receive) = mpsc::channel();
        reader.read_apart(MIB * (300 + offset) + offset * KIB, len * 1024, move |result| {
            let _ = send.send(result.map(<[u8]>::len));
        });
        assert_eq!(receive.recv_timeout(LIMIT).expect("an answer").expect("bytes"), len * 1024);
        bed.settle();
        assert_eq!((bed.client.take_requests().get, bed.fetched()), (1, blocks * 128 * KIB), "{offset}");
    }
}

#[test]
fn a_footer_and_what_it_points_to_are_random_reads() {
    let bed = bed(256 * MIB, quiet());
    let (reader, _) = bed.open("k", 100 * MIB);
    read_checked(&reader, 100 * MIB - 8, 8);
    read_checked(&reader, 100 * MIB - 5000, 4992);
    bed.settle();
    assert_eq!(bed.fetched(), 128 * KIB, "one unit");
}

#[test]
fn an_unread_window_is_all_that_is_wasted() {
    let bed = bed(256 * MIB, quiet());
    let (reader, _) = bed.open("k", 1024 * MIB);
    read_checked(&reader, 0, 4096);
    bed.settle();
    assert!(bed.fetched() <= 3 * MIB, "a header costs no more than the first window and a part");
}

#[test]
fn who_has_stopped_reading_for_a_minute_keeps_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let client = Arc::new(MemoryClient::new());
    let pool = BufferPool::new(MemoryBudget::new(64 * MIB)).expect("a pool");
    let prefetcher = Prefetcher::new(client.clone(), pool.clone(), quiet(), runtime.handle());
    let object = client.put_synthetic("huge", 1000 * MIB);
    let reader = prefetcher.open(&object, 1000 * MIB);
    let read = async |offset| {
        let (send, receive) = tokio::sync::oneshot::channel();
        reader.read(offset, MIB as usize, move |result| {
            send.send(result.map(<[u8]>::to_vec)).expect("somebody waits");
        });
        check("huge", offset, &receive.await.expect("an answer").expect("bytes")).expect("right bytes");
    };
    runtime.block_on(async {
        for turn in 0..20 {
            read(turn * MIB).await;
        }
        tokio::time::sleep(Duration::from_secs(50)).await;
        let (fetched, kept) = (prefetcher.metrics().fetched_bytes.get(), pool.budget().used_bytes());
        assert!(fetched > 20 * MIB, "something is ahead");
        tokio::time::sleep(Duration::from_secs(15)).await;
        // Bytes that were read a moment ago stay.
        assert_eq!(pool.budget().used_bytes(), kept - (fetched - 20 * MIB));
        // Dropped bytes are fetched again.
        for turn in 20..60 {
            read(turn * MIB).await;
        }
    });
}

#[test]
fn readers_go_on_in_whatever_memory_is_left_to_them() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = Arc::new(MemoryClient::new());
    let pool = BufferPool::new(MemoryBudget::between(16 * MIB, 128 * MIB)).expect("a pool");
    let prefetcher = Prefetcher::new(client.clone(), pool.clone(), quiet(), runtime.handle());
    let bed = Bed { client, pool, prefetcher, _runtime: runtime };
    let readers: Vec<_> = (0..6).map(|index| bed.open(&format!("k{index}"), 64 * MIB).0).collect();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading: Vec<_> = (0u64..)
            .zip(&readers)
            .map(|(index, reader)| {
                scope.spawn(move || {
                    for turn in 0..128 {
                        // The odd ones read at random.
                        let turn = if index.is_multiple_of(2) { turn } else { mix(index << 32 | turn) % 128 };
                        read_checked(reader, turn * MIB / 2, 512 * KIB as usize);
                    }
                })
            })
            .collect();
        let (prefetcher, is_over) = (&bed.prefetcher, &is_over);
        scope.spawn(move || {
            for turn in 0.. {
                prefetcher.set_memory_limit(mix(turn) % (160 * MIB));
                let memory = prefetcher.memory();
                assert!(memory.away_bytes + memory.limit_bytes <= memory.most_bytes);
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for thread in reading {
            thread.join().expect("right bytes");
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    // What is ahead of readers is theirs as long as it fits. What is cached gives way, also if a small piece of it keeps a
    // whole page.
    drop(readers);
    bed.prefetcher.set_memory_limit(16 * MIB);
    bed.settle();
    bed.wait_for_memory(16 * MIB);
    for _ in 0..3 {
        bed.prefetcher.set_memory_limit(16 * MIB);
    }
    let memory = bed.prefetcher.memory();
    assert_eq!((memory.limit_bytes, memory.away_bytes), (16 * MIB, 112 * MIB));
}

#[test]
fn little_memory_is_enough() {
    let bed = bed(8 * MIB, quiet());
    let readers: Vec<_> = (0..24).map(|index| bed.open(&format!("k{index}"), 6 * MIB).0).collect();
    std::thread::scope(|scope| {
        for reader in &readers {
            scope.spawn(|| {
                for offset in (0..reader.size()).step_by(300_000) {
                    read_checked(reader, offset, 300_000);
                }
            });
        }
    });
    assert!(bed.pool.budget().peak_bytes() <= 8 * MIB);
    drop(readers);
    bed.wait_for_memory(2 * MIB);
}

#[test]
fn failures_that_pass_are_not_seen() {
    let bed = bed(64 * MIB, quiet());
    let (reader, _) = bed.open("k", 4 * MIB);
    bed.client.fail_next([ErrorKind::Throttled, ErrorKind::Network, ErrorKind::Integrity]);
    read_checked(&reader, 0, 4096);
}

#[test]
fn a_slow_get_is_sent_again_within_the_budget() {
    let config = PrefetchConfig { hedge_share: 0.05, ..quiet() };
    let bed = bed(64 * MIB, config);
    let (reader, _) = bed.open("k", 1 << 30);
    let far_reads =
        |count: u64| (0..count).for_each(|turn| read_checked(&reader, (turn * 97 % 1000 + 1) * MIB, 10));
    far_reads(200);
    bed.client.take_requests();
    // Eight GETs would take a minute each. The budget has saved up eight second GETs.
    let stall = Duration::from_secs(60);
    for turn in 0..8 {
        bed.client.stall_next([stall]);
        let start = std::time::Instant::now();
        read_checked(&reader, (turn * 89 + 7) * MIB + MIB / 2, 10);
        assert!(start.elapsed() < stall, "a second GET has answered");
    }
    assert_eq!(bed.client.take_requests().get, 16);
    assert_eq!(bed.prefetcher.metrics().hedges.get(), 8);
    // The slower GET of each pair is cancelled.
    bed.settle();
}

#[test]
fn without_a_share_nothing_is_sent_twice() {
    let config = PrefetchConfig { hedge_share: 0.0, ..quiet() };
    let bed = bed(64 * MIB, config);
    let (reader, _) = bed.open("k", 1 << 30);
    read_checked(&reader, 500 * MIB, 10);
    bed.client.stall_next([Duration::from_millis(300)]);
    read_checked(&reader, 700 * MIB, 10);
    assert_eq!((bed.client.take_requests().get, bed.prefetcher.metrics().hedges.get()), (2, 0));
}

#[test]
fn failures_that_stay_reach_each_reader_and_are_not_repeated() {
    let bed = bed(64 * MIB, quiet());
    let (reader, _) = bed.open("k", 64 * MIB);
    bed.client.fail_next([ErrorKind::Forbidden]);
    let error = read(&reader, 20 * MIB, 10).expect_err("it is forbidden");
    assert!(!error.is_stale());
    bed.client.take_requests();
    read(&reader, 20 * MIB, 4096).expect_err("it was, just now");
    assert_eq!(bed.client.take_requests().get, 0);
    std::thread::sleep(Duration::from_millis(110));
    read_checked(&reader, 20 * MIB, 10);
    bed.settle();
    bed.client.take_requests();
    bed.client.put("k", "another version");
    let error = read(&reader, 40 * MIB, 10).expect_err("it was replaced");
    assert!(error.is_stale());
    let error = read(&reader, 50 * MIB, 10).expect_err("it still is");
    assert!(error.is_stale());
    assert_eq!(bed.client.take_requests().get, 1, "a stale reader asks no more");
}

#[test]
fn a_version_that_was_gone_by_mistake_is_read_by_who_opens_it_again() {
    let bed = bed(64 * MIB, quiet());
    let (first, object) = bed.open("k", 64 * MIB);
    let open = || bed.prefetcher.open(&object, 64 * MIB);
    let mut dead = vec![first];
    for kind in [ErrorKind::NotFound, ErrorKind::PreconditionFailed, ErrorKind::RangeNotSatisfiable] {
        let reader = open();
        read_checked(&reader, 10 * MIB, 10);
        bed.client.fail_next([kind]);
        assert!(read(&reader, 20 * MIB, 10).expect_err("it is gone").is_stale());
        assert!(read(&reader, 10 * MIB, 10).expect_err("nothing can be read any more").is_stale());
        dead.push(reader);
    }
    bed.client.fail_next([ErrorKind::NotFound]);
    let reader = open();
    assert!(reader.fetch_ahead(Some((40 * MIB, 10))).is_some());
    bed.settle();
    assert!(read(&reader, 50 * MIB, 10).expect_err("a GET ahead has found it gone").is_stale());
    let again = open();
    read_checked(&again, 20 * MIB, 10);
    // A dead reader holds nothing.
    drop(again);
    bed.wait_for_memory(2 * MIB);
    drop((reader, dead));
}

#[test]
fn a_store_that_is_silent_times_out() {
    let config = PrefetchConfig { read_timeout: Duration::from_secs(2), ..quiet() };
    let bed = bed(64 * MIB, config);
    let (reader, _) = bed.open("k", 64 * MIB);
    // The very first read also computes the content, which takes some time.
    content("k", 0, 1);
    bed.client.freeze(true);
    let error = read(&reader, 0, 10).expect_err("nobody answers");
    assert!(matches!(error, ReadError::TimedOut(_)), "{error}");
    bed.client.freeze(false);
    read_checked(&reader, MIB, 10);
}

#[test]
fn closing_cancels_and_gives_everything_back() {
    let bed = bed(256 * MIB, quiet());
    let (reader, _) = bed.open("k", 1024 * MIB);
    for offset in (0..32 * MIB).step_by(MIB as usize) {
        read_checked(&reader, offset, MIB as usize);
    }
    bed.client.freeze(true);
    read_checked(&reader, 31 * MIB, 10);
    assert!(bed.pool.budget().used_bytes() > 0);
    drop(reader);
    bed.wait_for_memory(0);
    assert_eq!(bed.prefetcher.open_readers(), 0);
}

#[derive(Clone, Debug)]
struct Step {
    offset: u64,
    len: usize,
    sequential: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u64..20 * MIB, 1usize..2 << 20, any::<bool>()).prop_map(|(offset, len, sequential)| Step {
        offset,
        len,
        sequential,
    });
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The bytes are right and the memory bound holds for reads in any order, even in little memory.
    #[test]
    fn any_order_any_memory(steps in steps(), memory in 4u64..40, size in 1u64..20 * MIB) {
        let bed = bed(memory * MIB, quiet());
        let (reader, _) = bed.open("k", size);
        let mut next = 0;
        let mut pending = Vec::new();
        for Step { offset, len, sequential } in steps {
            let offset = if sequential { next } else { offset };
            next = offset + len as u64;
            pending.push((offset, len, start(&reader, offset, len)));
            if pending.len() == 4 {
                for (offset, len, answer) in pending.drain(..) {
                    let bytes = answer.recv_timeout(LIMIT).expect("an answer in time").expect("bytes");
                    prop_assert_eq!(bytes.len() as u64, size.saturating_sub(offset).min(len as u64));
                    prop_assert_eq!(check("k", offset, &bytes), Ok(()));
                }
            }
        }
        prop_assert!(bed.pool.budget().peak_bytes() <= memory * MIB);
        drop(pending);
        drop(reader);
        bed.wait_for_memory(memory * MIB / 4 + MIB);
    }
}

#[test]
fn hinted_bytes_that_nobody_reads_are_given_back_though_the_object_stays_open() {
    let bed = bed(256 * MIB, quiet());
    let (reader, _) = bed.open("k", 100 * MIB);
    let hint = |at: u64| reader.fetch_ahead(Some((at, 100 * KIB))).expect("it is on its way");
    let [first, second] = [10, 20].map(|at| hint(at * MIB));
    bed.settle();
    let used = bed.pool.budget().used_bytes();
    reader.let_go(first);
    bed.wait_for_memory(used / 2);
    assert!(reader.is_unread(second));
    bed.client.take_ranges();
    read_checked(&reader, 20 * MIB, 100 << 10);
    assert_eq!(bed.fetched(), 0);
    read_checked(&reader, 10 * MIB, 100 << 10);
    assert!(bed.fetched() > 0, "it is fetched again");
    // GETs on their way are given up, too.
    bed.client.freeze(true);
    let third = hint(30 * MIB);
    reader.let_go(third);
    assert!(!reader.is_unread(third));
    bed.client.freeze(false);
}

#[test]
fn small_files_and_large_parts_are_counted_apart() {
    let started = |config: PrefetchConfig, sizes: &[u64]| {
        let bed = bed(GIB, config);
        bed.client.freeze(true);
        let start = |(kind, size): (usize, &u64)| {
            let readers = (0..100).map(|number| bed.open(&format!("{kind}/{number}"), *size).0);
            readers.filter(|reader| reader.fetch_ahead(None).is_some()).collect::<Vec<_>>()
        };
        // No reader, with its GET, is dropped before all GETs were counted.
        let readers: Vec<_> = sizes.iter().enumerate().map(start).collect();
        let counts: Vec<_> = readers.iter().map(Vec::len).collect();
        bed.client.freeze(false);
        counts
    };
    let few = |max_requests| PrefetchConfig { max_requests, ..quiet() };
    assert_eq!(started(quiet(), &[4 * KIB, GIB, 4 * KIB]), [56, 56, 0], "an eighth is kept");
    assert_eq!(started(few(80), &[4 * KIB, GIB]), [56, 14], "together they leave an eighth");
    assert_eq!(started(few(8), &[4 * KIB, GIB]), [7, 0]);
    let large = PrefetchConfig { part_bytes: MIB, initial_window_bytes: 2 * MIB, ..quiet() };
    assert_eq!(started(large, &[GIB]), [56]);
    let whole_parts = PrefetchConfig { initial_window_bytes: 8 * MIB, ..few(1) };
    assert_eq!(started(whole_parts, &[GIB]), [1], "of a whole part");
}
