//! Asks what names of a bucket stand for, and is told that one has changed, without S3.
//!
//! `cargo run -p s3mount-names --example ask`

#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use s3mount_bucket::Bucket;
use s3mount_names::{ChangeListener, NamedDraft, NamesConfig, NamesError, Namespace, Target};
use s3mount_testkit::MemoryClient;
use tokio::runtime::Handle;

/// Nobody writes a file here.
#[derive(Debug, PartialEq, Eq)]
enum NoDraft {}

impl NamedDraft for NoDraft {
    fn has_name(&self) -> bool {
        match *self {}
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A bucket in memory. `CrtClient` of s3mount-crt has the same trait, and reads from S3.
    let client = Arc::new(MemoryClient::new());
    for key in ["train/0001.txt", "train/0002.txt", "train/labels/all.csv"] {
        client.put(key, format!("the bytes of {key}"));
    }
    let minute = Duration::from_secs(60);
    let config = NamesConfig {
        root: String::new(),
        started_at: SystemTime::UNIX_EPOCH,
        ttl: minute,
        negative_ttl: minute,
        is_immutable: false,
        limit_bytes: 16 << 20,
        allows_writes: false,
        is_told: false,
        timeout: minute,
    };
    // A filesystem tells the kernel.
    let listener = ChangeListener::new(|prefix, names| println!("in {prefix} have changed: {names:?}"));
    let bucket = Bucket::from(client.clone());
    let names = Namespace::<NoDraft>::new(bucket, &config, None, listener, &Handle::current());

    // The first look-up costs a LIST. Its page answers for the names behind it, and for those that are not there.
    let prefix = Arc::from("train/");
    for name in ["0001.txt", "0002.txt", "0003.txt", "labels"] {
        match names.get(&prefix, name).await {
            Ok((Target::Directory, _)) => println!("{name} is a folder"),
            Ok((Target::File(file), _)) => println!("{name} is a file of {} bytes", file.size),
            Ok((Target::Draft(draft), _)) => match *draft {},
            Err(NamesError::NotFound) => println!("{name} is not there"),
            Err(error) => return Err(error.into()),
        }
    }

    // A read that finds its version gone shows a name wrong: it is asked for again.
    client.put("train/0002.txt", "other bytes");
    names.forget(&prefix, "0002.txt");
    let file = names.find_file(&prefix, "0002.txt").await?;
    println!("0002.txt is a file of {} bytes now", file.size);

    println!("{:?}", client.take_requests());
    Ok(())
}
