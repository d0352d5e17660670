//! A store that answers a limited number of requests a second.

use std::fs;
use std::io::Write;

use s3mount_testkit::{Shape, TestS3};

use crate::world::{BUCKET, KIB, World, check_file};

/// How many files the job reads.
const FILES: usize = 4000;
/// How many files the job reads before the mount has learnt how many requests the store takes.
const FIRST: usize = 1500;

#[test]
fn a_store_that_limits_requests_refuses_few() {
    let server = (0..FILES).fold(TestS3::builder(), |server, index| {
        server.synthetic(BUCKET, &format!("d/{index:04}"), 20 * KIB)
    });
    let world = World::counting(server, &["--small-file-size", "1MiB"]);
    fs::read_dir(world.path("d")).expect("a folder").for_each(drop);
    world.server.shape(Shape { requests_per_second: 500.0, ..Shape::aws() });
    let mut hints = fs::OpenOptions::new().write(true).open(world.path(".s3mount/prefetch")).expect("hints");
    let names: String = (0..FILES).map(|index| format!("d/{index:04}\n")).collect();
    hints.write_all(names.as_bytes()).expect("they are taken");
    for index in 0..FILES {
        if index == FIRST {
            world.server.reset_stats();
        }
        let key = format!("d/{index:04}");
        assert_eq!(check_file(&world.path(&key), &key), 20 * KIB);
    }
    let gets = world.server.stats().get_object;
    assert!(gets.errors * 20 <= gets.requests, "{} of {} refused", gets.errors, gets.requests);
    assert!(gets.requests - gets.errors <= (FILES - FIRST) as u64 + 10, "each is fetched once: {gets:?}");
}
