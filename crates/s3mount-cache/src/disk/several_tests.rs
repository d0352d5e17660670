//! Several cache directories.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use s3mount_object::ObjectId;
use tokio::time::{sleep, timeout};

use super::layout::Layout;
use super::limit;
use super::tests::{LIMIT, config, content, files, id, offer, range, read};
use super::{CacheDir, DiskCache, DiskConfig};

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

    // A directory that can't be used is left out. What the others have stays where it is.
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

    // One that comes takes only what is new to it.
    let with_another = [a, folder.path().join("d"), b, c];
    assert!((30..60).contains(&found(&with_another).await));
    for path in &with_another {
        // The threads of a cache go on for a moment after it was dropped.
        let layout = Layout::new(path);
        let is_unused = async {
            while limit::look(&layout).expect("a limit").1 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, is_unused).await.expect("nobody uses it any more");
        CacheDir::open(path).expect("a cache").clear(|_| {}).expect("cleared");
        assert_eq!(files(path), Vec::<PathBuf>::new(), "nothing is left");
    }
}

#[test]
fn no_directory_that_can_be_used_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = ["x/a", "x/b"].map(|name| folder.path().join(name));
    let error = DiskCache::open(&several(&missing)).expect_err("there is none").to_string();
    assert!(error.starts_with(&format!("--cache {:?} does not exist", missing[0])), "{error}");
}
