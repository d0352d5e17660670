//! Bytes that were fetched ahead of readers that went elsewhere, and files that are opened anew for each sample.

use std::sync::Arc;
use std::time::Duration;

use s3mount_testkit::mix;
use tokio::time::{Instant, sleep};

use super::{Bed, GIB, KIB, MIB, MODELS, forward, read_all, simulate};

const FILES: u64 = 240;

const S3: super::Model = MODELS[1];

/// Reads the first 24 MiB of files, one after another. Their handles stay open if `keep_open`. Returns bytes
/// read a second, and bytes fetched for each byte read.
fn headers_of_files(memory: u64, keep_open: bool) -> (f64, f64) {
    let bytes = 24 * MIB;
    simulate(S3, memory, async |bed: &Bed| {
        let start = Instant::now();
        let mut open = Vec::new();
        for file in 0..FILES {
            let reader = bed.handle(&format!("d/{file}.h5"), GIB);
            read_all((*reader).clone(), forward(0, bytes, 128 * KIB), Arc::default()).await;
            if keep_open {
                open.push(reader);
            }
        }
        let read = (FILES * bytes) as f64;
        (read / start.elapsed().as_secs_f64(), bed.fetched() as f64 / read)
    })
}

#[test]
fn files_that_stay_open_take_no_memory_from_those_that_are_read() {
    for memory in [512 * MIB, 3 * GIB] {
        let [closed, open] = [false, true].map(|keep_open| headers_of_files(memory, keep_open));
        println!("{FILES} files, {} MiB: closed {closed:.3?}, open {open:.3?}", memory / MIB);
        assert!(open.0 >= 0.8 * closed.0 && open.1 <= 1.2 * closed.1, "{closed:?}, {open:?}");
    }
}

#[test]
fn slices_of_one_file_take_no_memory_from_each_other() {
    let slice = 24 * MIB;
    let rate = |memory| {
        simulate(S3, memory, async |bed: &Bed| {
            let reader = bed.open("d/all.h5", 240 * GIB);
            let start = Instant::now();
            let mut slices: Vec<u64> = (1..120).map(|slice| slice * GIB).collect();
            slices.sort_by_key(|at| mix(*at));
            for at in &slices {
                read_all(reader.clone(), forward(*at, at + slice, 128 * KIB), Arc::default()).await;
            }
            (slices.len() as u64 * slice) as f64 / start.elapsed().as_secs_f64()
        })
    };
    let [little, much] = [512 * MIB, 16 * GIB].map(rate);
    println!("slices of one file: {:.0} MB/s in 512 MiB, {:.0} in 16 GiB", little / 1e6, much / 1e6);
    assert!(little >= 0.8 * much, "{little} against {much}");
}

/// Reads `count` samples one after another, each in reads of at most 128 KiB. Returns bytes read a second, bytes
/// fetched for each byte read, and GETs that were cancelled.
fn samples(sample: u64, count: u64, is_reopened: bool) -> (f64, f64, u64) {
    simulate(S3, GIB, async |bed: &Bed| {
        let start = Instant::now();
        let _kept = (!is_reopened).then(|| bed.handle("shard.mds", 4 * GIB));
        for at in 0..count {
            let reader = bed.handle("shard.mds", 4 * GIB);
            let reads = forward(at * sample, (at + 1) * sample, 128 * KIB);
            read_all((*reader).clone(), reads, Arc::default()).await;
        }
        let read = (count * sample) as f64;
        let seconds = start.elapsed().as_secs_f64();
        (read / seconds, bed.fetched() as f64 / read, bed.cancelled())
    })
}

#[test]
fn a_file_that_is_opened_for_each_sample_streams_as_one_that_stays_open() {
    for (sample, count) in [(256 * KIB, 4000), (4 * MIB, 500)] {
        let [open, reopened] = [false, true].map(|is_reopened| samples(sample, count, is_reopened));
        println!("samples of {} KiB: one handle {open:.3?}, a handle each {reopened:.3?}", sample / KIB);
        assert!(reopened.0 >= 0.9 * open.0 && reopened.1 <= open.1 + 0.1, "{open:?}, {reopened:?}");
        assert!(reopened.2 <= open.2 + 8, "{} GETs were cancelled", reopened.2);
    }
}

/// Opens a file, reads 24 MiB of it from `at` on, and closes it.
async fn read_and_close(bed: &Bed, key: &str, at: u64) {
    let reader = bed.handle(key, GIB);
    read_all((*reader).clone(), forward(at, at + 24 * MIB, 128 * KIB), Arc::default()).await;
}

#[test]
fn a_closed_file_holds_memory_only_if_who_opened_it_again_went_on() {
    simulate(S3, GIB, async |bed: &Bed| {
        let used = async || {
            // GETs that were cancelled give their buffers back.
            sleep(Duration::from_millis(50)).await;
            bed.pool.budget().used_bytes()
        };
        read_and_close(bed, "k", 0).await;
        assert_eq!(used().await, 0, "the first time");
        read_and_close(bed, "k", 0).await;
        assert_eq!(used().await, 0, "another reader has begun anew");
        read_and_close(bed, "k", 24 * MIB).await;
        assert!(used().await > 0, "its reader will come back");
        assert_eq!(bed.prefetcher.open_readers(), 1);
        sleep(Duration::from_secs(15)).await;
        assert_eq!((used().await, bed.prefetcher.open_readers()), (0, 0), "nobody came back");
    });
}

#[test]
fn few_of_many_closed_files_are_remembered() {
    simulate(MODELS[0], GIB, async |bed: &Bed| {
        for file in 0..600 {
            read_and_close(bed, &format!("{file}"), 0).await;
        }
        let remembered = bed.prefetcher.open_readers();
        assert!(remembered <= 256, "{remembered} files");
        let whole = bed.handle("whole", 64 * MIB);
        read_all((*whole).clone(), forward(0, 64 * MIB, MIB), Arc::default()).await;
        drop(whole);
        assert_eq!(bed.prefetcher.open_readers(), remembered, "nothing is left to read of it");
    });
}
