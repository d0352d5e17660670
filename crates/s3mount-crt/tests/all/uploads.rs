//! Uploads that meet faults: what the caller is told, and what the store has.

use std::time::Duration;

use bytes::Bytes;
use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{
    Body, ByteRange, Completion, Condition, CopySource, ErrorKind, NewObject, ObjectError, ObjectId,
    ObjectWriter as _, UploadId, WrittenPart,
};
use s3mount_testkit::{Builder, Fault, FaultKind, Operation, TestS3, content};

const BUCKET: &str = "bucket";

fn start(builder: Builder) -> (TestS3, CrtClient) {
    let server = builder.bucket(BUCKET).start().expect("a server");
    let config = CrtConfig {
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(server.endpoint()),
        credentials: Credentials::Anonymous,
        ..CrtConfig::new(BUCKET)
    };
    (server, CrtClient::new(config).expect("a client"))
}

fn kind<T>(result: Result<T, ObjectError>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind().clone())
}

fn body(seed: &str, len: usize) -> Body {
    Bytes::from(content(seed, 0, len)).into()
}

/// An upload to `k` of one part.
async fn upload(client: &CrtClient) -> (UploadId, Vec<WrittenPart>) {
    let upload = client.create_upload("k", &NewObject::default(), false).await.expect("an upload");
    let part = client.put_part(&upload, 1, body("part", 1000)).await.expect("a part");
    (upload, vec![part])
}

#[tokio::test]
async fn an_error_behind_status_200_is_an_error() {
    let (server, client) = start(TestS3::builder());
    let (id, parts) = upload(&client).await;
    let fault =
        |operation, code| server.fault(Fault::new(FaultKind::error_body(code)).on(operation).times(2));
    for (code, expected) in [
        ("InternalError", ErrorKind::Server),
        ("InvalidPart", ErrorKind::InvalidPart),
        ("SlowDown", ErrorKind::Throttled),
        ("PreconditionFailed", ErrorKind::PreconditionFailed),
    ] {
        fault(Operation::CompleteMultipartUpload, code);
        let answer = client.complete(&id, &parts, &Completion::default()).await;
        assert_eq!(kind(answer), Some(expected), "{code}");
        server.clear_faults();
        assert!(server.stored(BUCKET, "k").is_none());
    }
    let whole = client.complete(&id, &parts, &Completion::default()).await.expect("an object");
    let source = CopySource { bucket: None, object: ObjectId::new("k", whole.etag) };
    fault(Operation::CopyObject, "InternalError");
    assert_eq!(kind(client.copy(&source, "copy", None, None).await), Some(ErrorKind::Server));
    assert!(server.stored(BUCKET, "copy").is_none());
    let (id, _) = upload(&client).await;
    fault(Operation::UploadPartCopy, "InternalError");
    let answer = client.copy_part(&id, 2, &source, ByteRange::new(0, 9)).await;
    assert_eq!(kind(answer), Some(ErrorKind::Server));
    assert_eq!(server.open_uploads(BUCKET)[0].parts, [(1, 1000)]);
}

/// Checks that a write failed, and may have been done.
fn check_unsure<T>(result: Result<T, ObjectError>, kind: &ErrorKind) {
    let error = result.err().expect("it fails");
    assert_eq!((error.kind(), error.may_be_done()), (kind, true));
}

