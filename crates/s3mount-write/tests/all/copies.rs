//! Copies of whole objects by the real client, on the test server and on servers of other makes.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{
    Body, ByteRange, Condition, GetObject, NewObject, ObjectClient, ObjectId, ObjectWriter, UserMetadata,
};
use s3mount_testkit::{Fault, FaultKind, Operation, OtherServer, TestS3, check, content};
use s3mount_write::{Copier, CopyConfig, CopyError, CopyOrder, Proof};
use tempfile::TempDir;

use crate::copier::beside;

const MIB: u64 = 1 << 20;

/// Three parts.
const SIZE: u64 = 13 * MIB;

const ACCESS_KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI";

/// The folder that builds and `.ci/setup` write to.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");

fn client(endpoint: &str, bucket: &str) -> Arc<CrtClient> {
    let config = CrtConfig {
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(endpoint.to_owned()),
        credentials: Credentials::Static {
            access_key_id: ACCESS_KEY.to_owned(),
            secret_access_key: SECRET.to_owned(),
            session_token: None,
        },
        ..CrtConfig::new(bucket)
    };
    Arc::new(CrtClient::new(config).expect("a client"))
}

fn copier(from: &Arc<CrtClient>, to: &Arc<CrtClient>) -> Copier {
    let config = CopyConfig { part_bytes: Some(5 * MIB), ..CopyConfig::default() };
    Copier::new(from.clone(), to.clone(), config)
}

/// A server with an object of this size under `from`, a client of another of its buckets, and copies into that.
fn two_buckets(size: u64) -> (TestS3, Arc<CrtClient>, Copier) {
    let server =
        TestS3::builder().synthetic("bucket-a", "from", size).bucket("bucket-b").start().expect("a server");
    let (from, to) = (client(&server.endpoint(), "bucket-a"), client(&server.endpoint(), "bucket-b"));
    let copier = copier(&from, &to);
    (server, to, copier)
}

/// A copy to `to` from the bucket `bucket-a`.
fn order(condition: Option<Condition>) -> CopyOrder {
    CopyOrder { source_bucket: Some("bucket-a".to_owned()), condition, ..CopyOrder::to("to") }
}

/// Checks that a version has the computed bytes of the key `from`.
async fn check_copy(client: &CrtClient, object: &ObjectId, size: u64) {
    for start in (0..size).step_by(1 << 20) {
        let range = ByteRange::new(start, (start + MIB).min(size));
        let request = GetObject { object: object.clone(), range };
        let got = client.get_object(request, Box::new(vec![0; 1 << 20])).await.expect("it is there");
        check("from", start, &got.bytes).expect("the bytes of the source");
    }
}

