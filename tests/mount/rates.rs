//! Mounts that keep to rates.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use s3mount_testkit::TestS3;

use crate::world::{BUCKET, MIB, World, check_file, wait_for};

/// What a line saves while nothing passes it.
const SAVED: Duration = Duration::from_millis(50);

/// How many requests a rate has held back.
fn held(world: &World, rate: &str) -> u64 {
    world.gauge(&format!("held_requests_{rate}"))
}

/// What shows that a mount has waited for its rates and not for the store.
fn check_calm(world: &World) {
    for trouble in ["retries", "stalls", "hedges"] {
        assert_eq!(world.gauge(trouble), 0, "{trouble}");
    }
}

#[test]
fn readers_get_all_bytes_and_no_faster_than_the_rate() {
    let server = TestS3::builder().synthetic(BUCKET, "one", 24 * MIB).synthetic(BUCKET, "two", 8 * MIB);
    let world = World::counting(server, &["--max-read-rate=8MiB"]);
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(check_file(&world.path("one"), "one"), 24 * MIB));
        scope.spawn(|| assert_eq!(check_file(&world.path("two"), "two"), 8 * MIB));
    });
    assert!(began.elapsed() >= Duration::from_secs(4) - SAVED, "32 MiB in {:?}", began.elapsed());
    assert!(held(&world, "read_bytes") > 0);
    assert_eq!((held(&world, "write_bytes"), held(&world, "requests")), (0, 0));
    assert_eq!(world.fetched(), 32 * MIB);
    check_calm(&world);
}

/// A reader that is killed waits for nothing any more, and what it has waited for is the readers' that live.
#[test]
fn nothing_is_fetched_for_a_reader_that_was_killed() {
    let server = TestS3::builder().synthetic(BUCKET, "big", 64 * MIB);
    let world = World::counting(server, &["--max-read-rate=1MiB"]);
    let mut reader = Command::new("cat").arg(world.path("big")).stdout(Stdio::null()).spawn().expect("cat");
    wait_for("the reader waits for the rate", || held(&world, "read_bytes") > 0 && world.fetched() > MIB);
    reader.kill().expect("it lives");
    reader.wait().expect("its end");
    wait_for("nothing is open", || world.gauge("open_files") == 0);
    // Its GETs are given up just after that.
    thread::sleep(Duration::from_millis(100));
    let before = world.fetched();
    // As long as four MiB take.
    thread::sleep(Duration::from_secs(4));
    assert_eq!(world.fetched(), before);
}

#[test]
fn writers_store_all_bytes_and_no_faster_than_the_rate() {
    let flags = ["--allow=write", "--max-write-rate=8MiB", "--part-size=5MiB"];
    let world = World::new(TestS3::builder().bucket(BUCKET), &flags);
    let (bytes, began) = (vec![7; 24 << 20], Instant::now());
    world.write("file", &bytes);
    assert!(began.elapsed() >= Duration::from_secs(3) - SAVED, "24 MiB in {:?}", began.elapsed());
    assert!(held(&world, "write_bytes") > 0);
    assert_eq!(held(&world, "read_bytes"), 0);
    assert!(world.stored_below("")["file"] == bytes);
    check_calm(&world);
}

#[test]
fn requests_of_all_kinds_keep_to_their_rate() {
    let key = |index| format!("many/{index}");
    let server = (0..60).fold(TestS3::builder(), |server, index| server.synthetic(BUCKET, &key(index), 1000));
    let world = World::counting(server, &["--max-request-rate=20"]);
    world.server.reset_stats();
    let began = Instant::now();
    for index in 0..60 {
        assert_eq!(check_file(&world.path(&key(index)), &key(index)), 1000);
    }
    let (took, stats) = (began.elapsed(), world.server.stats());
    let requests = stats.get_object.requests + stats.list_objects.requests + stats.head_object.requests;
    let least = Duration::from_secs_f64(requests as f64 / 20.0).saturating_sub(SAVED);
    assert!(took >= least, "{requests} requests in {took:?}");
    assert!(requests >= 60 && held(&world, "requests") > 0);
    check_calm(&world);
}