/// The client sends a request again by itself when the connection breaks. So a write that was done meets itself.
#[tokio::test]
async fn a_write_whose_answer_was_lost_meets_itself() {
    let (server, client) = start(TestS3::builder());
    let lose = |operation| server.fault(Fault::new(FaultKind::LostAnswer).on(operation).times(1));
    let (id, parts) = upload(&client).await;
    lose(Operation::CompleteMultipartUpload);
    let answer = client.complete(&id, &parts, &Completion::default()).await;
    check_unsure(answer, &ErrorKind::NoSuchUpload);
    let found = client.describe("k").await.expect("the object");
    let stored = server.stored(BUCKET, "k").expect("the object");
    assert_eq!((found.meta.etag.as_str(), found.meta.size), (stored.etag.as_str(), 1000));

    lose(Operation::PutObject);
    let put = client.put("new", body("new", 10), &NewObject::default(), Some(&Condition::Absent)).await;
    check_unsure(put, &ErrorKind::PreconditionFailed);
    let refused = client.put("new", body("new", 10), &NewObject::default(), Some(&Condition::Absent)).await;
    assert!(!refused.expect_err("another object is there").may_be_done(), "it was answered at once");
    assert_eq!(server.stored(BUCKET, "new").expect("the object").bytes(), content("new", 0, 10));

    lose(Operation::PutObject);
    let put = client.put("new", body("newer", 10), &NewObject::default(), None).await.expect("a put");
    assert_eq!(server.stored(BUCKET, "new").expect("the object").etag, put.etag.as_str());

    lose(Operation::AbortMultipartUpload);
    let (id, _) = upload(&client).await;
    client.abort(&id).await.expect("an end");
    assert_eq!(server.open_uploads(BUCKET), []);
}

/// With ETags that are no hashes, a part that arrives a second time has another ETag.
#[tokio::test]
async fn a_part_that_comes_late_replaces_the_one_that_was_answered() {
    let (server, client) = start(TestS3::builder().opaque_etags());
    let (id, _) = upload(&client).await;
    server.fault(Fault::new(FaultKind::Late(300)).on(Operation::UploadPart).times(1));
    let part = client.put_part(&id, 1, body("part", 1000)).await.expect("the second attempt");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let refused = client.complete(&id, std::slice::from_ref(&part), &Completion::default()).await;
    assert_eq!(kind(refused), Some(ErrorKind::InvalidPart));
    let listed = client.list_parts(&id, 0).await.expect("a page").parts;
    assert_ne!(listed[0].etag, part.etag);
    client.complete(&id, &listed, &Completion::default()).await.expect("an object");
    assert_eq!(server.stored(BUCKET, "k").expect("the object").bytes(), content("part", 0, 1000));
}

#[tokio::test]
async fn faults_that_pass_are_told_as_such_and_leave_nothing() {
    let (server, client) = start(TestS3::builder());
    let faults = [
        (FaultKind::Reset, ErrorKind::Network),
        (FaultKind::Status(503, "SlowDown".to_owned()), ErrorKind::Throttled),
        (FaultKind::Status(500, "InternalError".to_owned()), ErrorKind::Server),
        (FaultKind::Status(409, "ConditionalRequestConflict".to_owned()), ErrorKind::Conflict),
    ];
    for (fault, expected) in faults {
        server.fault(Fault::new(fault).on(Operation::PutObject));
        let put = client.put("k", body("k", 2 << 20), &NewObject::default(), None).await;
        assert_eq!(kind(put), Some(expected));
        server.clear_faults();
    }
    assert!(server.keys(BUCKET).is_empty());
}

/// The server drops the bytes of an upload, and knows its length and its CRC all the same.
#[tokio::test]
async fn uploads_of_any_length_take_no_memory() {
    const PART: usize = 64 << 20;
    let (server, client) = start(TestS3::builder().opaque_etags().drop_uploads());
    let upload = client.create_upload("k", &NewObject::default(), false).await.expect("an upload");
    let piece = Bytes::from(content("piece", 0, PART));
    let mut parts = Vec::new();
    for number in 1..=4 {
        parts.push(client.put_part(&upload, number, piece.clone().into()).await.expect("a part"));
    }
    let whole = client.complete(&upload, &parts, &Completion::default()).await.expect("an object");
    let found = client.describe("k").await.expect("the object");
    assert_eq!((found.meta.etag, found.meta.size), (whole.etag, 4 * PART as u64));
    assert_eq!((found.checksum, whole.checksum.is_some()), (whole.checksum, true));
    assert_eq!(server.stats().upload_part.received, 4 * PART as u64);
}
