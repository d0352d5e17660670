//! Programs read windows of a map at random. The daemon refuses the kernel's read-arounds, and lowers the
//! readahead of files that are opened again. No program ever sees a refusal.

use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use s3mount_testkit::{TestS3, check, mix};
use tempfile::TempDir;

use crate::world::{BUCKET, GIB, KIB, MIB, World, check_file, check_pieces, run};

/// Makes four Python processes read windows of `name`, and compares each window with the object. Returns the
/// number of windows and their bytes.
pub(crate) fn check_windows(world: &World, how: &str, name: &str, count: u64, bytes: u64) -> (u64, u64) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/map_windows.py");
    let folder = TempDir::new().expect("a folder");
    let mut python = Command::new("/usr/bin/python3");
    let python = python.args([script, how]).arg(world.path(name));
    let python = python.args([count.to_string(), bytes.to_string()]).arg(folder.path());
    check_pieces(python, name)
}

fn world() -> World {
    world_with(&[])
}

fn world_with(flags: &[&str]) -> World {
    let server = TestS3::builder().synthetic(BUCKET, "d/tokens.bin", 64 * GIB);
    let world = World::counting(server, &[&["--memory-limit", "256MiB"], flags].concat());
    world.path("d/tokens.bin").metadata().expect("a file");
    world.server.reset_stats();
    world
}

#[test]
fn windows_of_a_kept_map_fetch_little_more_than_their_units() {
    let world = world();
    assert_eq!(check_windows(&world, "kept", "d/tokens.bin", 250, 8 * KIB), (1000, 8000 * KIB));
    let gets = world.server.stats().get_object;
    // A block of 128 KiB is 16 times as long as a window. The kernel reads around the first windows of a
    // file.
    assert!(gets.bytes <= 24 * 8000 * KIB, "{} bytes fetched per byte", gets.bytes / (8000 * KIB));
    // Each window takes one GET. One window in sixteen reaches across the edge of a block, and takes one GET,
    // too.
    assert!(gets.requests <= 1035, "{} GETs for 1000 windows", gets.requests);
    assert_eq!(world.gauge("random_map_files"), 1);
    assert!(world.gauge("refused_readaheads") >= 900);
    world.check_memory(256 * MIB);
}

#[test]
fn a_map_of_a_file_that_goes_around_the_page_cache_is_no_different() {
    let world = world_with(&["--direct-io", "*.bin"]);
    assert_eq!(check_windows(&world, "kept", "d/tokens.bin", 250, 8 * KIB), (1000, 8000 * KIB));
    let gets = world.server.stats().get_object;
    assert!(gets.bytes <= 24 * 8000 * KIB, "{} bytes fetched per byte", gets.bytes / (8000 * KIB));
    assert!(world.gauge("refused_readaheads") >= 900);
}

#[test]
fn windows_of_a_map_for_each_fetch_little_more_than_their_units() {
    let world = world();
    assert_eq!(check_windows(&world, "reopened", "d/tokens.bin", 250, 8 * KIB), (1000, 8000 * KIB));
    let gets = world.server.stats().get_object;
    assert!(gets.bytes <= 30 * 8000 * KIB, "{} bytes fetched per byte", gets.bytes / (8000 * KIB));
    assert!(gets.requests <= 1100, "{} GETs for 1000 windows", gets.requests);
    // For other files, the kernel's readahead is again what it was before.
    let listed = run("findmnt", &["-nro", "MAJ:MIN", &world.mount.path().display().to_string()]);
    let readahead = format!("/sys/class/bdi/{}/read_ahead_kb", listed.trim());
    crate::world::wait_for("the readahead is raised again", || {
        std::fs::read_to_string(&readahead).expect("its size").trim() == "1024"
    });
    // Files opened with a small readahead have few of their READs refused.
    let refused = world.gauge("refused_readaheads");
    assert!(refused <= 100, "{refused} READs refused");
}

#[test]
fn readers_of_all_kinds_beside_a_random_map_see_no_refusal() {
    let world = world();
    // These windows make the daemon refuse read-arounds from the beginning.
    check_windows(&world, "kept", "d/tokens.bin", 10, 8 * KIB);
    let (pieces, _) = check_windows(&world, "mixed", "d/tokens.bin", 200, 8 * KIB);
    assert_eq!(pieces, 4 * (200 + 50 + 25 + 50 + 50 + 50));
    assert!(world.gauge("refused_readaheads") > 10);
}

