//! Writing over a client in memory: what the kernel's steps leave behind when the next one does not come.

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{
    FileHandle, Filesystem, FsConfig, FsError, InodeNo, Place, ROOT, Rights, StoredAttr, WriteOpen, Writes,
};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::NewObject;
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use s3mount_write::{WriteConfig, Writer};
use tokio::runtime::Handle;
use tokio::time::Instant;

const WRITE: WriteOpen = WriteOpen { writes: true, appends: false, truncates: false, is_exclusive: false };
const APPEND: WriteOpen = WriteOpen { appends: true, ..WRITE };
const EMPTY: WriteOpen = WriteOpen { truncates: true, ..WRITE };

const ALL: Rights = Rights { may_delete: true, may_overwrite: true, folder_rename_limit: 100 };

/// A mount that may do everything, of a bucket that holds `old`.
fn mount() -> (Arc<MemoryClient>, Arc<Filesystem>) {
    mount_with(ALL)
}

fn mount_with(rights: Rights) -> (Arc<MemoryClient>, Arc<Filesystem>) {
    mount_delayed(rights, Duration::ZERO)
}

/// A mount on which `close` leaves what was appended unpublished for a while.
fn mount_delayed(rights: Rights, append_delay: Duration) -> (Arc<MemoryClient>, Arc<Filesystem>) {
    mount_of(BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool"), rights, append_delay)
}

fn mount_of(
    pool: BufferPool,
    rights: Rights,
    append_delay: Duration,
) -> (Arc<MemoryClient>, Arc<Filesystem>) {
    let client = Arc::new(MemoryClient::new());
    client.put("old", "old text");
    let runtime = Handle::current();
    let prefetcher = Prefetcher::new(client.clone(), pool.clone(), PrefetchConfig::default(), &runtime);
    let config = WriteConfig { memory_bytes: 32 << 20, ..WriteConfig::default() };
    let writer = Writer::new(client.clone(), pool, config, &runtime);
    let writes = Writes {
        writer,
        rights,
        object: NewObject::default(),
        append_delay,
        outbox: None,
        publishes_on_fsync: false,
    };
    let negative_metadata_ttl = Duration::from_secs(1);
    let config = FsConfig { allows_writes: true, negative_metadata_ttl, ..FsConfig::default() };
    (client.clone(), Arc::new(Filesystem::new(client, prefetcher, config, &runtime).with_writes(writes)))
}

async fn look_up(fs: &Filesystem, name: &str) -> InodeNo {
    fs.lookup(ROOT, name).await.expect("a name").attr.ino
}

/// Writes at the end.
async fn write(fs: &Arc<Filesystem>, handle: FileHandle, data: &[u8]) {
    if let Some(deferred) = fs.append(handle, data, 1).expect("memory") {
        fs.clone().finish_write(deferred).await.expect("memory");
    }
}

/// A file is removed while the close of its writer publishes it: `mkstemp`, `close`, `unlink`.
#[tokio::test(start_paused = true)]
async fn what_is_removed_while_it_is_published_stays_removed() {
    let (client, fs) = mount();
    look_up(&fs, "old").await;
    client.set_latency(Duration::from_millis(100));
    for wait in [0, 1, 50, 99, 100, 101, 500] {
        let (_, opened) = fs.create(ROOT, "new", WRITE).await.expect("a file");
        fs.release(opened.handle);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        fs.unlink(ROOT, "new").await.expect("gone");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(client.keys(), ["old"], "after {wait} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_only_synced_is_deleted_with_its_name() {
    let (client, fs) = mount();
    let (_, opened) = fs.create(ROOT, "new", WRITE).await.expect("a file");
    assert!(fs.write(opened.handle, 0, b"text", 1).expect("memory").is_none());
    fs.clone().fsync(opened.handle).await.expect("it is safe");
    assert_eq!(client.stored("new").0, b"text");
    fs.unlink(ROOT, "new").await.expect("gone");
    assert_eq!(client.keys(), ["old"]);
    assert!(fs.write(opened.handle, 4, b"more", 1).expect("memory").is_none(), "it goes on without a name");
    fs.release(opened.handle);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.keys(), ["old"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_file_is_as_safe_as_an_old_one_once_it_is_closed() {
    let (client, fs) = mount_with(Rights::default());
    let (entry, opened) = fs.create(ROOT, "new", WRITE).await.expect("a file");
    assert!(fs.write(opened.handle, 0, b"text", 1).expect("memory").is_none());
    fs.clone().flush(opened.handle, |_| true).await.expect("an object");
    fs.release(opened.handle);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for ino in [entry.attr.ino, look_up(&fs, "new").await] {
        assert!(matches!(fs.open_to_write(ino, WRITE).await, Err(FsError::NotAllowed("--allow overwrite"))));
    }
    assert!(matches!(fs.unlink(ROOT, "new").await, Err(FsError::NotAllowed("--allow delete"))));
    assert_eq!(client.stored("new").0, b"text");
}

#[tokio::test(start_paused = true)]
async fn a_rename_is_one_request_in_a_directory_bucket() {
    let (client, fs) = mount();
    let place = |name| Place { parent: ROOT, name };
    fs.rename(place("old"), place("copied"), false).await.expect("another name");
    let names: Vec<_> = client.take_writes().into_keys().collect();
    assert_eq!(names, ["CopyObject", "DeleteObject", "RenameObject"], "it does not rename");
    client.make_directory_bucket();
    fs.rename(place("copied"), place("renamed"), false).await.expect("another name");
    assert_eq!(client.take_writes().into_iter().collect::<Vec<_>>(), [("RenameObject", 1)]);
    assert_eq!(
        (client.keys(), client.stored("renamed").0.as_slice()),
        (vec!["renamed".to_owned()], &b"old text"[..])
    );
}

/// A program writes a file anew as soon as another has closed it. Whoever reads the bucket sees one whole file or
/// the other.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_emptied_right_after_its_close_is_not_published_empty() {
    let (client, fs) = mount();
    let (_, first) = fs.create(ROOT, "new", WRITE).await.expect("a file");
    assert!(fs.write(first.handle, 0, b"first", 1).expect("memory").is_none());
    fs.clone().flush(first.handle, |_| true).await.expect("an object");
    client.take_writes();
    fs.release(first.handle);
    let (_, second) = fs.create(ROOT, "new", EMPTY).await.expect("a file");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.stored("new").0, b"first", "the second is not closed");
    assert!(client.take_writes().is_empty());
    assert!(fs.write(second.handle, 0, b"second", 1).expect("memory").is_none());
    fs.clone().flush(second.handle, |_| true).await.expect("an object");
    fs.release(second.handle);
    assert_eq!(client.stored("new").0, b"second");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!fs.is_draft(look_up(&fs, "new").await));
}

/// The kernel ends a handle some time after its close.
#[tokio::test(start_paused = true)]
async fn who_has_closed_what_he_did_not_change_keeps_nobody_from_publishing() {
    let (client, fs) = mount();
    let ino = look_up(&fs, "old").await;
    let first = fs.open_to_write(ino, WRITE).await.expect("a handle").handle;
    fs.clone().set_size(ino, Some(first), 8, 1).await.expect("it is so long");
    fs.clone().flush(first, |_| true).await.expect("there is nothing to do");
    let second = fs.open_to_write(ino, WRITE).await.expect("a handle").handle;
    write(&fs, second, b" and more").await;
    fs.clone().flush(second, |_| true).await.expect("an object");
    assert_eq!(client.stored("old").0, b"old text and more", "its close has returned");
    fs.release(first);
    fs.release(second);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_renamed_before_its_close_is_not_published_in_part() {
    let (client, fs) = mount();
    let (_, opened) = fs.create(ROOT, "old", EMPTY).await.expect("a file");
    assert!(fs.write(opened.handle, 0, b"new", 1).expect("memory").is_none());
    let place = |name| Place { parent: ROOT, name };
    fs.rename(place("old"), place("moved"), false).await.expect("another name");
    assert_eq!(client.keys(), ["moved"]);
    assert_eq!(client.stored("moved").0, b"old text", "the writer has not closed it");
    assert!(fs.write(opened.handle, 3, b" text", 1).expect("memory").is_none());
    fs.clone().flush(opened.handle, |_| true).await.expect("an object");
    fs.release(opened.handle);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((client.keys(), client.stored("moved").0), (vec!["moved".to_owned()], b"new text".to_vec()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_threads_append_at_once_is_there_whole() {
    const LINES: usize = 20_000;
    let (client, fs) = mount();
    let (_, opened) = fs.create(ROOT, "log", APPEND).await.expect("a file");
    let appends = ["first", "other"].map(|name| {
        let (fs, handle) = (fs.clone(), opened.handle);
        tokio::spawn(async move {
            for index in 0..LINES {
                let line = format!("{name} {index:05}\n");
                write(&fs, handle, line.as_bytes()).await;
            }
        })
    });
    for append in appends {
        append.await.expect("its end");
    }
    fs.clone().flush(opened.handle, |_| true).await.expect("an object");
    let stored = String::from_utf8(client.stored("log").0).expect("text");
    let mut lines: Vec<_> = stored.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!((lines.len(), stored.len()), (2 * LINES, 2 * LINES * 12));
}

/// A log is closed, and waits to be published. Another program begins to write it anew.
#[tokio::test(start_paused = true)]
async fn what_waits_to_be_published_is_not_published_half_written() {
    let (client, fs) = mount_delayed(ALL, Duration::from_secs(1));
    let (_, log) = fs.create(ROOT, "log", APPEND).await.expect("a file");
    write(&fs, log.handle, b"line").await;
    fs.clone().flush(log.handle, |_| true).await.expect("it waits");
    fs.release(log.handle);
    let (_, other) = fs.create(ROOT, "log", EMPTY).await.expect("a file");
    write(&fs, other.handle, b"half").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(client.keys(), ["old"], "nobody has closed it");
    fs.clone().flush(other.handle, |_| true).await.expect("an object");
    assert_eq!(client.stored("log").0, b"half");
    fs.release(other.handle);
    // Who only appends does not hold up what was appended before.
    let (_, log) = fs.create(ROOT, "log", APPEND).await.expect("a file");
    write(&fs, log.handle, b" and more").await;
    fs.clone().flush(log.handle, |_| true).await.expect("it waits");
    let (_, second) = fs.create(ROOT, "log", APPEND).await.expect("a file");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(client.stored("log").0, b"half and more");
    fs.release(log.handle);
    fs.release(second.handle);
}

/// A program that fills a new folder need not wait for a listing of it: there was no such folder.
#[tokio::test(start_paused = true)]
async fn files_of_a_new_folder_are_made_without_a_listing() {
    let (client, fs) = mount();
    let folder = fs.mkdir(ROOT, "new", StoredAttr::default()).await.expect("a folder").attr.ino;
    client.take_requests();
    let (_, opened) = fs.create(folder, "a", WRITE).await.expect("a file");
    fs.clone().flush(opened.handle, |_| true).await.expect("an object");
    fs.release(opened.handle);
    assert!(matches!(fs.lookup(folder, "b").await, Err(FsError::NotFound)));
    assert_eq!(client.take_requests().list, 0);
    // What another machine writes there shows as late as anywhere else.
    client.put("new/b", "theirs");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fs.lookup(folder, "b").await.expect("it is listed").attr.size, 6);
    assert_eq!(fs.lookup(folder, "a").await.expect("it is there").attr.size, 0);
}

/// Each new file is looked up first, and a listing is believed for a second only.
#[tokio::test(start_paused = true)]
async fn makers_of_files_do_not_wait_for_listings() {
    let (client, fs) = mount();
    client.put("d/00000", "");
    let folder = look_up(&fs, "d").await;
    client.set_latency(Duration::from_millis(100));
    let mut waits = Vec::new();
    client.take_requests();
    for index in 0..100 {
        let began = Instant::now();
        let (_, opened) = fs.create(folder, &format!("file-{index:05}"), WRITE).await.expect("a file");
        waits.push(began.elapsed());
        fs.release(opened.handle);
        tokio::time::sleep(Duration::from_millis(100)).await;
        if index == 50 {
            client.put("d/zz", "theirs");
        }
    }
    assert_eq!(waits.iter().filter(|wait| !wait.is_zero()).count(), 1, "{waits:?}");
    // Ten seconds: each page is listed again when half of its second is over.
    assert!((10..=21).contains(&client.take_requests().list));
    let began = Instant::now();
    assert_eq!(fs.lookup(folder, "zz").await.expect("theirs").attr.size, 6);
    assert!(began.elapsed().is_zero(), "the listings show what others write");
}

/// The next program that appends finds the end of a log in memory, for two minutes.
#[tokio::test(start_paused = true)]
async fn a_log_that_nobody_comes_back_to_gives_its_memory_back() {
    let pool = BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool");
    let (_client, fs) = mount_of(pool.clone(), ALL, Duration::ZERO);
    let (_, opened) = fs.create(ROOT, "log", APPEND).await.expect("a file");
    write(&fs, opened.handle, b"line").await;
    fs.clone().flush(opened.handle, |_| true).await.expect("an object");
    fs.release(opened.handle);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(pool.budget().used_bytes() > 0, "it is kept");
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(pool.budget().used_bytes(), 0);
}
