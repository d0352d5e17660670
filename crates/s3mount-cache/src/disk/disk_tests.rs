//! The disk cache from outside.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use proptest::prelude::*;
use s3mount_object::{ByteRange, ETag, ObjectId};
use tempfile::TempDir;

use super::clock::Clock;
use super::layout::{Hash, Layout};
use super::{DiskCache, DiskConfig, DiskObject, Run};

pub(super) const LIMIT: Duration = Duration::from_secs(20);

pub(super) const BLOCK: u64 = super::blocks::BLOCK_BYTES;

pub(super) fn config(path: &Path) -> DiskConfig {
    DiskConfig {
        dirs: vec![path.to_owned()],
        // Independent of other files on the disk of the test.
        max_bytes: Some(1 << 40),
        source: "https://s3.example|bucket".to_owned(),
        queue_bytes: 1 << 30,
        ..DiskConfig::default()
    }
}

pub(super) fn open(path: &Path) -> DiskCache {
    DiskCache::open(&config(path)).expect("a directory of this test")
}

/// Opens the cache in another boot of the machine.
pub(super) fn open_in_boot(path: &Path, boot: u8) -> (DiskCache, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(1_000_000_000_000));
    let cache = DiskCache::open_at(&config(path), &Clock::manual(boot, now.clone()));
    (cache.expect("a directory of this test"), now)
}

pub(super) fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cache");
    (folder, path)
}

pub(super) fn id(key: &str) -> ObjectId {
    ObjectId::new(key, ETag::new("\"1\""))
}

/// The bytes of an object. No two blocks of the same or of different objects are alike.
pub(super) fn content(key: &str, size: u64) -> Bytes {
    let seed = key.bytes().fold(17u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
    let byte = |at: u64| ((at / 3).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..size).map(byte).collect()
}

pub(super) fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end)
}

pub(super) async fn read(object: &DiskObject, range: ByteRange) -> Option<Bytes> {
    object.read(range, None, vec![0xaa; range.len() as usize]).await.ok()
}

pub(super) fn offer(object: &DiskObject, range: ByteRange, bytes: &Bytes) {
    object.offer(range, &bytes.slice(range.start() as usize..range.end() as usize));
}

/// Waits until it is so.
pub(super) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}");
}

/// All files below `folder`, in order.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found.sort();
    found
}

pub(super) fn flip(path: &Path, at: u64) {
    let bytes = fs::read(path).expect("a file");
    let mut file = OpenOptions::new().write(true).open(path).expect("a file");
    file.seek(SeekFrom::Start(at)).expect("a file");
    file.write_all(&[bytes[at as usize] ^ 4]).expect("written");
}

#[tokio::test]
async fn a_whole_object_is_found_by_the_next_mount() {
    let (_folder, path) = folder();
    let (size, bytes) = (300_001, content("a/b", 300_001));
    let cache = open(&path);
    let kept = cache.object(&id("a/b"), size);
    assert!(Arc::ptr_eq(&kept, &cache.object(&id("a/b"), size)));
    kept.look().await;
    assert_eq!(kept.run(0), Run { is_here: false, end: size });
    offer(&kept, range(0, size), &bytes);
    assert!(cache.flush(LIMIT));
    assert_eq!(cache.held_bytes(), 0);
    assert_eq!(kept.run(0), Run { is_here: true, end: size });
    let again = open(&path);
    let found = again.object(&id("a/b"), size);
    assert_eq!(read(&found, range(4096, size)).await, Some(bytes.slice(4096..)));
    let file = found.whole_file().expect("of this boot");
    assert_eq!(
        fs::read(again.0.disks[0].dir().layout.whole(&Hash::of(&config(&path).source, &id("a/b"))))
            .expect("a file"),
        bytes
    );
    assert_eq!(file.metadata().expect("a file").len(), size);
    assert_eq!(read(&again.object(&id("other"), size), range(0, size)).await, None);
    assert_eq!(
        read(&again.object(&ObjectId::new("a/b", ETag::new("\"2\"")), size), range(0, size)).await,
        None
    );
    again.forget(&id("a/b"));
    assert_eq!(found.run(0), Run { is_here: false, end: size });
    assert!(again.flush(LIMIT));
}

