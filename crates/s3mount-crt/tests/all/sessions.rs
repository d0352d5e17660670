//! The sessions of a directory bucket.
#![expect(clippy::disallowed_methods, reason = "the CRT lives by the machine's time")]

use std::time::{Duration, Instant};

use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{ByteRange, ErrorKind, GetObject, ListObjects, ObjectClient as _};
use s3mount_testkit::{Builder, Fault, FaultKind, Operation, TestS3};

const BUCKET: &str = "data--use1-az4--x-s3";

fn config(server: &TestS3) -> CrtConfig {
    CrtConfig {
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(server.endpoint()),
        credentials: Credentials::Static {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "secret".to_owned(),
            session_token: None,
        },
        ..CrtConfig::new(BUCKET)
    }
}

fn start(builder: Builder) -> (TestS3, CrtClient) {
    let server = builder.object(BUCKET, "k", "text").credentials("AKIDEXAMPLE").start().expect("a server");
    let client = CrtClient::new(config(&server)).expect("a client");
    (server, client)
}

#[tokio::test]
async fn one_session_signs_all_requests() {
    let (server, client) = start(TestS3::builder());
    let requests = (0..20).map(|_| client.head_object("k"));
    for meta in futures::future::join_all(requests).await {
        let meta = meta.expect("an object");
        assert_eq!(meta.storage_class.as_deref(), Some("EXPRESS_ONEZONE"));
        let object = s3mount_object::ObjectId::new("k", meta.etag);
        let get = GetObject { object, range: ByteRange::new(0, 4) };
        let answer = client.get_object(get, Box::new(vec![0; 4])).await.expect("bytes");
        assert_eq!(&answer.bytes[..], b"text");
    }
    client.head_bucket().await.expect("a bucket");
    let stats = server.stats();
    assert_eq!((stats.create_session.requests, stats.get_object.requests), (1, 20));
    assert!(!client.lists_in_order());
}

#[tokio::test]
async fn a_session_is_renewed_before_it_ends() {
    let (server, client) = start(TestS3::builder().session_life(Duration::from_secs(3)));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(5500) {
        client.head_object("k").await.expect("an object");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stats = server.stats();
    assert!(stats.create_session.requests >= 2, "{:?}", stats.create_session);
    assert_eq!(stats.head_object.errors, 0, "no request came with a session that was over");
}

#[tokio::test]
async fn a_session_that_cannot_be_renewed_yet_is_used_to_its_end() {
    let (server, client) = start(TestS3::builder().session_life(Duration::from_secs(5)));
    client.head_object("k").await.expect("an object");
    let down = FaultKind::Status(503, "SlowDown".to_owned());
    server.fault(Fault::new(down).on(Operation::CreateSession));
    // The session is renewed when between 0.8 and 1 s are left of its last 4 or 5.
    let begin = Instant::now();
    while server.stats().create_session.requests < 2 {
        client.head_object("k").await.expect("an object");
        assert!(begin.elapsed() < Duration::from_secs(20), "it is not renewed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.clear_faults();
    client.head_object("k").await.expect("an object");
}

#[tokio::test]
async fn a_session_that_the_store_has_ended_is_replaced() {
    let (server, client) = start(TestS3::builder());
    client.head_object("k").await.expect("an object");
    server.end_sessions();
    let list = || client.list_objects(ListObjects::default());
    assert_eq!(*list().await.expect_err("no session").kind(), ErrorKind::StaleCredentials);
    assert_eq!(list().await.expect("a page").objects.len(), 1);
    assert_eq!(server.stats().create_session.requests, 2);
}

#[tokio::test]
async fn who_may_create_no_session_is_told_so() {
    let (server, client) = start(TestS3::builder());
    let denied = FaultKind::Status(403, "AccessDenied".to_owned());
    server.fault(Fault::new(denied).on(Operation::CreateSession));
    let error = client.list_objects(ListObjects::default()).await.expect_err("no session");
    assert_eq!(*error.kind(), ErrorKind::Forbidden);
    assert!(error.to_string().contains("CreateSession"), "{error}");
    let unsigned = CrtConfig { credentials: Credentials::Anonymous, ..config(&server) };
    let error = CrtClient::new(unsigned).expect_err("no credentials");
    assert_eq!(*error.kind(), ErrorKind::NoCredentials);
}
