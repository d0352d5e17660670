//! The same reads without and with a disk cache: the first epoch costs no more requests and bytes, and the
//! second one none.

use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use s3mount_testkit::{Builder, Shape, TestS3, check, mix};
use tempfile::TempDir;

use crate::files::{by_threads, key, many, shuffled};
use crate::world::{BUCKET, KIB, MIB, World, check_file, wait_for};

/// What reading has cost: LISTs, GETs, bytes of objects, and other requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    lists: u64,
    gets: u64,
    bytes: u64,
    others: u64,
}

fn take(world: &World) -> Cost {
    let stats = world.server.stats();
    world.server.reset_stats();
    let (lists, gets) = (stats.list_objects.requests, stats.get_object.requests);
    Cost { lists, gets, bytes: stats.get_object.bytes, others: stats.requests() - lists - gets }
}

/// Reads without a cache, with a fresh cache, and with this cache again by another mount. Returns what each of
/// these has cost.
fn costs(server: impl Fn() -> Builder, read: impl Fn(&World)) -> [Cost; 3] {
    let without = World::counting(server(), &[]);
    read(&without);
    let without = take(&without);
    let folder = TempDir::new().expect("a folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("the owner's folder");
    // However full the disk of the tests is.
    let dir = folder.path().to_str().expect("a plain path");
    let flags = ["--cache", dir, "--max-cache-size", "1GiB"];
    let mut world = World::counting(server(), &flags);
    read(&world);
    let first = take(&world);
    wait_for("what was read is kept", || world.gauge("disk_cache_queued_bytes") == 0);
    world.remount(&flags);
    read(&world);
    [without, first, take(&world)]
}

/// Asserts that a first epoch with a cache costs no more than one without, and that the second one fetches
/// nothing.
fn check_costs(what: &str, [without, first, second]: [Cost; 3]) {
    assert_eq!((second.gets, second.bytes, second.others), (0, 0, 0), "{what}: the second epoch");
    assert!(
        first.gets <= without.gets && first.bytes <= without.bytes && first.others <= without.others,
        "{what}: {first:?} with a cache, {without:?} without"
    );
}

#[test]
fn a_cold_cat_costs_the_same_with_a_cache() {
    let server = || TestS3::builder().synthetic(BUCKET, "a/b/c.bin", 100 * KIB);
    let costs = costs(server, |world| {
        check_file(&world.path("a/b/c.bin"), "a/b/c.bin");
    });
    let [_, first, second] = costs;
    assert_eq!(first, Cost { lists: 3, gets: 1, bytes: 100 * KIB, others: 0 });
    assert_eq!(second.lists, 3, "names may change");
    check_costs("cat", costs);
}

#[test]
fn small_files_cost_the_same_with_a_cache() {
    let sizes = [0, 1, 4 * KIB, 128 * KIB, 128 * KIB + 1, MIB];
    let server = || {
        let name = |size: &u64| format!("d/{size}");
        sizes.iter().fold(TestS3::builder(), |server, size| server.synthetic(BUCKET, &name(size), *size))
    };
    let costs = costs(server, |world| {
        for size in sizes {
            let key = format!("d/{size}");
            assert_eq!(check_file(&world.path(&key), &key), size);
        }
    });
    assert_eq!((costs[1].gets, costs[1].bytes), (5, sizes.iter().sum()));
    check_costs("files of many sizes", costs);
}

#[test]
fn shuffled_files_cost_the_same_with_a_cache() {
    let costs = costs(
        || many(2000, 110 * KIB),
        |world| {
            by_threads(&shuffled(2000), |index| {
                assert_eq!(check_file(&world.path(&key(*index)), &key(*index)), 110 * KIB);
            });
        },
    );
    assert_eq!(costs[1].gets, 2000);
    check_costs("shuffled files", costs);
}

#[test]
fn files_in_order_cost_the_same_with_a_cache() {
    let costs = costs(
        || many(300, 110 * KIB).shape(Shape::aws()),
        |world| {
            for index in 0..300 {
                assert_eq!(check_file(&world.path(&key(index)), &key(index)), 110 * KIB);
            }
        },
    );
    assert_eq!(costs[1].gets, 300);
    check_costs("files in order", costs);
}

/// How a stream is cut into GETs depends on when its parts come, and on the memory that is left.
#[test]
fn a_stream_fetches_each_byte_once_with_a_cache() {
    let size = 200 * MIB + 77;
    let server = || TestS3::builder().synthetic(BUCKET, "f", size).shape(Shape::aws());
    let [without, first, second] =
        costs(server, |world| assert_eq!(check_file(&world.path("f"), "f"), size)).map(|cost| cost.bytes);
    assert_eq!((without, first, second), (size, size, 0));
}

/// Each piece is a block of the cache, so all of them are kept.
#[test]
fn random_reads_cost_the_same_with_a_cache() {
    const UNIT: u64 = 128 * KIB;
    let size = 256 * MIB;
    let read = |world: &World| {
        let file = world.open("f");
        // The kernel reads nothing ahead.
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).expect("advice");
        for turn in 0..100 {
            // No piece lies behind another one, so none of them begins a stream.
            let (mut piece, at) = (vec![0; UNIT as usize], mix(turn) % (size / UNIT / 2) * UNIT * 2);
            file.read_exact_at(&mut piece, at).expect("a piece");
            check("f", at, &piece).expect("the object's bytes");
        }
    };
    check_costs("random reads", costs(|| TestS3::builder().synthetic(BUCKET, "f", size), read));
}
