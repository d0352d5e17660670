//! The client against the test server: the server's faults, parts and certificates. `contract` checks what
//! every client promises. `canned` has the tests that need an answer byte for byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{
    ByteRange, ChecksumAlgorithm, ETag, ErrorKind, GetObject, KeptChecksum, ObjectClient, ObjectError,
    ObjectId, PartBuffer,
};
use s3mount_testkit::{Fault, FaultKind, Operation, TestS3, check};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const CRC: ChecksumAlgorithm = ChecksumAlgorithm::Crc32c;
const KEY: &str = "a b/ü+%20'.bin";
const LIMIT: Duration = Duration::from_secs(100);

/// A lent buffer that notes when it came back.
struct Lent {
    bytes: Vec<u8>,
    back: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.back.store(true, Ordering::SeqCst);
    }
}

fn lend(len: usize) -> (Box<dyn PartBuffer>, *const u8, Arc<AtomicBool>) {
    let back = Arc::new(AtomicBool::new(false));
    let lent = Lent { bytes: vec![0; len], back: back.clone() };
    let address = lent.bytes.as_ptr();
    (Box::new(lent), address, back)
}

fn config(server: &TestS3) -> CrtConfig {
    CrtConfig {
        endpoint_url: Some(server.endpoint()),
        credentials: Credentials::Static {
            access_key_id: "AKID".into(),
            secret_access_key: "secret".into(),
            session_token: None,
        },
        ..CrtConfig::new("b")
    }
}

/// A server with one synthetic object of 10 MiB, and a client of it.
fn setup() -> (TestS3, CrtClient) {
    let server =
        TestS3::builder().synthetic("b", KEY, 10 * MIB).credentials("AKID").start().expect("a server");
    let client = CrtClient::new(config(&server)).expect("a client");
    (server, client)
}

async fn object(client: &CrtClient) -> ObjectId {
    let meta = client.head_object(KEY).await.expect("it is there");
    assert_eq!(meta.size, 10 * MIB);
    ObjectId::new(KEY, meta.etag)
}

async fn get(
    client: &CrtClient,
    object: &ObjectId,
    start: u64,
    end: u64,
) -> Result<bytes::Bytes, ObjectError> {
    let range = ByteRange::new(start, end);
    let (buffer, ..) = lend(usize::try_from(end - start).expect("it fits"));
    let request = GetObject { object: object.clone(), range };
    let answer = tokio::time::timeout(LIMIT, client.get_object(request, buffer)).await.expect("in time");
    answer.map(|answer| answer.bytes)
}

async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..2000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not happen within 10 s");
}

#[tokio::test]
async fn a_part_lands_in_the_lent_buffer() {
    let (_server, client) = setup();
    let object = object(&client).await;
    let (buffer, address, back) = lend(5 * MIB as usize);
    let request = GetObject { object, range: ByteRange::new(3 * MIB + 7, 8 * MIB) };
    let bytes = client.get_object(request, buffer).await.expect("the part").bytes;
    assert_eq!(bytes.len() as u64, 5 * MIB - 7);
    check(KEY, 3 * MIB + 7, &bytes).expect("right bytes");
    assert_eq!(bytes.as_ptr(), address, "no copy");
    drop(client);
    check(KEY, 3 * MIB + 7, &bytes).expect("they outlive the client");
    assert!(!back.load(Ordering::SeqCst));
    drop(bytes);
    eventually(|| back.load(Ordering::SeqCst)).await;
}

fn fault(kind: FaultKind, count: u32) -> Fault {
    Fault::new(kind).on(Operation::GetObject).times(count)
}

