use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::{MOST_UNUSED, Shelf, UNLOCKED};
use crate::{List, ListedError, Named, Names};

fn names(list: &Path, shelf: &Path, now_s: u64) -> Names {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now_s);
    Names {
        list: List::File(list.to_owned()),
        shelf: Shelf::new(shelf, now),
        memory_bytes: 1 << 20,
        threads: NonZero::new(1).expect("it is not 0"),
        rows: Arc::default(),
    }
}

fn list(folder: &TempDir, key: &str) -> PathBuf {
    let path = folder.path().join(format!("{key}.tsv"));
    std::fs::write(&path, format!("{key}\t1\te\n")).expect("a list");
    path
}

fn has(named: &Named, key: &str) -> bool {
    named.index.head(key).expect("an answer").is_some()
}

#[test]
fn an_index_is_found_until_its_list_changes() {
    let folder = TempDir::new().expect("a folder");
    let (list, shelf) = (list(&folder, "a"), folder.path().join("shelf"));
    let find = || names(&list, &shelf, 1).find("").expect("a list");
    assert!(find().is_none());
    let built = names(&list, &shelf, 1).build().expect("an index");
    assert!(find().is_some_and(|found| found.path == built.path && has(&found, "a")));
    std::fs::write(&list, "b\t1\te\n").expect("another list");
    assert!(find().is_none(), "the list is another one");
    let other = names(&list, &shelf, 1).build().expect("an index");
    assert!(has(&other, "b") && !has(&other, "a"));
    assert!(has(&built, "a"), "who has opened one keeps it");
}

#[test]
fn a_damaged_index_is_built_anew() {
    let folder = TempDir::new().expect("a folder");
    let (list, shelf) = (list(&folder, "a"), folder.path().join("shelf"));
    let path = names(&list, &shelf, 1).build().expect("an index").path;
    let whole = std::fs::read(&path).expect("an index");
    for damaged in [&b""[..], b"of something else", &whole[1..], &whole[..whole.len() - 1]] {
        std::fs::write(&path, damaged).expect("it is damaged");
        assert!(names(&list, &shelf, 1).find("").expect("a list").is_none());
    }
    assert!(has(&names(&list, &shelf, 1).build().expect("an index"), "a"));
}

#[test]
fn a_list_may_be_an_index() {
    let folder = TempDir::new().expect("a folder");
    let (list, shelf) = (list(&folder, "a"), folder.path().join("shelf"));
    let index = folder.path().join("index");
    let (keys, bytes) = names(&list, &shelf, 1).export(&index).expect("an index");
    assert_eq!((keys, bytes), (1, index.metadata().expect("a file").len()));
    let found = names(&index, &shelf, 1).find("").expect("an index").expect("it need not be built");
    assert!(has(&found, "a") && !found.is_kept);
    let file = File::options().write(true).open(&index).expect("a file");
    file.set_len(bytes - 1).expect("it is cut");
    let error = names(&index, &shelf, 1).find("").expect_err("it can't be built anew");
    assert!(error.to_string().contains("it is an index, and damaged"), "{error}");
}

#[test]
fn indexes_that_nobody_uses_are_removed_but_the_last() {
    let folder = TempDir::new().expect("a folder");
    let shelf = folder.path().join("shelf");
    let keys: Vec<_> = (0..MOST_UNUSED + 3).map(|number| format!("{number}")).collect();
    let mut built = Vec::new();
    for (key, now) in keys.iter().zip(1..) {
        let named = names(&list(&folder, key), &shelf, 0).build().expect("an index");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
        named.index.file().set_modified(time).expect("its time");
        built.push(named);
    }
    // The first one is used.
    let used = built.remove(0);
    let paths: Vec<_> = built.drain(..).map(|named| named.path).collect();
    let unfinished = shelf.join("building-by-a-process-that-was-killed");
    let young = shelf.join("building-now");
    for path in [&unfinished, &young] {
        std::fs::write(path, "").expect("a file");
    }
    let now = UNLOCKED.as_secs() + 10;
    let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(&unfinished).expect("a file").set_modified(time(1)).expect("its time");
    File::open(&young).expect("a file").set_modified(time(now - 1)).expect("its time");
    Shelf::new(&shelf, time(now)).clear();
    assert!(used.path.exists() && has(&used, "0"));
    let left: Vec<_> = paths.iter().map(|path| path.exists()).collect();
    assert_eq!(left, [vec![false; 2], vec![true; MOST_UNUSED]].concat());
    assert_eq!([unfinished.exists(), young.exists()], [false, true]);
}

