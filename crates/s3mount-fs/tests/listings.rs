//! Large folders: how many LISTs they take, how long, in how much memory, and what a store says to it.

mod common;

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::Filesystem;
use s3mount_testkit::MemoryClient;
use tokio::time::Instant;

use crate::common::{bucket, mount, names, walk};

/// What a LIST takes at S3.
const LIST: Duration = Duration::from_millis(60);

/// A folder of so many names, at S3's latency.
fn folder(count: usize) -> Arc<MemoryClient> {
    let client = bucket((0..count).map(|index| format!("d/{index:06}.jpeg")));
    client.set_latency(LIST);
    client
}

/// Lists it: the names, the LISTs, and how long it took.
async fn list(client: &MemoryClient, fs: &Arc<Filesystem>) -> (Vec<String>, usize, Duration) {
    let ino = walk(fs, "d").await.expect("a folder");
    client.take_requests();
    let start = Instant::now();
    let names = names(fs, ino).await.expect("its names");
    (names, client.take_requests().list, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_names_are_listed_side_by_side() {
    let client = folder(100_000);
    let fs = mount(&client, |_| {});
    let (names, lists, took) = list(&client, &fs).await;
    assert!(
        names
            .iter()
            .map(String::as_str)
            .eq((0..100_000).map(|index| format!("{index:06}.jpeg")).collect::<Vec<_>>())
    );
    assert!(lists <= 105 && took <= Duration::from_millis(1500), "{lists} LISTs, {took:?}");
}

#[tokio::test(start_paused = true)]
async fn small_folders_cost_as_many_lists_as_they_have_pages() {
    for count in [1, 1000, 1001, 4000] {
        let client = folder(count);
        let fs = mount(&client, |_| {});
        let (names, lists, _) = list(&client, &fs).await;
        assert_eq!((names.len(), lists), (count, count.div_ceil(1000)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_throttles_is_not_hammered() {
    let client = folder(400_000);
    let fs = mount(&client, |_| {});
    client.throttle_lists(20.0);
    let (names, lists, took) = list(&client, &fs).await;
    let refused = client.refused_lists();
    assert_eq!(names.len(), 400_000);
    assert!(refused * 10 <= lists, "{refused} of {lists} LISTs are refused");
    // 16 a second are answered where one waits for the other, and 20 are allowed.
    assert!(took <= Duration::from_secs(30), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn names_stay_once_and_in_order_while_the_bucket_changes() {
    let client = folder(50_000);
    let fs = mount(&client, |_| {});
    let ino = walk(&fs, "d").await.expect("a folder");
    let handle = fs.opendir(ino).expect("a folder").handle;
    let (mut seen, mut offset) = (Vec::new(), 2);
    loop {
        let page = fs.readdir(handle, offset, 100).await.expect("a page");
        let Some((last, ..)) = page.names.last() else { break };
        offset = *last;
        seen.extend(page.names.iter().map(|(_, name, ..)| name.clone()));
        // One goes and one comes, somewhere before or behind.
        let index = seen.len() * 7919 % 50_000;
        client.delete(&format!("d/{:06}.jpeg", index | 1));
        client.put(&format!("d/{index:06}-b"), "new");
    }
    assert!(seen.is_sorted_by(|a, b| a < b));
    let old = seen.iter().filter(|name| name.ends_with(".jpeg")).collect::<Vec<_>>();
    let even = (0..50_000).step_by(2).map(|index| format!("{index:06}.jpeg"));
    assert!(even.into_iter().all(|name| old.binary_search(&&name).is_ok()), "what stays is there");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_leaves_few_pages_behind_and_no_request() {
    let client = folder(100_000);
    let fs = mount(&client, |_| {});
    let ino = walk(&fs, "d").await.expect("a folder");
    client.take_requests();
    let handle = fs.opendir(ino).expect("a folder").handle;
    let mut offset = 2;
    for _ in 0..20 {
        let page = fs.readdir(handle, offset, 1000).await.expect("a page");
        offset = page.names.last().expect("a name").0;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let lists = client.take_requests().list;
    assert!(lists <= 20 + 64, "{lists} LISTs for 20 pages");
    fs.releasedir(handle);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(client.take_requests().list, 0);
}
