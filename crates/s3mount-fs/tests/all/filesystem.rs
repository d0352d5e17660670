//! The filesystem over a client in memory: its names, how fresh they are, and how many requests they cost.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use s3mount_bucket::Bucket;
use s3mount_fs::{
    DirEntry, DirOffset, FileHandle, FileKind, Filesystem, FsConfig, FsError, InodeNo, MetadataTtl, OpenMode,
    ROOT,
};
use s3mount_object::{ETag, ErrorKind, ListPage, ListedObject, ObjectMeta};
use s3mount_prefetch::Prefetcher;
use s3mount_testkit::{MemoryClient, Requests};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::common::{bucket, divided, prefetcher, walk};

fn mount(client: &Arc<MemoryClient>, prefix: &str, ttl: MetadataTtl) -> Arc<Filesystem> {
    mount_with(client.clone(), prefetcher(client.clone()), prefix, ttl)
}

fn mount_with(
    store: impl Into<Bucket>,
    prefetcher: Prefetcher,
    prefix: &str,
    ttl: MetadataTtl,
) -> Arc<Filesystem> {
    let config = FsConfig {
        prefix: prefix.to_owned(),
        metadata_ttl: ttl,
        negative_metadata_ttl: NEGATIVE.min(ttl.duration()),
        timeout: Duration::from_secs(10),
        ..FsConfig::default()
    };
    Arc::new(Filesystem::new(store, prefetcher, config, &Handle::current()))
}

/// How long absent names are believed. It is long enough for a test, and short enough to wait for.
const NEGATIVE: Duration = Duration::from_millis(300);

const MINUTE: MetadataTtl = MetadataTtl::For(Duration::from_secs(60));

async fn read(fs: &Arc<Filesystem>, handle: FileHandle) -> Result<String, FsError> {
    let (send, receive) = tokio::sync::oneshot::channel();
    fs.read(handle, 0, 64 << 10, move |result| {
        let _ = send.send(result.map(|bytes| String::from_utf8_lossy(bytes).into_owned()));
    });
    receive.await.expect("an answer")
}

async fn names(fs: &Filesystem, ino: InodeNo) -> Vec<String> {
    let handle = fs.opendir(ino).expect("a directory");
    let (mut names, mut offset) = (Vec::new(), DirOffset::START);
    loop {
        let page = fs.readdir(handle, offset, 7).await.expect("a page");
        let Some(last) = page.last() else { break };
        offset = last.next;
        let shown = |kind| if kind == FileKind::Directory { "/" } else { "" };
        names.extend(page.iter().map(|entry| format!("{}{}", entry.name, shown(entry.kind))));
    }
    fs.releasedir(handle);
    names
}

fn lists(list: usize) -> Requests {
    Requests { list, ..Requests::default() }
}

#[tokio::test]
async fn a_cold_file_costs_one_list_a_name_and_one_get() {
    let client = bucket(["a/b/c.bin", "a/b/d.bin"]);
    let fs = mount(&client, "", MINUTE);
    let ino = walk(&fs, "a/b/c.bin").await.expect("it is there");
    let handle = fs.open(ino).expect("a file").handle;
    assert_eq!(read(&fs, handle).await.expect("bytes"), "a/b/c.bin");
    assert_eq!(client.take_requests(), Requests { get: 1, list: 3, ..Requests::default() });
    walk(&fs, "a/b/c.bin").await.expect("it is known");
    assert_eq!(client.take_requests(), lists(0));
}

