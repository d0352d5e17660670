//! Whatever is wrong with the shared bucket only makes reads slower, and not by much.

use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectId};
use s3mount_shared::{BLOCK_BYTES, LeaseOutcome, MissReason, PutOutcome};
use tokio::time::{Instant, sleep};

use crate::world::{KIB, MIB, World};

/// The length of the object that is there.
const SIZE: u64 = 64 * KIB;

/// An object that a mount has brought into the tier.
async fn filled(world: &World) -> ObjectId {
    let mount = world.mount();
    let object = world.source.put_synthetic("k", SIZE);
    mount.read_blocks(&object, SIZE).await;
    mount.settle().await;
    object
}

/// A bucket that fails each request is asked a few times, then left alone, and asked again after a while.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_fails_is_left_alone() {
    let world = World::new();
    let (size, second) = (SIZE, world.mount());
    let object = filled(&world).await;
    world.shared.take_requests();
    world.shared.fail_all(Some(ErrorKind::Network));
    for _ in 0..100 {
        assert!(!second.read(&object, size, 0, size).await);
    }
    assert_eq!(world.shared.take_requests().get, 5, "GETs of 100 reads");
    assert_eq!(second.tier.metrics().misses.at(MissReason::Resting).get(), 95);
    sleep(Duration::from_secs(5)).await;
    assert!(!second.read(&object, size, 0, size).await, "the probe fails");
    assert!(!second.read(&object, size, 0, size).await, "nothing is asked");
    world.shared.fail_all(None);
    sleep(Duration::from_secs(10)).await;
    assert!(second.read(&object, size, 0, size).await, "the second probe is answered");
    assert_eq!(world.shared.take_requests().get, 2);
    assert!(second.read(&object, size, 0, size).await, "all is well");
}

/// A bucket that answers nothing holds two reads up, for four seconds each.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_hangs_holds_few_reads_up() {
    let world = World::new();
    let mount = world.mount();
    let size = BLOCK_BYTES;
    world.shared.freeze(true);
    let started = Instant::now();
    for number in 0..50 {
        let object = world.source.put_synthetic(&format!("f{number}"), size);
        assert!(!mount.read(&object, size, 0, size).await);
    }
    let source = Duration::from_millis(50 * 25);
    let held_up = started.elapsed().saturating_sub(source);
    assert!(held_up < Duration::from_secs(10), "{held_up:?}");
    assert_eq!(mount.tier.metrics().misses.at(MissReason::Failed).get(), 2);
    mount.tier.shed(u64::MAX);
}

/// A bucket that hangs once it was fast is given up sooner, and readers that come together wait together.
#[tokio::test(start_paused = true)]
async fn many_reads_wait_for_a_hanging_bucket_at_the_same_time() {
    let world = World::new();
    let (size, second) = (SIZE, world.mount());
    let object = filled(&world).await;
    for _ in 0..100 {
        assert!(second.read(&object, size, 0, size).await);
    }
    world.shared.freeze(true);
    let started = Instant::now();
    futures::future::join_all((0..64).map(|_| second.read(&object, size, 0, size))).await;
    assert!(started.elapsed() < Duration::from_millis(1200), "{:?}", started.elapsed());
    let later = Instant::now();
    assert!(!second.read(&object, size, 0, size).await);
    assert_eq!(later.elapsed(), Duration::from_millis(25), "the source alone");
}

/// A bucket that takes several times as long as the source is left alone, and one that takes a few times as long is
/// not.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_much_slower_than_the_source_is_left_alone() {
    for (tier, source, is_left) in [(1200, 25, true), (900, 25, false), (1200, 400, false), (2000, 400, true)]
    {
        let world = World::new();
        let (size, second) = (SIZE, world.mount());
        let object = filled(&world).await;
        world.shared.set_latency(Duration::from_millis(tier));
        let (range, source) = (s3mount_object::ByteRange::new(0, size), Some(Duration::from_millis(source)));
        let mut hits = 0;
        for _ in 0..20 {
            let read = second.tier.get(&object, size, range, source, vec![0; size as usize]).await;
            hits += usize::from(read.is_ok());
        }
        assert_eq!(hits < 20, is_left, "{tier} ms, and {source:?} of the source: {hits} of 20");
    }
}

