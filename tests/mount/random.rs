//! Random reads through maps, by pread, and after seeks.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::process::Command;

use s3mount_testkit::{Fault, FaultKind, Operation, TestS3, check, mix};

use crate::world::{BUCKET, GIB, KIB, MIB, World, check_pieces};

/// Makes Python read `name`, and compares each piece that it prints with the object. Returns the number of
/// pieces and their bytes.
fn check_reads(world: &World, how: &str, name: &str) -> (u64, u64) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/random_reads.py");
    let mut python = Command::new("/usr/bin/python3");
    check_pieces(python.args([script, how]).arg(world.path(name)), name)
}

#[test]
fn a_gib_is_read_through_a_map_within_the_memory_limit() {
    let world =
        World::new(TestS3::builder().synthetic(BUCKET, "map.bin", GIB), &["--memory-limit", "256MiB"]);
    assert_eq!(check_reads(&world, "mmap", "map.bin"), (1024, GIB));
    world.check_memory(256 * MIB);
}

#[test]
fn a_gib_is_read_through_a_numpy_memmap_within_the_memory_limit() {
    let world =
        World::new(TestS3::builder().synthetic(BUCKET, "map.bin", GIB), &["--memory-limit", "256MiB"]);
    assert_eq!(check_reads(&world, "numpy", "map.bin"), (1024, GIB));
    world.check_memory(256 * MIB);
}

#[test]
fn pread_has_the_right_bytes_anywhere() {
    let world =
        World::new(TestS3::builder().synthetic(BUCKET, "rec.bin", GIB), &["--memory-limit", "256MiB"]);
    let (count, _) = check_reads(&world, "pread", "rec.bin");
    assert_eq!(count, 2000);
    world.check_memory(256 * MIB);
}

#[test]
fn a_small_random_read_fetches_no_more_than_its_unit() {
    let server = TestS3::builder().synthetic(BUCKET, "rec.bin", 64 * GIB);
    let world = World::counting(server, &["--random-read-size", "128KiB"]);
    let file = world.open("rec.bin");
    let mut buffer = vec![0; 4 * KIB as usize];
    // The offsets are far from each other and from any stream, and never equally far apart.
    for index in 1..=100u64 {
        let offset = mix(index) % 65_000 * MIB + index * 4 * KIB;
        file.read_exact_at(&mut buffer, offset).expect("a read");
        check("rec.bin", offset, &buffer).expect("the object's bytes");
    }
    let stats = world.server.stats().get_object;
    assert!(stats.requests <= 100, "{} GETs for 100 reads", stats.requests);
    assert!(stats.bytes <= 100 * 128 * KIB, "{} bytes fetched", stats.bytes);
}

/// How many bytes a single read(2) brings.
fn read_once(file: &File, key: &str, offset: u64, bytes: u64) -> std::io::Result<u64> {
    let mut buffer = vec![0; bytes as usize];
    let read = file.read_at(&mut buffer, offset)?;
    check(key, offset, &buffer[..read]).expect("the object's bytes");
    Ok(read as u64)
}

#[test]
fn a_read_inside_of_the_file_returns_all_that_was_asked_for() {
    for flags in [&[][..], &["--direct-io", "*"]] {
        let world = World::new(TestS3::builder().synthetic(BUCKET, "f", 64 * MIB), flags);
        let file = File::open(world.path("f")).expect("the file f");
        for (offset, bytes) in
            [(0, 10), (5, 16 * MIB), (7 * MIB - 3, 9), (31 * MIB + 1, 20 * MIB), (MIB, 63 * MIB)]
        {
            assert_eq!(read_once(&file, "f", offset, bytes).expect("a read"), bytes, "{flags:?}, {offset}");
        }
        assert_eq!(read_once(&file, "f", 60 * MIB, 8 * MIB).expect("a read"), 4 * MIB, "the end of the file");
    }
}

#[test]
fn a_read_ends_before_bytes_that_cannot_be_read_and_the_next_read_fails() {
    let world =
        World::new(TestS3::builder().synthetic(BUCKET, "f", 256 * MIB), &["--prefetch-window", "1MiB"]);
    let file = File::open(world.path("f")).expect("the file f");
    assert_eq!(read_once(&file, "f", 0, MIB).expect("a read"), MIB);
    let denied = FaultKind::Status(403, "AccessDenied".to_owned());
    world.server.fault(Fault::new(denied).on(Operation::GetObject));
    let read = read_once(&file, "f", 0, 128 * MIB).expect("the pages that are there");
    assert!((MIB..128 * MIB).contains(&read), "{read} bytes");
    let error = read_once(&file, "f", read, 128 * MIB).expect_err("the store refuses them");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn reads_at_the_end_and_beyond_return_what_is_there() {
    let world =
        World::new(TestS3::builder().synthetic(BUCKET, "odd.bin", MIB + 3).object(BUCKET, "empty", ""), &[]);
    let mut file = world.open("odd.bin");
    let mut bytes = Vec::new();
    file.seek(SeekFrom::End(-5)).expect("a seek");
    file.read_to_end(&mut bytes).expect("the end");
    check("odd.bin", MIB - 2, &bytes).expect("the object's bytes");
    assert_eq!(bytes.len(), 5);
    assert_eq!(file.read_at(&mut [0; 10], MIB + 3).expect("nothing"), 0);
    assert_eq!(file.read_at(&mut [0; 10], 5 * MIB).expect("nothing"), 0);
    assert_eq!(std::fs::read(world.path("empty")).expect("an empty file"), b"");
}
