//! Names that are deleted and renamed while strangers change the bucket, over a client in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use s3mount_fs::{
    DirEntry, DirOffset, FileHandle, Filesystem, FsConfig, FsError, InodeNo, MetadataTtl, Place, ROOT,
    Rights, StoredAttr, WriteOpen, Writes,
};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ErrorKind, NewObject};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use s3mount_write::{WriteConfig, Writer};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

const WRITE: WriteOpen = WriteOpen { writes: true, appends: false, truncates: false, is_exclusive: false };

const ALL: Rights = Rights { may_delete: true, may_overwrite: true, folder_rename_limit: 100 };

/// A mount with these rights, of a bucket that holds `old`.
fn mount_with(
    rights: Rights,
    change: impl FnOnce(Filesystem) -> Filesystem,
) -> (Arc<MemoryClient>, Arc<Filesystem>) {
    mount_as(rights, |_| (), change)
}

/// A mount with these rights, and the settings that `set` has changed.
fn mount_limited(rights: Rights, set: impl FnOnce(&mut FsConfig)) -> (Arc<MemoryClient>, Arc<Filesystem>) {
    mount_as(rights, set, |fs| fs)
}

fn mount_as(
    rights: Rights,
    set: impl FnOnce(&mut FsConfig),
    change: impl FnOnce(Filesystem) -> Filesystem,
) -> (Arc<MemoryClient>, Arc<Filesystem>) {
    let client = Arc::new(MemoryClient::new());
    client.put("old", "old text");
    let (runtime, pool) = (Handle::current(), BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool"));
    let prefetcher = Prefetcher::new(client.clone(), pool.clone(), PrefetchConfig::default(), &runtime);
    let config = WriteConfig { memory_bytes: 32 << 20, ..WriteConfig::default() };
    let writer = Writer::new(client.clone(), pool, config, &runtime);
    let writes = Writes {
        writer,
        rights,
        object: NewObject::default(),
        append_delay: Duration::ZERO,
        outbox: None,
        publishes_on_fsync: false,
    };
    let mut config = FsConfig { allows_writes: true, ..FsConfig::default() };
    set(&mut config);
    let fs = Filesystem::new(client.clone(), prefetcher, config, &runtime).with_writes(writes);
    (client, Arc::new(change(fs)))
}

fn mount(rights: Rights) -> (Arc<MemoryClient>, Arc<Filesystem>) {
    mount_with(rights, |fs| fs)
}

fn place(name: &str) -> Place<'_> {
    Place { parent: ROOT, name }
}

async fn look_up(fs: &Filesystem, name: &str) -> InodeNo {
    fs.lookup(ROOT, name).await.expect("a name").attr.ino
}

async fn create(fs: &Arc<Filesystem>, name: &str, text: &[u8]) -> FileHandle {
    let (_, opened) = fs.create(ROOT, name, WRITE).await.expect("a file");
    assert!(fs.write(opened.handle, 0, text, 1).expect("memory").is_none());
    opened.handle
}

async fn read(fs: &Arc<Filesystem>, handle: FileHandle) -> Result<String, FsError> {
    let (send, receive) = oneshot::channel();
    fs.read(handle, 0, 64 << 10, move |result| {
        let _ = send.send(result.map(|bytes| String::from_utf8_lossy(bytes).into_owned()));
    });
    receive.await.expect("an answer")
}

