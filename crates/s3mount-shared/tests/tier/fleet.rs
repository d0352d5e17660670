//! Several mounts that read the same objects at once. What the source sends is counted.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use s3mount_object::{ByteRange, ErrorKind, ObjectId};
use s3mount_shared::{BLOCK_BYTES, SharedTier};
use tokio::time::{Instant, sleep};

use crate::world::{KIB, MIB, Mount, World};

/// The GETs of a stream: a first part, the rest of the first block, and then whole blocks. `first` is the
/// length of the first part.
fn parts(size: u64, first: u64) -> Vec<(u64, u64)> {
    let mut parts = vec![(0, first.min(size))];
    while let Some((_, at)) = parts.last().copied().filter(|(_, end)| *end < size) {
        parts.push((at, SharedTier::block_edge(at).min(size)));
    }
    parts
}

/// Reads an object as a stream with `window` GETs in flight.
async fn stream(mount: Mount, object: ObjectId, size: u64, first: u64, window: usize) -> usize {
    let read = |(start, end)| {
        let (mount, object) = (mount.clone(), object.clone());
        async move { usize::from(mount.read(&object, size, start, end).await) }
    };
    let hits = stream::iter(parts(size, first)).map(read).buffered(window);
    hits.fold(0, |sum, hit| async move { sum + hit }).await
}

/// Reads one object by `mounts` mounts, each of which starts `lag` after the one before. Returns how many
/// times the object's bytes the source has sent.
async fn copies(mounts: usize, lag: Duration, window: usize, size: u64) -> f64 {
    let world = World::new();
    let object = world.source.put_synthetic("k", size);
    let readers = (0..mounts).map(|number| {
        let (mount, object) = (world.mount(), object.clone());
        let lag = lag * u32::try_from(number).expect("few");
        async move {
            sleep(lag).await;
            stream(mount, object, size, MIB, window).await
        }
    });
    futures::future::join_all(readers).await;
    world.source_bytes() as f64 / size as f64
}

