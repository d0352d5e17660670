//! Several cache directories.

use std::fs;
use std::path::PathBuf;

use s3mount_object::ObjectId;

use super::clear_tests::unused;
use super::layout::Layout;
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
        unused(path).await;
        CacheDir::open(path).expect("a cache").clear(|_| {}).expect("cleared");
        assert_eq!(files(path), Vec::<PathBuf>::new(), "nothing is left");
    }
}

/// Where a directory was made again, later mounts find what the others hold.
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
