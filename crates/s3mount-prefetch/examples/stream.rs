//! Streams an object through the prefetcher, from a store in memory that answers after 25 ms as S3 does:
//! `cargo run -p s3mount-prefetch --example stream`.
#![expect(clippy::print_stdout, reason = "it is an example")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_prefetch::{ObjectReader, PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use tokio::runtime::Runtime;

const MIB: u64 = 1 << 20;

/// Reads `len` bytes from `offset`, and waits for them.
fn read(reader: &ObjectReader, offset: u64, len: u64) -> Result<usize, Box<dyn Error>> {
    let (answer, answered) = mpsc::sync_channel(1);
    // The reply is called in this thread if the bytes are here, else in the task of the GET that brings them.
    reader.read(offset, usize::try_from(len)?, move |result| {
        drop(answer.send(result.map(<[u8]>::len)));
    });
    Ok(answered.recv()??)
}

/// Prints the GETs that the store has answered since the last call.
fn show(client: &MemoryClient, what: &str) {
    let mut gets = BTreeMap::<u64, usize>::new();
    for (_, range) in client.take_ranges() {
        *gets.entry((range.end - range.start) / 1024).or_default() += 1;
    }
    let gets: Vec<_> = gets.iter().map(|(kib, count)| format!("{count} of {kib} KiB")).collect();
    println!("{what}: {}", gets.join(", "));
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let client = Arc::new(MemoryClient::new());
    client.set_latency(Duration::from_millis(25));
    // All payload lies in this pool: bytes that are fetched ahead, and blocks of random reads.
    let pool = BufferPool::new(MemoryBudget::new(256 * MIB))?;
    let prefetcher = Prefetcher::new(client.clone(), pool, PrefetchConfig::default(), runtime.handle());

    let shard = prefetcher.open(&client.put_synthetic("shard.tar", 512 * MIB), 512 * MIB);
    for offset in (0..512 * MIB).step_by(1 << 20) {
        read(&shard, offset, MIB)?;
    }
    show(&client, "GETs of a stream of 512 MiB, which begins with small parts");

    let table = prefetcher.open(&client.put_synthetic("table.bin", 64 * MIB), 64 * MIB);
    for offset in [40 * MIB, 3 * MIB, 17 * MIB, 40 * MIB + 4096] {
        read(&table, offset, 4096)?;
    }
    show(&client, "GETs of four random reads of 4 KiB, one of which found its block in the cache");
    let metrics = prefetcher.metrics();
    println!("{} reads, {} of which waited", metrics.reads.get(), metrics.waits.get());
    println!("{} MiB of memory at the peak", prefetcher.budget().peak_bytes() / MIB);
    Ok(())
}
