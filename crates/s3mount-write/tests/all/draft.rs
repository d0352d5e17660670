//! Single steps of a draft, and their requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::{Condition, ErrorKind, NewObject, ObjectWriter as _};
use s3mount_testkit::MemoryClient;
use s3mount_write::{Draft, WriteError};

use crate::faulty::{Fault, FaultyClient};
use crate::{MIB, all, pattern, writer};

/// Writes a piece as the kernel's calls do: what is not written at once is waited for.
pub(crate) async fn write_piece(draft: &Draft, at: u64, piece: &[u8]) -> Result<(), WriteError> {
    let written = draft.try_write(at, piece)?;
    match &piece[written..] {
        [] => Ok(()),
        rest => draft.write(at + written as u64, Bytes::copy_from_slice(rest)).await,
    }
}

/// Writes `bytes` from `offset` on as the kernel does.
pub(crate) async fn write(draft: &Draft, offset: u64, bytes: &Bytes) -> Result<(), WriteError> {
    write_by(draft, offset, bytes, 128 << 10).await
}

/// Writes `bytes` from `offset` on in pieces of `len`.
pub(crate) async fn write_by(
    draft: &Draft,
    offset: u64,
    bytes: &Bytes,
    len: usize,
) -> Result<(), WriteError> {
    for (index, piece) in bytes.chunks(len).enumerate() {
        write_piece(draft, offset + (index * len) as u64, piece).await?;
    }
    Ok(())
}

