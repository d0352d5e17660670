//! The client keeps the contract.

use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_object::ChecksumAlgorithm;
use s3mount_testkit::TestS3;
use s3mount_testkit::contract::{self, PART_BYTES, Store};

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

#[tokio::test]
async fn on_the_test_server() {
    let mut server = TestS3::builder().uploaded_in_parts(PART_BYTES, ChecksumAlgorithm::Crc32c);
    for (key, bytes) in contract::objects() {
        server = server.object(BUCKET, &key, bytes);
    }
    let server = server.credentials(ACCESS_KEY).start().expect("a server");
    let (client, missing) = (client(&server.endpoint(), BUCKET), client(&server.endpoint(), "missing"));
    contract::check(&Store::new(&client, &missing)).await;
}
