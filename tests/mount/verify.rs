//! Whole files are compared with the checksums that S3 keeps (`--verify whole`).

use std::fs::{self, File};
use std::io::{self, Read};

use nix::errno::Errno;
use s3mount_object::ChecksumAlgorithm;
use s3mount_testkit::{Builder, Fault, FaultKind, Operation, TestS3, check};

use crate::world::{BUCKET, MIB, World, check_file};

const FILES: u64 = 40;
const SIZE: u64 = 24 * MIB + 4321;

fn key(index: u64) -> String {
    format!("d/{index:03}")
}

fn files(count: u64) -> Builder {
    files_of(count, SIZE)
}

fn files_of(count: u64, size: u64) -> Builder {
    (0..count).fold(TestS3::builder(), |server, index| server.synthetic(BUCKET, &key(index), size))
}

fn flip(share: f64) -> Fault {
    Fault::new(FaultKind::FlipBit).on(Operation::GetObject).share(share)
}

/// Reads a file to its end, or to the first error. Returns whether the bytes were right.
fn read(world: &World, key: &str) -> io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(world.path(key))?.read_to_end(&mut bytes)?;
    assert_eq!(bytes.len() as u64, world.path(key).metadata()?.len());
    Ok(check(key, 0, &bytes).is_ok())
}

#[test]
fn no_file_is_read_whole_with_wrong_bytes() {
    let mut wrong = Vec::new();
    for flags in [["--verify", "free"], ["--verify", "whole"]] {
        let world = World::new(files(FILES), &flags);
        world.server.fault(flip(0.05));
        let results: Vec<_> = (0..FILES).map(|index| read(&world, &key(index))).collect();
        wrong.push(results.iter().filter(|result| matches!(result, Ok(false))).count());
        let failed: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        for error in &failed {
            assert_eq!(error.raw_os_error(), Some(Errno::EIO as i32), "{error}");
        }
        if flags[1] == "free" {
            continue;
        }
        assert!(world.gauge("objects_corrupt") >= failed.len() as u64);
        assert!(!failed.is_empty(), "nothing was found: this test could not fail");
        let said = world.mount.stderr();
        let told = ["wrong bytes came", "d/0", "CRC64NVME", "the store keeps"];
        assert!(told.iter().all(|told| said.contains(told)), "{said}");
        // A file that failed leaves no wrong bytes behind, neither in the daemon nor in the kernel.
        world.server.clear_faults();
        for index in 0..FILES {
            assert!(read(&world, &key(index)).expect("a file"), "{index}");
        }
    }
    assert!(wrong[0] > 0 && wrong[1] == 0, "{wrong:?}");
}

/// The files were uploaded in parts. S3 keeps the CRC of each part, and no CRC of the whole file.
#[test]
fn parts_of_an_upload_are_right_before_they_are_read() {
    const FILES: u64 = 20;
    for (verify, part) in [("free", 8), ("whole", 8), ("whole", 20)] {
        let server = files_of(FILES, 96 * MIB + 4321).uploaded_in_parts(part * MIB, ChecksumAlgorithm::Crc32);
        let world = World::counting(server, &["--verify", verify]);
        world.server.fault(flip(0.04));
        let results: Vec<_> = (0..FILES).map(|index| read(&world, &key(index))).collect();
        let failed = results.iter().filter(|result| result.is_err()).count() as u64;
        let wrong = results.iter().filter(|result| matches!(result, Ok(false))).count();
        assert_eq!(wrong > 0, verify == "free");
        // The beginning of the next file is fetched ahead, and may be found wrong before anybody opens it.
        assert!(world.gauge("objects_corrupt") >= failed);
        let verified = world.gauge("objects_verified");
        assert_eq!(verified, if verify == "free" { 0 } else { FILES - failed });
        // One page lists all parts of a file.
        let asked = world.server.stats().get_object_attributes.requests;
        // The parts of a file that was found wrong are asked for again when the file is opened again.
        assert!(if verify == "free" { asked == 0 } else { asked >= FILES }, "{asked} pages");
        if failed > 0 {
            let said = world.mount.stderr();
            let told = ["wrong bytes came", "d/0", "part ", "CRC32 ", "the store keeps"];
            assert!(told.iter().all(|told| said.contains(told)), "{said}");
        }
        let refetches = world.gauge("refetches");
        println!("{verify}, parts of {part} MiB: {wrong} wrong, {failed} failed, {refetches} refetches");
        world.server.clear_faults();
        let is_fine = |index| read(&world, &key(index)).is_ok_and(|right| right || verify == "free");
        assert!((0..FILES).all(is_fine), "files that failed leave nothing behind");
    }
}

