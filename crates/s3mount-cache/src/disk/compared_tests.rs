//! Caches that give the kernel only files that were compared with the store's checksum.

use std::path::Path;
use std::time::Duration;

use super::tests::{BLOCK, LIMIT, config, content, files, flip, folder, id, offer, range, read, until};
use super::{DiskCache, DiskConfig, blocks};
use crate::disk::io::faults::Op;

const SIZE: u64 = 5 * BLOCK + 77;

fn open(path: &Path, only_compared: bool) -> DiskCache {
    DiskCache::open(&DiskConfig { only_compared, ..config(path) }).expect("a directory of this test")
}

/// Whether the kernel may have the version.
async fn passes(cache: &DiskCache, key: &str) -> bool {
    let object = cache.object(&id(key), SIZE);
    object.look().await;
    object.whole_file().is_some()
}

/// The CRC of the object's right bytes.
fn right(key: &str) -> u64 {
    blocks::sum(&content(key, SIZE))
}

#[tokio::test]
async fn the_kernel_gets_what_was_compared_with_the_store() {
    let (_folder, path) = folder();
    let cache = open(&path, false);
    let bytes = content("a", SIZE);
    // Confirmed by a reader before all of it is here, after it, and never.
    for (key, before, after) in [("before", true, false), ("after", false, true), ("never", false, false)] {
        let object = cache.object(&id(key), SIZE);
        offer(&object, range(0, 2 * BLOCK), &bytes);
        if before {
            object.confirm(right("a"));
        }
        offer(&object, range(2 * BLOCK, SIZE), &bytes);
        assert!(cache.flush(LIMIT));
        if after {
            object.confirm(right("a"));
        }
    }
    cache.object(&id("once"), SIZE).offer(range(0, SIZE), &bytes);
    cache.object(&id("sent"), SIZE).offer_compared(range(0, SIZE), &bytes);
    assert!(cache.flush(LIMIT));
    for key in ["before", "after", "never", "once", "sent"] {
        assert!(passes(&cache, key).await, "{key}: this mount asks for no more");
    }
    drop(cache);
    let cache = open(&path, true);
    for (key, is_compared) in
        [("before", true), ("after", true), ("never", false), ("once", false), ("sent", true)]
    {
        let object = cache.object(&id(key), SIZE);
        assert_eq!(passes(&cache, key).await, is_compared, "{key}");
        assert_eq!(object.is_compared(), is_compared, "{key}");
        assert_eq!(read(&object, range(1, SIZE)).await, Some(bytes.slice(1..)));
    }
    let once = cache.object(&id("once"), SIZE);
    once.look().await;
    once.confirm(right("a"));
    assert!(cache.flush(LIMIT));
    assert!(once.whole_file().is_some() && once.is_compared());
    drop((once, cache));
    let cache = open(&path, true);
    assert!(passes(&cache, "once").await && !passes(&cache, "never").await);
}

/// A long object has its record in its own file, and is compared nevertheless.
#[tokio::test]
async fn a_long_object_is_compared_by_the_sums_of_its_blocks() {
    let (_folder, path) = folder();
    let size = 300 * BLOCK + 1;
    let bytes = content("long", size);
    let cache = open(&path, true);
    let object = cache.object(&id("long"), size);
    for start in (0..size).step_by(64 * BLOCK as usize) {
        offer(&object, range(start, (start + 64 * BLOCK).min(size)), &bytes);
    }
    assert!(cache.flush(LIMIT));
    assert!(object.whole_file().is_none());
    object.confirm(blocks::sum(&bytes));
    assert!(cache.flush(LIMIT));
    assert!(object.whole_file().is_some());
    drop((object, cache));
    // The comparison is known before it is recorded.
    for _ in 0..600 {
        let cache = open(&path, true);
        let object = cache.object(&id("long"), size);
        object.look().await;
        if object.whole_file().is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the comparison is not recorded");
}

#[tokio::test]
async fn what_came_wrong_is_deleted_once_the_store_has_told() {
    let (_folder, path) = folder();
    let cache = open(&path, true);
    for key in ["before", "after", "once"] {
        let object = cache.object(&id(key), SIZE);
        // Other bytes were fetched, and their checksums taken.
        let wrong = content("wrong", SIZE);
        if key == "once" {
            offer(&object, range(0, SIZE), &wrong);
        } else {
            offer(&object, range(0, 2 * BLOCK), &wrong);
            assert!(cache.flush(LIMIT));
            if key == "before" {
                object.confirm(right(key));
            }
            offer(&object, range(2 * BLOCK, SIZE), &content(key, SIZE));
        }
        assert!(cache.flush(LIMIT));
        if key != "before" {
            object.confirm(right(key));
        }
        assert!(cache.flush(LIMIT));
        // Its own thread compares it.
        until(key, || !object.run(0).is_here).await;
        assert!(object.whole_file().is_none(), "{key}");
    }
    assert_eq!(files(&path.join("v1")), [] as [std::path::PathBuf; 0]);
    assert_eq!(cache.0.metrics.corrupt.get(), 3);
}

/// A file that was compared is still checked where the daemon reads it.
#[tokio::test]
async fn a_bit_that_flips_later_is_found_by_the_sums_of_the_blocks() {
    let (_folder, path) = folder();
    let cache = open(&path, true);
    let object = cache.object(&id("a"), SIZE);
    object.offer_compared(range(0, SIZE), &content("a", SIZE));
    assert!(cache.flush(LIMIT));
    flip(&files(&path.join("v1"))[0], 9);
    assert_eq!(read(&object, range(0, SIZE)).await, None);
    assert!(!object.run(0).is_here && !object.is_compared());
}

/// Wrong bytes may wait to be written, or be written, when they turn out to be wrong.
#[tokio::test]
async fn what_waits_when_it_turns_out_to_be_wrong_is_not_kept() {
    let (_folder, path) = folder();
    let cache = open(&path, true);
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    cache.0.disks[0].dir().io.faults.set(move |op| {
        if op == Op::Write {
            // It ends when the test drops the other end.
            let _ = blocked.lock().map(|blocked| blocked.recv());
        }
        Ok(())
    });
    let objects = ["a", "b", "c", "d", "e", "f"].map(|key| cache.object(&id(key), SIZE));
    for (number, object) in objects.iter().enumerate() {
        let end = if number % 2 == 0 { SIZE } else { 3 * BLOCK };
        offer(object, range(0, end), &content("wrong", SIZE));
    }
    ["a", "b", "c", "d", "e", "f"].iter().for_each(|key| cache.forget(&id(key)));
    drop(release);
    assert!(cache.flush(LIMIT));
    assert!(objects.iter().all(|object| !object.run(0).is_here));
    assert_eq!(files(&path.join("v1")), [] as [std::path::PathBuf; 0]);
    // Later offers are kept.
    offer(&objects[0], range(0, SIZE), &content("a", SIZE));
    assert!(cache.flush(LIMIT));
    assert_eq!(read(&objects[0], range(0, SIZE)).await, Some(content("a", SIZE)));
}
