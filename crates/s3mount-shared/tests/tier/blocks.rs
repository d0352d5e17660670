//! What is kept, what is served, and that nothing wrong is.

use std::sync::Arc;

use bytes::Bytes;
use s3mount_memory::Priority;
use s3mount_object::{ByteRange, ETag, ObjectClient as _, ObjectId, ObjectWriter as _, PutObject};
use s3mount_shared::{BLOCK_BYTES, MissReason, PutOutcome};
use s3mount_testkit::check;

use crate::world::{KIB, MIB, World};

#[tokio::test(start_paused = true)]
async fn what_one_mount_has_fetched_another_reads_from_the_tier() {
    let world = World::new();
    let (first, second) = (world.mount(), world.mount());
    for size in [1, 100_000, 128 * KIB, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES - 77] {
        let object = world.source.put_synthetic(&format!("of {size}"), size);
        assert_eq!(first.read_blocks(&object, size).await, 0, "{size} bytes, the first time");
        first.settle().await;
        assert_eq!(world.source_bytes(), size);
        let blocks = usize::try_from(size.div_ceil(BLOCK_BYTES)).expect("few");
        assert_eq!(second.read_blocks(&object, size).await, blocks, "{size} bytes, the second time");
        for (start, end) in [(0, size), (size / 2, size), (size / 3, size / 2), (size - 1, size)] {
            let end = end.min(s3mount_shared::SharedTier::block_edge(start));
            if start < end {
                assert!(second.read(&object, size, start, end).await, "{start}..{end} of {size}");
            }
        }
        assert_eq!(world.source_bytes(), 0);
    }
    assert_eq!((first.pool.budget().used_bytes(), second.pool.budget().used_bytes()), (0, 0));
    assert_eq!(second.tier.metrics().puts.at(PutOutcome::Written).get(), 0);
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_block_make_the_block() {
    let world = World::new();
    let (first, second) = (world.mount(), world.mount());
    let size = 2 * BLOCK_BYTES + 3 * MIB;
    let object = world.source.put_synthetic("k", size);
    let edges = [0, 1, 2, 4, 8, 9, 12, 16, 19].map(|mib| mib * MIB);
    for pair in edges.windows(2) {
        assert!(!first.read(&object, size, pair[0], pair[1]).await);
    }
    first.settle().await;
    assert_eq!((world.source_bytes(), world.blocks().len()), (size, 3));
    assert_eq!(second.read_blocks(&object, size).await, 3);
    assert_eq!(first.pool.budget().used_bytes(), 0, "no part is kept");
}

#[tokio::test(start_paused = true)]
async fn a_range_across_an_edge_is_cut_when_it_is_offered() {
    let world = World::new();
    let mount = world.mount();
    let size = 2 * BLOCK_BYTES;
    let object = world.source.put_synthetic("k", size);
    assert!(!mount.read(&object, size, 0, size).await, "two blocks at once are never asked for");
    assert_eq!(world.shared.requests().get, 0);
    mount.settle().await;
    assert_eq!(world.mount().read_blocks(&object, size).await, 2);
}

/// Of 100 blocks of which a bit is flipped, none reaches a reader. Each is counted and replaced.
#[tokio::test(start_paused = true)]
async fn a_bit_flipped_in_each_of_100_blocks_reaches_no_reader() {
    let world = World::new();
    let (first, second) = (world.mount(), world.mount());
    let size = 300 * KIB;
    let objects: Vec<_> =
        (0..100).map(|number| world.source.put_synthetic(&format!("f{number}"), size)).collect();
    for object in &objects {
        assert_eq!(first.read_blocks(object, size).await, 0);
    }
    first.settle().await;
    let blocks = world.blocks();
    assert_eq!(blocks.len(), 100);
    assert!(blocks.iter().all(|key| world.shared.flip_stored_bit(key)), "a bit of each");
    world.source_bytes();
    for object in &objects {
        // `read` compares the bytes. The flipped bit lies in the second piece.
        assert!(second.read(object, size, 0, 128 * KIB).await, "the first piece is whole");
        assert!(!second.read(object, size, 128 * KIB, 256 * KIB).await, "the second one is not");
        assert_eq!(second.read_blocks(object, size).await, 0);
    }
    assert_eq!(second.tier.metrics().misses.at(MissReason::Damaged).get(), 200);
    second.settle().await;
    world.source_bytes();
    let third = world.mount();
    for object in &objects {
        assert_eq!(third.read_blocks(object, size).await, 1, "{object:?} was replaced");
    }
    assert_eq!(world.source_bytes(), 0);
}

/// A damaged block that is read in small pieces is replaced, too.
#[tokio::test(start_paused = true)]
async fn a_damaged_block_is_replaced_behind_random_reads() {
    let world = World::new();
    let (first, second) = (world.mount(), world.mount());
    let size = BLOCK_BYTES;
    let object = world.source.put_synthetic("k", size);
    first.read_blocks(&object, size).await;
    first.settle().await;
    assert!(world.shared.flip_stored_bit(&world.blocks()[0]));
    let damaged = BLOCK_BYTES / 2;
    for _ in 0..16 {
        assert!(!second.read(&object, size, damaged, damaged + 128 * KIB).await);
    }
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(second.read(&object, size, damaged, damaged + 128 * KIB).await, "it was replaced");
}

/// Blocks are bound to their endpoint, bucket, key, ETag and place. Whoever copies a block to another key, with
/// its metadata, plants nothing.
#[tokio::test(start_paused = true)]
async fn a_block_at_another_key_is_refused() {
    let world = World::new();
    let mount = world.mount();
    let size = BLOCK_BYTES + 1000;
    let victim = world.source.put_synthetic("victim", size);
    let planted = world.source.put_synthetic("planted", size);
    mount.read_blocks(&victim, size).await;
    mount.settle().await;
    let victims = world.blocks();
    mount.read_blocks(&planted, size).await;
    mount.settle().await;
    let planted: Vec<_> = world.blocks().into_iter().filter(|key| !victims.contains(key)).collect();
    for (from, to) in planted.iter().zip(&victims) {
        let len = world.shared.head_object(from).await.expect("a block").size;
        let into = Box::new(vec![0; usize::try_from(len).expect("short")]);
        let answer = world.shared.get_latest(from, ByteRange::new(0, len), into).await.expect("a block");
        let (key, bytes, metadata) = (to.clone(), answer.bytes, answer.metadata);
        let put = PutObject { key, bytes, metadata, only_new: false };
        world.shared.put_object(put).await.expect("an upload");
    }
    let other = world.mount();
    assert_eq!(other.read_blocks(&victim, size).await, 0);
    assert_eq!(other.tier.metrics().misses.at(MissReason::Damaged).get(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_bucket_or_version_finds_nothing() {
    let world = World::new();
    let mount = world.mount();
    let object = world.source.put_synthetic("k", 1000);
    mount.read_blocks(&object, 1000).await;
    mount.settle().await;
    assert!(world.mount().read(&object, 1000, 0, 1000).await);
    let other = world.mount_of("another", 64 * MIB);
    assert!(!other.read(&object, 1000, 0, 1000).await, "another bucket");
    let newer = ObjectId::new("k", ETag::new("\"newer\""));
    let miss = world.mount().tier.get(&newer, 1000, ByteRange::new(0, 1000), None, vec![0; 1000]).await;
    assert!(miss.is_err_and(|miss| miss.buffer.is_some()), "another version");
}

/// Random reads fetch their own ranges. A block is filled once a quarter of it was fetched, so a block that is
/// read whole in small pieces costs at most 1.25 times its bytes.
#[tokio::test(start_paused = true)]
async fn random_reads_do_not_multiply_bytes() {
    let world = World::new();
    let mount = world.mount();
    let (size, piece) = (4 * BLOCK_BYTES, 128 * KIB);
    let object = world.source.put_synthetic("k", size);
    let pieces = size / piece;
    // 97 and the number of pieces have no common divisor, so each piece is read once.
    let order: Vec<_> = (0..pieces).map(|number| number * 97 % pieces * piece).collect();
    let few = pieces as usize / 8;
    for start in &order[..few] {
        assert!(!mount.read(&object, size, *start, start + piece).await);
    }
    assert_eq!((world.source_bytes(), world.blocks().len()), (few as u64 * piece, 0), "an eighth was read");
    let mut hits = 0;
    for start in &order[few..] {
        hits += u64::from(mount.read(&object, size, *start, start + piece).await);
    }
    mount.settle().await;
    let fetched = world.source_bytes() + few as u64 * piece;
    assert!(fetched <= size * 5 / 4 + 8 * piece, "{fetched} bytes of {size}");
    assert!(hits * piece > size / 2, "{hits} hits of {pieces}");
    assert_eq!(mount.tier.metrics().fills.get(), 4);
}

/// A version of which wrong bytes came is not read from the tier again, and is replaced there.
#[tokio::test(start_paused = true)]
async fn a_distrusted_version_is_read_from_the_source_and_replaced() {
    let world = World::new();
    let (liar, mount) = (world.mount(), world.mount());
    let size = 200 * KIB;
    let object = world.source.put_synthetic("k", size);
    // The source sent wrong bytes, and their checksums match them.
    liar.tier.offer(&object, size, ByteRange::new(0, size), &Bytes::from(vec![7; size as usize]));
    liar.settle().await;
    let buffer = mount.pool.try_buffer(size as usize, Priority::Demand).expect("a buffer");
    let wrong = mount.tier.get(&object, size, ByteRange::new(0, size), None, buffer).await.expect("a hit");
    assert!(check("k", 0, &wrong).is_err());
    mount.tier.distrust(&object);
    assert!(!mount.read(&object, size, 0, size).await);
    assert_eq!(mount.tier.metrics().misses.at(MissReason::Distrusted).get(), 1);
    mount.settle().await;
    assert!(world.mount().read(&object, size, 0, size).await, "others get the right bytes now");
}

/// Bytes turn out to be wrong while they wait.
#[tokio::test(start_paused = true)]
async fn what_waits_of_a_distrusted_version_is_not_uploaded() {
    let world = World::new();
    let mount = world.mount();
    let size = BLOCK_BYTES + 2 * MIB;
    let objects = ["right", "wrong"].map(|key| world.source.put_synthetic(key, size));
    for object in &objects {
        for (start, end) in [(0, BLOCK_BYTES), (BLOCK_BYTES, BLOCK_BYTES + MIB)] {
            let bytes = Bytes::from(vec![7; (end - start) as usize]);
            mount.tier.offer(object, size, ByteRange::new(start, end), &bytes);
        }
    }
    mount.tier.distrust(&objects[1]);
    assert_eq!(mount.tier.held_bytes(), BLOCK_BYTES + MIB, "those of the other one");
    let rest = Bytes::from(vec![7; MIB as usize]);
    mount.tier.offer(&objects[0], size, ByteRange::new(size - MIB, size), &rest);
    mount.settle().await;
    assert_eq!(world.blocks().len(), 2);
    assert_eq!(mount.tier.metrics().puts.at(PutOutcome::Dropped).get(), 1);
    assert_eq!(mount.read_blocks(&objects[1], size).await, 0);
    mount.settle().await;
    assert_eq!(world.mount().read_blocks(&objects[1], size).await, 2, "what comes later is kept");
}

/// What waits to be uploaded is bounded and is given back on request.
#[tokio::test(start_paused = true)]
async fn what_waits_to_be_uploaded_is_bounded() {
    let world = World::new();
    let mount = world.mount_of("bucket", 4 * BLOCK_BYTES);
    let size = 64 * BLOCK_BYTES;
    let object = world.source.put_synthetic("k", size);
    world.shared.set_latency(std::time::Duration::from_millis(200));
    let mut most = 0;
    let offered = Arc::new(());
    for number in 0..32 {
        let start = number * BLOCK_BYTES;
        let bytes = Bytes::from(s3mount_testkit::content("k", start, BLOCK_BYTES as usize));
        mount.tier.offer(&object, size, ByteRange::new(start, start + BLOCK_BYTES), &bytes);
        let part = ByteRange::new(size - MIB * (number + 1), size - MIB * number);
        mount.tier.offer(&object, size, part, &Bytes::from(vec![0; MIB as usize]));
        most = most.max(mount.tier.held_bytes());
    }
    drop(offered);
    assert_eq!(most, 4 * BLOCK_BYTES);
    assert_eq!(mount.tier.metrics().puts.at(PutOutcome::Dropped).get(), 28);
    assert_eq!(mount.tier.shed(1), BLOCK_BYTES, "a whole block goes");
    assert_eq!((mount.tier.shed(u64::MAX), mount.tier.held_bytes()), (3 * BLOCK_BYTES, 0));
}
