//! Readers of one directory, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use s3mount_bucket::Bucket;
use s3mount_object::ErrorKind;
use s3mount_testkit::MemoryClient;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::listing::KEPT;
use super::{JOIN_WITHIN, ListingReader, SharedListings};
use crate::error::NamesError;
use crate::list::requests::ListRequests;

const LIST: Duration = Duration::from_millis(60);
const MINUTE: Duration = Duration::from_secs(60);

/// A directory `d/` with a number of names, and its listings.
struct Directory {
    client: Arc<MemoryClient>,
    listings: Arc<SharedListings>,
    prefix: Arc<str>,
}

fn directory(names: usize, ttl: Duration, most_bytes: usize) -> Directory {
    let client = Arc::new(MemoryClient::new());
    (0..names).for_each(|index| drop(client.put_synthetic(&format!("d/{index:06}"), 1)));
    client.set_latency(LIST);
    let requests = ListRequests::new(Bucket::from(client.clone()), MINUTE, None, Handle::current());
    let listings = SharedListings::new(Arc::new(requests), ttl, most_bytes);
    Directory { client, listings, prefix: "d/".into() }
}

impl Directory {
    async fn reader(&self) -> ListingReader {
        self.listings.read(&self.prefix, None).await
    }

    /// Reads the directory to its end. Returns how many names it has, each of which is there once and in order.
    async fn read(&self) -> Result<usize, NamesError> {
        count_from(0, &mut self.reader().await).await
    }

    fn lists(&self) -> usize {
        self.client.take_requests().list
    }

    fn readers(&self) -> usize {
        self.listings.of("d/").last().map_or(0, |listing| listing.readers())
    }
}

/// Reads the rest, which begins with the name with this number.
async fn count_from(mut index: usize, reader: &mut ListingReader) -> Result<usize, NamesError> {
    while let Some(taken) = reader.next(|_| {}).await? {
        for key in taken.page().keys() {
            assert_eq!(key, format!("{index:06}"));
            index += 1;
        }
    }
    assert!(reader.is_complete());
    Ok(index)
}

