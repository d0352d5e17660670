//! Patterns of loaders that were not measured before: the bytes they fetch for each byte read, and their speed compared
//! with one handle that reads as many bytes in order. `docs/PERFORMANCE.md` has the table.

use s3mount_testkit::mix;

use super::{GIB, KIB, MIB, MODELS, Model, Trace, forward, run};

const S3: Model = MODELS[1];

/// The numbers up to `count` in an order that looks like chance.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.sort_by_key(|number| mix(seed << 40 | *number));
    numbers
}

/// MosaicML's shards (MDS) of 64 MiB, shuffled in blocks of four: eight workers take samples of 100 KiB from all over
/// their block. For each sample two offsets are read at the shard's beginning, and then the sample.
fn shuffled_shards() -> Trace {
    const SAMPLE: u64 = 100 * KIB;
    let (shard, block) = (64 * MIB, 4 * 64 * MIB);
    let worker = |worker: u64| {
        let mut reads = Vec::new();
        for sample in shuffled(block / SAMPLE / 2, worker) {
            let at = worker * block + sample * 2 * SAMPLE;
            let header = at / shard * shard + 4 + sample % 1000 * 4;
            reads.extend([(header, 8), (at.max(header + 8), SAMPLE)]);
        }
        reads
    };
    Trace { name: "MDS shards, shuffled", size: 8 * block, threads: (0..8).map(worker).collect() }
}

/// A mapped GGUF model: its header, and then tensors of 20 to 90 MiB in the order of their use, which differs from the
/// file's. The kernel asks for 128 KiB at a time.
fn mapped_model() -> Trace {
    let (mut starts, mut end) = (Vec::new(), 8 * MIB);
    for tensor in 0..48 {
        let len = (20 + mix(tensor) % 70) * MIB;
        starts.push((end, len));
        end += len;
    }
    let mut reads = forward(0, 8 * MIB, 128 * KIB);
    for tensor in shuffled(starts.len() as u64, 7) {
        let (start, len) = starts[tensor as usize];
        reads.extend(forward(start, start + len, 128 * KIB));
    }
    Trace { name: "GGUF, mapped", size: end, threads: vec![reads] }
}

/// A Zarr array (version 3) of shards: eight workers read the index at a shard's end, and then a window of chunks of 200
/// KiB, two of each row of ten.
fn sharded_array() -> Trace {
    let (chunk, shard) = (200 * KIB, 128 * MIB);
    let worker = |worker: u64| {
        let mut reads = Vec::new();
        for turn in 0..8 {
            let start = (turn * 8 + worker) * shard;
            reads.push((start + shard - 16 * KIB, 16 * KIB));
            let column = mix(start) % 8;
            for row in 0..20 {
                reads.extend((0..2).map(|next| (start + (row * 10 + column + next) * chunk, chunk)));
            }
        }
        reads
    };
    Trace { name: "Zarr shards, a window", size: 64 * shard, threads: (0..8).map(worker).collect() }
}

/// A distributed checkpoint that is loaded by another number of ranks: each of eight ranks reads its eighth of each
/// tensor of 96 MiB, in pieces of 1 MiB.
fn resharded() -> Trace {
    let (tensor, tensors) = (96 * MIB, 24);
    let rank = |rank: u64| {
        let slice = |number: u64| {
            let start = number * tensor + rank * tensor / 8;
            forward(start, start + tensor / 8, MIB)
        };
        (0..tensors).flat_map(slice).collect()
    };
    Trace { name: "checkpoint, resharded", size: tensor * tensors, threads: (0..8).map(rank).collect() }
}

/// Clips of a video: four workers read the index at the file's end, and for each clip 3 MiB from a key frame on, in pieces
/// of 64 KiB.
fn video() -> Trace {
    let size = 8 * GIB;
    let worker = |worker: u64| {
        let mut reads = vec![(size - 8, 8), (size - 2 * MIB, 2 * MIB - 8)];
        for clip in 0..60 {
            let frame = mix(worker << 32 | clip) % (size / MIB - 8) * MIB;
            reads.extend(forward(frame, frame + 3 * MIB, 64 * KIB));
        }
        reads
    };
    Trace { name: "video, clips", size, threads: (0..4).map(worker).collect() }
}

#[test]
fn loaders_that_jump_fetch_little_that_they_do_not_read() {
    let patterns = [
        (shuffled_shards(), 2.5),
        (mapped_model(), 1.3),
        (sharded_array(), 1.7),
        (resharded(), 1.2),
        (video(), 1.8),
    ];
    println!(
        "{:<24} {:>8} {:>8} {:>7} {:>7} {:>8}",
        "pattern, S3 25 Gbit/s", "MiB", "GB/s", "f/read", "GETs", "in order"
    );
    for memory in [256 * MIB, GIB] {
        for (trace, most) in &patterns {
            let outcome = run(trace, S3, memory);
            let in_order =
                Trace { name: "in order", size: outcome.read, threads: vec![forward(0, outcome.read, MIB)] };
            let whole = run(&in_order, S3, memory);
            println!(
                "{:<24} {:>8} {:>8.2} {:>7.2} {:>7} {:>8.2}",
                trace.name,
                memory / MIB,
                outcome.rate() / 1e9,
                outcome.waste(),
                outcome.requests,
                whole.rate() / 1e9
            );
            assert!(outcome.waste() <= *most, "{}: {:.2}", trace.name, outcome.waste());
        }
    }
}
