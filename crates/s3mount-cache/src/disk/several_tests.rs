//! Several cache directories.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use s3mount_object::ObjectId;

use super::clear_tests::unused;
use super::clock::Clock;
use super::layout::{Hash, Layout};
use super::tests::{BLOCK, LIMIT, config, content, files, id, offer, range, read, until};
use super::{CacheDir, DiskCache, DiskConfig};
use crate::disk::io::faults::Op;

const SIZE: u64 = 10_000;

fn several(paths: &[PathBuf]) -> DiskConfig {
    DiskConfig { dirs: paths.to_vec(), ..config(&paths[0]) }
}

fn objects() -> impl Iterator<Item = ObjectId> {
    (0..60).map(|number| id(&format!("key{number}")))
}

/// How many of the objects a cache in these directories has.
async fn found(paths: &[PathBuf]) -> usize {
    let cache = DiskCache::open(&several(paths)).expect("directories of this test");
    let mut found = 0;
    for object in objects() {
        let bytes = read(&cache.object(&object, SIZE), range(0, SIZE)).await;
        assert!(bytes.as_ref().is_none_or(|bytes| *bytes == content(object.key(), SIZE)));
        found += usize::from(bytes.is_some());
    }
    found
}

#[tokio::test]
async fn objects_are_found_in_whatever_order_the_directories_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<PathBuf> = ["a", "b", "c"].map(|name| folder.path().join(name)).to_vec();
    let cache = DiskCache::open(&several(&paths)).expect("directories of this test");
    for object in objects() {
        offer(&cache.object(&object, SIZE), range(0, SIZE), &content(object.key(), SIZE));
    }
    assert!(cache.flush(LIMIT));
    drop(cache);
    let held = paths.iter().map(|path| files(&path.join("v1")).len()).collect::<Vec<_>>();
    assert!(held.iter().all(|held| *held > 5), "each has some: {held:?}");
    let [a, b, c] = [0, 1, 2].map(|index| paths[index].clone());
    assert_eq!(found(&[c.clone(), a.clone(), b.clone()]).await, 60);

    // A directory that can't be used is left out. The versions in the others stay where they are.
    let away = folder.path().join("away");
    fs::rename(&b, &away).expect("renamed");
    fs::write(&b, "no directory").expect("written");
    let cache = DiskCache::open(&several(&paths)).expect("two of three directories");
    let notes: Vec<String> = cache.notes().map(ToString::to_string).collect();
    let expected = format!("--cache {b:?} is not a directory");
    assert!(notes.iter().any(|note| note.starts_with(&expected)), "{notes:?}");
    drop(cache);
    assert_eq!(found(&paths).await, 60 - held[1]);
    fs::remove_file(&b).expect("removed");
    fs::rename(&away, &b).expect("renamed");
    assert_eq!(found(&paths).await, 60);

    // An added directory takes only versions that hash to it.
    let with_another = [a, folder.path().join("d"), b, c];
    assert!((30..60).contains(&found(&with_another).await));
    for path in &with_another {
        unused(path).await;
        CacheDir::open(path).expect("a cache").clear(|_| {}).expect("cleared");
        assert_eq!(files(path), Vec::<PathBuf>::new(), "nothing is left");
    }
}

#[tokio::test]
async fn a_directory_that_hangs_holds_up_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    let now = Arc::new(AtomicU64::new(1 << 40));
    let cache = DiskCache::open_at(&several(&paths), &Clock::manual(1, now.clone()));
    let cache = cache.expect("directories of this test");
    let [hangs, works] = [0, 1].map(|index| {
        let is_there = |object: &ObjectId| {
            let hash = Hash::of(&cache.0.source, object);
            std::ptr::eq(cache.disk(&hash), &raw const cache.0.disks[index])
        };
        cache.object(&objects().find(is_there).expect("each has some"), 2 * BLOCK)
    });
    let (release, hung) = mpsc::channel::<()>();
    let hung = Mutex::new(hung);
    cache.0.disks[0].dir().io.faults.set(move |op| {
        if op == Op::Write {
            // It ends when the test drops the other end.
            let _ = hung.lock().map(|hung| hung.recv());
        }
        Ok(())
    });
    for object in [&hangs, &works] {
        offer(object, range(0, BLOCK), &content("key", 2 * BLOCK));
    }
    assert!(!cache.flush(Duration::from_millis(300)));
    let maps =
        |path| files(path).iter().filter(|path| path.extension().is_some_and(|end| end == "map")).count();
    assert_eq!((maps(&paths[0]), maps(&paths[1])), (0, 1), "all that is known of it is written");
    let is_idle = || {
        now.fetch_add(1 << 30, Ordering::Relaxed);
        cache.is_idle()
    };
    until("nobody waits for the one that hangs", is_idle).await;
    assert!(works.is_writable() && !hangs.is_writable());
    drop(release);
}

/// When a directory was recreated, later mounts find the versions of the others.
#[tokio::test]
async fn a_directory_that_is_made_again_has_its_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let [a, b, elsewhere] = ["a", "b", "elsewhere"].map(|name| folder.path().join(name));
    drop(DiskCache::open(&several(&[a.clone(), elsewhere.clone()])).expect("directories of this test"));
    unused(&elsewhere).await;
    fs::rename(&elsewhere, &b).expect("renamed");
    let number = || fs::read(Layout::new(&b).number()).expect("a number");
    let before = number();
    let cache = DiskCache::open(&several(&[a.clone(), b.clone()])).expect("directories of this test");
    assert!(cache.flush(LIMIT));
    fs::remove_dir_all(&b).expect("deleted");
    assert!(cache.flush(LIMIT));
    assert_eq!(number(), before);
    drop(cache);
    unused(&b).await;
    CacheDir::open(&b).expect("a cache").clear(|_| {}).expect("cleared");
    assert_eq!(number(), before, "its path would give it another one");
}

#[test]
fn no_directory_that_can_be_used_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = ["x/a", "x/b"].map(|name| folder.path().join(name));
    let error = DiskCache::open(&several(&missing)).expect_err("there is none").to_string();
    assert!(error.starts_with(&format!("--cache {:?} does not exist", missing[0])), "{error}");
}
