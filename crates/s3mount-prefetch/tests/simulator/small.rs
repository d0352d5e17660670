//! Small files that are fetched ahead of one reader: the files a second, and the GETs in flight for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Bed, GIB, KIB, MODELS, Model, link, read_all, simulate};

const FILE: u64 = 110 * KIB;

/// The most files ahead of their reader.
const AHEAD: usize = 2048;

/// How often the test checks whether the next file can be fetched.
const PAUSE: Duration = Duration::from_millis(2);

/// Reads this many files, which are hinted ahead. Returns the files a second.
async fn read_told(bed: &Bed, files: usize) -> f64 {
    let start = Instant::now();
    let (ahead, mut told) = mpsc::channel(AHEAD);
    let fetch = async {
        for number in 0..files {
            let reader = bed.open(&number.to_string(), FILE);
            while reader.fetch_ahead(None).is_none() {
                sleep(PAUSE).await;
            }
            ahead.send(reader).await.expect("a reader");
        }
        drop(ahead);
    };
    let read = async {
        while let Some(reader) = told.recv().await {
            read_all(reader, [(0, FILE)], Arc::default()).await;
        }
    };
    futures::join!(fetch, read);
    files as f64 / start.elapsed().as_secs_f64()
}

/// The files a second, and the GETs in flight at once for them after it has settled.
fn run(model: Model, files: usize) -> (f64, u64) {
    simulate(model, GIB, async |bed| {
        let rate = read_told(bed, files).await;
        bed.store.busiest.store(0, Ordering::Relaxed);
        read_told(bed, files).await;
        (rate, bed.store.busiest.load(Ordering::Relaxed))
    })
}

#[test]
fn small_files_have_as_many_gets_in_flight_as_they_need() {
    println!("{:>8} {:>4} {:>14} {:>13}", "Mbit/s", "ms", "files a second", "GETs at once");
    // With 64 GETs in flight and an eighth of them kept, 56: 1,850 a second at S3's latency, and 240 far away.
    for (model, least_rate, most_gets) in [
        (MODELS[0], 10_000.0, 192),
        (MODELS[1], 4000.0, 512),
        (MODELS[3], 600.0, 512),
        (link(125e6, 25.0), 1000.0, 64),
        (link(6.25e6, 25.0), 50.0, 64),
    ] {
        let (rate, busiest) = run(model, 4000);
        println!("{:>8} {:>4} {rate:>14.0} {busiest:>13}", model.link / 125e3, model.first_byte_ms);
        assert!(rate >= least_rate && busiest <= most_gets, "{model:?}: {rate}, {busiest} at once");
    }
}