/// What a copy has beside its bytes, without the mark of the write, which it must have.
fn unmarked(mut object: NewObject) -> NewObject {
    assert!(object.metadata.remove("s3mount-write").is_some(), "{object:?}");
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_right_whatever_request_fails() {
    use Operation::{CompleteMultipartUpload, CopyObject, HeadObject, UploadPartCopy};
    for size in [MIB, SIZE] {
        let (server, to, copier) = two_buckets(size);
        for operation in [HeadObject, CopyObject, UploadPartCopy, CompleteMultipartUpload] {
            let status = |status, code: &str| FaultKind::Status(status, code.to_owned());
            for kind in [
                status(503, "SlowDown"),
                status(500, "InternalError"),
                FaultKind::error_body("InternalError"),
                FaultKind::error_body("SlowDown"),
                FaultKind::Reset,
                FaultKind::LostAnswer,
            ] {
                if operation == HeadObject && matches!(kind, FaultKind::Body(_)) {
                    continue;
                }
                server.fault(Fault::new(kind.clone()).on(operation).times(3));
                let source = copier.describe("from").await.expect("a HEAD");
                let copied = copier.copy(&source, &order(Some(Condition::Absent)), &|_| {}).await;
                let copied = copied.unwrap_or_else(|error| panic!("{operation:?} {kind:?}: {error}"));
                assert_ne!(copied.proof, Proof::Length);
                check_copy(&to, &copied.object, size).await;
                server.clear_faults();
                assert_eq!(server.open_uploads("bucket-b"), []);
                server.delete("bucket-b", "to");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_beside_the_bytes_is_copied_to_another_bucket() {
    let server = TestS3::builder().bucket("bucket-a").bucket("bucket-b").start().expect("a server");
    let (from, to) = (client(&server.endpoint(), "bucket-a"), client(&server.endpoint(), "bucket-b"));
    let tags = Some("a=1%262&b=x%20y".to_owned());
    let beside = NewObject { encryption: None, tags, ..beside() };
    for size in [MIB, SIZE] {
        let body = Body::new([content("from", 0, size as usize).into()]);
        from.put("from", body, &beside, None).await.expect("a put");
        let copier = copier(&from, &to);
        let source = copier.describe("from").await.expect("a HEAD");
        let copied = copier.copy(&source, &order(None), &|_| {}).await.expect("a copy");
        check_copy(&to, &copied.object, size).await;
        let found = unmarked(to.describe("to").await.expect("a HEAD").object);
        assert_eq!(NewObject { tags: to.tags("to").await.expect("tags"), ..found }, beside);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_was_replaced_is_not_copied() {
    for size in [MIB, SIZE] {
        let (server, _, copier) = two_buckets(size);
        let source = copier.describe("from").await.expect("a HEAD");
        server.put("bucket-a", "from", vec![1; size as usize]);
        let error = copier.copy(&source, &order(None), &|_| {}).await.expect_err("it was replaced");
        assert!(matches!(error, CopyError::SourceChanged { .. }), "{error}");
        server.delete("bucket-a", "from");
        let error = copier.copy(&source, &order(None), &|_| {}).await.expect_err("it was deleted");
        assert!(matches!(error, CopyError::SourceChanged { .. }), "{error}");
        assert!(server.keys("bucket-b").is_empty() && server.open_uploads("bucket-b").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_bucket_renames_by_one_request() {
    const BUCKET: &str = "bucket--use1-az4--x-s3";
    let server = TestS3::builder().bucket(BUCKET).start().expect("a server");
    server.put_synthetic(BUCKET, "from", 6 << 30);
    let client = client(&server.endpoint(), BUCKET);
    let copier = copier(&client, &client);
    let version = client.head_object("from").await.expect("a HEAD");
    let before = server.stats().requests();
    server.fault(Fault::new(FaultKind::LostAnswer).on(Operation::RenameObject).times(3));
    let object = ObjectId::new("from", version.etag);
    let moved = copier.rename(&object, "to", Some(&Condition::Absent)).await.expect("a rename");
    check_copy(&client, &moved, 2 * MIB).await;
    assert_eq!(server.keys(BUCKET), ["to"]);
    let stats = server.stats();
    assert_eq!(stats.rename_object.requests + stats.get_object.requests, stats.requests() - before);
}

/// Copies in one request and in parts, on a server that has the buckets `bucket-a` and `bucket-b`.
async fn check_server(endpoint: &str) {
    let (from, to) = (client(endpoint, "bucket-a"), client(endpoint, "bucket-b"));
    for size in [MIB, SIZE] {
        let body = Body::new([content("from", 0, size as usize).into()]);
        let metadata = UserMetadata::from([("step".to_owned(), "7".to_owned())]);
        let beside = NewObject { metadata, tags: Some("a=1".to_owned()), ..NewObject::default() };
        from.put("from", body, &beside, None).await.expect("a put");
        let copier = copier(&from, &to);
        let source = copier.describe("from").await.expect("a HEAD");
        let copied = copier.copy(&source, &order(None), &|_| {}).await.expect("a copy");
        check_copy(&to, &copied.object, size).await;
        assert_eq!(unmarked(to.describe("to").await.expect("a HEAD").object).metadata, beside.metadata);
        assert_eq!(to.tags("to").await.expect("tags"), beside.tags);
        let copier = Copier::new(to.clone(), to.clone(), CopyConfig::default());
        let moved = copier.rename(&copied.object, "moved", None).await.expect("a rename");
        check_copy(&to, &moved, size).await;
        assert!(to.head_object("to").await.is_err());
        assert_eq!(to.list_uploads("", None).await.expect("a page").uploads, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_moto() {
    let folder = TempDir::new().expect("a folder");
    let server =
        OtherServer::moto(Path::new(&format!("{TARGET}/venv")), u32::MAX, &folder.path().join("log"));
    let server = server.expect("moto in target/venv; `make test` installs it");
    for bucket in ["bucket-a", "bucket-b"] {
        let host = server.endpoint().trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).expect("a connection");
        write!(
            stream,
            "PUT /{bucket} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains(" 200 "), "{answer}");
    }
    check_server(server.endpoint()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_versitygw() {
    let folder = TempDir::new().expect("a folder");
    let program = format!("{TARGET}/tools/bin/versitygw");
    let address = Ipv4Addr::LOCALHOST.into();
    let server = OtherServer::versitygw(Path::new(&program), folder.path(), address, (ACCESS_KEY, SECRET));
    let server = server.expect("versitygw in target/tools; `make test` installs it");
    for bucket in ["bucket-a", "bucket-b"] {
        std::fs::create_dir(folder.path().join("buckets").join(bucket)).expect("a bucket");
    }
    check_server(server.endpoint()).await;
}
