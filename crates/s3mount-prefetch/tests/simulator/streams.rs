//! Many readers of one object, readers that skip, and random reads among them: the GETs and bytes that they cost.

use s3mount_testkit::mix;

use super::{GIB, KIB, MIB, MODELS, Model, Outcome, Trace, forward, run};

const NEAR_AND_S3: [Model; 2] = [MODELS[0], MODELS[1]];

fn row(trace: &str, model: Model, memory: u64, outcome: &Outcome) -> String {
    let (rate, waste, requests) = (outcome.rate() / 1e9, outcome.waste(), outcome.requests);
    format!(
        "{trace:<28} {:<15} {:>5} {rate:>6.2} GB/s {waste:>6.2} {requests:>6} GETs",
        model.name,
        memory / MIB
    )
}

/// This many threads that divide an object among themselves. Each has `share` bytes.
fn sharing(threads: u64, share: u64) -> Trace {
    let reads = |thread: u64| forward(thread * share, (thread + 1) * share, MIB);
    Trace { name: "shared", size: threads * share, threads: (0..threads).map(reads).collect() }
}

/// Reads of 4 KiB at random in an object of `size` bytes, by eight threads.
fn random(size: u64, reads: u64) -> Trace {
    let spot = |thread: u64| move |turn: u64| (mix(thread << 32 | turn) % (size / 4096) * 4096, 4 * KIB);
    let threads = (0..8).map(|thread| (0..reads).map(spot(thread)).collect()).collect();
    Trace { name: "random", size, threads }
}

/// Reads of `block` bytes, up or down, in the first MiB of each `of` MiB. Before them, the first `before`
/// bytes are read without a gap.
fn skipping(of: u64, block: u64, before: u64, is_down: bool) -> Trace {
    let size = before + 8 * GIB;
    let mut pieces: Vec<_> = (before..size).step_by((of * MIB) as usize).collect();
    if is_down {
        pieces.reverse();
    }
    let pieces = pieces.into_iter().flat_map(|at| forward(at, at + MIB, block));
    Trace {
        name: "skipping",
        size,
        threads: vec![forward(0, before, MIB).into_iter().chain(pieces).collect()],
    }
}

/// The largest part of which two fit into the share of one of `streams` streams: one is read while the other
/// is on its way.
fn part_of(streams: u64, memory: u64) -> u64 {
    let share = memory / 8 * 7 / streams;
    (1 << (share / 2).ilog2()).min(8 * MIB)
}

#[test]
fn sharing_readers_take_whole_parts_once_ramped() {
    for model in NEAR_AND_S3 {
        for (threads, memory) in [(16, GIB), (40, GIB), (64, GIB), (64, 3 * GIB), (256, GIB), (256, 3 * GIB)]
        {
            let trace = sharing(threads, 8 * GIB / threads);
            println!(
                "{}",
                row(&format!("8 GiB shared by {threads}"), model, memory, &run(&trace, model, memory))
            );
            // Near a store, a prefetch window is at most half of what its stream has read. After 128 MiB,
            // each stream has ramped.
            let [short, long] = [128, 192].map(|share| run(&sharing(threads, share * MIB), model, memory));
            let part = part_of(threads, memory);
            let gets = (long.requests - short.requests) as f64 / (threads * 64 * MIB / part) as f64;
            println!("{gets:>50.3} GETs for each part of {} MiB; fetched {:.3}", part / MIB, long.waste());
            assert!(gets <= 1.1 && long.waste() <= 1.01, "{threads} threads, {}: {gets:.3}", model.name);
        }
    }
}

#[test]
fn who_skips_wastes_little() {
    for model in NEAR_AND_S3 {
        for before in [0, 128 * MIB] {
            for (of, most) in [(2, 2.1), (4, 1.5), (16, 1.3)] {
                for (block, is_down) in [(128 * KIB, false), (MIB, false), (128 * KIB, true), (MIB, true)] {
                    let trace = skipping(of, block, before, is_down);
                    let outcome = run(&trace, model, GIB);
                    let way = if is_down { " down" } else { "" };
                    let name = format!("{} MiB, 1 of {of} in {} KiB{way}", before / MIB, block / KIB);
                    println!("{}", row(&name, model, GIB, &outcome));
                    // Once the stream has ramped, it is as fast as the connections bring the pieces.
                    let least = if of == 16 { 0.4e9 } else { 0.8e9 };
                    assert!(outcome.rate() >= least, "{name}, {}: {:.2e}", model.name, outcome.rate());
                    // A prefetch window is at most three times as long as what its stream has read.
                    let allowed = (outcome.read - before) as f64 * most + 4.0 * before as f64;
                    assert!(
                        outcome.fetched as f64 <= allowed,
                        "{name}, {}: {:.2}",
                        model.name,
                        outcome.waste()
                    );
                }
            }
        }
    }
}

#[test]
fn pieces_in_no_order_are_no_strides() {
    for model in NEAR_AND_S3 {
        // One case reads one MiB anywhere in each four MiB. The other reads every fourth MiB, in a shuffled
        // order.
        let anywhere = (0..1024).map(|turn| turn * 4 * MIB + mix(turn) % (3 * MIB / 4096) * 4096).collect();
        let mut shuffled: Vec<_> = (0..1024).map(|turn| turn * 4 * MIB).collect();
        shuffled.sort_by_key(|at| mix(*at));
        for (name, spots) in [("anywhere", anywhere), ("shuffled", shuffled)] {
            let reads = spots.into_iter().map(|at| (at, MIB)).collect();
            let trace = Trace { name: "pieces", size: 4 * GIB, threads: vec![reads] };
            let outcome = run(&trace, model, GIB);
            println!("{}", row(&format!("pieces, {name}"), model, GIB, &outcome));
            assert!(outcome.waste() <= 1.15, "{name}, {}: {:.2}", model.name, outcome.waste());
        }
    }
}

#[test]
fn random_reads_fetch_their_unit() {
    for model in NEAR_AND_S3 {
        for (size, memory) in [(256 * MIB, 16 * MIB), (GIB, 64 * MIB), (8 * GIB, GIB)] {
            let outcome = run(&random(size, 4000), model, memory);
            println!("{}", row(&format!("random in {} MiB", size / MIB), model, memory, &outcome));
            assert!(outcome.waste() <= 32.0, "{} MiB, {}: {:.2}", size / MIB, model.name, outcome.waste());
        }
    }
}

#[test]
fn random_reads_in_between_take_no_stream_away() {
    let (size, steps) = (8 * GIB, 256);
    let random = |turn: u64| (GIB + mix(turn) % (6 * GIB / 4096) * 4096, 4 * KIB);
    let between = |step: u64| (40 * step..40 * (step + 1)).map(random);
    let alone: Vec<_> = (0..steps).flat_map(between).collect();
    let both = (0..steps).flat_map(|step| [(step * MIB, MIB)].into_iter().chain(between(step))).collect();
    let [alone, both] = [alone, both].map(|reads| {
        let outcome = run(&Trace { name: "slow", size, threads: vec![reads] }, MODELS[1], GIB);
        println!("{}", row("slow reader", MODELS[1], GIB, &outcome));
        outcome
    });
    let (gets, fetched) = (both.requests - alone.requests, both.fetched - alone.fetched);
    println!("{gets} GETs, {} MiB", fetched / MIB);
    // The stream's window is still ahead of it when the trace ends.
    assert!(gets <= steps / 2 && fetched <= (steps + 128) * MIB, "{gets} GETs, {} MiB", fetched / MIB);
}
