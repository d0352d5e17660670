//! When unanswered reads fail, in virtual time. Each read has its own deadline, no matter which GETs it waits for, and
//! when they were sent.

use std::sync::Arc;
use std::time::Duration;

use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::ErrorKind;
use s3mount_prefetch::{ObjectReader, PrefetchConfig, Prefetcher, ReadError};
use s3mount_testkit::MemoryClient;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

const MIB: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(20);

/// The answer of a read, and the milliseconds that it took.
type Answer = (Result<usize, ReadError>, u128);

/// Starts a read at 100 MiB.
fn start(reader: &ObjectReader, len: u64) -> oneshot::Receiver<Answer> {
    start_at(reader, 100 * MIB, len)
}

fn start_at(reader: &ObjectReader, offset: u64, len: u64) -> oneshot::Receiver<Answer> {
    let (since, (answer, answered)) = (Instant::now(), oneshot::channel());
    reader.read(offset, len as usize, move |result| {
        let came = (result.map(<[u8]>::len), since.elapsed().as_millis());
        answer.send(came).expect("the test waits");
    });
    answered
}

async fn times_out(answered: oneshot::Receiver<Answer>, within: std::ops::RangeInclusive<u128>) {
    let (result, millis) = answered.await.expect("an answer");
    assert!(matches!(result, Err(ReadError::TimedOut(_))), "{result:?}");
    assert!(within.contains(&millis), "after {millis} ms");
}

/// Runs `test` with a reader of an object of 1 GiB. The clock advances only when all tasks wait.
fn check(test: impl AsyncFnOnce(&MemoryClient, &ObjectReader)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let client = Arc::new(MemoryClient::new());
        let pool = BufferPool::new(MemoryBudget::new(64 * MIB)).expect("a pool");
        let config = PrefetchConfig { read_timeout: TIMEOUT, hedge_share: 0.0, ..PrefetchConfig::default() };
        let prefetcher = Prefetcher::new(client.clone(), pool, config, &Handle::current());
        let object = client.put_synthetic("k", 1 << 30);
        test(&client, &prefetcher.open(&object, 1 << 30)).await;
    });
}

fn fetch_ahead(reader: &ObjectReader) {
    assert!(reader.fetch_ahead(Some((100 * MIB, MIB))).is_some());
}

#[test]
fn who_joins_an_old_get_has_all_of_the_time() {
    check(async |client, reader| {
        client.freeze(true);
        fetch_ahead(reader);
        sleep(Duration::from_secs(15)).await;
        let first = start(reader, 4096);
        sleep(Duration::from_secs(10)).await;
        let second = start(reader, 4096);
        times_out(first, 20_000..=20_010).await;
        times_out(second, 20_000..=20_010).await;
    });
    check(async |client, reader| {
        client.freeze(true);
        fetch_ahead(reader);
        sleep(Duration::from_secs(15)).await;
        let joined = start(reader, 4096);
        sleep(Duration::from_secs(15)).await;
        client.freeze(false);
        let (result, millis) = joined.await.expect("an answer");
        assert_eq!(result.expect("bytes"), 4096);
        assert!(millis < 20_000);
    });
}

#[test]
fn a_read_of_several_gets_has_one_deadline() {
    check(async |client, reader| {
        client.stall_next([7, 100, 100, 100, 100, 100].map(Duration::from_secs));
        fetch_ahead(reader);
        // The first GET lands after 7 s. Then the rest is asked for.
        times_out(start(reader, 2 * MIB), 20_000..=20_260).await;
        assert!(client.requests().get >= 2);
    });
}

#[test]
fn who_has_waited_longest_fails_first_and_alone() {
    check(async |client, reader| {
        client.freeze(true);
        let first = start(reader, 4096);
        sleep(Duration::from_secs(12)).await;
        let second = start(reader, 4096);
        times_out(first, 20_000..=20_010).await;
        // After a failed readahead, the kernel asks once more for its first page.
        times_out(start(reader, 4096), 0..=1).await;
        // Another read of the same GET has its own time.
        let other = start_at(reader, 100 * MIB + 8192, 4096);
        times_out(second, 20_000..=20_010).await;
        times_out(other, 20_000..=20_260).await;
    });
}

#[test]
fn who_comes_while_a_get_fails_for_good_has_it_tried_again() {
    check(async |client, reader| {
        client.fail_all(Some(ErrorKind::Server));
        let first = start(reader, 4096);
        sleep(Duration::from_millis(19_900)).await;
        let second = start(reader, 4096);
        assert!(first.await.expect("an answer").0.is_err());
        let (result, millis) = second.await.expect("an answer");
        assert!(result.is_err() && (14_000..=20_010).contains(&millis), "{result:?} after {millis} ms");
    });
}
