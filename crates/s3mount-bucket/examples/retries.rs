//! A store throttles two requests and answers the third. All layers of a mount send their requests so.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::{Bucket, MeasuredClient, Outcome, ReadOperation};
use s3mount_object::{ErrorKind, ObjectClient};
use s3mount_testkit::MemoryClient;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let store = Arc::new(MemoryClient::new());
    store.put("model.bin", "weights");
    store.fail_next([ErrorKind::Throttled, ErrorKind::Throttled]);
    let client = Arc::new(MeasuredClient::new(store));
    // At most 16 requests are under way at once, and a call may take ten seconds with all its attempts.
    let bucket = Bucket::<dyn ObjectClient>::new(client.clone(), 16).with_timeout(Duration::from_secs(10));
    for key in ["model.bin", "missing.bin"] {
        println!("HEAD {key}");
        match bucket.head(key).await {
            Ok(Some(meta)) => println!("  {} bytes", meta.size),
            Ok(None) => println!("  there is none, and it was not asked for again"),
            Err(error) => println!("  {error}"),
        }
    }
    let count = |outcome| client.metrics().requests.at((ReadOperation::Head, outcome)).get();
    for outcome in [Outcome::Throttled, Outcome::Ok, Outcome::NotFound] {
        println!("{} HEADs ended with {:?}", count(outcome), outcome.name());
    }
    println!("{} of them were retries", bucket.budget().metrics().retries.get());
}
