//! Copies of whole objects on a bucket in memory: what the store has afterwards, and what becomes of them when
//! requests fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use s3mount_object::{
    Body, Condition, Encryption, ErrorKind, NewObject, ObjectId, ObjectWriter, UserMetadata,
};
use s3mount_testkit::MemoryClient;
use s3mount_write::{Copied, Copier, CopyConfig, CopyError, CopyOrder, Encrypted, Proof};
use tokio::time::Instant;

use crate::faulty::{Fault, FaultyClient};
use crate::{MIB, pattern};

/// Five parts of 5 MiB.
const SIZE: usize = 23 * MIB as usize;

const PARTS: CopyConfig = CopyConfig {
    part_bytes: Some(5 * MIB),
    max_requests: 16,
    has_checksums: true,
    timeout: Duration::from_secs(60),
    resumes: false,
};

fn copier(client: &Arc<impl ObjectWriter>, config: CopyConfig) -> Copier {
    Copier::new(client.clone(), client.clone(), config)
}

/// All that an object may have beside its bytes.
pub(crate) fn beside() -> NewObject {
    let text = |text: &str| Some(text.to_owned());
    NewObject {
        content_type: text("text/csv"),
        cache_control: text("no-cache"),
        content_disposition: text("attachment"),
        content_encoding: text("gzip"),
        content_language: text("de"),
        expires: text("Thu, 01 Jan 2026 00:00:00 GMT"),
        metadata: UserMetadata::from([("step".to_owned(), "7".to_owned())]),
        storage_class: text("STANDARD_IA"),
        encryption: Some(Encryption { method: "aws:kms".to_owned(), kms_key_id: text("key") }),
        tags: text("a=1&b=2"),
    }
}

/// The bytes of the copy, and what it has beside them, except the mark that its own write has.
fn stored(client: &MemoryClient) -> (Vec<u8>, NewObject) {
    let (bytes, mut beside) = client.stored("to");
    beside.metadata.remove(s3mount_bucket::MARK);
    (bytes, beside)
}

async fn fill(client: &MemoryClient, size: usize) {
    let (body, beside) = (Body::from(pattern(1, size)), beside());
    ObjectWriter::put(client, "from", body, &beside, None).await.expect("a put");
}

async fn copy(copier: &Copier, order: &CopyOrder) -> Result<Copied, CopyError> {
    copier.copy(&copier.describe("from").await?, order, &|_| {}).await
}

