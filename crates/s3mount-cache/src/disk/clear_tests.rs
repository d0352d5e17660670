//! Caches that are cleared while mounts begin, or by a command that is killed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{sleep, timeout};

use super::layout::Layout;
use super::tests::{LIMIT, content, files, folder, id, offer, open, range};
use super::{CacheDir, DiskCache};
use crate::disk::evict::limit;
use crate::disk::io::faults::Op;

const SIZE: u64 = 10_000;

/// Waits until the threads of a cache have ended, which go on for a moment after it was dropped.
pub(super) async fn unused(path: &Path) {
    let layout = Layout::new(path);
    let is_unused = async {
        while limit::look(&layout).expect("a limit").1 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, is_unused).await.expect("nobody uses it any more");
}

async fn keeps(cache: &DiskCache, key: &str) -> bool {
    let object = cache.object(&id(key), SIZE);
    offer(&object, range(0, SIZE), &content(key, SIZE));
    assert!(cache.flush(LIMIT));
    object.look().await;
    object.run(0).is_here
}

#[tokio::test]
async fn a_mount_that_begins_while_its_cache_is_cleared_stays() {
    let (_folder, path) = folder();
    assert!(keeps(&open(&path), "a").await);
    unused(&path).await;
    let (mut mounted, mut shards) = (None, 0);
    CacheDir::open(&path)
        .expect("a cache")
        .clear(|_| {
            shards += 1;
            if shards == CacheDir::SHARDS {
                mounted = Some(open(&path));
            }
        })
        .expect("cleared");
    assert!(keeps(mounted.as_ref().expect("mounted"), "b").await);
    drop(mounted);
    assert!(keeps(&open(&path), "c").await, "the next mount takes it");
}

/// It has looked at the directory, and waits for the lock.
#[tokio::test]
async fn a_mount_that_waits_for_a_clear_begins_anew() {
    let (_folder, path) = folder();
    drop(open(&path));
    unused(&path).await;
    let layout = Layout::new(&path);
    let lock = limit::lock_unused(&layout).expect("a file").expect("nobody uses it");
    let mount = tokio::task::spawn_blocking({
        let path = path.clone();
        move || open(&path)
    });
    sleep(Duration::from_millis(200)).await;
    CacheDir::open(&path).expect("a cache").clear_rest().expect("cleared");
    drop(lock);
    let mounted = mount.await.expect("mounted");
    assert!(keeps(&mounted, "a").await);
    assert!(limit::look(&layout).expect("a limit").1, "others see that it is used");
    drop(mounted);
    assert!(keeps(&open(&path), "b").await, "the next mount takes it");
}

/// A running mount would count the wrong bytes as in use, until its next pass.
#[tokio::test]
async fn what_is_counted_is_cleared_too() {
    let (_folder, path) = folder();
    let mounted = open(&path);
    assert!(keeps(&mounted, "a").await);
    let mut listing = mounted.names().expect("it keeps names").write("d/").expect("a listing");
    listing.push(None, b"names").expect("a page");
    listing.finish().expect("a file");
    let dir = CacheDir::open(&path).expect("a cache");
    let counts = dir.counts().expect("a file").expect("known");
    assert_eq!(counts.listings, dir.listings_bytes());
    assert!(0 < counts.listings && counts.listings < counts.used);
    // A killed process had reserved them.
    dir.change_counts(|counts| counts.add(1 << 20)).expect("a file");
    dir.clear(|_| {}).expect("cleared");
    let counts = dir.counts().expect("a file").expect("a mount uses it");
    assert_eq!((counts.used, counts.listings), (0, 0));
    drop(mounted);
}

impl CacheDir {
    fn listings_bytes(&self) -> u64 {
        (0..Self::SHARDS).map(|shard| self.listings(shard).expect("a shard").bytes).sum()
    }
}

/// In another user's folder, links could lead root anywhere.
#[test]
fn a_cache_of_another_user_is_left_alone() {
    let (_folder, path) = folder();
    drop(open(&path));
    let owner = rustix::process::geteuid().as_raw();
    let error = CacheDir::open_as(&path, owner + 1).expect_err("it is refused").to_string();
    assert_eq!(
        error,
        format!("the disk cache {path:?} belongs to user {owner}; run the command as that user")
    );
}

#[tokio::test]
async fn a_clear_that_is_killed_leaves_a_cache() {
    let (_folder, path) = folder();
    for most in 0.. {
        assert!(keeps(&open(&path), "a").await, "after {most} deletions");
        unused(&path).await;
        let (dir, done) = (CacheDir::open(&path).expect("a cache"), Arc::new(AtomicU64::new(0)));
        dir.io.faults.set(move |op| {
            let is_last = op == Op::Remove && done.fetch_add(1, Ordering::Relaxed) == most;
            if is_last { Err(Errno::IO.into()) } else { Ok(()) }
        });
        if dir.clear(|_| {}).is_ok() {
            break;
        }
    }
    assert!(files(&path).is_empty());
}
