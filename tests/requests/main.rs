//! Specifies how many requests, of each kind, a sequence of system calls costs. The real binary mounts a
//! bucket of a real server on loopback. The tests count requests and judge no time.
#![expect(
    clippy::disallowed_methods,
    reason = "the mount is another process, which lives by the machine's time"
)]

mod cached;
mod files;

#[path = "../mount/world.rs"]
#[expect(dead_code, reason = "shared with the tests of mounts, each of which uses a part")]
mod world;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use s3mount_testkit::{Shape, TestS3};

use crate::files::{by_threads, key, many, shuffled};
use crate::world::{BUCKET, KIB, World, check_file, run, run_command};

/// The numbers of LISTs, GETs and other requests since the last call.
fn take(world: &World) -> (u64, u64, u64) {
    let stats = world.server.stats();
    world.server.reset_stats();
    let (lists, gets) = (stats.list_objects.requests, stats.get_object.requests);
    (lists, gets, stats.requests() - lists - gets)
}

#[test]
fn a_cold_cat_three_folders_deep_costs_three_lists_and_a_get() {
    let world = World::counting(TestS3::builder().synthetic(BUCKET, "a/b/c.bin", 100 * KIB), &[]);
    check_file(&world.path("a/b/c.bin"), "a/b/c.bin");
    assert_eq!(take(&world), (3, 1, 0), "a listing for each name, and the bytes");
    check_file(&world.path("a/b/c.bin"), "a/b/c.bin");
    assert_eq!(take(&world), (0, 0, 0), "names and pages are known");
}

#[test]
fn cat_after_ls_costs_a_get() {
    let world = World::counting(TestS3::builder().synthetic(BUCKET, "a/b/c.bin", 100 * KIB), &[]);
    run("ls", &[world.path("a/b")]);
    take(&world);
    check_file(&world.path("a/b/c.bin"), "a/b/c.bin");
    assert_eq!(take(&world), (0, 1, 0));
}

#[test]
fn a_small_file_of_any_size_costs_a_get() {
    let sizes = [0, 1, 4 * KIB, 128 * KIB, 128 * KIB + 1, 1024 * KIB];
    let server = sizes
        .iter()
        .fold(TestS3::builder(), |server, size| server.synthetic(BUCKET, &format!("d/{size}"), *size));
    let world = World::counting(server, &[]);
    run("ls", &[world.path("d")]);
    take(&world);
    for size in sizes {
        let key = format!("d/{size}");
        assert_eq!(check_file(&world.path(&key), &key), size);
        assert_eq!(take(&world), (0, u64::from(size > 0), 0), "{size} bytes");
    }
}

#[test]
fn verifying_costs_a_head_for_a_large_file() {
    let server = TestS3::builder().synthetic(BUCKET, "d/small", 1024 * KIB);
    let world = World::counting(server.synthetic(BUCKET, "d/large", 40 * 1024 * KIB), &["--verify", "whole"]);
    run("ls", &[world.path("d")]);
    take(&world);
    check_file(&world.path("d/small"), "d/small");
    assert_eq!(take(&world), (0, 1, 0), "its GET brings the checksum");
    // A reader of a header does not ask for the checksum.
    let mut header = [0; 1000];
    let mut file = world.open("d/large");
    file.read_exact(&mut header).expect("bytes");
    drop(file);
    assert_eq!(take(&world).2, 0);
    check_file(&world.path("d/large"), "d/large");
    assert_eq!(take(&world).2, 1, "one HEAD");
}

#[test]
fn a_write_costs_a_put_and_what_is_not_known_yet() {
    let server = TestS3::builder().object(BUCKET, "d/old", "old");
    let world = World::counting(server, &["--allow=overwrite"]);
    run("ls", &[world.path("d")]);
    take(&world);
    let append = |text: &str| {
        let mut file = File::options().append(true).open(world.path("d/old")).expect("a file");
        file.write_all(text.as_bytes()).expect("a write");
    };
    world.write("d/new", "new");
    assert_eq!(take(&world).2, 1, "a PutObject");
    append("and more");
    let (_, gets, others) = take(&world);
    assert_eq!((gets, others), (1, 2), "the bytes, what the object has beside them, and a PutObject");
    append("and more");
    let (_, gets, others) = take(&world);
    assert_eq!((gets, others), (0, 1), "a PutObject: all else is known");
    world.write("d/old", "new");
    assert_eq!(take(&world).2, 1, "nothing is kept of a file that is emptied");
}

