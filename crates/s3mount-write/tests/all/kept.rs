//! Drafts that another process can go on with: what the keeper is told, and when it is told that nobody can.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use s3mount_object::{ByteRange, Condition, ETag, NewObject, ObjectId};
use s3mount_testkit::MemoryClient;
use s3mount_write::{
    Draft, KeptChanges, KeptDraft, MemoryDisk, Ranges, SpoolBytes, SpoolConfig, SpoolDisk, WriteError,
    kept_file,
};

use crate::draft::write;
use crate::{MIB, all, pattern, spooling_writer, writer, writer_with};

/// What a keeper knows of a draft.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) file: Arc<dyn SpoolBytes>,
    pub(crate) base_bytes: u64,
    pub(crate) size: u64,
    pub(crate) spooled: Ranges,
}

impl Noted {
    /// What was told first.
    pub(crate) fn begin(file: &Arc<dyn SpoolBytes>, base_bytes: u64, size: u64) -> Self {
        Self { file: file.clone(), base_bytes, size, spooled: Ranges::default() }
    }

    pub(crate) fn wrote(&mut self, start: u64, end: u64) {
        self.spooled.add(start, end);
        self.size = self.size.max(end);
    }

    pub(crate) fn resized(&mut self, size: u64) {
        (self.base_bytes, self.size) = (self.base_bytes.min(size), size);
        self.spooled.remove(size, u64::MAX);
    }

    /// What the next process goes on with.
    pub(crate) fn kept(self, base: Option<(ObjectId, u64)>) -> KeptDraft {
        let Self { file, base_bytes, size, spooled } = self;
        KeptDraft { file, base, base_bytes, size, spooled }
    }
}

/// A keeper that writes down what it is told. That of a draft that goes on is not told how it began.
#[derive(Debug, Default)]
struct Notes {
    calls: Mutex<Vec<String>>,
    noted: Mutex<Option<Noted>>,
    refuses: bool,
}

impl Notes {
    /// What it was told since it was asked last.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().expect("no panic"))
    }

    fn tell(&self, call: String) {
        self.calls.lock().expect("no panic").push(call);
    }

    fn noted(&self) -> MutexGuard<'_, Option<Noted>> {
        self.noted.lock().expect("no panic")
    }

    fn kept(&self, base: Option<(ObjectId, u64)>) -> KeptDraft {
        self.noted().clone().expect("it has begun").kept(base)
    }
}

impl KeptChanges for Notes {
    fn begin(&self, file: &Arc<dyn SpoolBytes>, base_bytes: u64, size: u64) -> io::Result<bool> {
        self.tell(format!("begin {base_bytes} of {size}"));
        if self.refuses {
            return Err(io::Error::other("no more descriptors"));
        }
        *self.noted() = Some(Noted::begin(file, base_bytes, size));
        Ok(true)
    }

    fn wrote(&self, start: u64, end: u64) {
        self.tell(format!("wrote {start}..{end}"));
        if let Some(noted) = &mut *self.noted() {
            noted.wrote(start, end);
        }
    }

    fn resized(&self, size: u64) {
        self.tell(format!("resized {size}"));
        if let Some(noted) = &mut *self.noted() {
            noted.resized(size);
        }
    }

    fn given_up(&self) {
        self.tell("given up".to_owned());
    }
}

fn keep(draft: &Draft) -> Arc<Notes> {
    let notes = Arc::<Notes>::default();
    draft.keep(notes.clone());
    notes
}

/// A disk that counts the bytes that are written to it, and may be broken.
#[derive(Debug, Default)]
struct Counting {
    written_bytes: Arc<AtomicU64>,
    makes_no_files: bool,
}

#[derive(Debug)]
struct CountingFile(Arc<dyn SpoolBytes>, Arc<AtomicU64>);

impl SpoolDisk for Counting {
    fn file(&self) -> io::Result<Arc<dyn SpoolBytes>> {
        if self.makes_no_files {
            return Err(io::Error::other("a broken disk"));
        }
        Ok(Arc::new(CountingFile(MemoryDisk.file()?, self.written_bytes.clone())))
    }

    fn blocks(&self) -> bool {
        false
    }
}

