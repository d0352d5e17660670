//! Reads a range of one object through the CRT, from a test server on loopback.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::{ByteRange, GetObject, ObjectClient as _, ObjectId};
use s3mount_testkit::{TestS3, check};

const KEY: &str = "shards/0001.tar";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let server = TestS3::builder().synthetic("data", KEY, 64 << 20).start()?;
    let config = CrtConfig {
        endpoint_url: Some(server.endpoint()),
        credentials: Credentials::Anonymous,
        ..CrtConfig::new("data")
    };
    // The CRT's threads start here, so a daemon must fork before this line.
    let (client, _bucket) = CrtClient::connect(config).await?;

    let meta = client.head_object(KEY).await?;
    println!("{KEY} has {} bytes and the ETag {}", meta.size, meta.etag);

    let object = ObjectId::new(KEY, meta.etag);
    let range = ByteRange::new(1 << 20, 9 << 20);
    let buffer = vec![0; 8 << 20];
    let address = buffer.as_ptr();
    let answer = client.get_object(GetObject { object, range }, Box::new(buffer)).await?;
    check(KEY, range.start(), &answer.bytes).map_err(anyhow::Error::msg)?;
    println!("{} bytes came as they are in the store", answer.bytes.len());
    println!(
        "they were written straight into the buffer that was lent: {}",
        answer.bytes.as_ptr() == address
    );

    let stats = server.stats();
    println!("the store saw {} GET over {} connections", stats.get_object.requests, stats.connections);
    Ok(())
}
