//! Mounts that share a bucket near them. What the source sends is counted.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use s3mount_testkit::{
    Builder, Fault, FaultKind, MountGuard, Operation, Shape, TestS3, WatchdogGuard, watchdog,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{BUCKET, KIB, MIB, check_file, check_stream, s3mount, wait_for};

/// The bucket that the mounts share.
const SHARED: &str = "near";

/// A test that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// Some mounts of one source, with a shared bucket on a server of its own.
///
/// **Invariant**: the mounts are dropped before the servers, so their field comes first.
struct Fleet {
    mounts: Vec<MountGuard>,
    source: TestS3,
    shared: Option<TestS3>,
    _folder: TempDir,
    _watchdog: WatchdogGuard,
}

impl Fleet {
    fn new(source: Builder, shared: Builder, count: usize) -> Self {
        let watchdog = watchdog(LIMIT);
        let source = source.start().expect("a server");
        let shared = shared.bucket(SHARED).start().expect("a server");
        let folder = TempDir::new().expect("a folder");
        let place = format!("s3://{SHARED}/fleet");
        let mounts = (0..count).map(|number| {
            let dir = folder.path().join(number.to_string());
            std::fs::create_dir(&dir).expect("a mount point");
            let endpoint = shared.endpoint();
            let flags = ["--foreground", "--no-hedging", "--memory-limit", "1GiB"];
            let place = format!("{place}?endpoint={endpoint}");
            let flags = [&flags[..], &["--shared-cache", &place]].concat();
            MountGuard::new(&mut s3mount(&source.endpoint(), BUCKET, &dir, &flags), &dir).expect("a mount")
        });
        let mounts = mounts.collect();
        source.reset_stats();
        Self { mounts, source, shared: Some(shared), _folder: folder, _watchdog: watchdog }
    }

    fn path(&self, mount: usize, name: &str) -> PathBuf {
        self.mounts[mount].path().join(name)
    }

    fn shared(&self) -> &TestS3 {
        self.shared.as_ref().expect("it still runs")
    }

    /// A metric of a mount.
    fn gauge(&self, mount: usize, name: &str) -> u64 {
        let json = std::fs::read(self.path(mount, ".s3mount/stats")).expect("the counters");
        let stats: Value = serde_json::from_slice(&json).expect("JSON");
        stats[name].as_u64().expect("a number")
    }

    /// Waits until a mount has uploaded what it has fetched.
    fn settle(&self, mount: usize) {
        wait_for("blocks are uploaded", || self.gauge(mount, "shared_held_bytes") == 0);
    }

    fn source_bytes(&self) -> u64 {
        self.source.stats().get_object.bytes
    }

    /// Reads a file by all mounts at once, and compares its bytes.
    fn read_at_once(&self, name: &str, size: u64) {
        thread::scope(|scope| {
            for mount in 0..self.mounts.len() {
                scope.spawn(move || assert_eq!(check_file(&self.path(mount, name), name), size));
            }
        });
    }
}

#[test]
fn the_second_mount_asks_the_source_for_nothing() {
    let size = 20 * MIB + 77;
    let small = 300 * KIB;
    let source = TestS3::builder().synthetic(BUCKET, "large", size).synthetic(BUCKET, "small", small);
    let fleet = Fleet::new(source, TestS3::builder(), 2);
    check_file(&fleet.path(0, "large"), "large");
    check_file(&fleet.path(0, "small"), "small");
    fleet.settle(0);
    assert_eq!(fleet.source_bytes(), size + small);
    check_file(&fleet.path(1, "large"), "large");
    check_file(&fleet.path(1, "small"), "small");
    assert_eq!(fleet.source_bytes(), size + small);
    assert_eq!(fleet.gauge(1, "shared_hit_bytes"), size + small);
}