async fn close(fs: &Arc<Filesystem>, handle: FileHandle) {
    fs.clone().flush(handle, |_| true).await.expect("an object");
    fs.release(handle);
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// A stranger replaces a file. The mount finds out because it looks at a neighbour, and the kernel is not told yet when
/// it renames the file.
#[tokio::test(start_paused = true)]
async fn the_inode_of_a_replaced_version_does_not_become_the_new_one() {
    for text in ["new text", "of another size"] {
        let (client, fs) = mount(ALL);
        let known = look_up(&fs, "old").await;
        client.put("old", text);
        assert!(matches!(fs.lookup(ROOT, "neighbour").await, Err(FsError::NotFound)));
        // The kernel would go on with its inode, and show the size of the old version. It looks the name up again.
        let renamed = fs.rename(place("old"), place("renamed"), false).await;
        assert!(matches!(renamed, Err(FsError::Outdated)), "{renamed:?}");
        let newer = look_up(&fs, "old").await;
        assert_ne!(newer, known, "the kernel has pages of the old version");
        fs.rename(place("old"), place("renamed"), false).await.expect("another name");
        assert_eq!(client.stored("renamed").0, text.as_bytes());
        let entry = fs.lookup(ROOT, "renamed").await.expect("a name");
        assert_eq!((entry.attr.ino, entry.attr.size), (newer, text.len() as u64));
        assert!(matches!(fs.open(known), Err(FsError::Outdated)));
    }
}

/// A job writes temporary files and renames them. Then a stranger removes all that is in the folder.
#[tokio::test(start_paused = true)]
async fn who_renames_files_in_a_folder_does_not_keep_the_folder() {
    let (client, fs) = mount(ALL);
    client.put("d/temporary", "text");
    let folder = look_up(&fs, "d").await;
    fs.lookup(folder, "temporary").await.expect("a file");
    let [from, to] = ["temporary", "final"].map(|name| Place { parent: folder, name });
    fs.rename(from, to, false).await.expect("another name");
    assert!(fs.lookup(ROOT, "d").await.is_ok());
    client.delete("d/final");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(matches!(fs.lookup(ROOT, "d").await, Err(FsError::NotFound)));
}

/// A job takes temporary files out of a folder that has others, too. Once a listing has shown that it has, strangers can
/// remove the folder.
#[tokio::test(start_paused = true)]
async fn who_takes_files_out_of_a_folder_keeps_it_until_a_listing_shows_it() {
    for (is_moved, is_listed) in [(false, false), (false, true), (true, false), (true, true)] {
        let (client, fs) = mount(ALL);
        client.put("a/d/temporary", "text");
        client.put("a/d/other", "text");
        let around = look_up(&fs, "a").await;
        let folder = fs.lookup(around, "d").await.expect("a folder").attr.ino;
        if is_moved {
            let from = Place { parent: folder, name: "temporary" };
            fs.rename(from, place("moved"), false).await.expect("another name");
        } else {
            fs.unlink(folder, "temporary").await.expect("it is there");
        }
        tokio::time::sleep(Duration::from_secs(61)).await;
        // Looks at the store again, or lists the folders around it.
        fs.lookup(around, "d").await.expect("it has another file");
        for ino in [ROOT, around].iter().filter(|_| is_listed) {
            let handle = fs.opendir(*ino).expect("a folder");
            rest(&fs, handle, DirOffset::AFTER_DOTS).await;
        }
        look_up(&fs, "a").await;
        client.delete("a/d/other");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(matches!(fs.lookup(around, "d").await, Err(FsError::NotFound)));
        assert!(matches!(fs.lookup(ROOT, "a").await, Err(FsError::NotFound)));
    }
}

/// A program deletes the last file of a folder, and goes on in the folder much later.
#[tokio::test(start_paused = true)]
async fn emptied_folders_stay_with_those_around_them_until_they_are_removed() {
    let (client, fs) = mount(ALL);
    client.put("a/d/last", "text");
    let around = look_up(&fs, "a").await;
    let folder = fs.lookup(around, "d").await.expect("a folder").attr.ino;
    fs.unlink(folder, "last").await.expect("it is there");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(look_up(&fs, "a").await, around);
        assert_eq!(fs.lookup(around, "d").await.expect("a folder").attr.ino, folder);
        let handle = fs.opendir(ROOT).expect("a folder");
        assert!(rest(&fs, handle, DirOffset::AFTER_DOTS).await.contains_key("a"));
    }
    assert!(matches!(fs.rmdir(ROOT, "a").await, Err(FsError::NotEmpty)));
    fs.rmdir(around, "d").await.expect("it is empty");
    fs.rmdir(ROOT, "a").await.expect("it is empty");
    assert!(matches!(fs.lookup(ROOT, "a").await, Err(FsError::NotFound)));
}

