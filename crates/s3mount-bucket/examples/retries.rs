//! A store throttles two requests and answers the third. The loop is the one that all layers of a mount use.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use s3mount_bucket::{Attempts, MeasuredClient, Operation, Outcome, Retries, RetryBudget};
use s3mount_object::{ErrorKind, ObjectClient, ObjectError, ObjectMeta};
use s3mount_testkit::MemoryClient;
use tokio::time::Instant;

async fn head(client: &dyn ObjectClient, budget: &RetryBudget, key: &str) -> Result<ObjectMeta, ObjectError> {
    // An answer is slow after 100 ms. The seed differs between requests, so that they don't come back together.
    let attempts = Attempts::new(Duration::from_millis(100), 7);
    let mut retries = Retries::new(budget, attempts, Instant::now() + Duration::from_secs(10));
    loop {
        match retries.attempt("HeadObject", key, client.head_object(key)).await {
            Ok(meta) => return Ok(meta),
            Err(error) => {
                println!("  {error}");
                // Sleeps, or hands the error back where another attempt can't help.
                retries.pause(error, || true).await?;
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let store = Arc::new(MemoryClient::new());
    store.put("model.bin", "weights");
    store.fail_next([ErrorKind::Throttled, ErrorKind::Throttled]);
    let (client, budget) = (MeasuredClient::new(store), RetryBudget::default());
    for key in ["model.bin", "missing.bin"] {
        println!("HEAD {key}");
        match head(&client, &budget, key).await {
            Ok(meta) => println!("  {} bytes", meta.size),
            Err(error) => println!("  not tried again: {:?}", error.kind()),
        }
    }
    let count = |outcome| client.metrics().requests.at((Operation::Head, outcome)).get();
    for outcome in [Outcome::Throttled, Outcome::Ok, Outcome::NotFound] {
        println!("{} HEADs ended with {:?}", count(outcome), outcome.name());
    }
    println!("{} of them were retries", budget.metrics().retries.get());
}