#[tokio::test(start_paused = true)]
async fn readers_that_come_together_cost_one_listing() {
    let of = directory(7000, MINUTE, 16 << 20);
    assert_eq!(of.read().await.ok(), Some(7000));
    let alone = of.lists();
    for counted in join_all((0..12).map(|_| of.read())).await {
        assert_eq!(counted.ok(), Some(7000));
    }
    assert_eq!((of.lists(), of.listings.bytes(), of.readers()), (alone, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_comes_within_a_second_has_all_names_and_who_comes_later_begins_anew() {
    let of = directory(400_000, MINUTE, 100 << 20);
    let late = async |after: Duration| {
        sleep(after).await;
        let mut reader = of.reader().await;
        let readers = of.readers();
        (readers, count_from(0, &mut reader).await.ok())
    };
    let (first, joined, own) =
        tokio::join!(of.read(), late(JOIN_WITHIN), late(JOIN_WITHIN + Duration::from_millis(1)));
    assert_eq!(first.ok(), Some(400_000));
    assert_eq!((joined, own), ((2, Some(400_000)), (1, Some(400_000))));
    assert!((800..=900).contains(&of.lists()), "two listings");
}

#[tokio::test(start_paused = true)]
async fn what_is_over_closed_or_not_to_be_believed_is_not_joined() {
    let of = directory(1500, MINUTE, 16 << 20);
    let mut first = of.reader().await;
    first.next(|_| {}).await.expect("a page");
    let second = of.reader().await;
    assert_eq!(of.readers(), 2);
    drop(second);
    of.listings.close("d/");
    let mut other = of.reader().await;
    assert_eq!((of.readers(), count_from(0, &mut other).await.ok()), (1, Some(1500)));
    let _third = of.reader().await;
    assert_eq!(of.readers(), 1, "the other has come to its end");
    of.listings.close_below("");
    let _fourth = of.reader().await;
    assert_eq!(of.readers(), 1);
    assert_eq!(count_from(1000, &mut first).await.ok(), Some(1500));
    let of = directory(1500, Duration::ZERO, 16 << 20);
    join_all((0..3).map(|_| of.read())).await;
    assert_eq!(of.lists(), 3 * 2);
}

#[tokio::test(start_paused = true)]
async fn nobody_joins_a_listing_that_an_older_one_has_overtaken() {
    let of = directory(5000, MINUTE, 16 << 20);
    let (mut old, _beside) = (of.reader().await, of.reader().await);
    old.next(|_| {}).await.expect("a page");
    sleep(JOIN_WITHIN * 2).await;
    let _new = of.reader().await;
    old.next(|_| {}).await.expect("a page");
    let _newest = of.reader().await;
    assert_eq!(
        of.readers(),
        1,
        "the old one has shown a page that is newer than the beginning of the new one"
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_killed_fails_nobody_else() {
    let of = directory(3000, MINUTE, 16 << 20);
    let killed = async { timeout(LIST / 2, of.read()).await.is_err() };
    let (killed, second, third) = tokio::join!(killed, of.read(), of.read());
    assert!(killed);
    assert_eq!((second.ok(), third.ok()), (Some(3000), Some(3000)));
    assert_eq!(of.lists(), 3, "the request of the first goes on");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_told_to_one_reader_and_the_others_try_again() {
    let of = directory(3000, MINUTE, 16 << 20);
    of.client.fail_next([ErrorKind::Forbidden]);
    let read = join_all((0..5).map(|_| of.read())).await;
    let failed = read.iter().filter(|counted| counted.is_err()).count();
    assert!(failed == 1 && read.into_iter().flatten().all(|counted| counted == 3000));
    assert_eq!(of.lists(), 4);
}

#[tokio::test(start_paused = true)]
async fn who_is_too_slow_goes_on_alone_and_holds_no_memory() {
    let of = directory(50_000, MINUTE, 200 << 10);
    let (mut slow, mut fast) = (of.reader().await, of.reader().await);
    slow.next(|_| {}).await.expect("a page");
    let mut most = 0;
    while fast.next(|_| {}).await.expect("a page").is_some() {
        most = most.max(of.listings.bytes());
    }
    assert!(most <= 300 << 10, "{most} bytes");
    drop(fast);
    of.lists();
    assert_eq!(count_from(1000, &mut slow).await.ok(), Some(50_000));
    assert!(of.lists() >= 45);
}

#[tokio::test(start_paused = true)]
async fn one_reader_waits_for_a_request_that_hangs_and_the_others_share_another() {
    let of = directory(3000, MINUTE, 16 << 20);
    let (mut first, mut second) = (of.reader().await, of.reader().await);
    first.next(|_| {}).await.expect("a page");
    of.client.stall_next([Duration::from_secs(5)]);
    let began = Instant::now();
    let others = join_all((0..5).map(|_| async {
        let count = of.read().await.ok();
        (count, began.elapsed() < Duration::from_secs(3))
    }));
    let (first, second, others) =
        tokio::join!(count_from(1000, &mut first), count_from(0, &mut second), others);
    assert_eq!((first.ok(), second.ok()), (Some(3000), Some(3000)));
    assert_eq!(others, [(Some(3000), true); 5]);
    assert_eq!(of.lists(), 3 + 2);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_pauses_holds_no_memory_for_long() {
    let of = directory(5000, MINUTE, 16 << 20);
    let (mut slow, mut fast) = (of.reader().await, of.reader().await);
    slow.next(|_| {}).await.expect("a page");
    assert_eq!(count_from(0, &mut fast).await.ok(), Some(5000));
    drop(fast);
    assert!(of.listings.bytes() > 0);
    sleep(KEPT).await;
    of.listings.expire(Instant::now());
    assert_eq!(of.listings.bytes(), 0);
    assert_eq!(count_from(1000, &mut slow).await.ok(), Some(5000));
}

#[tokio::test(start_paused = true)]
async fn who_joins_and_goes_again_leaves_nothing() {
    let of = directory(5000, MINUTE, 16 << 20);
    for _ in 0..3 {
        let mut first = of.reader().await;
        first.next(|_| {}).await.expect("a page");
        let mut second = of.reader().await;
        second.next(|_| {}).await.expect("a page");
        drop((first, second));
        assert_eq!((of.listings.bytes(), of.readers()), (0, 0));
    }
    of.listings.expire(Instant::now());
    assert!(super::lock(&of.listings.by_prefix).is_empty());
}
