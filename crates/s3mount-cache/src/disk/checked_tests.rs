//! Objects that are compared with their checksums without a read, and sectors that can't be read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use super::layout::{Hash, Layout};
use super::tests::{
    BLOCK, LIMIT, config, content, flip, folder, id, offer, open_in_boot, range, read, until,
};
use super::{DiskCache, DiskObject};
use crate::disk::io::faults::Op;
use crate::disk::io::health::Condition;

const SIZE: u64 = 20 * BLOCK + 9;

fn file_of(path: &Path, key: &str) -> PathBuf {
    Layout::new(path).whole(&Hash::of(&config(path).source, &id(key)))
}

/// Keeps an object.
fn keep(cache: &DiskCache, key: &str) -> Arc<DiskObject> {
    let object = cache.object(&id(key), SIZE);
    offer(&object, range(0, SIZE), &content(key, SIZE));
    assert!(cache.flush(LIMIT));
    object
}

fn fail_reads(cache: &DiskCache, errno: Option<Errno>) {
    let fail =
        move |op| if op == Op::Read { errno.map_or(Ok(()), |errno| Err(errno.into())) } else { Ok(()) };
    cache.0.disks[0].dir().io.faults.set(fail);
}

fn condition(cache: &DiskCache) -> Condition {
    cache.0.disks[0].dir().health.condition()
}

/// Passes an object to the kernel, and closes it.
async fn pass(cache: &DiskCache, key: &str) -> bool {
    let object = cache.object(&id(key), SIZE);
    let (sender, opened) = tokio::sync::oneshot::channel();
    object.with_whole_file(|file| sender.send(file.is_some()).expect("the test waits"));
    opened.await.expect("an answer")
}

#[tokio::test]
async fn an_unreadable_sector_concerns_one_version() {
    let (_folder, path) = folder();
    let (cache, now) = open_in_boot(&path, 1);
    keep(&cache, "other");
    for errno in [Errno::IO, Errno::NODATA, Errno::BADMSG, Errno::IO, Errno::IO, Errno::IO] {
        let object = keep(&cache, "damaged");
        object.look().await;
        fail_reads(&cache, Some(errno));
        assert_eq!(read(&object, range(BLOCK, 2 * BLOCK)).await, None);
        fail_reads(&cache, None);
        assert!(!object.run(0).is_here, "it is to be fetched again");
        assert!(cache.flush(LIMIT));
        assert!(!file_of(&path, "damaged").exists() && condition(&cache) == Condition::Healthy);
        now.fetch_add(1_000_000_000, Ordering::Relaxed);
    }
    assert_eq!((cache.0.metrics.unreadable.get(), cache.0.metrics.corrupt.get()), (6, 0));
    let object = keep(&cache, "damaged");
    assert_eq!(read(&object, range(0, SIZE)).await, Some(content("damaged", SIZE)));
    assert!(file_of(&path, "other").exists());
}

#[tokio::test]
async fn a_record_that_can_not_be_read_is_deleted_with_its_file() {
    let (_folder, path) = folder();
    let (cache, _) = open_in_boot(&path, 1);
    drop(keep(&cache, "a"));
    fail_reads(&cache, Some(Errno::IO));
    let object = cache.object(&id("a"), SIZE);
    object.look().await;
    fail_reads(&cache, None);
    assert!(!object.run(0).is_here && !file_of(&path, "a").exists());
    drop(object);
    assert_eq!(read(&keep(&cache, "a"), range(0, SIZE)).await, Some(content("a", SIZE)));
}