#[test]
fn stat_of_ten_thousand_costs_nothing_after_ls() {
    let world = World::counting(many(10_000, 7), &[]);
    world.path("many").metadata().expect("a folder");
    take(&world);
    let listed = run("ls", &[PathBuf::from("-l"), world.path("many")]);
    assert_eq!(listed.lines().count(), 10_001);
    let (lists, gets, others) = take(&world);
    // Ten pages, and one or two LISTs of pieces behind the end.
    assert!((10..=12).contains(&lists) && (gets, others) == (0, 0), "{lists} LISTs");
    for index in 0..10_000 {
        assert_eq!(world.path(&key(index)).metadata().expect("a file").size(), 7);
    }
    assert_eq!(take(&world), (0, 0, 0));
}

#[test]
fn twelve_listings_of_a_folder_at_once_cost_little_more_than_one() {
    let world = World::counting(many(7000, 7).shape(Shape::aws()), &[]);
    world.path("many").metadata().expect("a folder");
    take(&world);
    let (all, folder) = (Barrier::new(12), world.path("many"));
    std::thread::scope(|scope| {
        for reader in 0..12 {
            let (all, folder) = (&all, &folder);
            scope.spawn(move || {
                all.wait();
                let listed = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a name"));
                // Half of them are as `ls -l`, which asks for attributes.
                let count = listed
                    .filter(|entry| reader % 2 == 0 || entry.metadata().is_ok_and(|file| file.len() == 7));
                assert_eq!(count.count(), 7000);
            });
        }
    });
    let (lists, gets, others) = take(&world);
    // One takes seven to nine.
    assert!((7..=16).contains(&lists) && (gets, others) == (0, 0), "{lists} LISTs");
}

#[test]
fn names_that_are_known_to_be_absent_cost_nothing() {
    let world = World::counting(many(2000, 7), &["--negative-metadata-ttl", "60"]);
    run("ls", &[world.path("many")]);
    take(&world);
    for index in 0..1000 {
        assert!(world.path(&format!("many/{index:06}.idx")).metadata().is_err());
    }
    assert_eq!(take(&world), (0, 0, 0));
}

#[test]
fn stat_of_two_thousand_in_twenty_thousand_by_32_threads_costs_few_lists() {
    let world = World::counting(many(20_000, 7), &[]);
    by_threads(&shuffled(20_000)[..2000], |index| {
        assert_eq!(world.path(&key(*index)).metadata().expect("a file").size(), 7);
    });
    let (lists, gets, others) = take(&world);
    assert!(lists <= 120 && (gets, others) == (0, 0), "{lists} LISTs, {gets} GETs, {others} others");
}

#[test]
fn two_thousand_shuffled_files_cost_32_readers_a_get_each() {
    let world = World::counting(many(2000, 110 * KIB), &[]);
    by_threads(&shuffled(2000), |index| {
        assert_eq!(check_file(&world.path(&key(*index)), &key(*index)), 110 * KIB);
    });
    let (lists, gets, others) = take(&world);
    assert_eq!((gets, others), (2000, 0));
    assert!(lists <= 150, "{lists} LISTs");
}

#[test]
fn files_in_order_are_fetched_ahead_in_each_epoch() {
    let world = World::counting(many(300, 110 * KIB).shape(Shape::aws()), &[]);
    for epoch in 0..2 {
        let waited = world.gauge("waits");
        for index in 0..300 {
            let mut file = world.open(&key(index));
            assert_eq!(file.read_to_end(&mut Vec::new()).expect("its bytes"), 110 << 10);
            // The file leaves the page cache before the next epoch.
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("advice");
        }
        let (_, gets, others) = take(&world);
        assert!((300..=310).contains(&gets) && others == 0, "{gets} GETs, {others} others in epoch {epoch}");
        let waits = world.gauge("waits") - waited;
        assert!(waits <= 100, "{waits} of 300 reads waited in epoch {epoch}");
    }
}

#[test]
fn hinted_files_of_folders_that_nobody_has_listed_cost_three_lists_a_folder() {
    let name = |index: u64| format!("{:03}/{}", index / 4, index % 4);
    let server =
        (0..800).fold(TestS3::builder(), |server, index| server.synthetic(BUCKET, &name(index), KIB));
    let world = World::counting(server, &[]);
    let order: Vec<_> = shuffled(800).into_iter().map(name).collect();
    std::fs::write(world.path(".s3mount/prefetch"), order.join("\n")).expect("hints");
    by_threads(&order, |name| assert_eq!(check_file(&world.path(name), name), KIB));
    let (lists, gets, others) = take(&world);
    assert!((800..=880).contains(&gets) && others == 0, "{gets} GETs, {others} others");
    // A miss lists the page that starts at its name. The third miss lists the whole folder.
    assert!(lists <= 3 * 200 + 20, "{lists} LISTs for 200 folders");
}

