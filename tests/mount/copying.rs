//! Copies inside a mount are copies inside the store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use s3mount_testkit::{Stats, TestS3, content};

use crate::world::{BUCKET, MIB, World, check_file, run, run_command, wait_for};

/// Long enough for several parts.
const LARGE: u64 = 600 * MIB;

const FLAGS: [&str; 2] = ["--allow=delete", "--allow=overwrite"];

fn world() -> World {
    let server = TestS3::builder().opaque_etags().synthetic(BUCKET, "large", LARGE);
    World::counting(server.synthetic(BUCKET, "small", 1000).synthetic(BUCKET, "d/middle", 20 * MIB), &FLAGS)
}

/// What was asked of the store since the last call.
fn take(world: &World) -> Stats {
    let stats = world.server.stats();
    world.server.reset_stats();
    stats
}

/// Asserts that no byte of a file went through the machine.
fn check_unmoved(stats: &Stats, what: &str) {
    let moved = [stats.get_object.bytes, stats.put_object.received, stats.upload_part.received];
    assert_eq!(moved, [0; 3], "{what}: {stats:?}");
}

/// Copies as Python's `shutil.copyfile` does from 3.14 on.
const COPYFILE: &str = "import os, sys\n\
    with open(sys.argv[1], 'rb') as a, open(sys.argv[2], 'wb') as b:\n\
    \x20   size, at = os.fstat(a.fileno()).st_size, 0\n\
    \x20   while sent := os.copy_file_range(a.fileno(), b.fileno(), max(size, 2**23), offset_dst=at): at += sent\n";

#[test]
fn cp_moves_no_byte_through_the_machine() {
    let world = world();
    run("ls", &[world.path(""), world.path("d")]);
    take(&world);
    let (large, small, middle) = (world.path("large"), world.path("small"), world.path("d/middle"));
    let copy = |program: &mut Command, from: &Path, to: &str| {
        run_command(program.arg(from).arg(world.path(to)));
        let stats = take(&world);
        check_unmoved(&stats, to);
        stats
    };
    // A small file is fetched when it is opened for the first time, whoever opens it.
    check_file(&small, "small");
    take(&world);
    let stats = copy(&mut Command::new("cp"), &small, "small2");
    assert_eq!((stats.copy_object.requests, stats.upload_part_copy.requests), (1, 0));
    let stats = copy(Command::new("cp").arg("--reflink=auto"), &middle, "d/middle2");
    assert_eq!((stats.copy_object.requests, stats.upload_part_copy.requests), (1, 0));
    let stats = copy(&mut Command::new("cp"), &large, "large2");
    assert_eq!((stats.copy_object.requests, stats.upload_part_copy.requests), (0, 3));
    copy(Command::new("python3").args(["-c", COPYFILE]), &middle, "middle3");
    // A copy of a copy, and one in the place of another file.
    copy(&mut Command::new("cp"), &world.path("middle3"), "small2");
    copy(Command::new("cp").arg("-r"), &world.path("d"), "e");
    for (name, key, len) in [
        ("small2", "d/middle", 20 * MIB),
        ("d/middle2", "d/middle", 20 * MIB),
        ("middle3", "d/middle", 20 * MIB),
        ("e/middle", "d/middle", 20 * MIB),
        ("large2", "large", LARGE),
    ] {
        assert_eq!(check_file(&world.path(name), key), len, "{name}");
    }
    assert!(world.server.open_uploads(BUCKET).is_empty());
}

/// Copies between files by `copy_file_range`, as far as the kernel lets it.
fn copy_range(mut from: &File, at: u64, mut to: &File, offset: u64, len: u64) -> u64 {
    from.seek(SeekFrom::Start(at)).and_then(|_| to.seek(SeekFrom::Start(offset))).expect("places");
    io::copy(&mut from.take(len), &mut to).expect("a copy")
}

#[test]
fn ranges_are_copied_and_read_before_the_file_is_closed() {
    let world = world();
    let middle = world.open("d/middle");
    let path = world.path("ranges");
    let mut file = File::create(&path).expect("a file");
    let head = content("head", 0, 3 << 20);
    file.write_all(&head).expect("a write");
    take(&world);
    let copied = copy_range(&middle, 5, &file, 3 * MIB, 15 * MIB);
    assert_eq!((copied, take(&world).requests()), (15 * MIB, 0), "it is only noted");
    let mut expected = [head, content("d/middle", 5, 15 << 20)].concat();
    assert!(fs::read(&path).expect("a reader") == expected);
    // A short range is read and written by the kernel.
    assert_eq!(copy_range(&middle, 0, &file, 7, 10), 10);
    expected[7..17].copy_from_slice(&content("d/middle", 0, 10));
    file.write_all_at(b"END", 17 * MIB).expect("a write");
    expected[17 << 20..][..3].copy_from_slice(b"END");
    // From a file that is being written, and to it.
    let reader = File::open(&path).expect("a file");
    let other = File::create(world.path("other")).expect("a file");
    assert_eq!(copy_range(&reader, 0, &other, 0, 18 * MIB), 18 * MIB);
    drop(file);
    drop(other);
    for name in ["ranges", "other"] {
        assert!(world.read(name) == expected, "{name}");
    }
    wait_for("no upload is left", || world.server.open_uploads(BUCKET).is_empty());
}

#[test]
fn a_source_that_is_replaced_before_the_copy_is_closed_is_told() {
    let world = world();
    for (name, copy, is_deleted) in [("small", "a", false), ("d/middle", "b", false), ("large", "c", true)] {
        let from = OpenOptions::new().read(true).open(world.path(name)).expect("a file");
        let to = File::create(world.path(copy)).expect("a file");
        let len = from.metadata().expect("attributes").len();
        assert_eq!(copy_range(&from, 0, &to, 0, len), len);
        match is_deleted {
            true => world.server.delete(BUCKET, name),
            false => world.server.put(BUCKET, name, "others"),
        }
        let closed = nix::unistd::close(to).map_err(io::Error::from);
        assert_eq!(closed.map_err(|error| error.raw_os_error()), Err(Some(libc::ESTALE)), "{name}");
        wait_for("it is given up", || !world.path(copy).exists());
    }
    let keys = world.server.keys(BUCKET);
    assert_eq!(keys, ["d/middle", "small"]);
    wait_for("no upload is left", || world.server.open_uploads(BUCKET).is_empty());
}
