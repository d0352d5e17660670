//! What a system call costs in requests.

use std::os::unix::fs::MetadataExt;

use s3mount_testkit::TestS3;

use crate::world::{BUCKET, KIB, World, check_file, run};

#[test]
fn a_cold_cat_takes_a_listing_for_each_name_and_one_get() {
    let world = World::new(TestS3::builder().synthetic(BUCKET, "a/b/c.bin", 100 * KIB), &[]);
    check_file(&world.path("a/b/c.bin"), "a/b/c.bin");
    let stats = world.server.stats();
    assert_eq!((stats.list_objects.requests, stats.get_object.requests, stats.requests()), (3, 1, 4));
    assert_eq!(stats.get_object.bytes, 100 * KIB);
    world.server.reset_stats();
    check_file(&world.path("a/b/c.bin"), "a/b/c.bin");
    assert_eq!(world.server.stats().requests(), 0, "names and pages are known");
}

#[test]
fn after_a_listing_stat_is_free() {
    let server = (0..2500).fold(TestS3::builder(), |server, index| {
        server.synthetic(BUCKET, &format!("many/{index:05}.bin"), index)
    });
    let world = World::new(server, &[]);
    let listed = run("ls", &[world.path("many")]);
    assert_eq!(listed.lines().count(), 2500);
    let stats = world.server.stats();
    assert!(stats.list_objects.requests <= 4, "{} LISTs", stats.list_objects.requests);
    world.server.reset_stats();
    for index in 0..2500 {
        let metadata = world.path(&format!("many/{index:05}.bin")).metadata().expect("a file");
        assert_eq!(metadata.size(), index);
    }
    assert_eq!(world.server.stats().requests(), 0);
}
