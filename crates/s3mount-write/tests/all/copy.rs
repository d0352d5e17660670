//! Bytes that drafts take from other versions.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_object::{ByteRange, Condition, ErrorKind, NewObject, ObjectId};
use s3mount_testkit::MemoryClient;
use s3mount_write::WriteError;

use crate::draft::{kind, write};
use crate::faulty::{Fault, FaultyClient};
use crate::{MIB, all, pattern, writer};

fn whole(bytes: &Bytes) -> ByteRange {
    ByteRange::new(0, bytes.len() as u64)
}

/// A store with an object of `len` bytes.
fn source(len: u64) -> (Arc<MemoryClient>, ObjectId, Bytes) {
    let (client, bytes) = (Arc::new(MemoryClient::new()), pattern(5, len as usize));
    let version = client.put("source", bytes.clone());
    (client, version, bytes)
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_whole_file_is_one_request_and_moves_no_byte() {
    for len in [3, 30 * MIB] {
        let (client, version, bytes) = source(len);
        let writer = writer(client.clone(), 64 * MIB);
        let object = NewObject { content_type: Some("a/b".to_owned()), ..NewObject::default() };
        let draft = writer.create("copy", object);
        draft.set_condition(Some(Condition::Absent));
        // The kernel may ask in pieces.
        for start in [0, len / 2] {
            let range = ByteRange::new(start, if start == 0 { len / 2 } else { len });
            assert!(draft.suits_copy(&version, range, start));
            draft.copy_from(&version, len, range, start).await.expect("only noted");
        }
        assert_eq!((draft.size(), client.requests().get), (len, 0));
        let published = draft.publish().await.expect("the store copies");
        assert_eq!(client.take_writes().into_iter().collect::<Vec<_>>(), [("CopyObject", 1)]);
        assert_eq!((published.size, client.requests().get), (len, 0));
        let (stored, object) = client.stored("copy");
        assert!(stored == bytes && object.content_type.as_deref() == Some("a/b"), "{object:?}");
        assert_eq!(all(&draft).await, bytes, "the copy is the draft's version now");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_copied_is_read_and_changed_before_it_is_published() {
    let (client, version, bytes) = source(30 * MIB);
    let writer = writer(client.clone(), 64 * MIB);
    let draft = writer.create("copy", NewObject::default());
    draft.copy_from(&version, 30 * MIB, whole(&bytes), 0).await.expect("only noted");
    assert_eq!(draft.read(29 * MIB, 10).await.expect("the source's bytes"), bytes[29 << 20..][..10]);
    draft.write(100, Bytes::from_static(b"patched")).await.expect("memory");
    write(&draft, 30 * MIB, &Bytes::from_static(b"behind")).await.expect("memory");
    let mut expected = [&bytes[..], b"behind"].concat();
    expected[100..107].copy_from_slice(b"patched");
    assert!(all(&draft).await == expected);
    draft.publish().await.expect("it is complete");
    assert!(client.stored("copy").0 == expected);
    let writes = client.take_writes();
    assert_eq!((writes["UploadPart"], writes["UploadPartCopy"]), (2, 1), "{writes:?}");
}

/// Several parts are copied as one. Those that were uploaded before belong to the file no more.
#[tokio::test(start_paused = true)]
async fn a_copy_over_parts_that_were_uploaded_takes_their_place() {
    let (client, version, bytes) = source(30 * MIB);
    let draft = writer(client.clone(), 64 * MIB).create("copy", NewObject::default());
    write(&draft, 0, &pattern(7, 33 << 20)).await.expect("memory");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(client.take_writes()["UploadPart"], 6);
    draft.copy_from(&version, 30 * MIB, whole(&bytes), 0).await.expect("only noted");
    draft.publish().await.expect("it is complete");
    assert!(client.stored("copy").0 == [&bytes[..], &pattern(7, 33 << 20)[30 << 20..]].concat());
    assert_eq!(client.take_writes()["UploadPartCopy"], 1);
}

#[tokio::test(start_paused = true)]
async fn only_what_shares_a_part_with_other_bytes_is_fetched() {
    let (client, version, bytes) = source(30 * MIB);
    let writer = writer(client.clone(), 64 * MIB);
    let draft = writer.create("copy", NewObject::default());
    let head = pattern(7, 3 << 20);
    write(&draft, 0, &head).await.expect("memory");
    draft.copy_from(&version, 30 * MIB, whole(&bytes), 3 * MIB).await.expect("only noted");
    // Behind a gap of zeros.
    draft.copy_from(&version, 30 * MIB, ByteRange::new(7, 9 << 20), 40 * MIB).await.expect("only noted");
    draft.publish().await.expect("it is complete");
    let expected = [&head[..], &bytes, &vec![0; 7 << 20], &bytes[7..9 << 20]].concat();
    assert!(client.stored("copy").0 == expected);
    let fetched: u64 = client.ranges().iter().map(|(_, range)| range.end - range.start).sum();
    assert!(fetched <= 10 * MIB, "{fetched} bytes: parts are 5 MiB");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_gone_is_told_and_nothing_is_written() {
    for (len, offset) in [(3, 0), (30 * MIB, 0), (30 * MIB, 1)] {
        for is_deleted in [false, true] {
            let (client, version, bytes) = source(len);
            let writer = writer(client.clone(), 64 * MIB);
            let draft = writer.create("copy", NewObject::default());
            draft.set_condition(Some(Condition::Absent));
            draft.copy_from(&version, len, whole(&bytes), offset).await.expect("only noted");
            match is_deleted {
                true => client.delete("source"),
                false => drop(client.put("source", "another")),
            }
            let error = draft.publish().await.expect_err("the bytes are gone");
            let WriteError::Failed(error) = error else { panic!("{error:?}") };
            assert!(matches!(*error, WriteError::SourceGone(_)), "{error:?}");
            draft.discard().await;
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            assert!(!client.keys().contains(&"copy".to_owned()) && client.open_uploads().is_empty());
        }
    }
    // What is in the way is no fault of the source's.
    let (client, version, bytes) = source(3);
    let draft = writer(client.clone(), 64 * MIB).create("copy", NewObject::default());
    draft.set_condition(Some(Condition::Absent));
    draft.copy_from(&version, 3, whole(&bytes), 0).await.expect("only noted");
    client.put("copy", "theirs");
    let error = draft.publish().await;
    assert!(format!("{error:?}").contains("Object(") && kind(error) == ErrorKind::PreconditionFailed);
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_answer_is_lost_is_found_to_be_done() {
    let (store, version, bytes) = source(100);
    let client = FaultyClient::new(store.clone());
    let draft = writer(client.clone(), 64 * MIB).create("copy", NewObject::default());
    draft.set_condition(Some(Condition::Absent));
    draft.copy_from(&version, 100, whole(&bytes), 0).await.expect("only noted");
    client.add([Fault::IsLost]);
    draft.publish().await.expect("it was done");
    assert_eq!(store.stored("copy").0, bytes);
}

#[tokio::test(start_paused = true)]
async fn short_pieces_are_better_read_and_written() {
    let (client, version, bytes) = source(30 * MIB);
    let draft = writer(client, 64 * MIB).create("copy", NewObject::default());
    let range = |start, len| ByteRange::new(start, start + len);
    assert!(
        !draft.suits_copy(&version, range(1, 4_000), 0) && !draft.suits_copy(&version, range(0, 4_000), 1)
    );
    assert!(draft.suits_copy(&version, range(1, 5 * MIB), 3));
    draft.copy_from(&version, 30 * MIB, range(0, 4_000), 0).await.expect("only noted");
    assert!(draft.suits_copy(&version, range(4_000, 4_000), 4_000), "it goes on");
    assert!(!draft.suits_copy(&version, range(0, 4_000), 4_000));
    assert_eq!(all(&draft).await, bytes[..4_000]);
}