#[test]
fn who_may_not_ask_for_parts_reads_unverified() {
    let server = files(1).uploaded_in_parts(8 * MIB, ChecksumAlgorithm::Crc32c);
    let world = World::new(server, &["--verify", "whole"]);
    let denied = FaultKind::Status(403, "AccessDenied".to_owned());
    world.server.fault(Fault::new(denied).on(Operation::GetObjectAttributes));
    assert_eq!(check_file(&world.path(&key(0)), &key(0)), SIZE);
    assert_eq!((world.gauge("objects_verified"), world.gauge("objects_unverified")), (0, 1));
    assert_eq!(world.server.stats().get_object_attributes.requests, 1);
}

#[test]
fn pages_of_a_wrong_file_go_while_it_is_open() {
    let world = World::new(files(1), &["--verify", "whole"]);
    world.server.fault(flip(1.0).times(1));
    let (path, name) = (world.path(&key(0)), key(0));
    let mut bytes = vec![0; 128 << 10];
    let mut open = File::open(&path).expect("a file");
    // The bytes of the first GET are wrong, and the kernel keeps pages of them.
    open.read_exact(&mut bytes).expect("bytes");
    let error = fs::read(&path).expect_err("the object is wrong");
    assert_eq!(error.raw_os_error(), Some(Errno::EIO as i32));
    assert_eq!(check_file(&path, &name), SIZE, "opened again, it is right");
    assert_eq!(world.gauge("objects_corrupt"), 1);
}

#[test]
fn each_crc_will_do() {
    for algorithm in ChecksumAlgorithm::ALL {
        let world = World::new(files(1).checksum(Some(algorithm)), &["--verify", "whole"]);
        assert_eq!(check_file(&world.path(&key(0)), &key(0)), SIZE);
        assert_eq!(world.gauge("objects_verified"), 1, "{algorithm:?}");
    }
    let world = World::new(files(1).checksum(None), &["--verify", "whole"]);
    assert_eq!(check_file(&world.path(&key(0)), &key(0)), SIZE);
    assert_eq!((world.gauge("objects_verified"), world.gauge("objects_unverified")), (0, 1));
}

/// The kernel has dropped a part of a file's pages, and the daemon has forgotten the file's reader.
#[test]
fn a_file_that_is_opened_again_is_compared_with_what_it_was() {
    const OTHERS: u64 = 300;
    let server =
        (0..OTHERS).fold(files(1), |server, index| server.synthetic(BUCKET, &format!("o/{index}"), MIB));
    let world = World::counting(server, &["--verify", "whole", "--memory-limit", "128MiB"]);
    let (path, name) = (world.path(&key(0)), key(0));
    assert_eq!(check_file(&path, &name), SIZE);
    // The daemon remembers the readers of 256 files that were closed.
    for index in 0..OTHERS {
        world.read(&format!("o/{index}"));
    }
    let file = File::open(&path).expect("a file");
    nix::fcntl::posix_fadvise(&file, 8 << 20, 8 << 20, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .expect("pages are dropped");
    drop(file);
    world.server.fault(flip(1.0).times(1));
    match read(&world, &name) {
        Ok(is_right) => assert!(is_right),
        Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::EIO as i32)),
    }
    assert!(world.gauge("refetches") + world.gauge("objects_corrupt") > 0, "no wrong bytes came");
}
