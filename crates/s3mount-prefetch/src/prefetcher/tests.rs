//! Tests of what all readers share: their shares of the memory, and which memory is given back first.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{GetAnswer, GetObject, ObjectClient, ObjectError, PartBuffer};
use s3mount_testkit::{NullClient, mix};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::readers::reclaim::{Spare, SpareParts};
use crate::sync::Ordering;
use crate::{ObjectReader, PrefetchConfig, Prefetcher};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A store that answers each GET after 25 ms.
#[derive(Debug)]
struct Far(NullClient);

#[deny(clippy::missing_trait_methods)]
impl ObjectClient for Far {
    fn get_object(
        &self,
        request: GetObject,
        into: Box<dyn PartBuffer>,
    ) -> BoxFuture<'_, Result<GetAnswer, ObjectError>> {
        async move {
            sleep(Duration::from_millis(25)).await;
            self.0.get_object(request, into).await
        }
        .boxed()
    }

    s3mount_testkit::delegate_metadata!(0);
}

/// Runs `test` with a clock that advances only when all tasks wait.
fn check<F: Future<Output = ()>>(memory: u64, test: impl FnOnce(Prefetcher, Arc<Far>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let client = Arc::new(Far(NullClient::new([])));
        let pool = BufferPool::new(MemoryBudget::new(memory)).expect("a pool");
        // Memory is short, and connections are not.
        let config = PrefetchConfig { hedge_share: 0.0, max_requests: 256, ..PrefetchConfig::default() };
        test(Prefetcher::new(client.clone(), pool, config, &Handle::current()), client).await;
    });
}

async fn read(reader: &ObjectReader, offset: u64, len: u64) {
    let (answer, answered) = oneshot::channel();
    reader.read(offset, len as usize, move |result| {
        answer.send(result.map(<[u8]>::len).ok()).expect("the test waits");
    });
    assert_eq!(answered.await.expect("an answer"), Some(len as usize));
}

/// The kernel closes a file once it has the answers of all reads.
#[test]
fn what_a_killed_reader_has_waited_for_is_not_fetched() {
    check(512 * MIB, async |prefetcher, client| {
        for has_others in [false, true] {
            let reader = prefetcher.open(&client.0.object(&has_others.to_string()), GIB);
            let handle = prefetcher.handle(reader.clone());
            if has_others {
                reader.read_without_handle();
            }
            let (answer, answered) = oneshot::channel();
            reader.read(0, 4096, move |result| {
                answer.send(result.map(<[u8]>::len).ok()).expect("the test waits");
            });
            drop(handle);
            assert_eq!(answered.await.expect("an answer"), has_others.then_some(4096));
            sleep(Duration::from_secs(1)).await;
            assert_eq!(prefetcher.metrics().get_requests.get(), u64::from(has_others));
        }
    });
}

#[test]
fn open_small_files_take_no_share() {
    check(512 * MIB, async |prefetcher, client| {
        let big = prefetcher.open(&client.0.object("big"), GIB);
        for turn in 0..64 {
            read(&big, turn * MIB, MIB).await;
        }
        let alone = prefetcher.shared.stream_share_bytes();
        let small: Vec<_> = (0..200)
            .map(|number| prefetcher.open(&client.0.object(&format!("small {number}")), 100 * KIB))
            .collect();
        join_all(small.iter().map(|reader| read(reader, 0, 4 * KIB))).await;
        assert_eq!(prefetcher.shared.stream_share_bytes(), alone, "of {} MiB", alone / MIB);
        assert_eq!(prefetcher.shared.active_streams.load(Ordering::Relaxed), 1);
        // An object that is not fetched whole takes one.
        let other = prefetcher.open(&client.0.object("other"), GIB);
        read(&other, 0, MIB).await;
        assert!(prefetcher.shared.stream_share_bytes() <= alone / 2);
    });
}

#[test]
fn many_streams_share_no_more_than_the_link_brings() {
    check(4 * GIB, async |prefetcher, _| {
        let shared = &prefetcher.shared;
        let share = |streams| {
            shared.active_streams.store(streams, Ordering::Relaxed);
            shared.stream_share_bytes() / MIB
        };
        assert_eq!([1, 2, 64, 128].map(share), [3584, 256, 16, 16], "nothing is known of the link");
        // 10 GB/s, and 118 ms for a part: 1.2 GB are on their way.
        for _ in 0..1250 {
            shared.latencies.note(8 * MIB, Duration::from_millis(118));
            shared.latencies.link.on_sent(8 * MIB, Duration::ZERO).on_landed(Duration::from_millis(118));
        }
        shared.latencies.age(Duration::from_secs(1));
        assert_eq!(share(1), 3584, "all of the memory");
        let [two, many] = [2, 32].map(share);
        assert!((1170..=1210).contains(&two) && (72..=76).contains(&many), "{two} and {many} MiB");
        shared.active_streams.store(0, Ordering::Relaxed);
    });
}