#[tokio::test]
async fn blocks_of_a_part_that_can_not_be_read_are_fetched_again() {
    let (_folder, path) = folder();
    let (cache, _) = open_in_boot(&path, 1);
    let (object, bytes) = (cache.object(&id("part"), SIZE), content("part", SIZE));
    offer(&object, range(0, 8 * BLOCK), &bytes);
    assert!(cache.flush(LIMIT));
    fail_reads(&cache, Some(Errno::IO));
    assert_eq!(read(&object, range(BLOCK, 2 * BLOCK)).await, None);
    fail_reads(&cache, None);
    assert!(object.run(0).is_here && !object.run(BLOCK).is_here && object.run(2 * BLOCK).is_here);
    offer(&object, range(0, SIZE), &bytes);
    assert!(cache.flush(LIMIT));
    assert_eq!(read(&object, range(0, SIZE)).await, Some(bytes));
}

/// The kernel compares nothing, and reports no unreadable sector to the daemon.
#[tokio::test]
async fn what_the_kernel_has_read_is_looked_through() {
    let (_folder, path) = folder();
    let (cache, now) = open_in_boot(&path, 1);
    for key in ["right", "flipped", "unreadable"] {
        drop(keep(&cache, key));
        now.fetch_add(1_000_000_000, Ordering::Relaxed);
    }
    flip(&file_of(&path, "flipped"), SIZE - 1);
    assert!(pass(&cache, "right").await && pass(&cache, "flipped").await);
    until("the flipped bit is found", || !file_of(&path, "flipped").exists()).await;
    let object = cache.object(&id("unreadable"), SIZE);
    object.look().await;
    assert!(pass(&cache, "unreadable").await);
    fail_reads(&cache, Some(Errno::IO));
    drop(object);
    until("the sector is found", || !file_of(&path, "unreadable").exists()).await;
    fail_reads(&cache, None);
    assert!(file_of(&path, "right").exists() && condition(&cache) == Condition::Healthy);
    // The objects are fetched anew.
    drop(keep(&cache, "flipped"));
    assert!(pass(&cache, "flipped").await);
}

/// Opens a cache after a power cut, in which no file can be trusted.
fn after_a_power_cut(path: &Path, keys: &[&str]) -> (DiskCache, Arc<AtomicU64>) {
    let (cache, _) = open_in_boot(path, 1);
    keys.iter().for_each(|key| drop(keep(&cache, key)));
    cache.0.disks[0].abandon();
    drop(cache);
    std::fs::remove_file(Layout::new(path).durable()).expect("it was synced");
    open_in_boot(path, 2)
}

#[tokio::test]
async fn what_is_closed_at_once_is_compared_too() {
    let (_folder, path) = folder();
    let (cache, _) = after_a_power_cut(&path, &["a", "b"]);
    for key in ["a", "b"] {
        let object = cache.object(&id(key), SIZE);
        object.look().await;
        assert!(object.whole_file().is_none());
    }
    assert!(cache.flush(LIMIT));
    for key in ["a", "b"] {
        let object = cache.object(&id(key), SIZE);
        object.look().await;
        assert!(object.whole_file().is_some(), "{key}");
    }
}

/// A disk that reads 1.6 MB/s does not hang: no operation takes long.
#[tokio::test]
async fn a_large_file_is_compared_piece_by_piece() {
    let (_folder, path) = folder();
    let (cache, now) = after_a_power_cut(&path, &["a"]);
    let (reads, counted) = (Arc::new(AtomicU64::new(0)), cache.0.disks[0].dir().clone());
    let count = reads.clone();
    counted.io.faults.set(move |op| {
        if op == Op::Read && count.fetch_add(1, Ordering::Relaxed) > 0 {
            // Long enough for the watch of the disk to see it.
            std::thread::sleep(Duration::from_millis(700));
            now.fetch_add(2_000_000_000, Ordering::Relaxed);
        }
        Ok(())
    });
    let object = cache.object(&id("a"), SIZE);
    object.look().await;
    assert!(cache.flush(LIMIT));
    assert_eq!(condition(&cache), Condition::Healthy);
    assert!(object.whole_file().is_some());
    assert!(reads.load(Ordering::Relaxed) >= 3, "a piece is 1 MiB");
}