#[tokio::test]
async fn blocks_of_an_object_come_one_by_one_until_it_is_whole() {
    let (_folder, path) = folder();
    let size = 20 * BLOCK + 77;
    let bytes = content("big", size);
    let cache = open(&path);
    let object = cache.object(&id("big"), size);
    // The first and the last block of this range are not covered.
    offer(&object, range(2 * BLOCK - 1, 5 * BLOCK + 1), &bytes);
    assert!(cache.flush(LIMIT));
    assert_eq!(object.run(0), Run { is_here: false, end: 2 * BLOCK });
    assert_eq!(object.run(2 * BLOCK + 5), Run { is_here: true, end: 5 * BLOCK });
    let here = range(2 * BLOCK, 5 * BLOCK);
    assert_eq!(read(&object, here).await, Some(bytes.slice(2 * BLOCK as usize..5 * BLOCK as usize)));
    assert_eq!(read(&object, range(2 * BLOCK, 5 * BLOCK + 1)).await, None);
    assert!(object.whole_file().is_none());
    // Another mount reads the blocks that are there, and does not fill the object.
    let other = open(&path);
    let seen = other.object(&id("big"), size);
    assert_eq!(read(&seen, here).await, Some(bytes.slice(2 * BLOCK as usize..5 * BLOCK as usize)));
    offer(&seen, range(7 * BLOCK, 8 * BLOCK), &bytes);
    assert!(other.flush(LIMIT));
    assert!(!seen.run(7 * BLOCK).is_here);
    drop((seen, other, object, cache));
    // The next one goes on with it.
    let next = open(&path);
    let object = next.object(&id("big"), size);
    object.look().await;
    assert!(object.run(2 * BLOCK).is_here && !object.run(7 * BLOCK).is_here);
    offer(&object, range(4 * BLOCK, size), &bytes);
    offer(&object, range(0, 3 * BLOCK), &bytes);
    assert!(next.flush(LIMIT));
    assert_eq!(object.run(0), Run { is_here: true, end: size });
    assert!(object.whole_file().is_some());
    assert_eq!(read(&object, range(1, size - 1)).await, Some(bytes.slice(1..size as usize - 1)));
    let left = files(&path.join("v1"));
    assert_eq!(left.len(), 1, "no map and no part are left: {left:?}");
}

/// The map of an object is as long as its held blocks need, however large the object is.
#[tokio::test]
async fn of_a_huge_object_only_what_is_there_is_written_down() {
    let (_folder, path) = folder();
    let (size, bytes) = (2 << 40, content("huge", 8 * BLOCK));
    let places = [0, 5 * BLOCK, 1 << 40, size - 8 * BLOCK].map(|at| range(at, at + 8 * BLOCK));
    let cache = open(&path);
    let object = cache.object(&id("huge"), size);
    for place in places {
        object.offer(place, &bytes);
        assert!(cache.flush(LIMIT));
    }
    drop((object, cache));
    let maps: Vec<_> =
        files(&path).into_iter().filter(|file| file.extension().is_some_and(|e| e == "map")).collect();
    let [map] = &maps[..] else { panic!("{maps:?}") };
    let written = fs::metadata(map).expect("a map").len();
    assert!(written < 2000, "{written} bytes");
    let cache = open(&path);
    let object = cache.object(&id("huge"), size);
    object.look().await;
    for place in [places[0], places[2], places[3]] {
        assert_eq!(read(&object, place).await, Some(bytes.clone()), "{place:?}");
    }
    assert_eq!(object.run(0), Run { is_here: true, end: 13 * BLOCK }, "those that overlap are one run");
    assert_eq!(object.run(13 * BLOCK), Run { is_here: false, end: 13 * BLOCK + (8 << 30) });
    assert!(object.run((1 << 40) - 1).end == 1 << 40 && !object.run(1 << 41).is_here);
}

