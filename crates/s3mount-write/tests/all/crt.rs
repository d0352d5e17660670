//! Drafts on the real client and a real server.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ByteRange, Condition, ErrorKind, GetObject, NewObject, ObjectClient, ObjectId};
use s3mount_testkit::{Fault, FaultKind, TestS3};
use s3mount_write::{Draft, WriteConfig, WriteError, Writer};
use tokio::runtime::Handle;

const MIB: usize = 1 << 20;

fn connect(server: &TestS3) -> (Arc<CrtClient>, Writer) {
    let config = CrtConfig {
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(server.endpoint()),
        credentials: Credentials::Static {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI".to_owned(),
            session_token: None,
        },
        ..CrtConfig::new("b")
    };
    let client = Arc::new(CrtClient::new(config).expect("a client"));
    let pool = BufferPool::new(MemoryBudget::new(128 << 20)).expect("memory");
    let config = WriteConfig { memory_bytes: 64 << 20, ..WriteConfig::default() };
    let writer = Writer::new(client.clone(), pool, config, &Handle::current());
    (client, writer)
}

fn pattern(len: usize) -> Bytes {
    let word = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

async fn write(draft: &Draft, offset: usize, bytes: &Bytes) {
    for at in (0..bytes.len()).step_by(MIB) {
        let piece = bytes.slice(at..(at + MIB).min(bytes.len()));
        draft.write((offset + at) as u64, piece).await.expect("memory");
    }
}

async fn stored(client: &CrtClient, object: &ObjectId, size: u64) -> Bytes {
    let request = GetObject { object: object.clone(), range: ByteRange::new(0, size) };
    let into = Box::new(vec![0; size as usize]);
    client.get_object(request, into).await.expect("it is there").bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_is_stored_whatever_passes() {
    let server = TestS3::builder().bucket("b").start().expect("a server");
    let (client, writer) = connect(&server);
    for kind in [FaultKind::Status(503, "SlowDown".to_owned()), FaultKind::Reset] {
        server.fault(Fault::new(kind).times(3));
        let draft = writer.create("large", NewObject::default());
        let mut bytes = pattern(30 * MIB).to_vec();
        // No part is stored before its bytes change.
        server.freeze(true);
        write(&draft, 0, &bytes.clone().into()).await;
        draft.write(7, Bytes::from_static(b"header")).await.expect("it is in memory");
        server.freeze(false);
        bytes[7..13].copy_from_slice(b"header");
        let published = draft.publish().await.expect("the store takes it");
        assert!(stored(&client, &published.object, published.size).await == bytes);
        // Most of it is copied inside the store.
        write(&draft, bytes.len(), &Bytes::from_static(b"appended")).await;
        bytes.extend(b"appended");
        let published = draft.publish().await.expect("the store takes it");
        assert!(stored(&client, &published.object, published.size).await == bytes);
        let edited = writer.edit(&published.object, published.size, NewObject::default());
        write(&edited, 20 * MIB, &Bytes::from_static(b"patch")).await;
        bytes[20 * MIB..][..5].copy_from_slice(b"patch");
        edited.rename("renamed", Some(Condition::Absent)).await;
        let published = edited.publish().await.expect("the store takes it");
        assert!(stored(&client, &published.object, published.size).await == bytes);
        assert_eq!(server.keys("b"), ["renamed"]);
        server.clear_faults();
        server.delete("b", "renamed");
    }
    assert!(writer.metrics().copied_bytes.get() > 40 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_create_a_file_one_fails() {
    let server = TestS3::builder().bucket("b").start().expect("a server");
    let (client, writer) = connect(&server);
    for len in [10, 20 * MIB] {
        let key = format!("k{len}");
        let drafts = [0, 1].map(|_| {
            let draft = writer.create(&key, NewObject::default());
            draft.set_condition(Some(Condition::Absent));
            draft
        });
        let bytes = pattern(len);
        for draft in &drafts {
            write(draft, 0, &bytes).await;
        }
        let published = drafts[0].publish().await.expect("it is the first");
        match drafts[1].publish().await {
            Err(WriteError::Failed(error)) => match &*error {
                WriteError::Object(error) => assert_eq!(*error.kind(), ErrorKind::PreconditionFailed),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
        assert!(stored(&client, &published.object, len as u64).await == bytes);
    }
}
