//! Many writers and readers at once, in little memory.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use s3mount_testkit::{TestS3, check, content};

use crate::world::{BUCKET, GIB, MIB, World};

const WRITERS: usize = 64;
const READERS: usize = 16;

/// How much each writer writes, in bytes.
const EACH: u64 = 24 * MIB;

#[test]
fn sixty_four_writers_and_sixteen_readers_fit_the_memory_limit() {
    let builder = (0..READERS).fold(TestS3::builder().opaque_etags(), |builder, reader| {
        builder.synthetic(BUCKET, &format!("read/{reader}"), GIB)
    });
    let world = World::new(builder, &["--allow=write", "--memory-limit", "512MiB"]);
    fs::create_dir(world.path("write")).expect("a folder");
    let (is_over, piece) = (AtomicBool::new(false), content("piece", 0, MIB as usize));
    let read: Vec<AtomicU64> = (0..READERS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for (reader, read) in read.iter().enumerate() {
            let (world, is_over) = (&world, &is_over);
            scope.spawn(move || {
                let key = format!("read/{reader}");
                let mut file = world.open(&key);
                let (mut buffer, mut at) = (vec![0; 256 << 10], 0);
                while !is_over.load(Ordering::Relaxed) && at < GIB {
                    file.read_exact(&mut buffer).expect("a read");
                    check(&key, at, &buffer).expect("right bytes");
                    at += buffer.len() as u64;
                    read.store(at, Ordering::Relaxed);
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (world, piece) = (&world, &piece);
                scope.spawn(move || {
                    let mut file = File::create(world.path(&format!("write/{writer}"))).expect("a file");
                    for number in 0..EACH / MIB {
                        file.write_all(&[writer as u8, number as u8]).expect("a write");
                        file.write_all(&piece[2..]).expect("a write");
                    }
                    nix::unistd::close(file).expect("a close");
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        is_over.store(true, Ordering::Relaxed);
    });
    world.check_memory(512 * MIB);
    for writer in 0..WRITERS {
        let stored = world.server.stored(BUCKET, &format!("write/{writer}")).expect("an object").bytes();
        assert_eq!(stored.len() as u64, EACH);
        for (number, found) in stored.chunks(MIB as usize).enumerate() {
            assert!(
                found[..2] == [writer as u8, number as u8] && found[2..] == piece[2..],
                "{writer}: {number}"
            );
        }
    }
    let read: Vec<u64> = read.into_iter().map(|read| read.into_inner() / MIB).collect();
    assert!(read.iter().all(|read| *read >= 8), "each reader goes on: {read:?} MiB");
    assert_eq!(world.server.open_uploads(BUCKET), []);
}

/// Memory has room for three parts that are promised whole, and for a piece of sixteen files beside them.
#[test]
fn forty_eight_writers_take_turns_in_little_memory() {
    let spool = tempfile::tempdir().expect("a folder");
    let spooled = ["--write-spool", spool.path().to_str().expect("UTF-8")];
    for spool in [&[][..], &spooled] {
        let flags = ["--allow=write", "--memory-limit", "64MiB", "--write-part-size", "5MiB"];
        let world = World::new(TestS3::builder().opaque_etags(), &[&flags, spool].concat());
        let piece = content("piece", 0, MIB as usize);
        thread::scope(|scope| {
            for writer in 0..48 {
                let (world, piece) = (&world, &piece);
                scope.spawn(move || {
                    let mut file = File::create(world.path(&format!("{writer}"))).expect("a file");
                    for number in 0..12 {
                        file.write_all(&[writer, number]).expect("a write");
                        file.write_all(&piece[2..]).expect("a write");
                    }
                    nix::unistd::close(file).expect("a close");
                });
            }
        });
        for writer in 0..48 {
            let stored = world.server.stored(BUCKET, &format!("{writer}")).expect("an object").bytes();
            assert_eq!(stored.len() as u64, 12 * MIB);
            for (number, found) in stored.chunks(MIB as usize).enumerate() {
                assert!(
                    found[..2] == [writer, number as u8] && found[2..] == piece[2..],
                    "{writer}: {number}"
                );
            }
        }
        assert_eq!(world.server.open_uploads(BUCKET), []);
        // Each writer may have one write that waits. An eighth of the limit is there for that, the rest comes on top.
        world.check_memory((64 + 48 - 8) * MIB);
    }
}