#[tokio::test]
async fn faults_are_retried_once_or_told() {
    let (server, client) = setup();
    let object = object(&client).await;
    for kind in [FaultKind::Status(503, "SlowDown".into()), FaultKind::Reset, FaultKind::ShortBody] {
        server.fault(fault(kind, 1));
        let bytes = get(&client, &object, MIB, 3 * MIB).await.expect("the second attempt");
        check(KEY, MIB, &bytes).expect("right bytes");
    }
    assert_eq!(client.repeated_requests(), 3, "once each");
    for (kind, told) in [
        (FaultKind::Status(503, "SlowDown".into()), ErrorKind::Throttled),
        (FaultKind::Status(500, "InternalError".into()), ErrorKind::Server),
        (FaultKind::Status(403, "AccessDenied".into()), ErrorKind::Forbidden),
        (FaultKind::Status(403, "InvalidObjectState".into()), ErrorKind::Archived),
        (FaultKind::Status(404, "NoSuchKey".into()), ErrorKind::NotFound),
        (FaultKind::Status(400, "ExpiredToken".into()), ErrorKind::BadCredentials),
        (FaultKind::Reset, ErrorKind::Network),
    ] {
        server.fault(fault(kind.clone(), 2));
        let error = get(&client, &object, 0, MIB).await.expect_err("both attempts failed");
        assert_eq!(error.kind(), &told, "{kind:?}: {error}");
        server.reset_stats();
        while get(&client, &object, 0, 1).await.is_err() {}
    }
}

#[tokio::test]
async fn dropping_a_get_cancels_it_and_gives_the_buffer_back() {
    let (server, client) = setup();
    let object = object(&client).await;
    server.freeze(true);
    let given_back = Arc::new(AtomicUsize::new(0));
    for delay in [0, 1, 50] {
        let (buffer, _, back) = lend(MIB as usize);
        let request = GetObject { object: object.clone(), range: ByteRange::new(0, MIB) };
        let get = client.get_object(request, buffer);
        let timed_out = tokio::time::timeout(Duration::from_millis(delay), get).await;
        assert!(timed_out.is_err(), "the server is frozen");
        eventually(|| back.load(Ordering::SeqCst)).await;
        given_back.fetch_add(1, Ordering::SeqCst);
    }
    assert_eq!(given_back.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn tls_trusts_the_given_authority_only() {
    let server = TestS3::builder().synthetic("b", "k", 3 * MIB).tls().start().expect("a server");
    let dir = tempfile::tempdir().expect("a folder");
    let pem = dir.path().join("ca.pem");
    std::fs::write(&pem, server.ca_pem().expect("it has one")).expect("it is written");
    let trusting = CrtConfig { ca_bundle: Some(pem), credentials: Credentials::Anonymous, ..config(&server) };
    let client = CrtClient::new(trusting).expect("a client");
    let object = ObjectId::new("k", client.head_object("k").await.expect("it is there").etag);
    check("k", MIB, &get(&client, &object, MIB, 2 * MIB).await.expect("the part")).expect("right bytes");
    let bad = CrtConfig { ca_bundle: Some(dir.path().join("none.pem")), ..config(&server) };
    assert_eq!(CrtClient::new(bad).expect_err("no such file").kind(), &ErrorKind::Tls);
}

#[tokio::test]
async fn parts_of_an_upload_are_told_page_by_page() {
    let server = TestS3::builder().synthetic("b", KEY, 10 * MIB).uploaded_in_parts(4 * KIB, CRC);
    let server = server.credentials("AKID").start().expect("a server");
    let client = CrtClient::new(config(&server)).expect("a client");
    let object = object(&client).await;
    assert_eq!(client.checksum(&object).await.expect("an answer"), KeptChecksum::OfParts);
    let (mut parts, mut after) = (Vec::new(), Some(0));
    while let Some(marker) = after {
        let page = client.upload_parts(&object, marker).await.expect("a page");
        parts.extend(page.parts);
        after = page.next;
    }
    assert_eq!((parts.len(), server.stats().get_object_attributes.requests), (2560, 3));
    assert!(parts.iter().all(|part| part.len == 4 * KIB && part.checksum.algorithm == CRC));
    let other = ObjectId::new(KEY, ETag::new("\"other\""));
    let error = client.upload_parts(&other, 0).await.expect_err("another version");
    assert_eq!(*error.kind(), ErrorKind::PreconditionFailed);
    let denied = FaultKind::Status(403, "AccessDenied".to_owned());
    server.fault(Fault::new(denied).on(Operation::GetObjectAttributes));
    let error = client.upload_parts(&object, 0).await.expect_err("no permission");
    assert_eq!(*error.kind(), ErrorKind::Forbidden);
}
