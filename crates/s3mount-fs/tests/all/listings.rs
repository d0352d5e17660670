//! Large folders: how many LISTs they take, how long a listing takes, how much memory it takes, and how often
//! the store refuses a LIST.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use s3mount_fs::{DirOffset, Filesystem, InodeNo, MetadataTtl};
use s3mount_testkit::{MemoryClient, mix};
use tokio::time::Instant;

use crate::common::{bucket, mount, names, walk};

/// How long a LIST takes at S3.
const LIST: Duration = Duration::from_millis(60);

/// A bucket with a folder of `count` names, at S3's latency.
fn folder(count: usize) -> Arc<MemoryClient> {
    let client = bucket((0..count).map(|index| format!("d/{index:06}.jpeg")));
    client.set_latency(LIST);
    client
}

/// Lists the folder. Returns the names, the number of LISTs, and how long the listing took.
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
    // If each LIST waited for the one before it, 16 would be answered a second. The store allows 20.
    assert!(took <= Duration::from_secs(30), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn names_stay_once_and_in_order_while_the_bucket_changes() {
    let client = folder(50_000);
    let fs = mount(&client, |_| {});
    let ino = walk(&fs, "d").await.expect("a folder");
    let handle = fs.opendir(ino).expect("a folder");
    let (mut seen, mut offset) = (Vec::new(), DirOffset::AFTER_DOTS);
    loop {
        let page = fs.readdir(handle, offset, 100).await.expect("a page");
        let Some(last) = page.last() else { break };
        offset = last.next;
        seen.extend(page.into_iter().map(|entry| entry.name));
        // One name goes and another one comes, somewhere before or behind the names that were read.
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
    let handle = fs.opendir(ino).expect("a folder");
    let mut offset = DirOffset::AFTER_DOTS;
    for _ in 0..20 {
        let page = fs.readdir(handle, offset, 1000).await.expect("a page");
        offset = page.last().expect("a name").next;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let lists = client.take_requests().list;
    assert!(lists <= 20 + 64, "{lists} LISTs for 20 pages");
    fs.releasedir(handle);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(client.take_requests().list, 0);
}

/// Lists a folder with the attributes of its names, as `ls -l` does.
async fn names_and_attributes(fs: &Filesystem, ino: InodeNo) -> Vec<String> {
    let handle = fs.opendir(ino).expect("a folder");
    let (mut names, mut offset) = (Vec::new(), DirOffset::AFTER_DOTS);
    loop {
        let page = fs.readdir(handle, offset, 100).await.expect("a page");
        let Some(last) = page.last() else { break };
        offset = last.next;
        for entry in page {
            fs.entry_before(handle, entry.next).await.expect("a file");
            names.push(entry.name);
        }
    }
    fs.releasedir(handle);
    names
}

#[tokio::test(start_paused = true)]
async fn twelve_who_list_a_folder_at_once_cost_as_much_as_one() {
    let client = folder(7000);
    let fs = mount(&client, |_| {});
    let (one, alone, _) = list(&client, &fs).await;
    let ino = walk(&fs, "d").await.expect("a folder");
    let readers = join_all((0..12).map(|reader| {
        let fs = &fs;
        async move {
            tokio::time::sleep(Duration::from_millis(reader * 5)).await;
            match reader % 2 {
                0 => names(fs, ino).await.expect("its names"),
                _ => names_and_attributes(fs, ino).await,
            }
        }
    }));
    assert!(readers.await.into_iter().all(|shown| shown == one));
    assert_eq!(client.take_requests().list, alone);
    let fs = mount(&client, |config| config.metadata_ttl = MetadataTtl::Minimal);
    let ino = walk(&fs, "d").await.expect("a folder");
    client.take_requests();
    join_all((0..3).map(|_| names(&fs, ino))).await;
    assert!(client.take_requests().list >= 3 * 7, "nothing is believed there");
}

#[tokio::test(start_paused = true)]
async fn who_has_seen_a_new_name_is_shown_it_by_the_next_listing() {
    let client = folder(3000);
    let fs = mount(&client, |config| config.negative_metadata_ttl = Duration::from_millis(1));
    let ino = walk(&fs, "d").await.expect("a folder");
    let slow = tokio::spawn({
        let fs = fs.clone();
        async move { names(&fs, ino).await.expect("its names") }
    });
    // The first page has been asked for, and has come. The others are under way.
    tokio::time::sleep(LIST + LIST / 2).await;
    client.put("d/000500-new", "new");
    fs.lookup(ino, "000500-new").await.expect("it is there");
    let shown = names(&fs, ino).await.expect("its names");
    assert!(shown.iter().any(|name| name == "000500-new"));
    assert_eq!((slow.await.expect("a reader").len(), shown.len()), (3000, 3001));
}

/// A program pauses in its listing. Meanwhile somebody else renames files in the bucket, and another program lists the
/// folder: what has gone from a page of the first is listed under its new name.
#[tokio::test(start_paused = true)]
async fn who_pauses_in_a_listing_is_shown_a_renamed_file_under_one_of_its_names() {
    let client = folder(1_500);
    client.put("d/000700", "text");
    let fs = mount(&client, |_| {});
    let ino = walk(&fs, "d").await.expect("a folder");
    let handle = fs.opendir(ino).expect("a folder");
    let mut shown = fs.readdir(handle, DirOffset::AFTER_DOTS, 100).await.expect("a page");
    for (from, to) in
        [("000600.jpeg", "000600.moved"), ("001400.jpeg", "001400.moved/f"), ("000700", "0007/f")]
    {
        client.put(&format!("d/{to}"), "text");
        client.delete(&format!("d/{from}"));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let fresh = names(&fs, ino).await.expect("its names");
    while let page = fs.readdir(handle, shown.last().expect("a name").next, 100).await.expect("a page")
        && !page.is_empty()
    {
        shown.extend(page);
    }
    let mut shown: Vec<_> = shown.into_iter().map(|entry| entry.name).collect();
    let in_order = shown.clone();
    shown.sort();
    shown.dedup();
    assert_eq!((shown.len(), in_order.len()), (1_501, 1_501), "each name once");
    assert_eq!(shown, fresh);
    for (from, to) in [("000600.jpeg", "000600.moved"), ("001400.jpeg", "001400.moved"), ("000700", "0007")] {
        assert!(!shown.iter().any(|name| name == from) && shown.iter().any(|name| name == to), "{from}");
    }
}

/// Lets 32 readers look up names of a folder at random for this many seconds, each reader one name in 27 ms.
/// Returns the number of look-ups, and how many of them had to wait for the store.
async fn look_up_at_random(fs: &Arc<Filesystem>, count: u64, seconds: u64, seed: u64) -> (usize, usize) {
    let ino = walk(fs, "d").await.expect("a folder");
    let end = Instant::now() + Duration::from_secs(seconds);
    let readers = (0..32).map(|reader| {
        let fs = fs.clone();
        tokio::spawn(async move {
            let (mut looked, mut waited) = (0, 0);
            while Instant::now() < end {
                let index = mix(seed ^ (reader << 40 | looked as u64)) % count;
                let start = Instant::now();
                fs.lookup(ino, &format!("{index:06}.jpeg")).await.expect("it is there");
                (looked, waited) = (looked + 1, waited + usize::from(start.elapsed() > Duration::ZERO));
                tokio::time::sleep(Duration::from_millis(27)).await;
            }
            (looked, waited)
        })
    });
    let mut sum = (0, 0);
    for reader in readers.collect::<Vec<_>>() {
        let (looked, waited) = reader.await.expect("a reader");
        sum = (sum.0 + looked, sum.1 + waited);
    }
    sum
}

#[tokio::test(start_paused = true)]
async fn a_large_folder_read_at_random_is_listed_once() {
    let client = folder(300_000);
    let fs = mount(&client, |config| config.metadata_limit_bytes = 128 << 20);
    let (looked, _) = look_up_at_random(&fs, 300_000, 20, 1).await;
    let lists = client.take_requests().list;
    // The listing takes 303 LISTs. Look-ups take up to eleven before the listing begins. Beside the listing,
    // they take eight, and one more for every 32 pages.
    assert!(looked > 15_000 && lists <= 332, "{lists} LISTs for 300 pages and {looked} look-ups");
    let (looked, waited) = look_up_at_random(&fs, 300_000, 20, 2).await;
    assert_eq!((client.take_requests().list, waited), (0, 0), "{looked} look-ups");
}

#[tokio::test(start_paused = true)]
async fn a_million_names_read_at_random_fit_the_default_memory_and_are_listed_once() {
    let client = folder(1_000_000);
    let fs = mount(&client, |config| config.metadata_limit_bytes = 128 << 20);
    let (looked, _) = look_up_at_random(&fs, 1_000_000, 10, 1).await;
    let lists = client.take_requests().list;
    assert!(looked > 5_000 && lists <= 1_060, "{lists} LISTs for 1,000 pages and {looked} look-ups");
    let (looked, waited) = look_up_at_random(&fs, 1_000_000, 10, 2).await;
    assert_eq!((client.take_requests().list, waited), (0, 0), "{looked} look-ups");
}

#[tokio::test(start_paused = true)]
async fn one_caller_waits_for_its_own_name_and_not_for_the_listing() {
    let client = folder(300_000);
    let fs = mount(&client, |config| config.metadata_limit_bytes = 128 << 20);
    let ino = walk(&fs, "d").await.expect("a folder");
    let start = Instant::now();
    for index in 1..=40 {
        let asked = Instant::now();
        // The look-ups start at the end of the folder, which the listing reaches last.
        fs.lookup(ino, &format!("{:06}.jpeg", 300_000 - index * 1500)).await.expect("it is there");
        let took = asked.elapsed();
        // The listing begins with the fourth look-up. From then on, eight look-ups send a LIST of their own
        // at once.
        let most = if index <= 11 { LIST } else { LIST * 6 };
        assert!(took <= most + Duration::from_millis(1), "look-up {index} took {took:?}");
    }
    let took = start.elapsed();
    assert!(took < LIST * 60, "{took:?} for 40 look-ups, of which a listing answers the last");
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_is_stuck_holds_up_no_lookup() {
    let client = folder(300_000);
    let fs = mount(&client, |config| config.metadata_limit_bytes = 128 << 20);
    let ino = walk(&fs, "d").await.expect("a folder");
    // The listing begins with the fourth look-up.
    for index in 0..4 {
        fs.lookup(ino, &format!("{:06}.jpeg", index * 50_000)).await.expect("it is there");
    }
    // The next LIST of the listing takes a minute.
    client.stall_next([Duration::from_secs(60)]);
    tokio::time::sleep(LIST * 4).await;
    for index in 0..20 {
        let asked = Instant::now();
        fs.lookup(ino, &format!("{:06}.jpeg", 110_000 + index * 1500)).await.expect("it is there");
        let took = asked.elapsed();
        assert!(took <= Duration::from_millis(250) + LIST * 2, "look-up {index} took {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_does_not_fit_costs_a_list_for_a_name_that_is_not_known() {
    let client = folder(200_000);
    let fs = mount(&client, |config| config.metadata_limit_bytes = 128 << 20);
    list(&client, &fs).await;
    let half = fs.metrics().metadata.get() / 2;
    let fs = mount(&client, |config| config.metadata_limit_bytes = half as usize);
    client.take_requests();
    look_up_at_random(&fs, 200_000, 10, 1).await;
    // A quarter of the folder was listed before the filesystem saw that the folder does not fit.
    let lists = client.take_requests().list;
    let (looked, waited) = look_up_at_random(&fs, 200_000, 60, 2).await;
    let more = client.take_requests().list;
    assert!(waited * 100 < looked * 65, "half of it is known: {waited} of {looked} waited");
    assert!(more * 10 <= waited * 11, "{more} LISTs for {waited} of {looked} look-ups; {lists} before");
    assert!(fs.metrics().metadata.get() <= half);
}
