//! The client keeps the contract of `ObjectClient` on servers of three makes. If a server can't do what S3
//! does, this file says so, with the reason.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{ChecksumAlgorithm, ErrorKind, ObjectWriter as _, PutAnswer, PutObject, UserMetadata};
use s3mount_testkit::contract::{self, PART_BYTES, PARTS_KEY, Store, WritableStore};
use s3mount_testkit::{Fault, FaultKind, Operation, OtherServer, TestS3, run_with_timeout};
use tempfile::TempDir;

/// The folder that builds and `.ci/setup` write to.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");

const BUCKET: &str = "bucket";
const ACCESS_KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI";

/// A client of `bucket` on a server.
fn client(endpoint: &str, bucket: &str) -> CrtClient {
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
    CrtClient::new(config).expect("a client")
}

/// Makes the bucket and puts the contract's objects into it with boto3, except the keys that the server
/// refuses.
fn fill(endpoint: &str, folder: &Path, refused_keys: &[&str]) {
    let mut objects = contract::objects();
    objects.retain(|key, _| !refused_keys.contains(&key.as_str()));
    let bodies: BTreeMap<_, _> =
        objects.iter().map(|(key, bytes)| (key, BASE64_STANDARD.encode(bytes))).collect();
    let list = folder.join("objects.json");
    std::fs::write(&list, serde_json::to_vec(&bodies).expect("JSON")).expect("a file");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/contract/fill_bucket.py");
    let mut command = Command::new(format!("{TARGET}/venv/bin/python"));
    command.args([script, endpoint, BUCKET]).arg(&list).args([PARTS_KEY, &PART_BYTES.to_string()]);
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
    let output = run_with_timeout(&mut command, Duration::from_secs(100)).expect("boto3 in target/venv");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn on_the_test_server() {
    let mut server = TestS3::builder().uploaded_in_parts(PART_BYTES, ChecksumAlgorithm::Crc32c);
    for (key, bytes) in contract::objects() {
        server = server.object(BUCKET, &key, bytes);
    }
    let server = server.credentials(ACCESS_KEY).start().expect("a server");
    let (client, missing) = (client(&server.endpoint(), BUCKET), client(&server.endpoint(), "missing"));
    contract::check(&Store::new(&client, &missing)).await;
    contract::check_writer(&WritableStore::new(&client)).await;
    contract::check_uploads(&WritableStore::new(&client)).await;
}

#[tokio::test]
async fn on_the_test_server_with_a_directory_bucket() {
    const BUCKET: &str = "bucket--use1-az4--x-s3";
    let server = TestS3::builder().bucket(BUCKET).start().expect("a server");
    let client = client(&server.endpoint(), BUCKET);
    contract::check_uploads(&WritableStore { renames: true, ..WritableStore::new(&client) }).await;
    assert_eq!(server.open_uploads(BUCKET), []);
}

#[tokio::test]
async fn on_the_test_server_without_conditions() {
    let server = TestS3::builder().bucket(BUCKET).refuse_conditions().start().expect("a server");
    let client = client(&server.endpoint(), BUCKET);
    let lacking =
        WritableStore { has_conditions: false, deletes_if_matched: false, ..WritableStore::new(&client) };
    contract::check_writer(&lacking).await;
    contract::check_uploads(&lacking).await;
}

/// S3 answers 409 to an upload of a new object while another one is written to the same key.
#[tokio::test]
async fn an_upload_that_meets_another_one_leaves_the_object_to_it() {
    let server = TestS3::builder().bucket(BUCKET).start().expect("a server");
    let conflict = FaultKind::Status(409, "ConditionalRequestConflict".to_owned());
    server.fault(Fault::new(conflict).on(Operation::PutObject));
    let client = client(&server.endpoint(), BUCKET);
    let put = |only_new| {
        let (key, bytes) = ("k".to_owned(), Bytes::from_static(b"bytes"));
        client.put_object(PutObject { key, bytes, metadata: UserMetadata::new(), only_new })
    };
    assert_eq!(put(true).await.expect("an answer"), PutAnswer::Exists);
    assert_eq!(*put(false).await.expect_err("a conflict").kind(), ErrorKind::Conflict);
}

/// Checks a server of another make, which accepts all keys except `refused_keys`. `is_strict` says whether of
/// several uploads of a new object at once exactly one wins.
async fn check(
    server: &OtherServer,
    folder: &Path,
    refused_keys: &'static [&'static str],
    lacks: impl for<'a> Fn(WritableStore<'a>) -> WritableStore<'a>,
) {
    fill(server.endpoint(), folder, refused_keys);
    let (client, missing) = (client(server.endpoint(), BUCKET), client(server.endpoint(), "missing"));
    let store = Store {
        refused_keys,
        // Neither server sends ObjectParts for GetObjectAttributes. versitygw forgets the parts when the
        // upload is complete.
        tells_part_checksums: false,
        ..Store::new(&client, &missing)
    };
    contract::check(&store).await;
    let store = lacks(WritableStore::new(&client));
    contract::check_writer(&store).await;
    contract::check_uploads(&store).await;
}

#[tokio::test]
async fn on_moto() {
    let folder = TempDir::new().expect("a folder");
    let venv = format!("{TARGET}/venv");
    // In `tests/mount`, moto checks signatures. Here that check would take half of the time.
    let server = OtherServer::moto(Path::new(&venv), u32::MAX, &folder.path().join("log"));
    let server = server.expect("moto in target/venv; `make test` installs it");
    // moto finds no route for a path with a line break.
    let refused_keys = &["odd/new\nline"];
    check(&server, folder.path(), refused_keys, |store| WritableStore {
        // moto verifies no checksum. The CRC that it keeps of an upload in parts is one of the parts' CRCs, and
        // it says that this is one of the whole.
        verifies_checksums: false,
        joins_checksums: false,
        joins_checksums_of_copies: false,
        // Of all conditions of completions and copies, it knows only `If-None-Match: *`.
        completes_if_matched: false,
        checks_copies: false,
        // It answers 500.
        knows_ended_uploads: false,
        ..store
    })
    .await;
}

#[tokio::test]
async fn on_versitygw() {
    let folder = TempDir::new().expect("a folder");
    let program = format!("{TARGET}/tools/bin/versitygw");
    let server = OtherServer::versitygw(
        Path::new(&program),
        folder.path(),
        Ipv4Addr::LOCALHOST.into(),
        (ACCESS_KEY, SECRET),
    );
    let server = server.expect("versitygw in target/tools; `make test` installs it");
    // In a folder of versitygw, a name is either a file or a folder, not both. `.`, `..` and `//` have a
    // special meaning in a path.
    let refused_keys = &["order/a", "order/a/b", "odd/./here", "odd/../there", "odd//double"];
    // versitygw looks whether an object is there, writes a file of another name, and renames it.
    check(&server, folder.path(), refused_keys, |store| WritableStore {
        is_strict: false,
        // The CRC of an object that has copied parts is not that of its bytes.
        joins_checksums_of_copies: false,
        ..store
    })
    .await;
}
