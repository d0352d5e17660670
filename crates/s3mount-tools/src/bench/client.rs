//! Measures the client alone: this shows what the network and the store can do.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use futures::stream::{self, StreamExt, TryStreamExt};
use procfs::process::{ClearRefs, Process};
use s3mount_crt::{CrtClient, CrtConfig};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::{ByteRange, GetObject};

use super::measured::{Measured, PartTimes, Point, usage};
use super::subject::Bench;

/// Fetches the object from its beginning, with one part in flight on each connection.
pub(crate) async fn measure(bench: &Bench, config: CrtConfig, point: Point) -> anyhow::Result<Measured> {
    let (client, _) = CrtClient::connect(config).await?;
    let client = Arc::new(client);
    let pool =
        BufferPool::new(MemoryBudget::new(bench.memory_limit_bytes)).context("cannot reserve memory")?;
    let me = Process::myself()?;
    // Resets the peak of the process's memory to the present value.
    me.clear_refs(ClearRefs::PeakRSS)?;
    let (cpu_before, _) = usage(me.pid())?;
    let start = Instant::now();
    let since = |at: Instant| at.duration_since(start).as_secs_f64();
    let starts = (0..bench.bytes).step_by(usize::try_from(point.part_bytes)?);
    let in_time = starts.take_while(|_| start.elapsed() < bench.limit);
    let fetched: Vec<(u64, PartTimes)> = stream::iter(in_time)
        .map(|at| {
            let range = ByteRange::new(at, (at + point.part_bytes).min(bench.bytes));
            let request = GetObject { object: bench.object.clone(), range };
            let (client, pool) = (client.clone(), pool.clone());
            let part = async move {
                let len = usize::try_from(range.len()).expect("a part fits the address space");
                let buffer = pool.buffer(len).await;
                let sent = Instant::now();
                let (bytes, first_byte) = client.get_object_timed(request, Box::new(buffer)).await?;
                drop(bytes);
                anyhow::Ok((sent, sent + first_byte, Instant::now(), range.len()))
            };
            tokio::spawn(part)
        })
        .buffer_unordered(usize::try_from(point.connections)?)
        .map(|part| {
            let (sent, answered, ended, len) = part??;
            let part =
                PartTimes { start: since(sent), first_byte: since(answered.min(ended)), end: since(ended) };
            anyhow::Ok((len, part))
        })
        .try_collect()
        .await?;
    let seconds = start.elapsed().as_secs_f64();
    let (cpu, peak_memory_bytes) = usage(me.pid())?;
    Ok(Measured {
        bytes: fetched.iter().map(|(len, _)| len).sum(),
        seconds,
        cpu_seconds: cpu - cpu_before,
        peak_memory_bytes,
        requests: fetched.len() as u64,
        parts: fetched.into_iter().map(|(_, part)| part).collect(),
    })
}
