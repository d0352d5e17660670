//! How fast a draft uploads a file that is written from front to back, beside the client alone.
//!
//! `upload_speed ENDPOINT BUCKET [GIB [AT_ONCE]]` reads lines: `alone` or `draft`. For each it
//! uploads a file, and prints the seconds and the CPU seconds that this took. The first ones warm the memory.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use s3mount_crt::{Credentials, CrtClient, CrtConfig};
use s3mount_memory::{BufferPool, MemoryBudget, Priority};
use s3mount_object::{Body, ChecksumAlgorithm, Completion, NewObject, ObjectChecksum, ObjectWriter};
use s3mount_write::{WriteConfig, Writer};
use tokio::runtime::Handle;
use tokio::time::Instant;

const PART: usize = 8 << 20;
/// As the kernel writes.
const PIECE: usize = 1 << 20;

/// The CPU time of this process, in seconds.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}

fn crc(bytes: &[u8]) -> ObjectChecksum {
    let value = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
    ObjectChecksum { algorithm: ChecksumAlgorithm::Crc64Nvme, value }
}

/// Uploads from memory, so many parts at once.
async fn alone(client: &CrtClient, pool: &BufferPool, parts: usize, at_once: usize) {
    let mut buffer = pool.try_buffer(PART, Priority::Demand).expect("memory");
    buffer.as_mut().fill(7);
    let bytes = Bytes::from_owner(buffer);
    let upload = client.create_upload("alone", &NewObject::default(), true).await.expect("an upload");
    let put = |number: usize| {
        let body = Body::from(bytes.clone()).with_checksum(crc(&bytes));
        client.put_part(&upload, number as u32, body)
    };
    let mut written: Vec<_> = futures::stream::iter(1..=parts)
        .map(put)
        .buffer_unordered(at_once)
        .map(|part| part.expect("the store takes it"))
        .collect()
        .await;
    written.sort_by_key(|part| part.number);
    client.complete(&upload, &written, &Completion::default()).await.expect("it is complete");
}

/// Writes a draft from front to back.
async fn drafted(writer: &Writer, parts: usize) {
    let draft = writer.create("draft", NewObject::default());
    let piece = vec![7; PIECE];
    for index in 0..parts * PART / PIECE {
        let offset = (index * PIECE) as u64;
        let written = draft.try_write(offset, &piece).expect("memory");
        if written < PIECE {
            let rest = Bytes::copy_from_slice(&piece[written..]);
            draft.write(offset + written as u64, rest).await.expect("memory");
        }
    }
    draft.publish().await.expect("the store takes it");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut args = std::env::args().skip(1);
    let (endpoint, bucket) = (args.next().expect("an endpoint"), args.next().expect("a bucket"));
    let gib: usize = args.next().map_or(4, |gib| gib.parse().expect("a number"));
    let at_once: usize = args.next().map_or(16, |number| number.parse().expect("a number"));
    let credentials = Credentials::Static {
        access_key_id: "AKIDEXAMPLE".to_owned(),
        secret_access_key: "wJalrXUtnFEMI".to_owned(),
        session_token: None,
    };
    let config = CrtConfig {
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(endpoint),
        credentials,
        ..CrtConfig::new(&bucket)
    };
    let client = Arc::new(CrtClient::new(config).expect("a client"));
    let pool = BufferPool::new(MemoryBudget::new(1 << 30)).expect("memory");
    let config = WriteConfig { memory_bytes: 512 << 20, max_requests: at_once, ..WriteConfig::default() };
    let writer = Writer::new(client.clone(), pool.clone(), config, &Handle::current());
    let parts = gib * 1024 / 8;
    for line in std::io::stdin().lines() {
        let (began, used) = (Instant::now(), cpu());
        match line.expect("a line").as_str() {
            "alone" => alone(&client, &pool, parts, at_once).await,
            "draft" => drafted(&writer, parts).await,
            other => panic!("{other:?} is neither alone nor draft"),
        }
        println!("{:.3} {:.3}", began.elapsed().as_secs_f64(), cpu() - used);
    }
}