#[tokio::test]
async fn a_flipped_bit_reaches_no_reader() {
    let (_folder, path) = folder();
    let sizes = |number: u64| 1000 + number * 17_001 % (3 * BLOCK);
    let key = |number: u64| format!("file-{number}");
    let cache = open(&path);
    for number in 0..100 {
        let object = cache.object(&id(&key(number)), sizes(number));
        offer(&object, range(0, sizes(number)), &content(&key(number), sizes(number)));
    }
    // One object that is partly fetched.
    let part = cache.object(&id("part"), 10 * BLOCK);
    offer(&part, range(0, 5 * BLOCK), &content("part", 10 * BLOCK));
    assert!(cache.flush(LIMIT));
    let kept = files(&path.join("v1"));
    assert_eq!(kept.len(), 102, "a hundred files, a part and its map");
    for (number, file) in kept.iter().enumerate() {
        let size = fs::metadata(file).expect("a file").len();
        let at = if file.extension().is_some() { 17 } else { number as u64 * 7919 % size };
        flip(file, at);
    }
    for number in 0..100 {
        let object = cache.object(&id(&key(number)), sizes(number));
        assert_eq!(read(&object, range(0, sizes(number))).await, None, "{number}");
        assert!(!object.run(0).is_here, "it is to be fetched again");
    }
    assert_eq!(read(&part, range(0, BLOCK)).await, None);
    assert!(!part.run(0).is_here && part.run(BLOCK).is_here);
    assert_eq!(
        read(&part, range(BLOCK, 5 * BLOCK)).await,
        Some(content("part", 10 * BLOCK).slice(BLOCK as usize..5 * BLOCK as usize))
    );
    assert_eq!(cache.0.metrics.corrupt.get(), 101);
    offer(&part, range(0, 10 * BLOCK), &content("part", 10 * BLOCK));
    assert!(cache.flush(LIMIT));
    assert_eq!(read(&part, range(0, 10 * BLOCK)).await, Some(content("part", 10 * BLOCK)));
    let left = files(&path.join("v1"));
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn what_survived_a_power_cut_unsynced_is_checked_first() {
    let (_folder, path) = folder();
    let (size, bytes) = (3 * BLOCK, content("a", 3 * BLOCK));
    let (cache, now) = open_in_boot(&path, 1);
    offer(&cache.object(&id("a"), size), range(0, size), &bytes);
    assert!(cache.flush(LIMIT), "it is synced now");
    now.fetch_add(1_000_000_000, Ordering::Relaxed);
    for key in ["right", "wrong"] {
        offer(&cache.object(&id(key), size), range(0, size), &content(key, size));
    }
    assert!(cache.0.disks[0].wait_written(LIMIT));
    // The cache goes on. A power cut follows, and the next boot finds the directory as it is now.
    let copy = path.with_file_name("copy");
    assert!(std::process::Command::new("cp").arg("-a").args([&path, &copy]).status().expect("cp").success());
    let (cache, _) = open_in_boot(&copy, 2);
    let wrong = Hash::of(&config(&path).source, &id("wrong"));
    flip(&Layout::new(&copy).whole(&wrong), 5);
    // The comparison of untrusted objects waits until all else is checked.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    cache.0.disks[0].dir().io.faults.set(move |_| {
        if std::thread::current().name() == Some("cache-check") {
            let _ = held.lock().map(|held| held.recv());
        }
        Ok(())
    });
    let objects = ["a", "right", "wrong"].map(|key| cache.object(&id(key), size));
    for object in &objects {
        object.look().await;
    }
    assert!(objects[0].whole_file().is_some(), "it was synced");
    assert!(objects[1].whole_file().is_none() && objects[2].whole_file().is_none());
    assert_eq!(
        read(&objects[1], range(0, size)).await,
        Some(content("right", size)),
        "compared with its sums"
    );
    drop(release);
    assert!(cache.flush(LIMIT), "it also checks untrusted objects");
    assert!(objects[1].whole_file().is_some() && objects[2].whole_file().is_none());
    assert!(!objects[2].run(0).is_here, "it is deleted");
}

#[derive(Clone, Debug)]
enum Step {
    Offer {
        mount: usize,
        object: usize,
        start: u64,
        len: u64,
    },
    Read {
        mount: usize,
        object: usize,
        start: u64,
        len: u64,
    },
    Flush {
        mount: usize,
    },
    Reopen {
        mount: usize,
    },
    Forget {
        mount: usize,
        object: usize,
    },
    /// The owner closes all files.
    Wait {
        mount: usize,
    },
}