#[tokio::test]
async fn a_copy_has_all_that_its_source_has() {
    for (size, requests) in [(0, 1), (5 * MIB as usize, 1), (SIZE, 7)] {
        let client = Arc::new(MemoryClient::new());
        fill(&client, size).await;
        client.take_writes();
        let copier = copier(&client, PARTS);
        let done = AtomicU64::new(0);
        let source = copier.describe("from").await.expect("it is there");
        let order = CopyOrder { encrypted: Encrypted::Kept, ..CopyOrder::to("to") };
        let count = |bytes| {
            done.fetch_add(bytes, Ordering::Relaxed);
        };
        let copied = copier.copy(&source, &order, &count).await.expect("a copy");
        assert_eq!(
            (copied.proof, copied.size, done.into_inner()),
            (Proof::Checksum, size as u64, size as u64)
        );
        assert_eq!(client.take_writes().values().sum::<usize>(), requests);
        let (bytes, has) = stored(&client);
        assert!(bytes == pattern(1, size) && has == beside(), "{has:?}");

        let given = Encryption { method: "AES256".to_owned(), kms_key_id: None };
        let order = CopyOrder {
            encrypted: Encrypted::With(given.clone()),
            storage_class: Some("GLACIER_IR".to_owned()),
            ..CopyOrder::to("to")
        };
        copy(&copier, &order).await.expect("a copy");
        let (_, has) = stored(&client);
        let storage_class = order.storage_class.clone();
        assert_eq!(has, NewObject { encryption: Some(given), storage_class, ..beside() });
        copy(&copier, &CopyOrder::to("to")).await.expect("a copy");
        assert_eq!(stored(&client).1, NewObject { encryption: None, ..beside() });
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_than_allowed_go_at_once() {
    let client = Arc::new(MemoryClient::new());
    fill(&client, SIZE).await;
    client.set_latency(Duration::from_secs(1));
    for (max_requests, seconds) in [(1, 5), (2, 3), (16, 1)] {
        let copier = copier(&client, CopyConfig { max_requests, ..PARTS });
        let source = copier.describe("from").await.expect("it is there");
        let start = Instant::now();
        copier.copy(&source, &CopyOrder::to("to"), &|_| {}).await.expect("a copy");
        // The tags, the beginning and the end of the upload.
        assert_eq!(start.elapsed().as_secs() - 3, seconds);
    }
}

/// Whatever request fails or loses its answer, the copy is right, and nothing else is left.
#[tokio::test(start_paused = true)]
async fn every_request_may_fail_once() {
    for size in [MIB as usize, SIZE] {
        for at in 0..10 {
            for fault in [Fault::Fails(ErrorKind::Throttled), Fault::IsLost, Fault::IsLate(40_000)] {
                for condition in [None, Some(Condition::Absent)] {
                    let store = Arc::new(MemoryClient::new());
                    fill(&store, size).await;
                    let client = FaultyClient::new(store.clone());
                    client.add(std::iter::repeat_n(Fault::None, at).chain([fault.clone()]));
                    let copier = copier(&client, PARTS);
                    let order = CopyOrder { encrypted: Encrypted::Kept, condition, ..CopyOrder::to("to") };
                    copy(&copier, &order).await.unwrap_or_else(|error| panic!("{at} {fault:?}: {error}"));
                    let (bytes, has) = stored(&store);
                    assert!(bytes == pattern(1, size) && has == beside());
                    let orphans = client.orphans.load(Ordering::Relaxed);
                    assert_eq!(store.open_uploads().len(), orphans, "{at} {fault:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_fails_leaves_nothing() {
    for size in [MIB as usize, SIZE] {
        for at in 1..9 {
            let store = Arc::new(MemoryClient::new());
            fill(&store, size).await;
            let client = FaultyClient::new(store.clone());
            client.add(std::iter::repeat_n(Fault::None, at).chain([Fault::Fails(ErrorKind::Forbidden)]));
            let failed = copy(&copier(&client, PARTS), &CopyOrder::to("to")).await;
            if failed.is_err() {
                assert_eq!((store.keys(), store.open_uploads()), (vec!["from".to_owned()], vec![]), "{at}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_replaced_meanwhile_is_not_copied() {
    for size in [MIB as usize, SIZE] {
        let client = Arc::new(MemoryClient::new());
        fill(&client, size).await;
        let copier = copier(&client, CopyConfig { max_requests: 1, ..PARTS });
        let source = copier.describe("from").await.expect("it is there");
        client.set_latency(Duration::from_secs(1));
        let order = CopyOrder { condition: Some(Condition::Absent), ..CopyOrder::to("to") };
        let copy = tokio::spawn({
            let copier = copier.clone();
            async move { copier.copy(&source, &order, &|_| {}).await }
        });
        tokio::time::sleep(Duration::from_millis(if size == SIZE { 4500 } else { 500 })).await;
        client.put("from", pattern(2, size));
        let error = copy.await.expect("no panic").expect_err("it was replaced");
        assert!(matches!(error, CopyError::SourceChanged { .. }), "{error}");
        assert_eq!(error.to_string(), "\"from\" was replaced or deleted while it was copied");
        assert_eq!((client.keys(), client.open_uploads()), (vec!["from".to_owned()], vec![]));
    }
}

#[tokio::test]
async fn what_is_there_is_replaced_only_as_the_condition_says() {
    for size in [MIB as usize, SIZE] {
        let client = Arc::new(MemoryClient::new());
        fill(&client, size).await;
        let there = client.put("to", "there");
        let copier = copier(&client, PARTS);
        let order = |condition| CopyOrder { condition: Some(condition), ..CopyOrder::to("to") };
        let other = client.put("other", "other");
        for condition in [Condition::Absent, Condition::Matches(other.etag().clone())] {
            let error = copy(&copier, &order(condition)).await.expect_err("it is taken");
            assert!(matches!(error, CopyError::Taken { .. }), "{error}");
            assert_eq!((client.stored("to").0.as_slice(), client.open_uploads()), (&b"there"[..], vec![]));
        }
        copy(&copier, &order(Condition::Matches(there.etag().clone()))).await.expect("a copy");
        assert!(client.stored("to").0 == pattern(1, size));
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_copy_is_gone_on_with_or_given_up() {
    for (resumes, has_sum) in [(true, true), (true, false), (false, true)] {
        let client = Arc::new(MemoryClient::new());
        fill(&client, SIZE).await;
        if !has_sum {
            client.keep_no_checksums();
        }
        client.set_latency(Duration::from_secs(1));
        let copier = copier(&client, CopyConfig { max_requests: 2, resumes, ..PARTS });
        let order = CopyOrder::to("to");
        // Two HEADs and two requests for uploads come before the parts.
        let half = tokio::time::timeout(Duration::from_millis(6500), copy(&copier, &order)).await;
        assert!(half.is_err(), "it is interrupted");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let goes_on = resumes && has_sum;
        assert_eq!(client.open_uploads().len(), usize::from(goes_on));
        client.take_writes();
        let copied = copy(&copier, &order).await.expect("a copy");
        let left = client.take_writes()["UploadPartCopy"];
        assert_eq!(copied.resumed_bytes, (5 - left as u64) * 5 * MIB);
        assert_eq!(left < 5, goes_on, "{left} parts were copied");
        assert!(client.stored("to").0 == pattern(1, SIZE) && client.open_uploads().is_empty());
    }
}

/// An upload of the right form that has the parts of something else: its bytes are never published.
#[tokio::test]
async fn an_upload_of_another_source_is_left_alone() {
    let client = Arc::new(MemoryClient::new());
    fill(&client, SIZE).await;
    let upload = client.create_upload("to", &NewObject::default(), false).await.expect("an upload");
    client.put_part(&upload, 1, pattern(3, 5 << 20).into()).await.expect("a part");
    let copier = copier(&client, CopyConfig { resumes: true, ..PARTS });
    let copied = copy(&copier, &CopyOrder::to("to")).await.expect("a copy");
    assert!(client.stored("to").0 == pattern(1, SIZE) && copied.proof == Proof::Checksum);
    assert_eq!((copied.resumed_bytes, client.open_uploads()), (0, vec![upload]));
    // Parts of another length are none of a copy.
    let other = client.create_upload("new", &NewObject::default(), false).await.expect("an upload");
    client.put_part(&other, 1, pattern(1, 6 << 20).into()).await.expect("a part");
    client.take_writes();
    copy(&copier, &CopyOrder::to("new")).await.expect("a copy");
    assert_eq!(client.take_writes()["UploadPartCopy"], 5);
    assert!(client.open_uploads().contains(&other));
}

#[tokio::test]
async fn a_store_that_copies_no_parts_copies_whole() {
    let store = Arc::new(MemoryClient::new());
    fill(&store, SIZE).await;
    let client = FaultyClient::new(store.clone());
    // The HEAD, the tags and the upload; the first part is refused.
    let faults = std::iter::repeat_n(Fault::None, 3).chain([Fault::Fails(ErrorKind::Unsupported)]);
    client.add(faults);
    let copier = copier(&client, CopyConfig { max_requests: 1, ..PARTS });
    copy(&copier, &CopyOrder::to("to")).await.expect("a copy");
    assert_eq!(store.take_writes()["CopyObject"], 1);
    assert!(store.stored("to").0 == pattern(1, SIZE) && store.open_uploads().is_empty());
}

#[tokio::test]
async fn a_rename_is_one_request_where_the_store_can() {
    let client = Arc::new(MemoryClient::new());
    let rename = async |object: &ObjectId, key: &str, condition: Option<Condition>| {
        copier(&client, PARTS).rename(object, key, condition.as_ref()).await
    };
    fill(&client, SIZE).await;
    let version = copier(&client, PARTS).describe("from").await.expect("it is there").object;
    client.take_writes();
    let moved = rename(&version, "to", Some(Condition::Absent)).await.expect("a rename");
    assert_eq!((client.keys(), stored(&client).1), (vec!["to".to_owned()], beside()));
    let writes = client.take_writes();
    assert_eq!((writes["UploadPartCopy"], writes["DeleteObject"]), (5, 1));

    client.make_directory_bucket();
    let moved = rename(&moved, "back", Some(Condition::Absent)).await.expect("a rename");
    assert_eq!(client.take_writes().into_iter().collect::<Vec<_>>(), [("RenameObject", 1)]);
    assert!(client.stored("back").0 == pattern(1, SIZE));
    client.put("back", "another");
    rename(&moved, "to", None).await.expect_err("it was replaced");
    assert_eq!(client.keys(), ["back"]);
}