/// The kernel maps the pages of a program. Here the program is a file of a kind whose maps are read at
/// random.
#[test]
fn a_program_of_a_random_kind_runs() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_s3mount")).expect("a program");
    let server = TestS3::builder().object(BUCKET, "d/program", program);
    let server =
        ["d/first", "d/second"].into_iter().fold(server, |server, key| server.synthetic(BUCKET, key, GIB));
    let world = World::new(server.synthetic(BUCKET, "e/other", MIB), &["--file-mode", "0555"]);
    for name in ["d/first", "d/second"] {
        check_windows(&world, "kept", name, 10, 8 * KIB);
    }
    assert_eq!(world.gauge("random_map_files"), 2);
    // The help text has the program's name, so the local one needs the same name. A copy could not be run while
    // another test starts a program, which holds what is being written for a moment.
    let folder = TempDir::new().expect("a folder");
    let local = folder.path().join("program");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_s3mount"), &local).expect("a link");
    let help = run(local.to_str().expect("a path"), &["--help"]);
    let refused = world.gauge("refused_readaheads");
    // How many read-arounds meet the ordinary readahead depends on how fast the program is.
    for round in 0.. {
        let said = std::thread::scope(|scope| {
            // While a file of another kind is opened, the program has the ordinary readahead, and read-arounds
            // of its pages are refused.
            scope.spawn(|| {
                for _ in 0..300 {
                    world.open("e/other");
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            run(world.path("d/program").to_str().expect("a path"), &["--help"])
        });
        assert!(said == help, "round {round}");
        let file = world.open("d/program");
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("advice");
        if round >= 5 && world.gauge("refused_readaheads") > refused {
            break;
        }
        assert!(round < 100, "no read-around was refused");
    }
}

#[test]
fn a_file_that_was_read_at_random_is_read_in_order() {
    let server = TestS3::builder().synthetic(BUCKET, "d/tokens.bin", 256 * MIB);
    let world = World::counting(server, &["--memory-limit", "256MiB"]);
    check_windows(&world, "kept", "d/tokens.bin", 100, 8 * KIB);
    assert!(world.gauge("refused_readaheads") >= 100);
    let reads = world.gauge("reads");
    assert_eq!(check_file(&world.path("d/tokens.bin"), "d/tokens.bin"), 256 * MIB);
    // The file has pages that were refused before. If the kernel read it page by page, it would take 65,536
    // READs.
    let reads = world.gauge("reads") - reads;
    assert!(reads <= 8000, "{reads} reads");
}

#[test]
fn preads_of_a_mib_anywhere_are_probed_once() {
    let world = world();
    let file = world.open("d/tokens.bin");
    let mut buffer = vec![0; MIB as usize];
    for index in 1..=60u64 {
        let offset = mix(index) % 36_000 * MIB + index * 4 * KIB;
        file.read_exact_at(&mut buffer, offset).expect("a read");
        check("d/tokens.bin", offset, &buffer).expect("the object's bytes");
    }
    assert_eq!((world.gauge("random_map_files"), world.gauge("refused_readaheads")), (0, 1));
    let gets = world.server.stats().get_object;
    assert!(gets.bytes <= 60 * (MIB + 256 * KIB) + 2 * MIB, "{} MiB fetched", gets.bytes / MIB);
    assert!(world.gauge("reads") <= 60 + 257, "one read by the page, at most");
}

#[test]
fn what_is_read_in_order_through_a_map_is_not_refused() {
    let server = TestS3::builder().synthetic(BUCKET, "d/model.bin", 512 * MIB);
    let world = World::new(server, &["--memory-limit", "256MiB"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/random_reads.py");
    // The script reads pieces of 1 MiB in any order, as the tensors of a checkpoint are read.
    let copied = Command::new("/usr/bin/python3")
        .args([script, "mmap"])
        .arg(world.path("d/model.bin"))
        .stdout(Stdio::null())
        .status();
    assert!(copied.expect("python").success());
    run("cmp", &[world.path("d/model.bin"), world.path("d/model.bin")]);
    assert_eq!((world.gauge("random_map_files"), world.gauge("refused_readaheads")), (0, 0));
}

#[test]
fn a_small_readahead_is_kept() {
    let server = TestS3::builder().synthetic(BUCKET, "d/tokens.bin", 64 * GIB);
    let world = World::counting(server, &["--read-ahead", "128KiB"]);
    check_windows(&world, "kept", "d/tokens.bin", 50, 8 * KIB);
    check_windows(&world, "reopened", "d/tokens.bin", 50, 8 * KIB);
    assert_eq!(world.gauge("refused_readaheads"), 0);
    assert!(world.fetched() <= 34 * 400 * 8 * KIB);
}