const MOUNTS: usize = 2;
const SIZES: [u64; 4] = [1, 5000, 2 * BLOCK + 99, 9 * BLOCK];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = || {
        (0..MOUNTS, 0..SIZES.len(), 0u64..9 * BLOCK, prop_oneof![Just(u64::MAX), 1..4 * BLOCK], any::<bool>())
    };
    let rounded = |start: u64, rounds: bool| if rounds { start / BLOCK * BLOCK } else { start };
    let step = prop_oneof![
        4 => span().prop_map(move |(mount, object, start, len, rounds)| Step::Offer { mount, object, start: rounded(start, rounds), len }),
        4 => span().prop_map(move |(mount, object, start, len, rounds)| Step::Read { mount, object, start: rounded(start, rounds), len }),
        3 => (0..MOUNTS).prop_map(|mount| Step::Flush { mount }),
        1 => (0..MOUNTS).prop_map(|mount| Step::Reopen { mount }),
        1 => (0..MOUNTS, 0..SIZES.len()).prop_map(|(mount, object)| Step::Forget { mount, object }),
        1 => (0..MOUNTS).prop_map(|mount| Step::Wait { mount }),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Two mounts share a directory. Whatever they do, all bytes read are right, and all bytes reported as here can be
    /// read, unless the other mount has deleted them.
    #[test]
    fn no_order_of_offers_and_reads_gives_a_wrong_byte(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (_folder, path) = folder();
            let now = Arc::new(AtomicU64::new(1_000_000_000_000));
            let open = || DiskCache::open_at(&config(&path), &Clock::manual(1, now.clone())).expect("a cache");
            let mut mounts: Vec<_> = (0..MOUNTS).map(|_| open()).collect();
            let contents: Vec<_> = SIZES.iter().map(|size| content(&size.to_string(), *size)).collect();
            let object = |mounts: &[DiskCache], mount: usize, object: usize| mounts[mount].object(&id(&SIZES[object].to_string()), SIZES[object]);
            let span = |object: usize, start: u64, len: u64| {
                let start = start.min(SIZES[object] - 1);
                range(start, start.saturating_add(len).min(SIZES[object]))
            };
            let mut kept: Vec<std::sync::Arc<DiskObject>> = Vec::new();
            let mut may_miss = false;
            for step in steps {
                match step {
                    Step::Offer { mount, object: number, start, len } => {
                        let object = object(&mounts, mount, number);
                        offer(&object, span(number, start, len), &contents[number]);
                        kept.push(object);
                    }
                    Step::Read { mount, object: number, start, len } => {
                        let object = object(&mounts, mount, number);
                        let range = span(number, start, len);
                        object.look().await;
                        let run = object.run(range.start());
                        let is_here = run.is_here && run.end >= range.end();
                        let found = read(&object, range).await;
                        let expected = contents[number].slice(range.start() as usize..range.end() as usize);
                        assert!(found.is_some() || !is_here || may_miss, "{range} of {number}");
                        assert!(found.is_none_or(|found| found == expected), "{range} of {number}");
                    }
                    Step::Flush { mount } => assert!(mounts[mount].flush(LIMIT)),
                    Step::Reopen { mount } => {
                        kept.clear();
                        mounts[mount] = open();
                    }
                    Step::Forget { mount, object } => {
                        may_miss = true;
                        mounts[mount].forget(&id(&SIZES[object].to_string()));
                    }
                    Step::Wait { mount } => {
                        now.fetch_add(11_000_000_000, Ordering::Relaxed);
                        assert!(mounts[mount].flush(LIMIT));
                    }
                }
            }
            drop((kept, mounts));
            // All bytes that the mounts have left are right.
            let cache = open();
            for (size, bytes) in SIZES.iter().zip(&contents) {
                let object = cache.object(&id(&size.to_string()), *size);
                object.look().await;
                let mut at = 0;
                while at < *size {
                    let run = object.run(at);
                    let found = read(&object, range(at, run.end)).await;
                    assert_eq!(found.is_some(), run.is_here);
                    assert!(found.is_none_or(|found| found == bytes.slice(at as usize..run.end as usize)));
                    at = run.end;
                }
            }
        });
    }
}

/// Only reads, and reads that are sure to come, count as uses for the eviction.
#[tokio::test]
async fn a_guess_is_no_use() {
    let (_folder, path) = folder();
    let (cache, _) = open_in_boot(&path, 1);
    offer(&cache.object(&id("kept"), BLOCK), range(0, BLOCK), &content("kept", BLOCK));
    assert!(cache.flush(LIMIT));
    let file =
        File::open(Layout::new(&path).whole(&Hash::of(&config(&path).source, &id("kept")))).expect("a file");
    let used = || file.metadata().expect("its times").accessed().expect("a time");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    file.set_times(FileTimes::new().set_accessed(long_ago).set_modified(long_ago)).expect("times");
    let kept = cache.object(&id("kept"), BLOCK);
    for _ in 0..2 {
        kept.look_for_guess().await;
        assert!(kept.whole_file().is_some());
        assert_eq!(used(), long_ago, "it was not read");
    }
    let (sender, opened) = tokio::sync::oneshot::channel();
    kept.with_whole_file(|file| sender.send(file.is_some()).expect("the test waits"));
    assert_eq!(opened.await, Ok(true));
    assert!(used() > long_ago, "the use that was due");
    file.set_times(FileTimes::new().set_accessed(long_ago).set_modified(long_ago)).expect("times");
    kept.look().await;
    assert_eq!(used(), long_ago, "it is the same use");
}