#[tokio::test(start_paused = true)]
async fn listings_and_reads_take_their_retries_out_of_one_budget() {
    let client = bucket(["f"]);
    let shared: Bucket = Bucket::from(client.clone());
    let (budget, start) = (shared.budget().clone(), Instant::now());
    let fs = mount_with(shared.clone(), prefetcher(shared), "", MINUTE);
    // GETs have spent all retries of the budget.
    while budget.take(start.into_std()) {}
    client.fail_next([ErrorKind::Throttled]);
    walk(&fs, "f").await.expect("it is there");
    assert_eq!(client.take_requests(), lists(2));
    assert!(
        start.elapsed() >= Duration::from_millis(500),
        "the LIST waits for a retry: {:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn what_was_listed_is_known() {
    let keys: Vec<String> = (0..2500).map(|index| format!("d/f{index:05}")).collect();
    let client = bucket(&keys);
    let fs = mount(&client, "", MINUTE);
    let dir = walk(&fs, "d").await.expect("it is there");
    client.take_requests();
    assert_eq!(names(&fs, dir).await.len(), 2502);
    assert_eq!(client.take_requests(), lists(3));
    for index in [0, 999, 1000, 2499] {
        fs.lookup(dir, &format!("f{index:05}")).await.expect("it is known");
    }
    assert_eq!(client.take_requests(), lists(0));
}

#[tokio::test]
async fn a_prefix_is_the_root() {
    let client = bucket(["p/q/a", "p/q/b/c", "p/qq", "x"]);
    let fs = mount(&client, "p/q/", MINUTE);
    assert_eq!(names(&fs, ROOT).await, ["./", "../", "a", "b/"]);
    assert!(matches!(walk(&fs, "x").await, Err(FsError::NotFound)));
    walk(&fs, "b/c").await.expect("it is there");
}

#[tokio::test]
async fn directories_win_and_impossible_names_are_hidden() {
    let long = "n".repeat(256);
    let client = bucket(["a", "a/b", "a-b", "x//y", "./z", "../w", &long, "d/", "ok"]);
    let fs = mount(&client, "", MINUTE);
    assert_eq!(names(&fs, ROOT).await, ["./", "../", "a/", "a-b", "d/", "ok", "x/"]);
    let a = fs.lookup(ROOT, "a").await.expect("it is there");
    assert_eq!(a.attr.kind, FileKind::Directory);
    let fresh = mount(&client, "", MINUTE);
    let a = fresh.lookup(ROOT, "a").await.expect("it is there");
    assert_eq!(a.attr.kind, FileKind::Directory, "also when it was not listed before");
    assert!(matches!(fresh.lookup(ROOT, &long).await, Err(FsError::NameTooLong)));
    let x = fresh.lookup(ROOT, "x").await.expect("it is there").attr.ino;
    assert_eq!(names(&fresh, x).await, ["./", "../"]);
}

#[tokio::test]
async fn a_name_is_found_behind_a_thousand_that_begin_like_it() {
    let client = bucket(["file", "dir/inside"]);
    for index in 0..1500 {
        client.put(&format!("dir-{index}"), "x");
        client.put(&format!("file-{index}"), "x");
    }
    let fs = mount(&client, "", MINUTE);
    assert_eq!(fs.lookup(ROOT, "dir").await.expect("a directory").attr.kind, FileKind::Directory);
    assert_eq!(fs.lookup(ROOT, "file").await.expect("a file").attr.kind, FileKind::File);
    assert!(matches!(fs.lookup(ROOT, "fil").await, Err(FsError::NotFound)));
}

#[tokio::test]
async fn a_replaced_object_is_another_inode_and_the_open_one_is_stale() {
    let client = bucket(["k"]);
    let fs = mount(&client, "", MINUTE);
    let old = walk(&fs, "k").await.expect("it is there");
    let handle = fs.open(old).expect("a file").handle;
    client.put("k", "another");
    let error = read(&fs, handle).await.expect_err("it was replaced");
    assert_eq!(error.errno(), libc::ESTALE);
    let new = walk(&fs, "k").await.expect("the failed read has made us look again");
    assert_ne!(old, new);
    let handle = fs.open(new).expect("a file").handle;
    assert_eq!(read(&fs, handle).await.expect("bytes"), "another");
    client.delete("k");
    fs.forget(new, 1);
    assert_eq!(read(&fs, handle).await.expect("what was read once is still here"), "another");
}

#[tokio::test]
async fn minimal_asks_each_time_and_absence_is_kept_for_a_moment() {
    let client = bucket(["k"]);
    let fs = mount(&client, "", MetadataTtl::Minimal);
    for _ in 0..3 {
        let entry = fs.lookup(ROOT, "k").await.expect("it is there");
        assert_eq!(entry.name_ttl, Duration::ZERO);
    }
    assert_eq!(client.take_requests(), lists(3));
    let fs = mount(&client, "", MetadataTtl::Indefinite);
    assert!(matches!(fs.lookup(ROOT, "new").await, Err(FsError::NotFound)));
    client.put("new", "x");
    assert!(matches!(fs.lookup(ROOT, "new").await, Err(FsError::NotFound)), "it was not there just now");
    tokio::time::sleep(NEGATIVE).await;
    fs.lookup(ROOT, "new").await.expect("it has come");
}

#[tokio::test]
async fn wrong_use_has_its_errno() {
    let client = bucket(["d/f"]);
    let fs = mount(&client, "", MINUTE);
    let dir = walk(&fs, "d").await.expect("it is there");
    let file = walk(&fs, "d/f").await.expect("it is there");
    assert_eq!(fs.open(dir).expect_err("a directory").errno(), libc::EISDIR);
    assert_eq!(fs.opendir(file).expect_err("a file").errno(), libc::ENOTDIR);
    assert_eq!(fs.lookup(file, "x").await.expect_err("a file").errno(), libc::ENOTDIR);
    assert_eq!(fs.getattr(InodeNo(999)).expect_err("unknown").errno(), libc::ESTALE);
    fs.forget(file, 1);
    fs.forget(dir, 2);
    assert_eq!(fs.metrics().inodes.get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hidden_folder_tells_the_counters() {
    let fs = mount(&bucket(["a", ".s3mount/stats"]), "", MINUTE);
    assert_eq!(names(&fs, ROOT).await, ["./", "../", "a"], "neither ours nor the bucket's is listed");
    let folder = fs.lookup(ROOT, ".s3mount").await.expect("the folder").attr;
    assert!(folder.mode == Some(0o511) && folder.kind == FileKind::Directory);
    let listed = ["./", "../", "events", "keep", "metrics", "prefetch", "stats", "streams"];
    assert_eq!(names(&fs, folder.ino).await, listed);
    assert!(matches!(fs.lookup(folder.ino, "banana").await, Err(FsError::NotFound)));
    let stats = walk(&fs, ".s3mount/stats").await.expect("the file");
    let opened = fs.open(stats).expect("a handle");
    assert!(opened.mode == OpenMode::Direct, "its size is not known before");
    let text = read(&fs, opened.handle).await.expect("JSON");
    assert!(
        text.contains("\"list_requests\": 1") && text.contains("\"memory_limit_bytes\": 67108864"),
        "{text}"
    );
    let metrics = walk(&fs, ".s3mount/metrics").await.expect("the file");
    let text = read(&fs, fs.open(metrics).expect("a handle").handle).await.expect("text");
    assert!(
        text.contains("\n# TYPE s3mount_list_requests_total counter\ns3mount_list_requests_total 1\n"),
        "{text}"
    );
    assert!(fs.open(folder.ino).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_the_memory_is_what_is_written_to_its_file() {
    const BESIDE: u64 = 1 << 20;
    let fs = divided(&bucket(["a"]), |config| {
        config.memory_beside_bytes = BESIDE;
        config.uid = 7;
        config.mounted_by = 8;
    });
    let folder = fs.lookup(ROOT, ".s3mount").await.expect("the folder").attr;
    assert!(names(&fs, folder.ino).await.contains(&"memory".to_owned()));
    let attr = fs.lookup(folder.ino, "memory").await.expect("the file").attr;
    assert_eq!((attr.mode, attr.uid), (Some(0o600), Some(8)), "it is not for each user");
    assert!(fs.is_writable(attr.ino));
    let shown = async || {
        let handle = fs.open(attr.ino).expect("a handle").handle;
        let text = read(&fs, handle).await.expect("JSON");
        fs.release(handle);
        text
    };
    let mib = |mib: u64| mib << 20;
    let beginning = |limit, away| {
        format!(
            "{{\"floor\": {}, \"limit\": {}, \"ceiling\": {}, \"used\": {BESIDE}, \"away\": {}, \"waiting\": 0, \
             \"most_used\": {BESIDE}}}\n",
            mib(17),
            mib(limit),
            mib(65),
            mib(away)
        )
    };
    assert_eq!(shown().await, beginning(17, 48));
    let handle = fs.open(attr.ino).expect("a handle").handle;
    let write = |text: &str| fs.write(handle, 0, text.as_bytes(), 1).map(|later| later.is_none());
    assert!(write(&format!("{}\n", mib(33))).expect("it is taken at once"));
    assert_eq!(shown().await, beginning(33, 32));
    assert_eq!(write("33MiB").expect_err("no number").errno(), libc::EINVAL);
    write("1").expect("the least");
    assert_eq!(shown().await, beginning(17, 48));
    write(&u64::MAX.to_string()).expect("the most");
    assert_eq!(shown().await, beginning(65, 0));
    assert!(matches!(fs.lookup(folder.ino, "nothing").await, Err(FsError::NotFound)));
    let fixed = mount(&bucket(["a"]), "", MINUTE);
    assert!(matches!(fixed.lookup(folder.ino, "memory").await, Err(FsError::NotFound)));
}

#[tokio::test]
async fn a_large_directory_can_be_sought_back_and_forth() {
    let keys: Vec<String> = (0..12_000).map(|index| format!("d/f{index:05}")).collect();
    let client = bucket(&keys);
    let fs = mount(&client, "", MINUTE);
    let dir = walk(&fs, "d").await.expect("it is there");
    let handle = fs.opendir(dir).expect("a directory");
    // Offset 2 + n is behind the name n, counted from 0 with the dots left out.
    for index in [0, 11_000, 3, 11_999, 9_000, 0, 5_000] {
        let page = fs.readdir(handle, DirOffset(index + 2), 1).await.expect("a page");
        let [DirEntry { next, name, .. }] = &page[..] else { panic!("one name, not {page:?}") };
        assert_eq!((*next, name), (DirOffset(index + 3), &format!("f{index:05}")));
        let entry = fs.entry_before(handle, *next).await.expect("its entry");
        fs.forget(entry.attr.ino, 1);
    }
    assert!(fs.readdir(handle, DirOffset(12_002), 1).await.expect("the end").is_empty());
    fs.releasedir(handle);
}

/// A page of the names `names` in the root.
fn page(names: &[&str], next: Option<&str>) -> ListPage {
    let meta =
        ObjectMeta { etag: ETag::new("\"e\""), size: 1, last_modified: UNIX_EPOCH, storage_class: None };
    let listed = |name: &&str| ListedObject { key: (*name).to_owned(), meta: meta.clone() };
    ListPage {
        objects: names.iter().map(listed).collect(),
        common_prefixes: vec![],
        next: next.map(str::to_owned),
    }
}

#[tokio::test]
async fn pages_that_repeat_a_name_show_it_once() {
    let client = bucket::<&str>([]);
    let fs = mount(&client, "", MINUTE);
    client.list_next([page(&["a", "b", "b"], Some("1")), page(&["b", "c"], Some("2")), page(&["c"], None)]);
    assert_eq!(names(&fs, ROOT).await, ["./", "../", "a", "b", "c"]);
}

#[tokio::test]
async fn listings_that_go_back_or_never_end_fail() {
    let stuck = [page(&["a"], Some("1")), page(&["b"], Some("1"))];
    let back = [page(&["m"], Some("1")), page(&["a"], Some("2"))];
    let round = [page(&["a"], Some("1")), page(&["b"], Some("2")), page(&["a"], Some("3"))];
    for pages in [stuck.to_vec(), back.to_vec(), round.to_vec()] {
        let client = bucket::<&str>([]);
        let fs = mount(&client, "", MINUTE);
        client.list_next(pages);
        let error = list(&fs).await.expect_err("no listing");
        assert_eq!(error.errno(), libc::EIO, "{error}");
    }
    let client = bucket::<&str>([]);
    let fs = mount(&client, "", MINUTE);
    // These pages are empty, and their continuations take turns, so no continuation comes twice in a row.
    client.list_next((0..1100).map(|turn| page(&[], Some(if turn % 2 == 0 { "1" } else { "2" }))));
    assert_eq!(list(&fs).await.expect_err("no end").errno(), libc::EIO);
    assert!(client.take_requests().list <= 1002);
}

async fn list(fs: &Filesystem) -> Result<(), FsError> {
    let handle = fs.opendir(ROOT).expect("a directory");
    let mut offset = DirOffset::AFTER_DOTS;
    while let Some(last) = fs.readdir(handle, offset, 100).await?.last() {
        offset = last.next;
    }
    Ok(())
}

#[tokio::test]
async fn readdir_while_the_bucket_changes_shows_each_name_once() {
    let client = Arc::new(MemoryClient::new());
    for index in 0..3000 {
        client.put(&format!("d/f{index:05}"), "x");
    }
    let fs = mount(&client, "", MINUTE);
    let dir = walk(&fs, "d").await.expect("it is there");
    let handle = fs.opendir(dir).expect("a directory");
    let (mut seen, mut offset) = (Vec::new(), DirOffset::AFTER_DOTS);
    loop {
        let page = fs.readdir(handle, offset, 100).await.expect("a page");
        let Some(last) = page.last() else { break };
        offset = last.next;
        seen.extend(page.into_iter().map(|entry| entry.name));
        // One name is deleted after those that were shown, and one is added before them.
        client.delete(&format!("d/f{:05}", seen.len() + 1500));
        client.put(&format!("d/e{:05}", seen.len()), "x");
    }
    let mut sorted = seen.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(seen, sorted, "in order, and none twice");
    assert!((2900..=3000).contains(&seen.len()), "{}", seen.len());
}

const MIB: u64 = 1 << 20;

/// Reads whole files in this order, in pieces of 1 MiB, and closes each. Returns for each file how many bytes
/// of files that were not opened yet had been asked for when the file was read.
async fn read_shards(
    client: &Arc<MemoryClient>,
    fs: &Arc<Filesystem>,
    shards: &[usize],
    size: u64,
) -> Vec<u64> {
    let mut ahead = Vec::new();
    for shard in shards {
        let ino = walk(fs, &format!("d/{shard:02}.tar")).await.expect("it is there");
        let handle = fs.open(ino).expect("a file").handle;
        for offset in (0..size).step_by(1 << 20) {
            let (send, receive) = tokio::sync::oneshot::channel();
            fs.read(handle, offset, 1 << 20, move |result| {
                let _ = send.send(result.map(<[u8]>::len));
            });
            assert_eq!(receive.await.expect("an answer").expect("bytes"), 1 << 20);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let others =
            client.ranges().into_iter().filter(|(key, _)| !shards_up_to(shards, *shard).contains(key));
        ahead.push(others.map(|(_, range)| range.end - range.start).sum());
        fs.release(handle);
    }
    ahead
}

/// The keys of the files that were read, up to `last`.
fn shards_up_to(shards: &[usize], last: usize) -> Vec<String> {
    let read = shards.iter().position(|shard| *shard == last).map_or(0, |index| index + 1);
    shards[..read].iter().map(|shard| format!("d/{shard:02}.tar")).collect()
}

#[tokio::test(start_paused = true)]
async fn the_next_shard_is_on_its_way_before_the_last_one_ends() {
    let size = 48 * MIB;
    for (shards, is_ordered) in [([0, 1, 2, 3, 4, 5], true), ([3, 0, 4, 2, 5, 1], false)] {
        let client = Arc::new(MemoryClient::new());
        (0..6).for_each(|shard| drop(client.put_synthetic(&format!("d/{shard:02}.tar"), size)));
        client.set_latency(Duration::from_millis(25));
        let fs = mount(&client, "", MINUTE);
        let ino = walk(&fs, "d").await.expect("a folder");
        let handle = fs.opendir(ino).expect("a folder");
        fs.readdir(handle, DirOffset::START, 100).await.expect("its names");
        let ahead = read_shards(&client, &fs, &shards, size).await;
        let fetched: u64 = client.ranges().iter().map(|(_, range)| range.end - range.start).sum();
        if is_ordered {
            assert_eq!(ahead[0], 0, "nothing is known yet");
            assert!(ahead[1..5].iter().all(|bytes| *bytes >= 16 * MIB), "{ahead:?}");
            assert!(fetched <= 6 * size * 21 / 20, "{fetched}");
        } else {
            assert_eq!(ahead, [0; 6], "{ahead:?}");
            assert_eq!(fetched, 6 * size);
        }
    }
}

#[tokio::test]
async fn large_files_are_opened_directly_where_the_page_cache_is_small_and_the_kernel_can_map_them() {
    let client = Arc::new(MemoryClient::new());
    (0..4).for_each(|file| drop(client.put_synthetic(&format!("d/{file}.bin"), 32 * MIB)));
    client.put_synthetic("d/small.bin", MIB);
    let open = async |page_cache_bytes: fn(u32) -> u64, name: &str, is_mappable: bool| {
        let config = FsConfig { direct_auto: Some(page_cache_bytes), ..FsConfig::default() };
        let fs = Filesystem::new(client.clone(), prefetcher(client.clone()), config, &Handle::current());
        let fs = Arc::new(fs);
        if !is_mappable {
            fs.keep_page_cache();
        }
        let ino = walk(&fs, name).await.expect("it is there");
        fs.open_by(ino, 7).expect("a file").mode == OpenMode::Direct
    };
    // There are four files of 32 MiB. The page cache may keep 56 MiB for the process 7 in one case, and 112
    // MiB in the other.
    let [some, all]: [fn(u32) -> u64; 2] = [|pid| u64::from(pid) << 23, |pid| u64::from(pid) << 24];
    assert!(open(some, "d/0.bin", true).await);
    assert!(!open(all, "d/0.bin", true).await);
    assert!(!open(some, "d/small.bin", true).await);
    assert!(!open(some, "d/0.bin", false).await);
}
