//! Many programs read, or list, at the same time.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::{self, ScopedJoinHandle};

use s3mount_testkit::{Fault, FaultKind, TestS3, check};
use tempfile::TempDir;

use crate::world::{BUCKET, GIB, KIB, MIB, World, check_file, run, wait_for};

/// Reads 4 KiB of the object `key` at its own place in the file for each of `count` readers.
fn read_at_random<'a>(
    scope: &'a thread::Scope<'a, '_>,
    file: &'a File,
    key: &'a str,
    count: u64,
) -> Vec<ScopedJoinHandle<'a, ()>> {
    let read = |reader: u64| {
        let (mut bytes, offset) = ([0; 4 * KIB as usize], reader * 2 * MIB + 12 * KIB);
        file.read_exact_at(&mut bytes, offset).expect("a read");
        check(key, offset, &bytes).expect("the object's bytes");
    };
    let start = |reader| {
        thread::Builder::new()
            .stack_size(128 << 10)
            .spawn_scoped(scope, move || read(reader))
            .expect("a thread")
    };
    (0..count).map(start).collect()
}

/// The kernel passes on no more READs than it was told, and keeps the others to itself.
#[test]
fn the_store_gets_the_requests_of_all_readers() {
    const READERS: u64 = 400;
    let world = World::counting(TestS3::builder().synthetic(BUCKET, "f", GIB), &[]);
    let file = world.open("f");
    world.server.freeze(true);
    thread::scope(|scope| {
        let readers = read_at_random(scope, &file, "f", READERS);
        wait_for("all wait for the store", || world.server.stats().most_concurrent_gets >= READERS);
        world.server.freeze(false);
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    });
}

#[test]
fn a_file_in_memory_is_read_beside_readers_who_wait() {
    let server = TestS3::builder().synthetic(BUCKET, "slow", GIB).synthetic(BUCKET, "told", 100 * KIB);
    let world = World::counting(server, &[]);
    let file = world.open("slow");
    world.server.fault(Fault { key_contains: "slow".to_owned(), ..Fault::new(FaultKind::Freeze) });
    let mut hints = OpenOptions::new().write(true).open(world.path(".s3mount/prefetch")).expect("the hints");
    hints.write_all(b"told\n").expect("a hint");
    wait_for("it is there", || world.server.stats().get_object.bytes >= 100 * KIB);
    thread::scope(|scope| {
        let readers = read_at_random(scope, &file, "slow", 200);
        wait_for("they wait", || world.server.stats().most_concurrent_gets >= 200);
        assert_eq!(check_file(&world.path("told"), "told"), 100 * KIB);
        assert!(readers.iter().all(|reader| !reader.is_finished()));
        world.server.clear_faults();
        world.server.freeze(false);
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    });
}

/// Threads, event loops and their buffers are a part of the memory limit, where they are many.
#[test]
fn many_threads_keep_to_the_memory_limit() {
    const STREAMS: usize = 64;
    let name = |stream: usize| format!("s{stream:02}");
    for threads in ["16", "64"] {
        let server = (0..STREAMS)
            .fold(TestS3::builder(), |server, stream| server.synthetic(BUCKET, &name(stream), 16 * MIB));
        let world = World::new(server, &["--memory-limit", "512MiB", "--max-threads", threads]);
        thread::scope(|scope| {
            for stream in 0..STREAMS {
                let (path, name) = (world.path(&name(stream)), name(stream));
                scope.spawn(move || assert_eq!(check_file(&path, &name), 16 * MIB));
            }
        });
        world.check_memory(512 * MIB);
    }
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).expect("a process").count()
}

/// How many listings the cache keeps.
fn kept(cache: &Path) -> usize {
    let names = cache.join("names");
    run("find", &[names.as_os_str(), "-type".as_ref(), "f".as_ref(), "-size".as_ref(), "+0".as_ref()])
        .lines()
        .count()
}

/// The listings that are kept on the disk are written as they are read.
#[test]
fn folders_that_are_read_in_part_hold_no_threads() {
    const FOLDERS: usize = 40;
    let folder = TempDir::new().expect("a folder");
    let cache = folder.path().join("cache");
    let name = |folder: usize, index: usize| format!("d{folder:02}/file-of-a-data-set-{index:05}.bin");
    let names = (0..FOLDERS).flat_map(|folder| (0..3000).map(move |index| (folder, index)));
    let server = names.fold(TestS3::builder(), |server, (folder, index)| {
        server.synthetic(BUCKET, &name(folder, index), 10)
    });
    let world = World::new(server, &["--cache", &cache.display().to_string()]);
    let before = threads(world.mount.pid());
    let mut open: Vec<_> = (0..FOLDERS)
        .map(|folder| {
            let mut listing = fs::read_dir(world.path(&format!("d{folder:02}"))).expect("a folder");
            listing.next().expect("a name").expect("a name");
            listing
        })
        .collect();
    let held = threads(world.mount.pid());
    assert!(held < before + FOLDERS / 2, "{held} threads, and {before} before");
    for listing in &mut open {
        assert_eq!(listing.count(), 2999);
    }
    wait_for("all are kept", || kept(&cache) == FOLDERS);
}