impl SpoolBytes for CountingFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.1.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.0.write(offset, bytes)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, into)
    }

    fn taken_bytes(&self) -> u64 {
        self.0.taken_bytes()
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn the_keeper_is_told_of_each_change_and_anew_after_a_publication() {
    let client = Arc::new(MemoryClient::new());
    let draft = spooling_writer(client.clone(), 32 * MIB, 100 * MIB).create("k", NewObject::default());
    let notes = keep(&draft);
    assert_eq!(draft.try_write(0, b"abc").expect("memory"), 0, "the spool's file comes first");
    draft.write(2, Bytes::from_static(b"abc")).await.expect("memory");
    assert_eq!(notes.told(), ["begin 0 of 0", "wrote 2..5"]);
    draft.write(9, Bytes::new()).await.expect("nothing to do");
    draft.truncate(5).await.expect("nothing to do");
    assert_eq!(notes.told(), [""; 0]);
    draft.truncate(3).await.expect("it shrinks");
    draft.grow(7).await.expect("it grows");
    draft.grow(6).await.expect("nothing to do");
    assert_eq!(notes.told(), ["resized 3", "resized 7"]);
    draft.publish().await.expect("nobody else writes");
    assert_eq!(client.stored("k").0, b"\0\0a\0\0\0\0");
    assert_eq!(notes.told(), [""; 0]);
    draft.write(7, Bytes::from_static(b"z")).await.expect("memory");
    assert_eq!(notes.told(), ["begin 7 of 7", "wrote 7..8"]);
    draft.publish().await.expect("nobody else writes");
    draft.empty().await.expect("it shrinks");
    assert_eq!(notes.told(), ["begin 8 of 8", "resized 0"]);
    draft.publish().await.expect("nobody else writes");
    draft.empty().await.expect("it has no byte");
    assert_eq!(notes.told(), ["begin 0 of 0", "resized 0"], "it has changed all the same");
    let refused = draft.write(u64::MAX - 1, Bytes::from_static(b"z")).await;
    assert!(matches!(refused, Err(WriteError::TooLarge { .. })), "{refused:?}");
    draft.write(0, Bytes::from_static(b"z")).await.expect("what was refused has changed nothing");
    assert_eq!(notes.told(), ["wrote 0..1"]);
    draft.discard().await;
    draft.write(0, Bytes::from_static(b"z")).await.expect_err("it was given up");
    assert_eq!(notes.told(), [""; 0]);
}

/// Has a draft of `k` given up by `change`, and shows that it is kept again once it is published.
async fn is_given_up(
    config: SpoolConfig,
    told: &[&str],
    change: impl AsyncFnOnce(&Draft),
) -> Arc<MemoryClient> {
    let client = Arc::new(MemoryClient::new());
    let version = client.put("k", pattern(1, 100));
    let draft = writer_with(client.clone(), 32 * MIB, Some(config)).edit(&version, 100, NewObject::default());
    let notes = keep(&draft);
    draft.write(0, Bytes::from_static(b"first")).await.expect("memory");
    assert_eq!(notes.told(), ["begin 100 of 100", "wrote 0..5"]);
    change(&draft).await;
    assert_eq!(notes.told(), told);
    assert_eq!(draft.try_write(1, b"x").expect("memory"), 1, "it is as without a keeper");
    draft.truncate(50).await.expect("memory");
    draft.publish().await.expect("nobody else writes");
    assert_eq!(notes.told(), [""; 0]);
    draft.write(3, Bytes::from_static(b"again")).await.expect("memory");
    assert_eq!(notes.told(), ["begin 50 of 50", "wrote 3..8"]);
    client
}

fn in_memory(limit_bytes: u64) -> SpoolConfig {
    SpoolConfig { disk: Arc::new(MemoryDisk), limit_bytes }
}

#[tokio::test(start_paused = true)]
async fn what_has_another_key_or_bytes_of_another_version_is_given_up() {
    is_given_up(in_memory(MIB), &["given up"], async |draft| {
        let (other, range) = (ObjectId::new("other", ETag::new("1")), ByteRange::new(0, 10));
        draft.copy_from(&other, 10, range, 70).await.expect("only noted");
    })
    .await;
    is_given_up(in_memory(MIB), &["given up"], async |draft| draft.rename("other", None).await).await;
    is_given_up(in_memory(MIB), &["given up"], async |draft| {
        draft
            .follow(&ObjectId::new("k", ETag::new("1")), async { Err::<ObjectId, ()>(()) })
            .await
            .expect_err("it stays where it is");
    })
    .await;
    // A version that moves before the first change is the base of what follows.
    let client = Arc::new(MemoryClient::new());
    let version = client.put("k", pattern(1, 100));
    let moved = client.put("moved", pattern(1, 100));
    let draft = spooling_writer(client, 32 * MIB, MIB).edit(&version, 100, NewObject::default());
    let notes = keep(&draft);
    draft.follow(&version, async { Ok::<_, ()>(moved) }).await.expect("it is moved");
    draft.write(3, Bytes::from_static(b"new")).await.expect("memory");
    assert_eq!(notes.told(), ["begin 100 of 100", "wrote 3..6"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_spool_can_not_take_is_given_up_and_goes_on() {
    let told = ["wrote 100..102", "given up"];
    let client = is_given_up(in_memory(MIB), &told, async |draft| {
        draft.write(100, pattern(2, 2)).await.expect("memory");
        draft.write(102, pattern(3, 2 << 20)).await.expect("memory takes it");
        assert!(draft.read(102, 2 << 20).await.expect("it is in memory") == pattern(3, 2 << 20));
    })
    .await;
    let mut bytes = pattern(1, 50).to_vec();
    bytes[..5].copy_from_slice(b"fxrst");
    assert_eq!(client.stored("k").0, bytes);
}

#[tokio::test(start_paused = true)]
async fn a_draft_that_can_not_begin_goes_on_without_a_keeper() {
    let client = Arc::new(MemoryClient::new());
    let broken = Counting { makes_no_files: true, ..Counting::default() };
    let config = SpoolConfig { disk: Arc::new(broken), limit_bytes: MIB };
    let draft = writer_with(client.clone(), 32 * MIB, Some(config)).create("k", NewObject::default());
    let notes = keep(&draft);
    write(&draft, 0, &pattern(1, 300_000)).await.expect("memory");
    assert_eq!(notes.told(), ["given up"]);
    let draft = spooling_writer(client.clone(), 32 * MIB, MIB).create("l", NewObject::default());
    let notes = Arc::new(Notes { refuses: true, ..Notes::default() });
    draft.keep(notes.clone());
    write(&draft, 0, &pattern(1, 300_000)).await.expect("memory");
    assert_eq!(notes.told(), ["begin 0 of 0", "given up"]);
    draft.publish().await.expect("nobody else writes");
    assert!(client.stored("l").0 == pattern(1, 300_000));
    // Nothing is kept without a spool.
    let draft = writer(client, 32 * MIB).create("m", NewObject::default());
    let notes = keep(&draft);
    assert_eq!(draft.try_write(0, b"abc").expect("memory"), 3);
    draft.write(3, Bytes::from_static(b"d")).await.expect("memory");
    draft.rename("n", None).await;
    assert_eq!(notes.told(), [""; 0]);
}

/// Nobody knows how far a call got that was cut off.
#[tokio::test(start_paused = true)]
async fn a_change_after_one_that_was_cut_off_gives_up() {
    let client = Arc::new(MemoryClient::new());
    let version = client.put("k", b"abcdefghij".as_slice());
    client.set_latency(Duration::from_millis(20));
    let writer = writer_with(client.clone(), 32 * MIB, Some(in_memory(MIB)));
    let draft = writer.edit(&version, 10, NewObject::default());
    let notes = keep(&draft);
    let cut_off = draft.write(1, Bytes::from_static(b"xyz")).now_or_never();
    assert!(cut_off.is_none(), "the bytes around it come from the store");
    assert_eq!(notes.told(), ["begin 10 of 10"]);
    draft.write(9, Bytes::from_static(b"J")).await.expect("memory");
    assert_eq!(notes.told(), ["given up"]);
    draft.publish().await.expect("nobody else writes");
    assert_eq!(client.stored("k").0, b"abcdefghiJ");
}

#[tokio::test(start_paused = true)]
async fn what_has_failed_is_given_up() {
    let client = Arc::new(MemoryClient::new());
    let draft = spooling_writer(client.clone(), 32 * MIB, MIB).create("k", NewObject::default());
    let notes = keep(&draft);
    draft.set_condition(Some(Condition::Absent));
    draft.write(0, Bytes::from_static(b"abc")).await.expect("memory");
    client.put("k", "somebody else's");
    draft.publish().await.expect_err("the name is taken");
    draft.write(3, Bytes::from_static(b"d")).await.expect_err("it has failed");
    assert_eq!(notes.told(), ["begin 0 of 0", "wrote 0..3", "given up"]);
}

#[tokio::test(start_paused = true)]
async fn the_store_gets_the_same_requests_with_and_without_a_keeper() {
    let mut requests = Vec::new();
    for is_kept in [false, true] {
        let client = Arc::new(MemoryClient::new());
        let draft = spooling_writer(client.clone(), 32 * MIB, 1000 * MIB).create("k", NewObject::default());
        let notes = is_kept.then(|| keep(&draft));
        let bytes = pattern(1, 64 << 20);
        write(&draft, 0, &bytes).await.expect("memory");
        draft.publish().await.expect("nobody else writes");
        assert!(client.stored("k").0 == bytes);
        requests.push(client.take_writes());
        assert!(notes.is_none_or(|notes| notes.told().len() == 1 + 512));
    }
    assert_eq!(requests[0], requests[1]);
}

/// What a change has written is not written again when memory is short.
#[tokio::test(start_paused = true)]
async fn a_long_file_is_written_to_the_spool_once() {
    let client = Arc::new(MemoryClient::new());
    let disk = Arc::new(Counting::default());
    let config = SpoolConfig { disk: disk.clone(), limit_bytes: 1000 * MIB };
    let draft = writer_with(client.clone(), 32 * MIB, Some(config)).create("k", NewObject::default());
    keep(&draft);
    let bytes = pattern(1, 100 << 20);
    write(&draft, 0, &bytes).await.expect("memory");
    let written = disk.written_bytes.load(Ordering::Relaxed);
    assert!(written < 110 * MIB, "{written} bytes");
    assert!(all(&draft).await == bytes);
    draft.publish().await.expect("nobody else writes");
    assert!(client.stored("k").0 == bytes);
}

/// Another process gets the descriptor of a file without a name.
#[tokio::test]
async fn the_next_process_goes_on_with_a_draft_and_is_kept_itself() {
    let client = Arc::new(MemoryClient::new());
    let mut bytes = pattern(1, 20 << 20).to_vec();
    let version = client.put("k", bytes.clone());
    let base = Some((version.clone(), 20 * MIB));
    let mut kept = {
        let draft = spooling_writer(client.clone(), 32 * MIB, 100 * MIB).edit(
            &version,
            20 * MIB,
            NewObject::default(),
        );
        let notes = keep(&draft);
        draft.write(7 * MIB, pattern(2, 3 << 20)).await.expect("memory");
        draft.truncate(18 * MIB).await.expect("it shrinks");
        draft.write(19 * MIB, pattern(3, 10)).await.expect("memory");
        notes.kept(base)
    };
    bytes[7 << 20..10 << 20].copy_from_slice(&pattern(2, 3 << 20));
    bytes.truncate(18 << 20);
    bytes.resize(19 << 20, 0);
    bytes.extend_from_slice(&pattern(3, 10));
    let descriptor: OwnedFd =
        kept.file.descriptor().expect("a real file").try_clone_to_owned().expect("a descriptor");
    kept.file = kept_file(descriptor);
    let condition = Some(Condition::Matches(version.etag().clone()));
    let writer = spooling_writer(client.clone(), 16 * MIB, 100 * MIB);
    let draft = writer.go_on("k", kept, condition, NewObject::default());
    let notes = keep(&draft);
    assert!(draft.is_dirty() && draft.version().is_none());
    assert!(all(&draft).await == bytes);
    draft.write(MIB, Bytes::from_static(b"more")).await.expect("memory");
    bytes[1 << 20..][..4].copy_from_slice(b"more");
    assert_eq!(notes.told(), [format!("wrote {MIB}..{}", MIB + 4)], "it has begun before");
    draft.publish().await.expect("nobody else writes");
    assert!(client.stored("k").0 == bytes);
    let writes = client.take_writes();
    assert!(writes.contains_key("UploadPartCopy"), "what is in the version is copied: {writes:?}");
    draft.truncate(3).await.expect("it shrinks");
    assert_eq!(notes.told(), [format!("begin {len} of {len}", len = bytes.len()), "resized 3".to_owned()]);
}

/// A daemon that has no spool any more publishes what the one before has kept.
#[tokio::test(start_paused = true)]
async fn what_was_kept_is_published_without_a_spool() {
    let client = Arc::new(MemoryClient::new());
    let draft = spooling_writer(client.clone(), 32 * MIB, 100 * MIB).create("k", NewObject::default());
    let notes = keep(&draft);
    let bytes = pattern(1, 12 << 20);
    write(&draft, 0, &bytes).await.expect("memory");
    let draft = writer(client.clone(), 32 * MIB).go_on("k", notes.kept(None), None, NewObject::default());
    draft.write(5, Bytes::from_static(b"more")).await.expect("memory");
    draft.publish().await.expect("nobody else writes");
    let stored = client.stored("k").0;
    assert!(stored[..5] == bytes[..5] && &stored[5..9] == b"more" && stored[9..] == bytes[9..]);
}

/// What the spool's file has of a draft that was given up is old where the draft has changed since.
#[tokio::test(start_paused = true)]
async fn a_draft_that_was_given_up_has_its_newest_bytes() {
    let client = Arc::new(MemoryClient::new());
    let source = client.put("source", pattern(9, 10));
    let writer = writer_with(client.clone(), 32 * MIB, Some(in_memory(1000 * MIB)));
    let draft = writer.create("k", NewObject::default());
    keep(&draft);
    write(&draft, 0, &pattern(1, 60 << 20)).await.expect("memory");
    draft.copy_from(&source, 10, ByteRange::new(0, 10), 60 * MIB).await.expect("only noted");
    let bytes = pattern(2, 60 << 20);
    write(&draft, 0, &bytes).await.expect("memory");
    assert!(draft.read(0, 60 << 20).await.expect("it is in the spool") == bytes);
    draft.publish().await.expect("nobody else writes");
    assert!(client.stored("k").0[..60 << 20] == bytes);
}
