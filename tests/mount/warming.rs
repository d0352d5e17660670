//! `.s3mount/keep` while the store refuses requests: what can be kept is kept, and the rest is named.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use s3mount_testkit::{Fault, FaultKind, FirstByte, Operation, Shape, TestS3};

use crate::disk_cache::Cache;
use crate::world::{BUCKET, KIB, World};

/// Files in the folder `good`. More than are fetched at once, so that some begin after others have failed.
const GOOD: usize = 200;

/// Files in the folder `bad`, which leave room for others.
const BAD: usize = 56;

fn world(cache: &Cache, flags: &[&str]) -> World {
    let names = (0..BAD).map(|number| format!("bad/{number:03}"));
    let names = names.chain((0..GOOD).map(|number| format!("good/{number:03}")));
    let server = names.fold(TestS3::builder(), |server, name| server.synthetic(BUCKET, &name, 20 * KIB));
    World::new(server, &cache.flags(flags))
}

/// Has all files kept, the bad ones first.
fn keep_all(world: &World) -> io::Result<()> {
    let bad = (0..BAD).map(|number| format!("bad/{number:03}\n"));
    let good = (0..GOOD).map(|number| format!("good/{number:03}\n"));
    fs::write(world.path(".s3mount/keep"), bad.chain(good).collect::<String>())
}

fn slow_down(key_contains: &str) -> Fault {
    let fault = Fault::new(FaultKind::Status(503, "SlowDown".into())).on(Operation::GetObject);
    Fault { key_contains: key_contains.to_owned(), ..fault }
}

#[test]
fn files_are_kept_though_others_can_not_be() {
    let cache = Cache::new();
    let world = world(&cache, &["--read-timeout", "4", "--immutable"]);
    world.server.shape(Shape { first_byte: FirstByte::Fixed(300.0), ..Shape::fast() });
    world.server.fault(slow_down("bad/"));
    let error = keep_all(&world).expect_err("some can't be kept");
    assert_eq!(error.raw_os_error(), Some(Errno::ETIMEDOUT as i32));
    assert_eq!(cache.whole().len(), GOOD, "{}", world.mount.stderr());
    let said = world.mount.stderr();
    let told: Vec<_> = said.lines().filter(|line| line.contains("not kept")).collect();
    assert!(told.len() == 1 && told[0].contains(&format!("failed={BAD}")), "{told:#?}");
    assert!(told[0].contains("bad/0") && !told[0].contains("good/"), "{told:#?}");
}

#[test]
fn files_are_kept_once_the_store_takes_requests_again() {
    let cache = Cache::new();
    let world = world(&cache, &["--read-timeout", "60", "--immutable"]);
    world.server.fault(slow_down(""));
    thread::scope(|scope| {
        let kept = scope.spawn(|| keep_all(&world));
        thread::sleep(Duration::from_secs(8));
        world.server.clear_faults();
        kept.join().expect("it ends").expect("all are kept");
    });
    assert_eq!(cache.whole().len(), BAD + GOOD);
}

/// A write of many files ends, and does not wait for each of them.
#[test]
fn nothing_is_waited_for_where_the_store_answers_nothing() {
    let cache = Cache::new();
    let world = world(&cache, &["--read-timeout", "2", "--immutable"]);
    world.server.fault(slow_down(""));
    let error = keep_all(&world).expect_err("nothing can be kept");
    assert_eq!(error.raw_os_error(), Some(Errno::ETIMEDOUT as i32));
    let asked =
        (0..GOOD).filter(|number| world.mount.stderr().contains(&format!("good/{number:03}"))).count();
    assert!(asked < GOOD / 2, "{asked} files were waited for");
}
