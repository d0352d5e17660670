//! A large fleet that begins one epoch at the same moment, against stores with S3's limits for one prefix. The stores
//! are in memory, and time is virtual. Blocks are small objects here: requests are counted, and bytes cost nothing.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use s3mount_object::{ByteRange, ObjectId};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{KIB, Mount, World};

/// What S3 answers for one prefix in a second.
const READS: f64 = 5500.0;
const WRITES: f64 = 3500.0;

/// The length of each object, which is one block.
const SIZE: u64 = KIB;

/// The blocks of 1 TiB.
const TIB: f64 = 131_072.0;

/// In which order the mounts read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Same,
    Shuffled,
}

/// A fleet.
#[derive(Clone, Copy, Debug)]
struct Fleet {
    mounts: usize,
    blocks: usize,
    order: Order,
    has_tier: bool,
    /// One in so many mounts ends on the way, and another one begins in its place.
    ends: usize,
    /// The share of S3's limits that the stores have.
    share: f64,
}

/// What a fleet has cost, for each block.
#[derive(Debug)]
struct Cost {
    /// GETs that the source has answered.
    copies: f64,
    /// GETs and HEADs, and PUTs, that the tier has answered.
    reads: f64,
    writes: f64,
    /// Requests that either of them has refused.
    refused: f64,
    slowest: Duration,
}

/// The `number`th of `count` in the order of one mount.
fn place(order: Order, mount: usize, number: usize, count: usize) -> usize {
    match order {
        Order::Same => number,
        // A step that shares no factor with the count, which is a power of two.
        Order::Shuffled => (number * (2 * (mount * 7919 % count) + 1) + mount * 104_729) % count,
    }
}

async fn read(mount: &Mount, object: &ObjectId, has_tier: bool) {
    if has_tier {
        mount.read(object, SIZE, 0, SIZE).await;
    } else {
        mount.read_source(object, ByteRange::new(0, SIZE)).await;
    }
}

async fn run(fleet: Fleet) -> Cost {
    let world = World::new();
    world.source.throttle(READS * fleet.share, WRITES * fleet.share);
    world.shared.throttle(READS * fleet.share, WRITES * fleet.share);
    let objects: Vec<_> =
        (0..fleet.blocks).map(|number| world.source.put_synthetic(&format!("{number}"), SIZE)).collect();
    let started = Instant::now();
    let readers = (0..fleet.mounts).map(|number| {
        let (world, objects) = (&world, &objects);
        async move {
            // A scheduler does not start all of them within a millisecond.
            sleep(Duration::from_micros(number as u64 * 200)).await;
            let all = || async {
                let mount = world.mount();
                let reads = (0..fleet.blocks).map(|turn| {
                    let object = &objects[place(fleet.order, number, turn, fleet.blocks)];
                    let mount = mount.clone();
                    async move { read(&mount, object, fleet.has_tier).await }
                });
                stream::iter(reads).buffered(8).for_each(|()| async {}).await;
            };
            let ends = number % fleet.ends == fleet.ends - 1;
            if !ends || timeout(Duration::from_millis(300 + number as u64), all()).await.is_err() {
                all().await;
            }
        }
    });
    futures::future::join_all(readers).await;
    let slowest = started.elapsed();
    let (source, tier) = (world.source.take_requests(), world.shared.take_requests());
    let ([source_refused, _], [reads_refused, writes_refused]) =
        (world.source.refused(), world.shared.refused());
    let each = |count: usize| count as f64 / fleet.blocks as f64;
    Cost {
        copies: each(source.get - source_refused),
        reads: each(tier.get + tier.head - reads_refused),
        writes: each(tier.put - writes_refused),
        refused: each(source_refused + reads_refused + writes_refused),
        slowest,
    }
}

/// A fleet of a tenth of the size, with a tenth of the limits. A tier that is asked for too much is asked less, and the
/// source is not asked instead: it was, and sent 64 copies.
#[tokio::test(start_paused = true)]
async fn a_fleet_fetches_few_copies_within_the_limits_of_s3() {
    for order in [Order::Same, Order::Shuffled] {
        let fleet = Fleet { mounts: 100, blocks: 128, order, has_tier: true, ends: 10, share: 0.1 };
        let cost = run(fleet).await;
        assert!(cost.copies <= 8.0, "{order:?}: {cost:?}");
        assert!(cost.refused > 100.0 && cost.slowest > Duration::from_secs(20), "{order:?}: {cost:?}");
    }
}

/// The table of docs/SHARED-CACHE.md.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes, and prints a table"]
async fn a_thousand_mounts_begin_one_epoch() {
    for order in [Order::Same, Order::Shuffled] {
        for (has_tier, ends) in [(false, 1001), (true, 1001), (true, 20)] {
            let fleet = Fleet { mounts: 1000, blocks: 256, order, has_tier, ends, share: 1.0 };
            let cost = run(fleet).await;
            let dollars = |reads: f64, writes: f64| (reads * 0.0004 + writes * 0.005) / 1000.0 * TIB;
            let (source, tier) = (dollars(cost.copies, 0.0), dollars(cost.reads, cost.writes));
            println!("{fleet:?}\n{cost:.2?}, of 1 TiB ${source:.2} and ${tier:.2}");
        }
    }
}