#[tokio::test(start_paused = true)]
async fn two_mounts_in_lockstep_fetch_little_more_than_one_copy() {
    for window in [1, 16, 64] {
        let copies = copies(2, Duration::ZERO, window, 40 * BLOCK_BYTES).await;
        assert!(copies <= 1.1, "{copies} copies with {window} GETs in flight");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mount_that_follows_fetches_nothing_again() {
    for lag in [1, 30, 100].map(Duration::from_millis) {
        let copies = copies(2, lag, 16, 24 * BLOCK_BYTES).await;
        assert!(copies <= 1.1, "{copies} copies {lag:?} behind");
    }
}

/// Both stores become slow while two mounts read, as on a machine that others keep busy. A mount that waits for
/// a block does not lose patience.
#[tokio::test(start_paused = true)]
async fn stores_that_become_slow_are_asked_for_one_copy() {
    for (source, shared) in [(300, 5), (500, 10), (850, 20)] {
        let (world, size) = (World::new(), 64 * BLOCK_BYTES);
        let object = world.source.put_synthetic("k", size);
        let readers = [world.mount(), world.mount()].map(|mount| stream(mount, object.clone(), size, MIB, 8));
        let slow = async {
            sleep(Duration::from_millis(100)).await;
            world.source.set_latency(Duration::from_millis(source));
            world.shared.set_latency(Duration::from_millis(shared));
        };
        futures::join!(futures::future::join_all(readers), slow);
        let copies = world.source_bytes() as f64 / size as f64;
        assert!(copies <= 1.1, "{copies} copies when the source takes {source} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn five_mounts_fetch_little_more_than_one_copy() {
    let copies = copies(5, Duration::from_millis(3), 16, 24 * BLOCK_BYTES).await;
    assert!(copies <= 1.1, "{copies} copies");
}

/// The leases of a mount that ended, one for each of the first `blocks` blocks.
async fn leave_leases(world: &World, object: &ObjectId, size: u64, blocks: u64) {
    let dead = world.mount();
    for number in 0..blocks {
        let range = ByteRange::new(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES);
        let miss = dead.tier.get(object, size, range, None, vec![0; BLOCK_BYTES as usize]).await;
        assert!(miss.expect_err("a miss").lease.is_some(), "block {number}");
    }
}

/// A mount has ended, and promised sixteen blocks before. The others wait for it once.
#[tokio::test(start_paused = true)]
async fn blocks_that_a_mount_has_promised_before_it_ended_are_fetched_once() {
    for (mounts, window, most) in [(4, 1, 6), (4, 8, 5), (16, 1, 6), (16, 8, 5)] {
        let (world, size) = (World::new(), 16 * BLOCK_BYTES);
        let object = world.source.put_synthetic("k", size);
        leave_leases(&world, &object, size, 16).await;
        let started = Instant::now();
        let readers = (0..mounts).map(|_| stream(world.mount(), object.clone(), size, BLOCK_BYTES, window));
        futures::future::join_all(readers).await;
        let (copies, took) = (world.source_bytes() as f64 / size as f64, started.elapsed());
        assert!(copies <= 1.2, "{copies} copies of {mounts} mounts with {window} GETs in flight");
        assert!(
            took <= Duration::from_secs(most),
            "{took:?} of {mounts} mounts with {window} GETs in flight"
        );
    }
}

/// Goes on with `work`, but for a pause of `length` after `begin`.
async fn paused<T>(work: impl Future<Output = T>, begin: Duration, length: Duration) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        result = &mut work => return result,
        () = sleep(begin) => {}
    }
    sleep(length).await;
    work.await
}

/// A mount that is stopped for three seconds brings late what it has promised. What was in flight is fetched twice,
/// and nothing else, though the others have given it up.
#[tokio::test(start_paused = true)]
async fn a_mount_that_is_stopped_for_a_while_costs_what_was_in_flight() {
    let (world, size) = (World::new(), 64 * BLOCK_BYTES);
    let object = world.source.put_synthetic("k", size);
    let read = || stream(world.mount(), object.clone(), size, BLOCK_BYTES, 8);
    let stopped = paused(read(), Duration::from_millis(100), Duration::from_secs(3));
    futures::join!(stopped, read(), read());
    let twice = world.source_bytes() - size;
    assert!(twice <= 8 * BLOCK_BYTES, "{} blocks were fetched twice", twice / BLOCK_BYTES);
}

/// A wait that ends because the bucket fails says nothing of the mount that was waited for: its next block is.
#[tokio::test(start_paused = true)]
async fn who_was_waited_for_when_the_bucket_failed_is_not_given_up() {
    let (world, size) = (World::new(), 64 * KIB);
    let (holder, other) = (world.mount(), world.mount());
    let range = ByteRange::new(0, size);
    for (object, fails) in small_objects(&world, 2, size).iter().zip([true, false]) {
        let miss = holder.tier.get(object, size, range, None, vec![0; size as usize]).await;
        let lease = miss.expect_err("a miss").lease.expect("the first one");
        let brings = async {
            sleep(Duration::from_millis(10)).await;
            if fails {
                world.shared.fail_next([ErrorKind::Network]);
            }
            sleep(Duration::from_millis(100)).await;
            let bytes = holder.read_source(object, range).await;
            holder.tier.offer(object, size, range, &bytes);
            drop(lease);
        };
        let (is_hit, ()) = futures::join!(other.read(object, size, 0, size), brings);
        assert_eq!(is_hit, !fails);
    }
}

/// Reads small objects, which are one block each, with eight GETs in flight.
async fn read_all(mount: Mount, objects: Vec<ObjectId>, size: u64) {
    let read = stream::iter(objects).map(move |object| {
        let mount = mount.clone();
        async move { mount.read(&object, size, 0, size).await }
    });
    read.buffered(8).for_each(|_| async {}).await;
}

fn small_objects(world: &World, count: usize, size: u64) -> Vec<ObjectId> {
    (0..count).map(|number| world.source.put_synthetic(&format!("f{number}"), size)).collect()
}

/// Of many mounts that begin at the same moment, few ask to write a lease of a block that another one promises.
#[tokio::test(start_paused = true)]
async fn a_large_fleet_writes_few_leases() {
    let (world, mounts, count, size) = (World::new(), 100, 300, KIB);
    let objects = small_objects(&world, count, size);
    let readers = (0..mounts).map(|_| read_all(world.mount(), objects.clone(), size));
    futures::future::join_all(readers).await;
    assert_eq!(world.source_bytes(), count as u64 * size);
    let requests = world.shared.take_requests();
    // A block and a lease of each object, and a lease that each mount has asked for in vain, with eight at once.
    assert!(requests.put <= 2 * count + 8 * mounts, "{requests:?}");
}

/// Small objects are one block each, and are fetched once.
#[tokio::test(start_paused = true)]
async fn small_objects_are_fetched_once() {
    let world = World::new();
    let size = 110 << 10;
    let objects = small_objects(&world, 200, size);
    let readers = [world.mount(), world.mount()].map(|mount| read_all(mount, objects.clone(), size));
    futures::future::join_all(readers).await;
    assert_eq!(world.source_bytes(), 200 * size);
}

/// The shared bucket goes away half-way. All bytes come, and they are the right ones.
#[tokio::test(start_paused = true)]
async fn the_shared_bucket_goes_away_half_way() {
    let world = World::new();
    let size = 24 * BLOCK_BYTES;
    let object = world.source.put_synthetic("k", size);
    let readers = [world.mount(), world.mount()].map(|mount| stream(mount, object.clone(), size, MIB, 8));
    let freeze = async {
        sleep(Duration::from_millis(100)).await;
        world.shared.freeze(true);
    };
    futures::join!(futures::future::join_all(readers), freeze);
    assert!(world.source_bytes() >= size);
}

/// Mounts whose queues have no room for all blocks in flight promise what they have room for. The other eight
/// blocks are fetched twice, and the first one, whose parts also take room.
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_shorter_than_the_window_costs_what_it_has_no_room_for() {
    let world = World::new();
    let size = 40 * BLOCK_BYTES;
    let object = world.source.put_synthetic("k", size);
    let mounts = [(); 2].map(|()| world.mount_of("bucket", 32 * BLOCK_BYTES));
    let readers = mounts.map(|mount| stream(mount, object.clone(), size, MIB, 40));
    futures::future::join_all(readers).await;
    let twice = world.source_bytes() - size;
    assert!(twice <= 9 * BLOCK_BYTES, "{twice} bytes were fetched twice");
}
