//! Reads an object from the disk cache, and the same file without it:
//! `cargo run --release -p s3mount-cache --example read_disk -- DIR [MIB [PATTERN]]`.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "it is an example, and it measures")]

use std::error::Error;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use s3mount_cache::{DiskCache, DiskConfig, DiskObject};
use s3mount_memory::{BufferPool, MemoryBudget, Priority};
use s3mount_object::{ByteRange, ETag, ObjectId};

const MIB: u64 = 1 << 20;

/// How long each figure is measured.
const TIME: Duration = Duration::from_secs(2);

/// Offsets of a reader: one after another, or spread over the object.
#[derive(Clone, Copy)]
struct Pattern {
    name: &'static str,
    read_bytes: u64,
    readers: u64,
    is_random: bool,
}

impl Pattern {
    fn offset(&self, reader: u64, number: u64, size: u64) -> u64 {
        let count = size / self.read_bytes;
        let at = if self.is_random {
            (number * self.readers + reader).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
        } else {
            number * self.readers + reader
        };
        at % count * self.read_bytes
    }
}

/// The processor time of this process in seconds.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields[11..13].iter().filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn report(what: &str, pattern: &Pattern, reads: u64, took: Duration, cpu: f64) {
    let (count, seconds) = (reads as f64, took.as_secs_f64());
    let mib = count * pattern.read_bytes as f64 / MIB as f64;
    println!(
        "{:<28} {what:<12} {:>8.0} MiB/s {:>8.0} reads/s {:>6.0} us of CPU a read",
        pattern.name,
        mib / seconds,
        count / seconds,
        cpu * 1e6 / count
    );
}

fn direct(path: &std::path::Path, pattern: Pattern, size: u64, pool: &BufferPool) {
    let (began, before) = (Instant::now(), cpu());
    let read = |reader| {
        let file = std::fs::OpenOptions::new().read(true).custom_flags(0o40000).open(path);
        let file = file.expect("the file is there");
        let mut buffer = pool.try_buffer(pattern.read_bytes as usize, Priority::Demand).expect("memory");
        (0u64..)
            .take_while(|number| {
                let at = pattern.offset(reader, *number, size);
                file.read_exact_at(buffer.as_mut(), at).expect("a read");
                began.elapsed() < TIME
            })
            .count() as u64
    };
    let reads = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..pattern.readers).map(|reader| scope.spawn(move || read(reader))).collect();
        readers.into_iter().map(|reader| reader.join().expect("no panic")).sum()
    });
    report("pread", &pattern, reads, began.elapsed(), cpu() - before);
}

async fn cached(object: &Arc<DiskObject>, pattern: Pattern, size: u64, pool: &BufferPool) {
    let (began, before) = (Instant::now(), cpu());
    let readers: Vec<_> = (0..pattern.readers)
        .map(|reader| {
            let (object, pool) = (object.clone(), pool.clone());
            tokio::spawn(async move {
                let mut number = 0;
                while began.elapsed() < TIME {
                    let at = pattern.offset(reader, number, size);
                    let buffer = pool.buffer(pattern.read_bytes as usize).await;
                    let range = ByteRange::new(at, at + pattern.read_bytes);
                    drop(object.read(range, None, buffer).await.expect("a hit"));
                    number += 1;
                }
                number
            })
        })
        .collect();
    let mut reads = 0;
    for reader in readers {
        reads += reader.await.expect("no panic");
    }
    report("DiskObject", &pattern, reads, began.elapsed(), cpu() - before);
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("which directory?")?);
    let size = args.next().map_or(Ok(2048), |mib| mib.parse::<u64>())? * MIB;
    let only = args.next().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let _inside = runtime.enter();
    let pool = BufferPool::new(MemoryBudget::new(256 * MIB))?;
    let config = DiskConfig {
        dirs: vec![dir.clone()],
        max_bytes: Some(2 * size),
        source: "example".to_owned(),
        queue_bytes: 64 * MIB,
        ..DiskConfig::default()
    };
    let cache = DiskCache::open(&config)?;
    let object = cache.object(&ObjectId::new("object", ETag::new("\"1\"")), size);
    let began = Instant::now();
    let piece = Bytes::from_iter((0..8 * MIB).map(|at| ((at * at) >> 7) as u8));
    for start in (0..size).step_by(8 * MIB as usize) {
        while cache.held_bytes() > 32 * MIB {
            std::thread::sleep(Duration::from_millis(1));
        }
        object.offer(ByteRange::new(start, start + 8 * MIB), &piece);
    }
    cache.flush(Duration::from_secs(60));
    println!("filled: {:.0} MiB/s", (size / MIB) as f64 / began.elapsed().as_secs_f64());
    let whole =
        std::fs::read_dir(dir.join("v1"))?.flatten().flat_map(|shard| std::fs::read_dir(shard.path()));
    let path = whole.flatten().flatten().map(|entry| entry.path()).find(|path| path.extension().is_none());
    let path = path.ok_or("the object is not whole")?;
    let patterns = [
        Pattern { name: "in order, 1 MiB, 1 reader", read_bytes: MIB, readers: 1, is_random: false },
        Pattern { name: "in order, 8 MiB, 4 readers", read_bytes: 8 * MIB, readers: 4, is_random: false },
        Pattern { name: "random, 128 KiB, 1 reader", read_bytes: MIB / 8, readers: 1, is_random: true },
        Pattern { name: "random, 128 KiB, 4 readers", read_bytes: MIB / 8, readers: 4, is_random: true },
    ];
    for round in 0..3 {
        println!("round {round}");
        for pattern in patterns.into_iter().filter(|pattern| pattern.name.contains(&only)) {
            direct(&path, pattern, size, &pool);
            runtime.block_on(cached(&object, pattern, size, &pool));
        }
    }
    Ok(())
}