/// A job deletes the only file of each of many folders, and removes no folder.
#[tokio::test(start_paused = true)]
async fn emptied_folders_are_counted_and_the_oldest_go() {
    const FOLDERS: usize = 4000;
    let (client, fs) = mount_limited(ALL, |config| config.metadata_limit_bytes = 1 << 20);
    for index in 0..FOLDERS {
        client.put(&format!("d/{index:04}/temporary"), "text");
    }
    let parent = look_up(&fs, "d").await;
    for index in 0..FOLDERS {
        let folder = fs.lookup(parent, &format!("{index:04}")).await.expect("a folder").attr.ino;
        fs.unlink(folder, "temporary").await.expect("it is there");
        fs.forget(folder, 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    let handle = fs.opendir(parent).expect("a folder");
    let shown = rest(&fs, handle, DirOffset::AFTER_DOTS).await;
    assert!((100..FOLDERS / 2).contains(&shown.len()), "{} folders", shown.len());
    assert!(shown.contains_key(&format!("{:04}", FOLDERS - 1)), "the newest stay");
}

/// The bucket is gone, or a proxy answers 404 to all: no name is absent by that.
#[tokio::test(start_paused = true)]
async fn a_listing_that_is_not_found_does_not_say_that_a_name_is_absent() {
    let (client, fs) = mount(ALL);
    for kind in [ErrorKind::NotFound, ErrorKind::NoSuchBucket] {
        client.fail_next([kind.clone(), kind]);
        assert_eq!(fs.lookup(ROOT, "old").await.map(|_| ()).map_err(|error| error.errno()), Err(libc::EIO));
        let handle = fs.opendir(ROOT).expect("a folder");
        let listed = fs.readdir(handle, DirOffset::AFTER_DOTS, 100).await;
        assert_eq!(listed.map(|_| ()).map_err(|error| error.errno()), Err(libc::EIO));
        fs.releasedir(handle);
    }
    look_up(&fs, "old").await;
}

/// All names that an open folder shows from `offset` on, with their sizes.
async fn rest(fs: &Filesystem, handle: FileHandle, mut offset: DirOffset) -> BTreeMap<String, u64> {
    let mut shown = BTreeMap::new();
    loop {
        let page = fs.readdir(handle, offset, 100).await.expect("a page");
        let Some(last) = page.last() else { return shown };
        offset = last.next;
        for DirEntry { name, next, .. } in page {
            let entry = fs.entry_before(handle, next).await.expect("it is there");
            shown.insert(name, entry.attr.size);
        }
    }
}

/// A folder of two pages. While a program reads the first, others remove names, replace one, and write the last of the
/// page, which is held back because a folder of its name may follow.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_listing_shows_what_has_changed_since_it_was_asked_for() {
    let (client, fs) = mount(ALL);
    for index in 0..1_500 {
        client.put(&format!("f{index:04}"), "text");
    }
    let handle = fs.opendir(ROOT).expect("a folder");
    let first = fs.readdir(handle, DirOffset::AFTER_DOTS, 100).await.expect("a page");
    for name in ["f0500", "f0600", "f1400"] {
        fs.unlink(ROOT, name).await.expect("the name goes");
    }
    let ino = look_up(&fs, "f0999").await;
    let open = fs.open_to_write(ino, WRITE).await.expect("a file").handle;
    if let Some(deferred) = fs.write(open, 0, b"longer text", 1).expect("memory") {
        fs.clone().finish_write(deferred).await.expect("memory");
    }
    let replaced = create(&fs, "f0700", b"more than before").await;
    close(&fs, replaced).await;
    // Somebody else's listing shows a name that a stranger has removed, and one that he has replaced.
    client.delete("f0800");
    client.put("f0801", "theirs");
    let other = fs.opendir(ROOT).expect("a folder");
    rest(&fs, other, DirOffset::AFTER_DOTS).await;
    let shown = rest(&fs, handle, first.last().expect("a name").next).await;
    for gone in ["f0500", "f0600", "f0800", "f1400"] {
        assert!(!shown.contains_key(gone), "{gone} is gone");
        assert!(matches!(fs.lookup(ROOT, gone).await, Err(FsError::NotFound)), "{gone} does not come back");
    }
    assert_eq!((shown["f0700"], shown["f0801"], shown["f0999"]), (16, 6, 11));
    assert_eq!(shown.len(), 1_501 - 100 - 4);
    fs.release(open);
}

/// A listing has shown that a stranger has removed a file, and that is not believed any more. Nor does the file come back
/// with the rest of an older listing.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_listing_does_not_bring_back_what_was_found_absent_a_while_ago() {
    let second = Duration::from_secs(1);
    let (client, fs) = mount_limited(ALL, |config| config.negative_metadata_ttl = second);
    ["a", "b", "c"].iter().for_each(|name| drop(client.put(name, "text")));
    let handle = fs.opendir(ROOT).expect("a folder");
    let first = fs.readdir(handle, DirOffset::AFTER_DOTS, 1).await.expect("a page");
    tokio::time::sleep(second).await;
    client.delete("b");
    let other = fs.opendir(ROOT).expect("a folder");
    assert!(!rest(&fs, other, DirOffset::AFTER_DOTS).await.contains_key("b"));
    tokio::time::sleep(5 * second).await;
    let shown = rest(&fs, handle, first.last().expect("a name").next).await;
    assert_eq!(shown.into_keys().collect::<Vec<_>>(), ["c", "old"]);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_file_is_deleted_once_it_is_looked_up_again() {
    let (client, fs) = mount(ALL);
    look_up(&fs, "old").await;
    client.put("old", "theirs");
    fs.unlink(ROOT, "old").await.expect("the name goes");
    assert!(client.keys().is_empty());
    let writes: Vec<_> = client.take_writes().into_iter().collect();
    assert_eq!(writes, [("DeleteObject", 2)], "the first names the version that was known");
    assert!(matches!(fs.lookup(ROOT, "old").await, Err(FsError::NotFound)));
}

/// The kernel has found a file, and a program removes it before the kernel opens it. The kernel looks the name up again,
/// and makes the file if the program has said so.
#[tokio::test(start_paused = true)]
async fn who_opens_a_file_that_is_removed_meanwhile_looks_it_up_again() {
    let (_, fs) = mount(ALL);
    let ino = look_up(&fs, "old").await;
    fs.unlink(ROOT, "old").await.expect("the name goes");
    assert!(matches!(fs.open_to_write(ino, WRITE).await, Err(FsError::Outdated)));
}

/// A program opens a file while the store deletes its object. The kernel looks the name up again, and once only: if the
/// file is removed once more before the second OPEN, it is as if it had been opened before.
#[tokio::test(start_paused = true)]
async fn an_open_waits_until_the_file_is_removed_and_is_never_refused_twice() {
    let (client, fs) = mount(ALL);
    let ino = look_up(&fs, "old").await;
    client.set_latency(Duration::from_millis(50));
    let (removed, opened) = tokio::join!(fs.unlink(ROOT, "old"), fs.open_to_write_by(ino, WRITE, 7_u32));
    removed.expect("the name goes");
    assert!(matches!(opened, Err(FsError::Outdated)), "{opened:?}");
    let opened = fs.open_to_write_by(ino, WRITE, 7_u32).await.expect("a file without a name");
    fs.write(opened.handle, 0, b"more", 7).expect("memory");
    close(&fs, opened.handle).await;
    assert!(client.keys().is_empty());
    assert!(matches!(fs.lookup(ROOT, "old").await, Err(FsError::NotFound)));
}

/// A file that is still being written gets the name of an object, which stays in the store until the file is stored. If
/// the new file loses the name before, the object goes.
#[tokio::test(start_paused = true)]
async fn what_a_draft_is_to_replace_goes_with_the_name() {
    for is_renamed in [false, true] {
        let (client, fs) = mount(ALL);
        let handle = create(&fs, "new", b"new text").await;
        fs.rename(place("new"), place("old"), false).await.expect("another name");
        assert_eq!(client.stored("old").0, b"old text", "nothing else is stored");
        if is_renamed {
            fs.rename(place("old"), place("other"), false).await.expect("another name");
        } else {
            fs.unlink(ROOT, "old").await.expect("the name goes");
        }
        assert!(client.keys().is_empty(), "{:?}", client.keys());
        let again = create(&fs, "old", b"again").await;
        close(&fs, again).await;
        assert_eq!(client.stored("old").0, b"again");
        close(&fs, handle).await;
        assert_eq!(client.keys(), if is_renamed { vec!["old", "other"] } else { vec!["old"] });
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_a_stranger_has_deleted_is_gone() {
    let (client, fs) = mount(ALL);
    look_up(&fs, "old").await;
    client.delete("old");
    fs.unlink(ROOT, "old").await.expect("it is gone");
    assert!(matches!(fs.unlink(ROOT, "old").await, Err(FsError::NotFound)));
}

/// A new file is synced, a stranger writes another object, and the file is removed.
#[tokio::test(start_paused = true)]
async fn a_draft_is_removed_with_what_has_replaced_its_object() {
    let (client, fs) = mount(ALL);
    let handle = create(&fs, "new", b"text").await;
    fs.clone().fsync(handle).await.expect("it is safe");
    client.put("new", "theirs");
    fs.unlink(ROOT, "new").await.expect("the name goes");
    assert_eq!(client.keys(), ["old"]);
    fs.release(handle);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.keys(), ["old"]);
    assert!(matches!(fs.lookup(ROOT, "new").await, Err(FsError::NotFound)));
}

#[tokio::test(start_paused = true)]
async fn a_store_without_conditions_deletes_what_is_there() {
    let (client, fs) = mount(ALL);
    client.refuse_conditions();
    fs.unlink(ROOT, "old").await.expect("gone");
    assert!(client.keys().is_empty());
}

/// A file is renamed over one that is being written, while a stranger has written an object there.
#[tokio::test(start_paused = true)]
async fn a_rename_over_a_draft_replaces_only_what_its_writer_has_seen() {
    let (client, fs) = mount(Rights::default());
    let handle = create(&fs, "made", b"text").await;
    close(&fs, handle).await;
    let open = create(&fs, "draft", b"half").await;
    client.put("draft", "theirs");
    let error = fs.rename(place("made"), place("draft"), false).await.expect_err("somebody was faster");
    assert_eq!(error.errno(), libc::ESTALE, "{error}");
    assert_eq!((client.stored("draft").0, client.stored("made").0), (b"theirs".to_vec(), b"text".to_vec()));
    fs.release(open);
}

/// `mv` deletes the object at the old key.
#[tokio::test(start_paused = true)]
async fn only_what_the_mount_has_written_is_renamed_without_the_right_to_rename() {
    let (client, fs) = mount(Rights { may_overwrite: true, ..Rights::default() });
    let refused =
        |result| assert!(matches!(result, Err(FsError::NotAllowed("--allow rename"))), "{result:?}");
    refused(fs.rename(place("old"), place("renamed"), false).await);
    // Opening a file for writing is not writing it.
    let opened = fs.open_to_write(look_up(&fs, "old").await, WRITE).await.expect("a handle");
    refused(fs.rename(place("old"), place("renamed"), false).await);
    fs.release(opened.handle);
    tokio::time::sleep(Duration::from_secs(30)).await;
    refused(fs.rename(place("old"), place("renamed"), false).await);
    assert_eq!(client.keys(), ["old"]);
    // A temporary file, before and after it is an object, and again.
    let handle = create(&fs, "temporary", b"text").await;
    fs.rename(place("temporary"), place("open"), false).await.expect("another name");
    close(&fs, handle).await;
    for (from, to) in [("open", "closed"), ("closed", "final"), ("final", "old")] {
        fs.rename(place(from), place(to), false).await.expect("another name");
    }
    assert_eq!((client.keys(), client.stored("old").0), (vec!["old".to_owned()], b"text".to_vec()));
    // Not so once somebody else has written it.
    client.put("old", "theirs");
    tokio::time::sleep(Duration::from_secs(100)).await;
    look_up(&fs, "old").await;
    refused(fs.rename(place("old"), place("renamed"), false).await);
    for rights in [
        Rights { may_delete: true, ..Rights::default() },
        Rights { folder_rename_limit: 1, ..Rights::default() },
    ] {
        let (client, fs) = mount(rights);
        fs.rename(place("old"), place("renamed"), false).await.expect("another name");
        assert_eq!(client.keys(), ["renamed"]);
    }
}

/// The kernel looks both names up again after `ESTALE`, and then tries once more.
#[tokio::test(start_paused = true)]
async fn a_rename_that_finds_its_file_replaced_succeeds_when_it_is_tried_again() {
    let (client, fs) = mount(ALL);
    look_up(&fs, "old").await;
    assert!(matches!(fs.lookup(ROOT, "renamed").await, Err(FsError::NotFound)));
    client.put("old", "theirs");
    let error = fs.rename(place("old"), place("renamed"), false).await.expect_err("it was replaced");
    assert_eq!(error.errno(), libc::ESTALE, "{error}");
    look_up(&fs, "old").await;
    fs.rename(place("old"), place("renamed"), false).await.expect("another name");
    assert_eq!((client.keys(), client.stored("renamed").0), (vec!["renamed".to_owned()], b"theirs".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn what_a_stranger_has_made_is_kept_by_a_rename_that_must_not_replace() {
    for is_directory_bucket in [false, true] {
        let (client, fs) = mount(ALL);
        if is_directory_bucket {
            client.make_directory_bucket();
        }
        assert!(matches!(fs.lookup(ROOT, "renamed").await, Err(FsError::NotFound)));
        client.put("renamed", "theirs");
        assert!(matches!(fs.rename(place("old"), place("renamed"), true).await, Err(FsError::Exists)));
        assert_eq!(client.stored("renamed").0, b"theirs");
        assert_eq!(client.stored("old").0, b"old text");
    }
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_is_renamed_onto_an_empty_one_leaves_no_marker_behind() {
    for files in [&[][..], &["f"]] {
        let (client, fs) = mount_with(ALL, Filesystem::with_folder_markers);
        for name in ["a", "b"] {
            fs.mkdir(ROOT, name, StoredAttr::default()).await.expect("a folder");
        }
        for file in files {
            client.put(&format!("a/{file}"), "text");
        }
        assert_eq!(client.keys().len(), 3 + files.len());
        fs.rename(place("a"), place("b"), false).await.expect("another name");
        let below: Vec<_> = files.iter().map(|file| format!("b/{file}")).collect();
        assert_eq!(client.keys(), [vec!["b/".to_owned()], below, vec!["old".to_owned()]].concat());
        assert!(matches!(fs.lookup(ROOT, "a").await, Err(FsError::NotFound)));
    }
}

/// Who walks a tree by descriptors has a folder open while somebody renames it.
#[tokio::test(start_paused = true)]
async fn an_open_folder_is_listed_under_the_name_that_it_gets() {
    let (client, fs) = mount(ALL);
    for number in 0..9 {
        client.put(&format!("a/{number}"), "text");
    }
    let folder = fs.lookup(ROOT, "a").await.expect("a folder").attr.ino;
    let handle = fs.opendir(folder).expect("a folder");
    let names = async |offset| {
        let page = fs.readdir(handle, offset, 100).await.expect("a page");
        page.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    fs.rename(place("a"), place("b"), false).await.expect("another name");
    assert_eq!(names(DirOffset::AFTER_DOTS).await, ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
    fs.rename(place("b"), place("c"), false).await.expect("another name");
    assert_eq!(names(DirOffset(DirOffset::AFTER_DOTS.0 + 5)).await, ["5", "6", "7", "8"], "the rest");
    assert_eq!(names(DirOffset::START).await.len(), 11);
    for number in 0..6 {
        fs.unlink(folder, &number.to_string()).await.expect("the name goes");
    }
    fs.rename(place("c"), place("d"), false).await.expect("another name");
    assert_eq!(names(DirOffset(DirOffset::AFTER_DOTS.0 + 7)).await, ["7", "8"], "those behind the last name");
    assert!(names(DirOffset(DirOffset::AFTER_DOTS.0 + 9)).await.is_empty(), "nothing is left");
}

/// A folder is renamed, and names of it are made and removed, while it is listed: each name that stays is shown once.
#[tokio::test(start_paused = true)]
async fn an_open_folder_that_is_renamed_and_changed_goes_on_behind_the_last_name() {
    for (read, is_back) in [(1, false), (5, false), (5, true), (12, true), (35, false)] {
        let (client, fs) = mount(ALL);
        for number in 0..30 {
            client.put(&format!("x/f{number:02}"), "text");
        }
        // The name of a folder that comes behind a name which begins like it.
        client.put("x/f05-a", "text");
        client.put("x/f05.d/f", "text");
        client.put("x/a0", "text");
        client.put("x/a1", "text");
        let folder = look_up(&fs, "x").await;
        let handle = fs.opendir(folder).expect("a folder");
        let shown = fs.readdir(handle, DirOffset::AFTER_DOTS, read).await.expect("a page");
        let mut names: Vec<String> = shown.iter().map(|entry| entry.name.clone()).collect();
        for gone in ["a0", "a1"] {
            fs.unlink(folder, gone).await.expect("it is there");
        }
        client.put("x/a2", "text");
        client.put("x/a3", "text");
        fs.rename(place("x"), place("y"), false).await.expect("another name");
        if is_back {
            fs.rename(place("y"), place("x"), false).await.expect("another name");
        }
        names.extend(rest(&fs, handle, shown.last().expect("a name").next).await.into_keys());
        names.retain(|name| !name.starts_with('a'));
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!((sorted.len(), names.len()), (32, 32), "{read} were read: {names:?}");
    }
}

/// A folder is renamed there and back while it is listed, so that the store's answer may lack what has moved.
#[tokio::test(start_paused = true)]
async fn an_open_folder_that_is_renamed_there_and_back_is_listed_whole() {
    for delay in (0..1000).step_by(10) {
        let (client, fs) = mount(ALL);
        for number in 0..6 {
            client.put(&format!("x/{number}"), "text");
        }
        let handle = fs.opendir(look_up(&fs, "x").await).expect("a folder");
        client.set_latency(Duration::from_millis(60));
        let renames = async {
            for (from, to) in [("x", "y"), ("y", "x")] {
                fs.rename(place(from), place(to), false).await.expect("another name");
            }
        };
        let listing = async {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            rest(&fs, handle, DirOffset::AFTER_DOTS).await
        };
        let ((), shown) = tokio::join!(renames, listing);
        assert_eq!(shown.len(), 6, "after {delay} ms: {shown:?}");
    }
}

/// What an open folder shows, asked for in pieces of seven names.
async fn shown_in_pieces(fs: &Filesystem, folder: InodeNo) -> BTreeSet<String> {
    let handle = fs.opendir(folder).expect("a folder");
    let (mut names, mut offset) = (BTreeSet::new(), DirOffset::AFTER_DOTS);
    while let page = fs.readdir(handle, offset, 7).await.expect("a page")
        && let Some(last) = page.last()
    {
        offset = last.next;
        names.extend(page.into_iter().map(|entry| entry.name));
    }
    fs.releasedir(handle);
    names
}

/// Programs list a folder, look its names up and read its files, by descriptors, while another one renames it again and
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_folder_that_is_being_renamed_has_all_its_names() {
    const FILES: usize = 40;
    let (client, fs) = mount(ALL);
    (0..FILES).for_each(|number| drop(client.put(&format!("x/{number:02}"), format!("text {number}"))));
    let folder = look_up(&fs, "x").await;
    let has_ended = Arc::new(AtomicBool::new(false));
    let programs: Vec<_> = (0..6)
        .map(|number| {
            let (fs, has_ended) = (fs.clone(), has_ended.clone());
            tokio::spawn(async move {
                while !has_ended.load(Ordering::Relaxed) {
                    if number < 2 {
                        let shown = shown_in_pieces(&fs, folder).await;
                        assert_eq!(shown.len(), FILES, "{shown:?}");
                        continue;
                    }
                    let ino = fs.lookup(folder, &format!("{number:02}")).await.expect("it is there").attr.ino;
                    if number < 4 {
                        let handle = fs.open(ino).expect("a file").handle;
                        assert_eq!(read(&fs, handle).await.expect("its text"), format!("text {number}"));
                        fs.release(handle);
                    }
                    fs.forget(ino, 1);
                }
            })
        })
        .collect();
    for (from, to) in [("x", "y"), ("y", "x")].repeat(150) {
        fs.rename(place(from), place(to), false).await.expect("another name");
    }
    has_ended.store(true, Ordering::Relaxed);
    for program in programs {
        program.await.expect("all is there at all times");
    }
}

/// Two programs share a listing, one of them far behind, while this mount changes names on pages that have come already.
#[tokio::test(start_paused = true)]
async fn who_shares_a_listing_is_shown_what_this_mount_has_changed_since() {
    let (client, fs) = mount(ALL);
    for index in 0..3_500 {
        client.put(&format!("f{index:04}"), "text");
    }
    client.set_latency(Duration::from_millis(60));
    let (fast, slow) = (fs.opendir(ROOT).expect("a folder"), fs.opendir(ROOT).expect("a folder"));
    let (first, begun) = tokio::join!(
        fs.readdir(fast, DirOffset::AFTER_DOTS, 100),
        fs.readdir(slow, DirOffset::AFTER_DOTS, 100)
    );
    let shown = rest(&fs, fast, first.expect("a page").last().expect("a name").next).await;
    assert_eq!((shown.len(), client.take_requests().list), (3_501 - 100, 4));
    fs.unlink(ROOT, "f1500").await.expect("the name goes");
    let made = create(&fs, "f2500-new", b"new").await;
    close(&fs, made).await;
    fs.rename(place("f0600"), place("f3400-moved"), false).await.expect("another name");
    client.take_requests();
    let shown = rest(&fs, slow, begun.expect("a page").last().expect("a name").next).await;
    for gone in ["f1500", "f0600"] {
        assert!(!shown.contains_key(gone), "{gone} is gone");
    }
    assert_eq!((shown["f2500-new"], shown["f3400-moved"]), (3, 4));
    assert_eq!((shown.len(), client.take_requests().list), (3_501 - 100, 0));
}

/// This mount renames a file that a listing has not shown yet, to a name that comes later: it is shown by one of them.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_renamed_behind_the_reader_of_a_listing_is_shown() {
    for number in 0..9 {
        let (client, fs) = mount(ALL);
        (0..50).for_each(|number| drop(client.put(&format!("x/f{number:02}"), "text")));
        let folder = look_up(&fs, "x").await;
        let handle = fs.opendir(folder).expect("a folder");
        let shown = fs.readdir(handle, DirOffset::AFTER_DOTS, 7).await.expect("a page");
        let mut names: Vec<String> = shown.iter().map(|entry| entry.name.clone()).collect();
        let (from, to) = (format!("f{:02}", 5 * number), format!("zz{number}"));
        let (from, to) = (Place { parent: folder, name: &from }, Place { parent: folder, name: &to });
        fs.rename(from, to, false).await.expect("another name");
        names.extend(rest(&fs, handle, shown.last().expect("a name").next).await.into_keys());
        let has = |place: Place<'_>| names.iter().filter(|name| **name == place.name).count();
        assert!(has(from) <= 1 && has(to) <= 1 && has(from) + has(to) >= 1, "{from:?}: {names:?}");
    }
}

/// A folder that this mount has renamed is the store's: when others take away what is in it, it is gone.
#[tokio::test(start_paused = true)]
async fn a_folder_that_was_renamed_goes_when_others_empty_it() {
    let (client, fs) = mount_limited(ALL, |config| {
        (config.metadata_ttl, config.negative_metadata_ttl) = (MetadataTtl::Minimal, Duration::ZERO);
    });
    for key in ["x/f", "x/sub/f"] {
        client.put(key, "text");
    }
    look_up(&fs, "x").await;
    fs.rename(place("x"), place("y"), false).await.expect("another name");
    let shown = shown_in_pieces(&fs, ROOT).await;
    assert!(shown.contains("y") && !shown.contains("x"), "{shown:?}");
    fs.rename(place("y"), place("z"), false).await.expect("another name");
    tokio::time::sleep(Duration::from_secs(1)).await;
    for key in ["z/f", "z/sub/f"] {
        assert!(client.keys().contains(&key.to_owned()));
        client.delete(key);
    }
    assert_eq!(shown_in_pieces(&fs, ROOT).await, BTreeSet::from(["old".to_owned()]));
    for name in ["x", "y", "z"] {
        assert!(matches!(fs.lookup(ROOT, name).await, Err(FsError::NotFound)), "{name}");
    }
}

/// `fstat` of a file or a folder that has no name any more says so: programs that lock files rely on it.
#[tokio::test(start_paused = true)]
async fn what_has_no_name_any_more_has_no_link() {
    let (client, fs) = mount(ALL);
    let has_link = |ino: InodeNo| !fs.getattr(ino).expect("the kernel knows it").is_unlinked;
    for name in ["deleted", "replaced", "renamed"] {
        client.put(name, name);
    }
    let [deleted, replaced, renamed] = ["deleted", "replaced", "renamed"].map(|name| look_up(&fs, name));
    let (deleted, replaced, renamed) = (deleted.await, replaced.await, renamed.await);
    assert!([ROOT, deleted, replaced, renamed].into_iter().all(has_link));
    fs.unlink(ROOT, "deleted").await.expect("the name goes");
    fs.rename(place("renamed"), place("replaced"), false).await.expect("another name");
    assert!(!has_link(deleted) && !has_link(replaced) && has_link(renamed));
    for is_closed in [false, true] {
        let [written, other] = ["written", "other"].map(|name| create(&fs, name, b"text"));
        let (written, other) = (written.await, other.await);
        let (ino, other_ino) = (look_up(&fs, "written").await, look_up(&fs, "other").await);
        if is_closed {
            close(&fs, written).await;
            close(&fs, other).await;
        }
        fs.rename(place("other"), place("written"), false).await.expect("another name");
        assert!(!has_link(ino) && has_link(other_ino), "closed: {is_closed}");
        fs.unlink(ROOT, "written").await.expect("the name goes");
        assert!(!has_link(other_ino), "closed: {is_closed}");
    }
    let folder = fs.mkdir(ROOT, "folder", StoredAttr::default()).await.expect("a folder").attr.ino;
    assert!(has_link(folder));
    fs.rmdir(ROOT, "folder").await.expect("it is empty");
    assert!(!has_link(folder));
}

/// A folder gets another name while it is listed, and another folder its name. That one has nothing of the first.
#[tokio::test(start_paused = true)]
async fn the_listing_of_a_folder_that_was_renamed_is_not_that_of_its_successor() {
    let (client, fs) = mount(Rights { folder_rename_limit: 2_000, ..ALL });
    for number in 0..1_100 {
        client.put(&format!("a/{number:04}"), "text");
        client.put(&format!("b/{number:04}-b"), "text");
    }
    let folders = (look_up(&fs, "a").await, look_up(&fs, "b").await);
    let handle = fs.opendir(folders.0).expect("a folder");
    fs.readdir(handle, DirOffset::AFTER_DOTS, 5).await.expect("a page");
    fs.rename(place("a"), place("c"), false).await.expect("another name");
    fs.rename(place("b"), place("a"), false).await.expect("another name");
    let other = fs.opendir(look_up(&fs, "a").await).expect("a folder");
    let shown = rest(&fs, other, DirOffset::AFTER_DOTS).await;
    assert!(shown.len() == 1_100 && shown.keys().all(|name| name.ends_with("-b")), "{shown:?}");
}

/// A mount ends while its store does not answer.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_mount_waits_no_longer_than_it_may() {
    let (client, fs) = mount(ALL);
    for name in ["one", "two", "three"] {
        let handle = create(&fs, name, b"text").await;
        fs.release(handle);
    }
    client.stall_next([Duration::from_secs(1000); 100]);
    let began = tokio::time::Instant::now();
    assert_eq!(fs.end_writes_within(Duration::from_secs(60)).await, 3);
    assert_eq!(began.elapsed(), Duration::from_secs(60));
}

const APPEND: WriteOpen = WriteOpen { appends: true, ..WRITE };

/// A map that is written back comes with the handle of an open that appends, and `fcntl` changes what a handle does. So
/// each WRITE says where its bytes go.
#[tokio::test(start_paused = true)]
async fn bytes_go_where_their_write_says() {
    let (client, fs) = mount(ALL);
    for (how, name) in [(APPEND, "appended"), (WRITE, "written")] {
        let (_, opened) = fs.create(ROOT, name, how).await.expect("a file");
        assert!(fs.append(opened.handle, b"one two", 1).expect("memory").is_none());
        assert!(fs.write(opened.handle, 0, b"ONE", 1).expect("memory").is_none());
        assert!(fs.append(opened.handle, b" three", 1).expect("memory").is_none());
        close(&fs, opened.handle).await;
        assert_eq!(client.stored(name).0, b"ONE two three", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_is_never_cut_by_making_room() {
    let (client, fs) = mount(ALL);
    let handle = create(&fs, "file", b"text").await;
    fs.clone().grow(handle, 6, 1).await.expect("room");
    fs.clone().grow(handle, 2, 1).await.expect("there is room");
    close(&fs, handle).await;
    assert_eq!(client.stored("file").0, b"text\0\0");
}

#[tokio::test(start_paused = true)]
async fn who_appends_to_an_object_that_is_deleted_meanwhile_is_told_that_it_is_stale() {
    let (client, fs) = mount(ALL);
    let opened = fs.open_to_write(look_up(&fs, "old").await, APPEND).await.expect("a handle");
    if let Some(deferred) = fs.append(opened.handle, b" and more", 1).expect("memory") {
        fs.clone().finish_write(deferred).await.expect("the old bytes");
    }
    client.delete("old");
    let error = fs.clone().flush(opened.handle, |_| true).await.expect_err("it is gone");
    assert_eq!(error.errno(), libc::ESTALE, "{error}");
    fs.release(opened.handle);
}

/// Objects have no permissions. This mount remembers who may run what it has written.
#[tokio::test(start_paused = true)]
async fn files_of_this_mount_may_be_run_as_long_as_it_lives() {
    let (client, fs) = mount(ALL);
    let mode = async |name: &str| {
        let attr = fs.lookup(ROOT, name).await.expect("a name").attr;
        fs.mode(attr.ino, attr.kind)
    };
    let handle = create(&fs, "tool", b"text").await;
    assert_eq!(mode("tool").await, None);
    fs.note_mode(look_up(&fs, "tool").await, 0o755);
    assert_eq!(mode("tool").await, Some(0o755));
    close(&fs, handle).await;
    assert_eq!((mode("tool").await, mode("old").await), (Some(0o755), None), "it is an object");
    fs.rename(place("tool"), place("renamed"), false).await.expect("another name");
    assert_eq!(mode("renamed").await, Some(0o755));
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.put("renamed", "theirs");
    assert!(matches!(fs.lookup(ROOT, "neighbour").await, Err(FsError::NotFound)));
    assert_eq!(mode("renamed").await, None, "somebody else has written it");
    fs.note_mode(look_up(&fs, "renamed").await, 0o711);
    assert_eq!(mode("renamed").await, Some(0o755));
    fs.unlink(ROOT, "renamed").await.expect("gone");
    let handle = create(&fs, "renamed", b"text").await;
    assert_eq!(mode("renamed").await, None);
    close(&fs, handle).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_beside_one_that_was_found_stale_is_told_to_be_gone() {
    let (client, fs) = mount(ALL);
    client.put("gone", "1");
    let list = async || rest(&fs, fs.opendir(ROOT).expect("a folder"), DirOffset::AFTER_DOTS).await;
    list().await;
    let old = look_up(&fs, "old").await;
    client.delete("gone");
    client.put("old", "new text");
    let handle = fs.open(old).expect("a known file").handle;
    let (answer, answered) = oneshot::channel();
    fs.read(handle, 0, 8, move |read| answer.send(read.map(<[u8]>::to_vec)).expect("it waits"));
    let read = answered.await.expect("an answer");
    assert!(matches!(read, Err(FsError::Stale { .. })), "{read:?}");
    tokio::time::sleep(Duration::from_millis(1)).await;
    list().await;
    let outdated = std::iter::from_fn(|| fs.take_outdated(|_| true));
    let names: Vec<_> = outdated.flat_map(|(_, names)| names).map(|known| known.name).collect();
    assert!(names.iter().any(|name| &**name == "gone"), "{names:?}");
}