#[test]
fn ls_of_a_hundred_thousand_costs_a_list_a_page() {
    let world = World::counting(many(100_000, 7), &[]);
    world.path("many").metadata().expect("a folder");
    take(&world);
    let listed = run("ls", &[PathBuf::from("-U"), world.path("many")]);
    assert_eq!(listed.lines().count(), 100_000);
    let (lists, gets, others) = take(&world);
    assert!((100..=105).contains(&lists) && (gets, others) == (0, 0), "{lists} LISTs");
}

#[test]
fn find_costs_a_list_for_each_folder() {
    let server = (0..400 * 50).fold(TestS3::builder(), |server, index| {
        server.synthetic(BUCKET, &format!("tree/{:03}/{:02}", index / 50, index % 50), 7)
    });
    let world = World::counting(server, &[]);
    world.path("tree").metadata().expect("a folder");
    take(&world);
    let found = run("find", &[world.path("tree"), "-type".into(), "f".into()]);
    assert_eq!(found.lines().count(), 20_000);
    assert_eq!(take(&world), (401, 0, 0), "one for each folder");
}

#[test]
fn find_lists_small_folders_together_with_those_around_them() {
    let server = (0..100 * 4 * 10).fold(TestS3::builder(), |server, index| {
        let (top, below, name) = (index / 40, index / 10 % 4, index % 10);
        server.synthetic(BUCKET, &format!("tree/{top:02}/{below}/{name}"), 7)
    });
    let world = World::counting(server, &[]);
    world.path("tree").metadata().expect("a folder");
    for _ in 0..2 {
        take(&world);
        let found = run("find", &[world.path("tree"), "-type".into(), "f".into()]);
        assert_eq!(found.lines().count(), 4000);
        let (lists, gets, others) = take(&world);
        // One LIST lists one of the hundred folders together with all folders below it. The first two folders
        // take one look-up each.
        assert!((101..=125).contains(&lists) && (gets, others) == (0, 0), "{lists} LISTs for 501 folders");
    }
}

#[test]
fn folders_of_more_than_a_page_are_walked_one_by_one() {
    let server = (0..12 * 1500).fold(TestS3::builder(), |server, index| {
        server.synthetic(BUCKET, &format!("tree/{:02}/{:04}", index / 1500, index % 1500), 7)
    });
    let world = World::counting(server, &[]);
    world.path("tree").metadata().expect("a folder");
    take(&world);
    let found = run("find", &[world.path("tree"), "-type".into(), "f".into()]);
    assert_eq!(found.lines().count(), 18_000);
    let (lists, ..) = take(&world);
    assert!((25..=32).contains(&lists), "{lists} LISTs for 25 pages");
}

#[test]
fn warm_walks_once_and_then_all_is_known() {
    let server = (0..40 * 50).fold(TestS3::builder(), |server, index| {
        server.synthetic(BUCKET, &format!("tree/{:03}/{:02}", index / 50, index % 50), 7 * KIB)
    });
    let world = World::counting(server, &[]);
    let warm = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
        run_command(command.arg("warm").args(args))
    };
    let tree = world.path("tree").display().to_string();
    assert!(warm(&[&tree]).starts_with("2,000 files in 41 folders in "));
    // Its threads take folders out of order. The mount lists none ahead that one of them has read and closed.
    let (lists, gets, others) = take(&world);
    assert!((42..=43).contains(&lists) && (gets, others) == (0, 0), "{lists} LISTs for tree and each folder");
    assert!(
        warm(&[&tree, "--read", "--jobs", "8"]).starts_with("2,000 files in 41 folders, 13.67 MiB read in ")
    );
    let (_, gets, others) = take(&world);
    assert_eq!((gets, others), (2000, 0));
    let mut taken_back = 0;
    for index in 0..50 {
        let key = format!("tree/007/{index:02}");
        // Its two pages are known, unless the machine has taken one back: some take what nobody has used for a while,
        // however much memory is free.
        let path = world.path(&key).display().to_string();
        let pages = run("fincore", &["--noheadings", "--output", "PAGES", path.as_str()]);
        taken_back += u64::from(pages.trim() != "2");
        check_file(&world.path(&key), &key);
    }
    assert_eq!(take(&world), (0, taken_back, 0), "names and pages are known");
    let list = tempfile::NamedTempFile::new().expect("a list");
    std::fs::write(list.path(), format!("{tree}/001/01\n\n{tree}/002/02\n")).expect("a list");
    assert!(warm(&[&list.path().display().to_string()]).starts_with("2 files in 0 folders in "));
}
