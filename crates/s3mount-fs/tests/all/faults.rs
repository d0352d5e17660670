//! Programs that change files while the store fails some of the requests.

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{Filesystem, FsConfig, FsError, InodeNo, ROOT, Rights, WriteOpen, Writes};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ErrorKind, NewObject};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use s3mount_write::{WriteConfig, Writer};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The daemon's layers over one bucket: they share its permits and the budget of its retries.
fn mount(client: &Arc<MemoryClient>) -> Arc<Filesystem> {
    let bucket = s3mount_bucket::WritableBucket::from(client.clone());
    let (runtime, pool) = (Handle::current(), BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool"));
    let prefetcher = Prefetcher::new(bucket.reader(), pool.clone(), PrefetchConfig::default(), &runtime);
    let config = WriteConfig { memory_bytes: 32 << 20, ..WriteConfig::default() };
    let writes = Writes {
        writer: Writer::new(bucket.clone(), pool, config, &runtime),
        rights: Rights { may_delete: true, may_overwrite: true, folder_rename_limit: 100 },
        object: NewObject::default(),
        append_delay: Duration::ZERO,
        outbox: None,
        publishes_on_fsync: false,
    };
    let config = FsConfig { allows_writes: true, ..FsConfig::default() };
    Arc::new(Filesystem::new(bucket, prefetcher, config, &runtime).with_writes(writes))
}

async fn folder(fs: &Filesystem, name: &str) -> InodeNo {
    fs.lookup(ROOT, name).await.expect("a folder").attr.ino
}

#[tokio::test(start_paused = true)]
async fn all_files_of_a_folder_are_deleted_while_requests_fail() {
    const FILES: usize = 2000;
    let client = Arc::new(MemoryClient::new());
    for index in 0..FILES {
        client.put(&format!("d/{index:04}"), "text");
    }
    client.set_latency(Duration::from_millis(20));
    // Of the DELETEs, 7 % fail.
    client.fail_by_chance(0.012, 7);
    let fs = mount(&client);
    let dir = folder(&fs, "d").await;
    for index in 0..FILES {
        let deleted = fs.unlink(dir, &format!("{index:04}")).await;
        deleted.unwrap_or_else(|error| panic!("file {index}: {error}"));
    }
    fs.rmdir(ROOT, "d").await.expect("it is empty");
    assert_eq!(client.keys(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_not_answered_has_a_deadline() {
    let client = Arc::new(MemoryClient::new());
    for key in ["a", "marked/"] {
        client.put(key, "");
    }
    let fs = mount(&client);
    folder(&fs, "a").await;
    client.freeze(true);
    let began = Instant::now();
    let error = fs.unlink(ROOT, "a").await.expect_err("nobody answers");
    assert_eq!(error.errno(), libc::ETIMEDOUT, "{error}");
    assert!(began.elapsed() <= Duration::from_secs(121), "{:?}", began.elapsed());
    client.freeze(false);
    client.stall_next([Duration::ZERO, Duration::from_secs(3600)]);
    fs.rmdir(ROOT, "marked").await.expect("a stalled request is sent again");
    assert_eq!(client.keys(), ["a"]);
}

/// One change of a file, as programs make it.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Makes it anew: with bytes, or without any.
    Save(usize),
    /// Writes some bytes at its end.
    Append,
    /// Writes some bytes in its middle.
    Patch,
    /// Deletes it, and makes it anew.
    Replace,
}

async fn change(fs: &Arc<Filesystem>, name: &str, text: &mut Vec<u8>, change: Change) -> Result<(), FsError> {
    let open = WriteOpen { writes: true, ..WriteOpen::default() };
    let (open, offset, bytes) = match change {
        Change::Save(len) => {
            text.clear();
            (WriteOpen { truncates: true, ..open }, 0, vec![b'a'; len])
        }
        Change::Append => (WriteOpen { appends: true, ..open }, text.len(), b"more".to_vec()),
        Change::Patch => (open, text.len() / 2, b"other".to_vec()),
        Change::Replace => {
            fs.unlink(ROOT, name).await?;
            text.clear();
            (open, 0, b"new".to_vec())
        }
    };
    let handle = loop {
        match fs.create(ROOT, name, open).await {
            Ok((_, opened)) => break opened.handle,
            Err(FsError::Outdated) => {}
            Err(error) => return Err(error),
        }
    };
    if let Some(deferred) = fs.write(handle, offset as u64, &bytes, 1)? {
        fs.clone().finish_write(deferred).await?;
    }
    let closed = fs.clone().flush(handle, |_| true).await;
    fs.release(handle);
    closed?;
    text.resize(text.len().max(offset + bytes.len()), 0);
    text[offset..offset + bytes.len()].copy_from_slice(&bytes);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_single_writer_meets_no_conflict_with_itself() {
    const WRITERS: usize = 16;
    const CHANGES: usize = 100;
    const CYCLE: [Change; 7] = [
        Change::Save(10),
        Change::Append,
        Change::Save(0),
        Change::Patch,
        Change::Save(0),
        Change::Replace,
        Change::Append,
    ];
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(20));
    client.fail_by_chance(0.03, 25);
    let fs = mount(&client);
    let writers = (0..WRITERS).map(|writer| {
        let fs = fs.clone();
        tokio::spawn(async move {
            let (name, mut text) = (format!("f{writer}"), Vec::new());
            for step in 0..CHANGES {
                let next = CYCLE[(writer + step) % CYCLE.len()];
                let next = if step == 0 { Change::Save(3) } else { next };
                if let Err(error) = change(&fs, &name, &mut text, next).await {
                    panic!("{name}, change {step}, {next:?}: {error}");
                }
            }
            (name, text)
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        let (name, text) = writer.await.expect("no change fails");
        assert_eq!(client.stored(&name).0, text, "{name}");
    }
    assert_eq!(fs.end_writes().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_file_is_made_by_one_of_two_mounts() {
    let client = Arc::new(MemoryClient::new());
    let how = WriteOpen { writes: true, is_exclusive: true, ..WriteOpen::default() };
    for bytes in ["", "locked"] {
        let lock = async |fs: &Arc<Filesystem>| {
            let (_, opened) = fs.create(ROOT, "lock", how).await.expect("nobody has published it");
            let deferred = fs.write(opened.handle, 0, bytes.as_bytes(), 1).expect("memory");
            assert!(deferred.is_none(), "there is memory");
            opened.handle
        };
        let (one, other) = (mount(&client), mount(&client));
        let (first, second) = (lock(&one).await, lock(&other).await);
        client.lose_next(1);
        one.clone().flush(first, |_| true).await.expect("its own success is found out");
        // Its first attempt never reached the store, and the second one meets the same bytes.
        client.fail_next([ErrorKind::Network]);
        other.clone().flush(second, |_| true).await.expect_err("the other one has the lock");
        one.release(first);
        other.release(second);
        client.delete("lock");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_next_writer_finds_the_version_that_is_there() {
    let client = Arc::new(MemoryClient::new());
    client.put("k", "old");
    let fs = mount(&client);
    let mut text = b"old".to_vec();
    folder(&fs, "k").await;
    client.put("k", "of a stranger");
    let error = change(&fs, "k", &mut text, Change::Save(5)).await.expect_err("it was replaced unseen");
    assert_eq!(error.errno(), libc::ESTALE, "{error}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut text = b"of a stranger".to_vec();
    change(&fs, "k", &mut text, Change::Append).await.expect("the stranger's version is known now");
    assert_eq!(client.stored("k").0, b"of a strangermore");
}