pub(crate) fn kind(result: Result<impl std::fmt::Debug, WriteError>) -> ErrorKind {
    let mut error = result.expect_err("it fails");
    loop {
        match error {
            WriteError::Object(error) | WriteError::SourceGone(error) => return error.kind().clone(),
            WriteError::Failed(inner) => match Arc::try_unwrap(inner) {
                Ok(inner) => error = inner,
                Err(inner) => match &*inner {
                    WriteError::Object(error) | WriteError::SourceGone(error) => return error.kind().clone(),
                    other => panic!("{other:?}"),
                },
            },
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shows_what_is_written_and_publishes_it_by_one_request() {
    let client = Arc::new(MemoryClient::new());
    let writer = writer(client.clone(), 64 * MIB);
    let draft = writer.create("a/b", NewObject::default());
    assert!(draft.is_dirty(), "an empty file is to be published, too");
    draft.write(3, Bytes::from_static(b"def")).await.expect("memory");
    assert_eq!(all(&draft).await, b"\0\0\0def".as_slice());
    assert_eq!(draft.try_write(0, b"abc").expect("memory"), 3);
    draft.truncate(5).await.expect("it shrinks");
    let published = draft.publish().await.expect("the store takes it");
    assert_eq!((published.size, published.object.key(), draft.is_dirty()), (5, "a/b", false));
    assert_eq!(draft.publish().await.expect("nothing to do").object, published.object);
    assert_eq!(client.take_writes().into_iter().collect::<Vec<_>>(), [("PutObject", 1)]);
    let edited = writer.edit(&published.object, 5, NewObject::default());
    assert_eq!((all(&edited).await, edited.is_dirty()), (Bytes::from_static(b"abcde"), false));
    edited.write(5, Bytes::from_static(b"f")).await.expect("memory");
    edited.publish().await.expect("nobody else has written");
    assert_eq!(client.stored("a/b").0, b"abcdef");
}

#[tokio::test(start_paused = true)]
async fn replaces_nothing_that_its_condition_excludes() {
    let client = Arc::new(MemoryClient::new());
    client.put("k", "old");
    let writer = writer(client.clone(), 64 * MIB);
    let draft = writer.create("k", NewObject::default());
    draft.set_condition(Some(Condition::Absent));
    assert_eq!(kind(draft.publish().await), ErrorKind::PreconditionFailed);
    assert_eq!(kind(draft.write(0, Bytes::from_static(b"a")).await), ErrorKind::PreconditionFailed, "sticky");
    let version = client.put("k", "newer");
    let edited = writer.edit(&version, 5, NewObject::default());
    edited.write(0, Bytes::from_static(b"N")).await.expect("memory");
    client.put("k", "others");
    assert_eq!(kind(edited.publish().await), ErrorKind::PreconditionFailed);
    assert_eq!(client.stored("k").0, b"others");
}

#[tokio::test(start_paused = true)]
async fn uploads_parts_while_they_are_written() {
    let client = Arc::new(MemoryClient::new());
    let draft = writer(client.clone(), 64 * MIB).create("k", NewObject::default());
    let bytes = pattern(1, 23 * MIB as usize);
    write(&draft, 0, &bytes).await.expect("memory");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = client.take_writes();
    assert_eq!(writes.into_iter().collect::<Vec<_>>(), [("CreateMultipartUpload", 1), ("UploadPart", 4)]);
    assert!(client.keys().is_empty(), "nothing shows before");
    draft.sync().await.expect("the store has it");
    assert_eq!((client.take_writes()["UploadPart"], client.keys().len()), (1, 0), "the rest");
    let published = draft.publish().await.expect("it is complete");
    assert_eq!(client.take_writes().into_iter().collect::<Vec<_>>(), [("CompleteMultipartUpload", 1)]);
    assert_eq!((published.size, client.stored("k").0 == bytes), (23 * MIB, true));
    // What is appended needs no byte of the rest.
    write(&draft, 23 * MIB, &bytes.slice(..100)).await.expect("memory");
    draft.publish().await.expect("it is complete");
    let writes = client.take_writes();
    assert_eq!((writes["UploadPartCopy"], writes["UploadPart"]), (1, 1), "{writes:?}");
    assert_eq!(client.stored("k").0, [bytes.clone(), bytes.slice(..100)].concat());
}

#[tokio::test(start_paused = true)]
async fn a_file_of_unknown_bytes_patched_later_is_uploaded_once() {
    let client = Arc::new(MemoryClient::new());
    let draft = writer(client.clone(), 64 * MIB).create("k", NewObject::default());
    let mut bytes = pattern(1, 12 * MIB as usize).to_vec();
    write(&draft, 0, &bytes.clone().into()).await.expect("memory");
    write(&draft, 100, &Bytes::from_static(b"header")).await.expect("memory");
    bytes[100..106].copy_from_slice(b"header");
    write(&draft, 12 * MIB, &Bytes::from(bytes.clone())).await.expect("memory");
    bytes.extend(bytes.clone());
    draft.publish().await.expect("it is complete");
    assert_eq!(client.stored("k").0, bytes);
    let writes = client.take_writes();
    assert!((5..=7).contains(&writes["UploadPart"]), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_to_be_a_success() {
    for (len, before) in [(100, 0), (12 * MIB as usize, 4)] {
        let store = Arc::new(MemoryClient::new());
        let client = FaultyClient::new(store.clone());
        let draft = writer(client.clone(), 64 * MIB).create("k", NewObject::default());
        draft.set_condition(Some(Condition::Absent));
        let bytes = pattern(7, len);
        write(&draft, 0, &bytes).await.expect("memory");
        tokio::time::sleep(Duration::from_secs(1)).await;
        draft.sync().await.unwrap_or_else(|error| panic!("{before}: {error}"));
        client.add([Fault::IsLost]);
        if before == 0 {
            draft.write(0, Bytes::from_static(b"x")).await.expect("memory");
        }
        let published = draft.publish().await.expect("it was done");
        assert_eq!(store.head(), (published.object.etag().clone(), len as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_meets_another_write_is_begun_anew() {
    let store = Arc::new(MemoryClient::new());
    let client = FaultyClient::new(store.clone());
    let draft = writer(client.clone(), 64 * MIB).create("k", NewObject::default());
    let bytes = pattern(7, 12 * MIB as usize);
    write(&draft, 0, &bytes).await.expect("memory");
    draft.sync().await.expect("the store has it");
    store.take_writes();
    client.add([Fault::Fails(ErrorKind::Conflict)]);
    draft.publish().await.expect("it is complete");
    assert!(store.stored("k").0 == bytes);
    let writes = store.take_writes();
    assert_eq!((writes["CreateMultipartUpload"], writes["UploadPart"]), (1, 3), "{writes:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(store.open_uploads().is_empty());
    // So is one that somebody has given up.
    write(&draft, 0, &bytes).await.expect("memory");
    draft.sync().await.expect("the store has it");
    let page = store.list_uploads("k", None).await.expect("a list");
    store.abort(&page.uploads[0].upload).await.expect("it is gone");
    draft.publish().await.expect("it is complete");
    assert!(store.stored("k").0 == bytes);
}

#[tokio::test(start_paused = true)]
async fn an_upload_whose_id_was_lost_is_given_up() {
    let store = Arc::new(MemoryClient::new());
    let client = FaultyClient::new(store.clone());
    let (used, unused) = (
        store.create_upload("k", &NewObject::default(), false).await.expect("another's"),
        store.create_upload("k2", &NewObject::default(), false).await.expect("of another key"),
    );
    store.put_part(&used, 1, Bytes::from_static(b"theirs").into()).await.expect("a part");
    client.add([Fault::IsLost]);
    let draft = writer(client.clone(), 64 * MIB).create("k", NewObject::default());
    write(&draft, 0, &pattern(7, 12 * MIB as usize)).await.expect("memory");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(store.open_uploads().len(), 4, "two of others, one that is lost, and the draft's");
    draft.publish().await.expect("it is complete");
    tokio::time::sleep(Duration::from_secs(100)).await;
    let page = store.list_uploads("", None).await.expect("a list");
    let left: Vec<_> = page.uploads.into_iter().map(|listed| listed.upload).collect();
    assert_eq!(left, [used, unused]);
}

/// The one object of a store.
trait Head {
    fn head(&self) -> (s3mount_object::ETag, u64);
}

impl Head for MemoryClient {
    fn head(&self) -> (s3mount_object::ETag, u64) {
        use futures::FutureExt as _;
        use s3mount_object::ObjectClient as _;
        let meta = self.head_object("k").now_or_never().expect("at once").expect("it is there");
        (meta.etag, meta.size)
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_gets_another_key_under_way_shows_only_there() {
    let client = Arc::new(MemoryClient::new());
    let writer = writer(client.clone(), 64 * MIB);
    for len in [100, 17 * MIB as usize] {
        let draft = writer.create("tmp", NewObject::default());
        let bytes = pattern(3, len);
        write(&draft, 0, &bytes).await.expect("memory");
        tokio::time::sleep(Duration::from_secs(1)).await;
        draft.rename("model", None).await;
        let published = draft.publish().await.expect("it moves");
        assert_eq!((published.object.key(), client.keys()), ("model", vec!["model".to_owned()]));
        assert!(client.stored("model").0 == bytes);
        draft.rename("again", Some(Condition::Absent)).await;
        draft.publish().await.expect("it moves");
        assert_eq!(client.keys(), ["again"]);
        client.delete("again");
    }
    assert!(client.open_uploads().is_empty());
}

/// As a log that is rotated: its old name is another file's before it is closed.
#[tokio::test(start_paused = true)]
async fn a_file_that_gets_another_key_under_way_leaves_the_old_one_to_others() {
    for (is_first, latency) in [(true, 0), (false, 0), (true, 5_000), (false, 5_000)] {
        let client = Arc::new(MemoryClient::new());
        let writer = writer(client.clone(), 64 * MIB);
        let log = writer.create("log", NewObject::default());
        log.set_condition(Some(Condition::Absent));
        let bytes = pattern(3, 23 * MIB as usize);
        // Parts are under way, or are there.
        client.set_latency(Duration::from_millis(latency));
        write(&log, 0, &bytes.slice(..20 << 20)).await.expect("memory");
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.set_latency(Duration::ZERO);
        log.rename("log.1", Some(Condition::Absent)).await;
        let newer = writer.create("log", NewObject::default());
        newer.set_condition(Some(Condition::Absent));
        write(&newer, 0, &Bytes::from_static(b"newer")).await.expect("memory");
        write(&log, 20 * MIB, &bytes.slice(20 << 20..)).await.expect("memory");
        if is_first {
            newer.publish().await.expect("its key is its own");
        }
        log.publish().await.expect("its key is its own");
        newer.publish().await.expect("its key is its own");
        assert_eq!(
            (client.keys(), client.stored("log").0),
            (vec!["log".into(), "log.1".into()], b"newer".into())
        );
        assert!(client.stored("log.1").0 == bytes);
        assert_eq!(client.take_writes().get("DeleteObject"), None, "nothing was where it does not belong");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(client.open_uploads().is_empty());
    }
}

/// As a log that is rotated by a rename of its object, while its parts are uploaded with bytes of that object.
#[tokio::test(start_paused = true)]
async fn parts_under_way_have_their_bytes_though_the_version_gets_another_key() {
    let client = Arc::new(MemoryClient::new());
    let writer = writer(client.clone(), 64 * MIB);
    let (bytes, more) = (pattern(3, 15 * MIB as usize), pattern(5, 4 * MIB as usize));
    let old = client.put("log", bytes.clone());
    let log = writer.edit(&old, 15 * MIB, NewObject::default());
    client.set_latency(Duration::from_secs(5));
    write(&log, 15 * MIB, &more).await.expect("memory");
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.set_latency(Duration::ZERO);
    let moving = async {
        let new = client.put("log.1", bytes.clone());
        client.delete("log");
        // Whoever begins an upload now would find nothing.
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok::<_, WriteError>(new)
    };
    log.follow(&old, moving).await.expect("it has moved");
    log.publish().await.expect("nothing was lost");
    assert_eq!(client.keys(), ["log.1"]);
    assert!(client.stored("log.1").0 == [bytes, more].concat());
}

/// The same, where the first parts are in the upload to the old key and nowhere else.
#[tokio::test(start_paused = true)]
async fn what_is_only_in_an_upload_to_the_old_key_makes_way_for_another_file() {
    for (is_first, is_closed) in [(true, false), (false, false), (true, true)] {
        let client = Arc::new(MemoryClient::new());
        let writer = writer(client.clone(), 20 * MIB);
        let log = writer.create("log", NewObject::default());
        log.set_condition(Some(Condition::Absent));
        let bytes = pattern(3, 47 * MIB as usize);
        write(&log, 0, &bytes.slice(..43 << 20)).await.expect("memory");
        assert!(log.read(0, 10).await.is_err(), "it has left the memory");
        log.rename("log.1", Some(Condition::Absent)).await;
        log.rename("log.2", Some(Condition::Absent)).await;
        if is_closed {
            // Nobody wants the old key before it is closed.
            write(&log, 43 * MIB, &bytes.slice(43 << 20..)).await.expect("memory");
            log.publish().await.expect("it is moved");
        }
        writer.free("log", None).await;
        assert_eq!(client.keys(), if is_closed { vec!["log.2"] } else { vec![] });
        let newer = writer.create("log", NewObject::default());
        newer.set_condition(Some(Condition::Absent));
        write(&newer, 0, &Bytes::from_static(b"newer")).await.expect("memory");
        if is_first {
            newer.publish().await.expect("its key is its own");
        }
        if !is_closed {
            write(&log, 43 * MIB, &bytes.slice(43 << 20..)).await.expect("memory");
        }
        log.publish().await.expect("its key is its own");
        newer.publish().await.expect("its key is its own");
        assert_eq!(
            (client.keys(), client.stored("log").0),
            (vec!["log".into(), "log.2".into()], b"newer".into())
        );
        assert!(client.stored("log.2").0 == bytes);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(client.open_uploads().is_empty());
    }
}

/// A stream is one whatever the lengths of its writes: each part is uploaded once, when it is passed, as one piece.
#[tokio::test(start_paused = true)]
async fn a_stream_of_odd_writes_is_uploaded_as_one_of_even_writes() {
    for len in [1 << 20, (1 << 20) + 64, 100_003] {
        let store = Arc::new(MemoryClient::new());
        let client = FaultyClient::new(store.clone());
        let draft = writer(client.clone(), 64 * MIB).create("k", NewObject::default());
        let bytes = pattern(1, 28 * MIB as usize);
        for (index, piece) in bytes.chunks(len).enumerate() {
            let at = (index * len) as u64;
            write_piece(&draft, at, piece).await.expect("memory");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(store.take_writes().get("UploadPart"), Some(&5), "writes of {len} bytes");
        draft.publish().await.expect("it is complete");
        assert_eq!((store.take_writes()["UploadPart"], store.requests().get), (1, 0));
        let in_pieces = client.in_pieces.load(std::sync::atomic::Ordering::Relaxed);
        assert!(in_pieces <= 1, "{in_pieces} of 6, by writes of {len} bytes");
        assert!(store.stored("k").0 == bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_leaves_nothing_behind() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(100));
    let writer = writer(client.clone(), 64 * MIB);
    for is_discarded in [true, false] {
        let draft = writer.create("k", NewObject::default());
        write(&draft, 0, &pattern(3, 17 * MIB as usize)).await.expect("memory");
        tokio::time::sleep(Duration::from_millis(150)).await;
        if is_discarded {
            draft.discard().await;
            assert!(draft.write(0, Bytes::from_static(b"a")).await.is_err());
        }
        drop(draft);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(client.open_uploads().is_empty() && client.keys().is_empty(), "{is_discarded}");
    }
    assert_eq!(writer.metrics().aborted.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_patched_while_it_is_uploaded_is_uploaded_again() {
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(100));
    let draft = writer(client.clone(), 64 * MIB).create("k", NewObject::default());
    let mut bytes = pattern(1, 12 * MIB as usize).to_vec();
    write(&draft, 0, &bytes.clone().into()).await.expect("memory");
    // The upload has begun, and its parts are under way.
    tokio::time::sleep(Duration::from_millis(150)).await;
    draft.write(5, Bytes::from_static(b"patched")).await.expect("it is in memory");
    bytes[5..12].copy_from_slice(b"patched");
    draft.publish().await.expect("it is complete");
    assert!(client.stored("k").0 == bytes);
    assert_eq!(client.take_writes()["UploadPart"], 4, "three parts, and the first one again");
}