/// A bucket that may not be written to is read, and is asked for a lease once.
#[tokio::test(start_paused = true)]
async fn a_bucket_without_permission_to_write_is_read() {
    let world = World::new();
    let (writer, reader) = (world.mount(), world.mount());
    let (old, new) = (world.source.put_synthetic("old", MIB), world.source.put_synthetic("new", 5 * MIB));
    writer.read_blocks(&old, MIB).await;
    writer.settle().await;
    world.shared.refuse_uploads(true);
    world.shared.take_requests();
    for _ in 0..10 {
        assert!(reader.read(&old, MIB, 0, MIB).await);
        assert!(!reader.read(&new, 5 * MIB, 0, 5 * MIB).await);
    }
    assert_eq!(world.shared.take_requests().put, 1);
    assert_eq!(reader.tier.held_bytes(), 0, "nothing waits for an upload");
    world.shared.refuse_uploads(false);
    sleep(Duration::from_secs(601)).await;
    assert!(!reader.read(&new, 5 * MIB, 0, 5 * MIB).await);
    reader.settle().await;
    assert!(reader.read(&new, 5 * MIB, 0, 5 * MIB).await, "the permission came back");
}

/// A store that knows no conditions gets plain uploads, and is not asked for leases again.
#[tokio::test(start_paused = true)]
async fn a_store_without_conditions_is_filled() {
    let world = World::new();
    world.shared.refuse_conditions();
    let (first, second) = (world.mount(), world.mount());
    let size = 3 * BLOCK_BYTES;
    let object = world.source.put_synthetic("k", size);
    first.read_blocks(&object, size).await;
    first.settle().await;
    assert_eq!(first.tier.metrics().leases.at(LeaseOutcome::Failed).get(), 1);
    assert_eq!(first.tier.metrics().puts.at(PutOutcome::Written).get(), 3);
    assert_eq!(second.read_blocks(&object, size).await, 3);
}

/// An upload that fails once is sent again.
#[tokio::test(start_paused = true)]
async fn an_upload_that_fails_is_sent_again_once() {
    let world = World::new();
    let mount = world.mount();
    let object = world.source.put_synthetic("k", MIB);
    assert!(!mount.read(&object, MIB, 0, MIB).await);
    world.shared.fail_next([ErrorKind::Network]);
    mount.settle().await;
    assert_eq!(mount.tier.metrics().puts.at(PutOutcome::Written).get(), 1);
    let other = world.source.put_synthetic("l", MIB);
    assert!(!mount.read(&other, MIB, 0, MIB).await);
    world.shared.fail_next(vec![ErrorKind::Network; 2]);
    mount.settle().await;
    assert_eq!(mount.tier.metrics().puts.at(PutOutcome::Failed).get(), 1);
}

/// A mount that ended leaves leases behind. Another one waits for each of these blocks once, and not for long.
#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_keeps_is_waited_for_once() {
    let world = World::new();
    let (dead, mount) = (world.mount(), world.mount());
    let size = BLOCK_BYTES;
    let object = world.source.put_synthetic("k", size);
    let range = s3mount_object::ByteRange::new(0, size);
    let miss = dead.tier.get(&object, size, range, None, vec![0; size as usize]).await.expect_err("a miss");
    assert!(miss.lease.is_some());
    drop(miss);
    let started = Instant::now();
    assert!(!mount.read(&object, size, 0, size).await);
    assert!(started.elapsed() < Duration::from_millis(2200), "{:?}", started.elapsed());
    mount.settle().await;
    assert!(mount.read(&object, size, 0, size).await, "the block is there now");
    // The block goes, and its lease stays.
    world.shared.delete(&world.blocks()[0]);
    let again = Instant::now();
    assert!(!dead.read(&object, size, 0, size).await);
    assert!(again.elapsed() < Duration::from_millis(100), "no mount waits for itself: {:?}", again.elapsed());
}

/// The tier takes no room for a promise that was given up.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_dropped_gives_its_room_back() {
    let world = World::new();
    let mount = world.mount_of("bucket", 2 * BLOCK_BYTES);
    let size = 64 * BLOCK_BYTES;
    let object = world.source.put_synthetic("k", size);
    for number in 0..20 {
        let range = s3mount_object::ByteRange::new(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES);
        let miss = mount.tier.get(&object, size, range, None, vec![0; BLOCK_BYTES as usize]).await;
        assert!(miss.expect_err("a miss").lease.is_some(), "block {number}");
    }
    let get = |number: u64| {
        let range = s3mount_object::ByteRange::new(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES);
        mount.tier.get(&object, size, range, None, vec![0; BLOCK_BYTES as usize])
    };
    let held = [get(30).await, get(31).await].map(|miss| miss.expect_err("a miss").lease);
    assert!(held.iter().all(Option::is_some));
    assert!(get(32).await.expect_err("a miss").lease.is_none(), "there is no room for a third promise");
}