/// A shared bucket that does not exist is a mistake of the flags. One that does not answer may answer later.
#[test]
fn a_bucket_that_is_not_there_is_refused_and_a_server_that_is_down_is_not() {
    let _watchdog = watchdog(LIMIT);
    let source = TestS3::builder().synthetic(BUCKET, "f", MIB).start().expect("a server");
    let folder = TempDir::new().expect("a folder");
    let shared = TestS3::builder().bucket(SHARED).start().expect("a server");
    let endpoint = shared.endpoint();
    let mount = |bucket: &str| {
        let place = format!("{bucket}?endpoint={endpoint}");
        let flags = ["--foreground", "--shared-cache", &place];
        MountGuard::new(&mut s3mount(&source.endpoint(), BUCKET, folder.path(), &flags), folder.path())
    };
    let error = mount("s3://missing").expect_err("there is no such bucket").to_string();
    assert!(error.contains("there is no bucket \"missing\""), "{error}");
    shared.stop();
    let mount = mount("s3://near").expect("a mount without the shared cache");
    assert_eq!(check_file(&mount.path().join("f"), "f"), MIB);
}

#[test]
fn the_shared_bucket_goes_away_in_the_middle() {
    let size = 256 * MIB;
    let source = TestS3::builder()
        .synthetic(BUCKET, "large", size)
        .synthetic(BUCKET, "next", 64 * MIB)
        .shape(Shape::aws());
    let mut fleet = Fleet::new(source, TestS3::builder(), 2);
    let shared = fleet.shared.take().expect("it runs");
    thread::scope(|scope| {
        let fleet = &fleet;
        scope.spawn(move || {
            wait_for("some blocks are there", || shared.keys(SHARED).len() > 6);
            shared.stop();
        });
        fleet.read_at_once("large", size);
    });
    // All that was left of the first file may have been asked for before the first answer failed.
    fleet.read_at_once("next", 64 * MIB);
    assert!(fleet.gauge(0, "shared_misses_resting") + fleet.gauge(1, "shared_misses_resting") > 0);
}

#[test]
fn flipped_bits_and_hanging_answers_reach_no_reader() {
    let size = 64 * MIB;
    let source = TestS3::builder().synthetic(BUCKET, "large", size);
    let fleet = Fleet::new(source, TestS3::builder(), 2);
    check_file(&fleet.path(0, "large"), "large");
    fleet.settle(0);
    fleet.shared().fault(Fault::new(FaultKind::FlipBit).on(Operation::GetObject).share(0.5));
    check_file(&fleet.path(1, "large"), "large");
    assert!(fleet.gauge(1, "shared_misses_damaged") > 0);
    fleet.shared().clear_faults();
    fleet.shared().freeze(true);
    let random = std::fs::File::open(fleet.path(0, "large")).expect("a file");
    let mut piece = vec![0; 64 << 10];
    std::os::unix::fs::FileExt::read_exact_at(&random, &mut piece, 9 * MIB).expect("a read");
    assert_eq!(check_stream(&piece[..], "large", 9 * MIB, 64 << 10), 64 << 10);
    fleet.shared().thaw();
}

#[test]
fn a_bucket_that_may_not_be_written_to_is_read() {
    let size = 4 * MIB;
    let source = TestS3::builder().synthetic(BUCKET, "old", size).synthetic(BUCKET, "new", size);
    let fleet = Fleet::new(source, TestS3::builder(), 2);
    check_file(&fleet.path(0, "old"), "old");
    fleet.settle(0);
    fleet
        .shared()
        .fault(Fault::new(FaultKind::Status(403, "AccessDenied".to_owned())).on(Operation::PutObject));
    let before = fleet.source_bytes();
    check_file(&fleet.path(1, "old"), "old");
    assert_eq!(fleet.source_bytes(), before);
    check_file(&fleet.path(1, "new"), "new");
    assert_eq!(fleet.source_bytes(), before + size);
    fleet.settle(1);
    assert_eq!(fleet.gauge(1, "shared_puts_written"), 0);
}
