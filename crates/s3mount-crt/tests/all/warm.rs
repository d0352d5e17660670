//! Connections that stay open between the bursts of a training loop.

use std::time::Duration;

use futures::future::join_all;
use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{ByteRange, GetObject, ObjectClient as _, ObjectId};
use s3mount_testkit::{FirstByte, Shape, TestS3};

/// The number of GETs that run at once in a burst.
const BURST: u64 = 8;

/// A pause that is longer than the CRT keeps the connections of a host without requests.
const PAUSE: Duration = Duration::from_secs(7);

/// Reads three bursts from a server, and returns how many connections the server accepted.
async fn connections(server: TestS3, ca: Option<tempfile::NamedTempFile>) -> u64 {
    let config = CrtConfig {
        endpoint_url: Some(server.endpoint()),
        credentials: Credentials::Anonymous,
        ca_bundle: ca.as_ref().map(|file| file.path().to_owned()),
        ..CrtConfig::new("b")
    };
    let client = CrtClient::new(config).expect("a client");
    let object = ObjectId::new("k", client.head_object("k").await.expect("it is there").etag);
    server.reset_stats();
    for burst in 0..3 {
        if burst > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let gets = (0..BURST).map(|index| {
            let range = ByteRange::new(index << 10, (index + 1) << 10);
            client.get_object(GetObject { object: object.clone(), range }, Box::new(vec![0; 1 << 10]))
        });
        for bytes in join_all(gets).await {
            bytes.expect("the part");
        }
    }
    server.stats().connections
}

/// A server that answers late enough for the GETs of a burst to run at once.
fn slow() -> s3mount_testkit::Builder {
    let shape = Shape { first_byte: FirstByte::Fixed(300.0), ..Shape::fast() };
    TestS3::builder().synthetic("b", "k", 1 << 20).shape(shape)
}

#[tokio::test]
async fn bursts_share_their_connections() {
    let connections = connections(slow().start().expect("a server"), None).await;
    // The HEAD opened the first connection, before the count began.
    assert_eq!(connections, BURST - 1, "of three bursts");
}

#[tokio::test]
async fn bursts_share_their_connections_under_tls() {
    let server = slow().tls().start().expect("a server");
    let ca = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(ca.path(), server.ca_pem().expect("it has one")).expect("it is written");
    let connections = connections(server, Some(ca)).await;
    assert_eq!(connections, BURST - 1, "of three bursts");
}
