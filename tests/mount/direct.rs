//! `--direct-io auto`. If the page cache cannot hold a data set, its large files go around the page cache
//! while their readers ask for large pieces. They come back to it when their readers ask for small pieces.

use std::process::{Command, Stdio};

use s3mount_testkit::{Builder, TestS3};

use crate::cgroup::Group;
use crate::maps::check_windows;
use crate::world::{BUCKET, KIB, MIB, World, check_file, check_stream};

const SIZE: u64 = 32 * MIB;

fn name(index: u64) -> String {
    format!("d/{index:02}.npz")
}

fn files(count: u64) -> Builder {
    (0..count).fold(TestS3::builder(), |server, index| server.synthetic(BUCKET, &name(index), SIZE))
}

/// A mount of a folder with `count` files, and one more file that no page cache could hold.
fn world(count: u64) -> World {
    // The name of this file comes first, so that the mount does not expect a reader to open it after the
    // others.
    let server = files(count).synthetic(BUCKET, "d/-.npz", 1 << 50);
    let world = World::counting(server, &["--memory-limit", "256MiB", "--direct-io", "auto"]);
    // The mount knows the size of a data set from its listings, so the folder is listed before it is read.
    assert_eq!(world.path("d").read_dir().expect("a folder").count() as u64, count + 1);
    world
}

/// Reads a file to its end, in pieces of `piece` bytes, and compares it with the object.
fn read(world: &World, index: u64, piece: u64) {
    let file = world.open(&name(index));
    assert_eq!(check_stream(file, &name(index), 0, piece as usize), SIZE);
}

/// Checks that the output of `command` is the content of the file.
fn check_output(mut command: Command, index: u64) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("a program");
    let stdout = child.stdout.take().expect("a pipe");
    assert_eq!(check_stream(stdout, &name(index), 0, MIB as usize), SIZE);
    assert!(child.wait().expect("its end").success());
}

#[test]
fn large_pieces_go_around_the_page_cache_until_files_are_read_again() {
    let world = world(6);
    (0..6).for_each(|index| read(&world, index, MIB));
    assert_eq!((world.gauge("direct_opens"), world.gauge("direct_kinds")), (6, 1));
    let fetched = world.fetched();
    assert!(fetched as f64 <= 1.05 * (6 * SIZE) as f64, "{fetched} bytes fetched");
    // The page cache could have kept these files, and now they are read again.
    (0..6).for_each(|index| read(&world, index, MIB));
    assert_eq!((world.gauge("direct_opens"), world.gauge("direct_kinds")), (6, 0));
    assert_eq!(world.gauge("direct_given_up_again"), 1);
    // Where memory is short the kernel may have dropped a page.
    let read_again = || {
        world.server.reset_stats();
        (0..6).for_each(|index| read(&world, index, MIB));
        world.fetched()
    };
    assert!((0..3).any(|_| read_again() == 0));
}

#[test]
fn pieces_as_np_load_has_them_are_large() {
    let world = world(4);
    let script = "import sys
with open(sys.argv[1], 'rb', buffering=0) as file:
    pieces = [4096] * 5
    while data := file.read(pieces.pop() if pieces else 252 << 10):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.write(file.read(4096))";
    for index in 0..4 {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", script]).arg(world.path(&name(index)));
        check_output(python, index);
    }
    assert_eq!((world.gauge("direct_opens"), world.gauge("direct_kinds")), (4, 1));
}

#[test]
fn small_pieces_come_back_to_the_page_cache() {
    let world = world(12);
    (0..12).for_each(|index| read(&world, index, 16 * KIB));
    assert_eq!((world.gauge("direct_opens"), world.gauge("direct_given_up_small_pieces")), (1, 1));
    // The first file is the probe, and has a READ for each piece. The other files have a READ for each MiB.
    let reads = world.gauge("reads");
    assert!(reads <= SIZE / (16 * KIB) + 11 * (SIZE / MIB + 16), "{reads} READs");
}

#[test]
fn maps_come_back_to_the_page_cache() {
    let world = world(4);
    let script = "import mmap, sys
with open(sys.argv[1], 'rb') as file:
    sys.stdout.buffer.write(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))";
    for index in 0..4 {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", script]).arg(world.path(&name(index)));
        check_output(python, index);
    }
    assert_eq!((world.gauge("direct_opens"), world.gauge("direct_given_up_mapped")), (1, 1));
    let fetched = world.fetched();
    assert!(fetched as f64 <= 1.05 * (4 * SIZE) as f64, "{fetched} bytes fetched");
}

#[test]
fn a_file_that_is_open_both_ways_is_one_file() {
    let world = world(2);
    // This handle goes around the page cache. Others read the file in many ways while it is open.
    let open = world.open(&name(0));
    let (pieces, _) = check_windows(&world, "mixed", &name(0), 100, 8 * KIB);
    assert_eq!(pieces, 4 * (100 + 25 + 12 + 25 + 25 + 25));
    assert_eq!(check_stream(open, &name(0), 0, MIB as usize), SIZE);
    assert_eq!(world.gauge("direct_opens"), 1);
}

#[test]
fn a_file_that_is_mapped_by_the_one_who_has_it_open_directly_is_one_file() {
    let world = world(1);
    let (pieces, _) = check_windows(&world, "mixed", &name(0), 100, 8 * KIB);
    assert_eq!(pieces, 4 * (100 + 25 + 12 + 25 + 25 + 25));
    assert_eq!(world.gauge("direct_opens"), 1);
}

#[test]
fn what_the_page_cache_may_hold_stays_there() {
    let world = World::counting(files(4), &["--direct-io", "auto"]);
    (0..4).for_each(|index| assert_eq!(check_file(&world.path(&name(index)), &name(index)), SIZE));
    assert_eq!(world.gauge("direct_opens"), 0);
}

#[test]
fn a_control_group_bounds_the_page_cache_of_its_readers() {
    // The group is made before the mount, so that it is dropped after the mount. It needs root, and a machine
    // that allows control groups.
    let Some(group) = Group::new(96 * MIB) else { return };
    let world = World::counting(files(8), &["--direct-io", "auto"]);
    let read = |mut command: Command, index| {
        command.arg(format!("if={}", world.path(&name(index)).display())).args(["bs=1M", "status=none"]);
        check_output(command, index);
    };
    (0..4).for_each(|index| read(Command::new("dd"), index));
    assert_eq!(world.gauge("direct_opens"), 0, "the machine's page cache holds them all");
    (4..8).for_each(|index| read(group.command("dd"), index));
    assert_eq!(world.gauge("direct_opens"), 4);
}
