//! Links that are slow or fast, near or far, and links that become slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{GIB, KIB, MIB, Model, PACE, link, read_all, simulate};

/// Reads a stream, and in the middle of it the first bytes of another file. Returns the stream's bytes a second, the
/// seconds that the other file took, the number of GETs that were cancelled before the end, and the bytes requested for
/// each byte read.
fn stream_and_another(model: Model, memory: u64) -> (f64, f64, u64, f64) {
    simulate(model, memory, async |bed| {
        let bytes = ((model.link * 12.0) as u64 / MIB * MIB).clamp(64 * MIB, 4 * GIB);
        let (stream, other) = (bed.open("stream", 1 << 40), bed.open("other", 1 << 40));
        let start = Instant::now();
        let done = Arc::new(AtomicU64::new(0));
        let reads = (0..bytes / MIB).map(|turn| (turn * MIB, MIB));
        let reading = tokio::spawn(read_all(stream.clone(), reads, done.clone()));
        while done.load(Ordering::Relaxed) < bytes / 2 && !reading.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
        let opened = Instant::now();
        read_all(other.clone(), [(0, 128 * KIB)], Arc::default()).await;
        let first_bytes = opened.elapsed().as_secs_f64();
        reading.await.expect("a reader");
        let cancelled =
            bed.store.cancelled.load(Ordering::Relaxed).saturating_sub(bed.prefetcher.metrics().hedges.get());
        let fetched = bed.store.fetched.load(Ordering::Relaxed) as f64 / bytes as f64;
        (bytes as f64 / start.elapsed().as_secs_f64(), first_bytes, cancelled, fetched)
    })
}

#[test]
fn links_slow_and_fast_near_and_far() {
    println!(
        "{:>8} {:>6} {:>6} {:>9} {:>6} {:>12} {:>9} {:>7}",
        "Mbit/s", "ms", "", "MB/s", "share", "other file s", "cancelled", "fetched"
    );
    for mbits in [20.0, 50.0, 1e3, 1e4, 1e5] {
        for first_byte_ms in [1.0, 25.0, 200.0] {
            let queue = link(mbits * 125e3, first_byte_ms);
            for (model, kind) in [(queue, "queue"), (queue.shared(), "shared")] {
                let (rate, other, cancelled, fetched) = stream_and_another(model, GIB);
                println!(
                    "{mbits:>8} {first_byte_ms:>6} {kind:>6} {:>9.2} {:>6.2} {other:>12.2} {cancelled:>9} {fetched:>7.2}",
                    rate / 1e6,
                    rate / model.link.min(PACE)
                );
                assert_eq!(cancelled, 0, "without a fault");
                if mbits == 50.0 {
                    assert!(other <= 2e-3 * first_byte_ms + 1.0, "{other} s");
                }
                if mbits <= 50.0 {
                    assert!(fetched <= 1.11, "{fetched}");
                }
                // The bytes ahead at the end take their share of the link from the last bytes.
                if mbits <= 1e3 {
                    assert!(rate >= if kind == "queue" { 0.9 } else { 0.8 } * model.link, "{rate}");
                }
            }
        }
    }
}

/// Some readers read each a huge object over a link of 1 Gbit/s, which after five seconds carries `slow` bytes a second
/// for `seconds`, and then 1 Gbit/s again. Returns the readers' bytes while it was slow, as a share of what it carried;
/// the longest time in seconds in which one of them got nothing; and their bytes in the ten seconds after, as a share.
fn becomes_slow(slow: f64, readers: usize, seconds: u64) -> (f64, f64, f64) {
    let model = link(125e6, 25.0).shared();
    simulate(model, GIB, async |bed| {
        let done: Vec<_> = (0..readers).map(|_| Arc::new(AtomicU64::new(0))).collect();
        for (reader, done) in done.iter().enumerate() {
            let object = bed.open(&format!("huge/{reader}"), 1 << 40);
            tokio::spawn(read_all(object, (0..1 << 20).map(|at| (at * MIB, MIB)), done.clone()));
        }
        let read = || done.iter().map(|done| done.load(Ordering::Relaxed)).collect::<Vec<_>>();
        sleep(Duration::from_secs(5)).await;
        *bed.store.link.lock().await = slow;
        let (before, start) = (read(), Instant::now());
        let (mut last, mut longest) = (vec![(0, start); readers], 0.0_f64);
        while start.elapsed() < Duration::from_secs(seconds) {
            sleep(Duration::from_millis(100)).await;
            for ((bytes, since), now) in last.iter_mut().zip(read()) {
                longest = longest.max(since.elapsed().as_secs_f64());
                if now > *bytes {
                    (*bytes, *since) = (now, Instant::now());
                }
            }
        }
        let sum = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64;
        let middle = read();
        *bed.store.link.lock().await = model.link;
        sleep(Duration::from_secs(10)).await;
        let share = (sum(&middle) - sum(&before)) / (slow * seconds as f64);
        (share, longest, (sum(&read()) - sum(&middle)) / (model.link * 10.0))
    })
}

#[test]
fn a_link_that_becomes_slow_brings_readers_what_they_wait_for() {
    println!("{:>8} {:>8} {:>6} {:>9} {:>6}", "Mbit/s", "readers", "share", "longest s", "after");
    for (mbits, readers) in [(100.0, 1), (20.0, 1), (5.0, 1), (5.0, 4), (2.0, 1)] {
        let (share, longest, after) = becomes_slow(mbits * 125e3, readers, 120);
        println!("{mbits:>8} {readers:>8} {share:>6.2} {longest:>9.1} {after:>6.2}");
        assert!(share >= 0.75 && longest <= 30.0 && after >= 0.5, "{mbits} Mbit/s, {readers} readers");
    }
}

#[test]
fn a_store_that_answers_after_seconds_is_read_ahead_of() {
    for first_byte_ms in [1500.0, 4000.0, 6000.0] {
        let model = link(125e6, first_byte_ms);
        let rate = simulate(model, GIB, async |bed| {
            let (done, object) = (Arc::new(AtomicU64::new(0)), bed.open("huge", 1 << 40));
            tokio::spawn(read_all(object, (0..1 << 20).map(|at| (at * MIB, MIB)), done.clone()));
            sleep(Duration::from_secs(200)).await;
            let before = done.load(Ordering::Relaxed);
            sleep(Duration::from_secs(100)).await;
            (done.load(Ordering::Relaxed) - before) as f64 / 100.0
        });
        println!("first byte after {first_byte_ms} ms: {:.1} MB/s", rate / 1e6);
        assert!(rate >= 3e6, "{rate}");
    }
}