#[test]
fn what_is_here_goes_before_what_is_on_its_way_and_small_parts_first() {
    check(512 * MIB, async |prefetcher, client| {
        let reader = prefetcher.open(&client.0.object("k"), GIB);
        for (start, len) in [(0, 8 * MIB), (16 * MIB, MIB)] {
            assert!(reader.fetch_ahead(Some((start, len))).is_some());
        }
        sleep(Duration::from_secs(1)).await;
        assert!(reader.fetch_ahead(Some((32 * MIB, MIB))).is_some());
        let parts = |bytes, least_bytes| SpareParts { bytes, least_bytes };
        let spare = |ready, in_flight| Spare { ready, in_flight, has_holders: false };
        let (none, in_flight) = (SpareParts::default(), parts(MIB, MIB));
        assert_eq!(reader.visit(), (0, spare(parts(9 * MIB, MIB), in_flight)));
        assert_eq!(reader.drop_far_end(true, 128 * KIB), (MIB, spare(parts(8 * MIB, 8 * MIB), in_flight)));
        assert_eq!(reader.drop_far_end(true, 128 * KIB), (8 * MIB, spare(none, in_flight)));
        assert_eq!(reader.drop_far_end(true, 128 * KIB), (0, spare(none, in_flight)));
        assert_eq!(reader.drop_far_end(false, 128 * KIB), (MIB, Spare::default()));
    });
}

/// With 1,000 files open, 64 readers wait: half of them read streams, the other half read at random. Returns
/// the time that all took.
async fn many_wait(prefetcher: &Prefetcher, client: &Far) -> Duration {
    let readers: Vec<_> =
        (0..1000).map(|number| prefetcher.open(&client.0.object(&format!("k{number}")), GIB)).collect();
    for reader in &readers {
        read(reader, 0, 64 * KIB).await;
    }
    let (start, readers) = (Instant::now(), &readers);
    join_all((0..64).map(|waiter: u64| async move {
        for turn in 0..100 {
            let random = mix(waiter << 32 | turn);
            if waiter.is_multiple_of(2) {
                read(&readers[waiter as usize], (turn + 1) * MIB, MIB).await;
            } else {
                let reader = &readers[random as usize % readers.len()];
                read(reader, random / 1000 % (GIB - MIB), 128 * KIB).await;
            }
        }
    }))
    .await;
    start.elapsed()
}

#[test]
fn reclaim_of_many_waiters_looks_at_few_readers() {
    check(256 * MIB, async |prefetcher, client| {
        let elapsed = many_wait(&prefetcher, &client).await;
        let (books, metrics) = (&prefetcher.readers.books, prefetcher.metrics());
        let (gets, reads) = (metrics.get_requests.get(), metrics.reads.get());
        let visits = books.visits.load(Ordering::Relaxed);
        let dropped = books.dropped_bytes.load(Ordering::Relaxed);
        println!("{visits} visits for {gets} GETs, {} MiB dropped, {elapsed:?}", dropped / MIB);
        assert!(visits >= 1000, "memory was short");
        // Only a read or a GET changes a reader.
        assert!(visits <= gets + reads, "{visits} visits");
        // Of 3,600 MiB that are read. Which readers give differs in each run: 240 to 320 MiB.
        assert!(dropped <= 450 * MIB, "{} MiB were dropped", dropped / MIB);
        assert!(elapsed <= Duration::from_secs(3), "{elapsed:?}");
    });
}

#[test]
fn a_large_part_in_flight_stays_while_others_have_small_ones() {
    check(64 * MIB, async |prefetcher, client| {
        let [large, small, third] = ["large", "small", "third"].map(|key| client.0.object(key));
        let [large, small, third] = [large, small, third].map(|object| prefetcher.open(&object, GIB));
        for turn in 0..5 {
            assert!(large.fetch_ahead(Some((turn * 8 * MIB, 8 * MIB))).is_some());
        }
        let parts = (0..).take_while(|turn| small.fetch_ahead(Some((turn * 2 * MIB, MIB))).is_some()).count();
        assert_eq!(parts, 20, "and 4 MiB are left to those who wait");
        join_all((0..40).map(|turn| read(&third, turn * 20 * MIB, 128 * KIB))).await;
        assert!(prefetcher.metrics().waits.get() >= 40, "all were on their way at once");
        let dropped = prefetcher.readers.books.dropped_bytes.load(Ordering::Relaxed);
        assert!((MIB..=4 * MIB).contains(&dropped), "{dropped}");
        assert_eq!(large.visit().1.ready, SpareParts { bytes: 40 * MIB, least_bytes: 8 * MIB });
    });
}

#[test]
fn hinted_bytes_given_back_for_want_of_memory_are_still_unread() {
    check(64 * MIB, async |prefetcher, client| {
        let hinted = prefetcher.open(&client.0.object("hinted"), GIB);
        let ranges: Vec<_> =
            (1..5).filter_map(|turn| hinted.fetch_ahead(Some((turn * 100 * MIB, MIB)))).collect();
        sleep(Duration::from_secs(1)).await;
        read(&hinted, 100 * MIB, MIB).await;
        assert!(hinted.drop_far_end(true, MIB).0 > 0);
        while hinted.drop_far_end(true, MIB).0 > 0 {}
        let unread: Vec<_> = ranges.iter().map(|range| hinted.is_unread(*range)).collect();
        assert_eq!(unread, [false, true, true, true], "the first was read");
        // A hinted range is not unread any more when its reader has fetched it, or when it is let go of.
        read(&hinted, 200 * MIB, MIB).await;
        hinted.let_go(ranges[2]);
        let unread: Vec<_> = ranges.iter().map(|range| hinted.is_unread(*range)).collect();
        assert_eq!(unread, [false, false, false, true]);
    });
}