#[test]
fn two_who_build_at_once_do_not_harm_each_other() {
    let folder = TempDir::new().expect("a folder");
    let (list, shelf) = (list(&folder, "a"), folder.path().join("shelf"));
    std::thread::scope(|scope| {
        let built: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| names(&list, &shelf, 1).build().map(|named| has(&named, "a"))))
            .collect();
        for built in built {
            assert!(built.join().expect("it ends").expect("an index"));
        }
    });
    assert_eq!(std::fs::read_dir(&shelf).expect("a folder").count(), 1);
}

/// The keys of a list of some blocks.
fn many(folder: &TempDir, name: &str) -> (PathBuf, Vec<String>) {
    let keys: Vec<_> = (0..20_000).map(|number| format!("{name}/{number:05}")).collect();
    let lines: String = keys.iter().map(|key| format!("{key}\t1\te\n")).collect();
    let path = folder.path().join(format!("{name}.tsv"));
    std::fs::write(&path, lines).expect("a list");
    (path, keys)
}

/// A mount reads most of its index later, while others build the same one.
#[test]
fn an_index_that_is_read_is_not_overwritten() {
    let folder = TempDir::new().expect("a folder");
    let ((list, keys), shelf) = (many(&folder, "a"), folder.path().join("shelf"));
    let read = names(&list, &shelf, 1).build().expect("an index");
    let bytes = || {
        let mut bytes = vec![0; read.index.file().metadata().expect("its length").len() as usize];
        read.index.file().read_exact_at(&mut bytes, 0).expect("an index");
        bytes
    };
    let before = bytes();
    let other = names(&list, &shelf, 1).build().expect("an index");
    assert_eq!((&read.path, read.index.about()), (&other.path, other.index.about()));
    assert_ne!(read.index.id(), other.index.id(), "it was built anew");
    assert!(bytes() == before, "who reads the former one has it as it was");
    assert!(keys.iter().all(|key| has(&read, key) && has(&other, key)));
    // One that was made by hand is left alone.
    let made = folder.path().join("index");
    names(&list, &shelf, 1).export(&made).expect("an index");
    let before = std::fs::read(&made).expect("an index");
    names(&list, &shelf, 1).export(&made).expect_err("it is there");
    assert!(std::fs::read(&made).expect("an index") == before);
}

/// Nobody can keep a user from doing that to an index of his own.
#[test]
fn an_index_that_is_overwritten_by_another_one_gives_no_wrong_names() {
    let folder = TempDir::new().expect("a folder");
    let shelf = folder.path().join("shelf");
    let [(index, keys), (other, others)] = ["a", "b"].map(|name| {
        let ((list, keys), index) = (many(&folder, name), folder.path().join(name));
        names(&list, &shelf, 1).export(&index).expect("an index");
        (index, keys)
    });
    let read = names(&index, &shelf, 1).find("").expect("an index").expect("it need not be built");
    assert!(has(&read, &keys[0]));
    std::fs::copy(&other, &index).expect("copied over it");
    for key in &keys {
        assert!(!matches!(read.index.head(key), Ok(None)), "{key} is in the list");
    }
    assert!(keys.iter().any(|key| read.index.head(key).is_err()), "most of it is gone");
    for key in &others {
        assert!(!matches!(read.index.head(key), Ok(Some(_))), "{key} is in another list");
    }
    let file = File::open(&index).expect("a file");
    let error = Named::reopen(file, read.index.id(), &shelf).expect_err("a later daemon");
    assert!(matches!(error, ListedError::Damaged(_)), "{error}");
}

#[test]
fn a_list_that_is_gone_is_an_error() {
    let folder = TempDir::new().expect("a folder");
    let error = names(&folder.path().join("none.csv"), folder.path(), 1).find("").expect_err("there is none");
    assert!(matches!(&error, ListedError::File { action, .. } if action.ends_with("none.csv")), "{error:?}");
}
