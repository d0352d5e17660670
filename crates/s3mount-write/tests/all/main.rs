//! Drafts on a bucket in memory: what they show, what the store has, and what becomes of them when it fails.

mod copier;
mod copies;
mod copy;
mod crt;
mod draft;
mod faulty;
mod kept;
mod kept_model;
mod memory;
mod model;
mod readers;
mod recovery;
mod renames;
mod resting;

use std::sync::Arc;

use bytes::Bytes;
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::ObjectWriter;
use s3mount_write::{Draft, SpoolConfig, WriteConfig, Writer};
use tokio::runtime::Handle;

const MIB: u64 = 1 << 20;

/// Bytes that differ from place to place.
fn pattern(seed: u64, len: usize) -> Bytes {
    let word = |at: u64| (at ^ seed.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

/// A writer whose drafts may hold `memory` bytes.
fn writer(client: Arc<dyn ObjectWriter>, memory: u64) -> Writer {
    spooling_writer(client, memory, 0)
}

/// A writer whose drafts may hold `memory` bytes, and as many on a disk as `spool` says.
fn spooling_writer(client: Arc<dyn ObjectWriter>, memory: u64, spool: u64) -> Writer {
    let spool = SpoolConfig::in_directory(&std::env::temp_dir(), spool);
    writer_with(client, memory, Some(spool).filter(|spool| spool.limit_bytes > 0))
}

/// A writer whose drafts may hold `memory` bytes, with this spool.
fn writer_with(client: Arc<dyn ObjectWriter>, memory: u64, spool: Option<SpoolConfig>) -> Writer {
    let pool = BufferPool::new(MemoryBudget::new(memory / 2 * 3)).expect("a pool");
    let config = WriteConfig { part_bytes: 5 * MIB, memory_bytes: memory, spool, ..WriteConfig::default() };
    Writer::new(client, pool, config, &Handle::current())
}

async fn all(draft: &Draft) -> Bytes {
    draft.read(0, draft.size() as usize + 1).await.expect("it is readable")
}
