//! Two machines of a fleet, each with a network of its own, and a third one with the source and the shared
//! cache. Both read the same file at once. What the source sends is counted.

use std::path::Path;
use std::thread;
use std::time::Duration;

use s3mount_testkit::{MountGuard, Network, OtherServer, Shape, TestS3, WatchdogGuard, watchdog};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{BUCKET, GIB, MIB, check_file, s3mount, wait_for};

const SHARED: &str = "near";

const FILE: &str = "large";

/// The bytes of a block of the shared cache.
const BLOCK: u64 = 8 * MIB;

/// A test that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(300);

const VERSITYGW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/bin/versitygw");

/// The machine with the servers is the last one.
const SERVERS: usize = 2;

/// Two mounts of one source on two machines.
///
/// **Invariant**: the mounts are dropped before the server and the network, so their field comes first.
struct Machines {
    mounts: Vec<MountGuard>,
    source: TestS3,
    size: u64,
    _network: Network,
    _watchdog: WatchdogGuard,
}

impl Machines {
    /// Mounts a file of `size` bytes. The shared bucket is at the URL that `shared` returns, which it makes on the
    /// machine of the servers.
    fn new<S: Send>(size: u64, folder: &Path, shared: impl FnOnce(&Network) -> (S, String)) -> (Self, S) {
        let watchdog = watchdog(LIMIT);
        let network = Network::new(3).expect("root makes a network");
        let servers = network.machine(SERVERS);
        let source = TestS3::builder().synthetic(BUCKET, FILE, size).shape(Shape::aws());
        let source = servers.run(|| source.listen(servers.address()).start()).expect("a server");
        let (shared, endpoint) = shared(&network);
        let place = format!("s3://{SHARED}/fleet");
        let mounts = (0..SERVERS).map(|number| {
            let dir = folder.join(format!("mnt{number}"));
            std::fs::create_dir(&dir).expect("a mount point");
            let flags = ["--foreground", "--no-hedging", "--memory-limit", "1GiB", "--region", "us-east-1"];
            let place = format!("{place}?endpoint={endpoint}&region=us-east-1");
            let flags = [&flags[..], &["--shared-cache", &place]].concat();
            let mut command = s3mount(&source.endpoint(), BUCKET, &dir, &flags);
            network.machine(number).run(|| MountGuard::new(&mut command, &dir)).expect("a mount")
        });
        let mounts = mounts.collect();
        source.reset_stats();
        (Self { mounts, source, size, _network: network, _watchdog: watchdog }, shared)
    }

    /// With the test server for the shared bucket.
    fn with_test_server(size: u64, folder: &Path) -> (Self, TestS3) {
        Self::new(size, folder, |network| {
            let machine = network.machine(SERVERS);
            let shared = TestS3::builder().bucket(SHARED).listen(machine.address());
            let shared = machine.run(|| shared.start()).expect("a server");
            let endpoint = shared.endpoint();
            (shared, endpoint)
        })
    }

    fn with_versitygw(size: u64, folder: &Path) -> (Self, OtherServer) {
        Self::new(size, folder, |network| {
            let machine = network.machine(SERVERS);
            let keys = ("test", "secret");
            let start = || OtherServer::versitygw(Path::new(VERSITYGW), folder, machine.address(), keys);
            let shared = machine.run(start).expect("versitygw in target/tools; `make test` installs it");
            // To versitygw, a folder is a bucket.
            std::fs::create_dir(folder.join("buckets").join(SHARED)).expect("a bucket");
            let endpoint = shared.endpoint().to_owned();
            (shared, endpoint)
        })
    }

    /// Reads the file on both machines at once, and compares its bytes.
    fn read_at_once(&self) {
        thread::scope(|scope| {
            for mount in &self.mounts {
                scope.spawn(|| assert_eq!(check_file(&mount.path().join(FILE), FILE), self.size));
            }
        });
    }

    /// The bytes that the source has sent, as a multiple of the file's.
    fn copies(&self) -> f64 {
        self.source.stats().get_object.bytes as f64 / self.size as f64
    }

    /// What the mounts count of the shared cache.
    fn counters(&self) -> Vec<serde_json::Map<String, Value>> {
        let of = |mount: &MountGuard| {
            let json = std::fs::read(mount.path().join(".s3mount/stats")).expect("the counters");
            let all: serde_json::Map<_, _> = serde_json::from_slice(&json).expect("JSON");
            all.into_iter().filter(|(name, _)| name.starts_with("shared_")).collect()
        };
        self.mounts.iter().map(of).collect()
    }

    /// Asserts that the source has sent little more than one copy. Where other programs take the processors
    /// for seconds, the shared cache looks like one that hangs and is left alone, and a wait for a block may end
    /// after 4 s. Each of these costs a block at most.
    fn assert_one_copy(&self) {
        let (copies, counters) = (self.copies(), self.counters());
        let late = |counters: &serde_json::Map<String, Value>| {
            let count = |value: &Value| value.as_u64().unwrap_or(0);
            let waits = &counters["shared_wait_seconds"]["buckets"];
            let late = [&waits["5"], &counters["shared_misses_resting"], &counters["shared_misses_failed"]];
            late.map(count).iter().sum::<u64>()
        };
        let late: u64 = counters.iter().map(late).sum();
        let allowed = 1.1 + (late * BLOCK) as f64 / self.size as f64;
        assert!(copies <= allowed, "{copies} copies: {counters:?}");
    }
}

#[test]
fn two_machines_fetch_little_more_than_one_copy() {
    let folder = TempDir::new().expect("a folder");
    let (machines, _shared) = Machines::with_test_server(256 * MIB, folder.path());
    machines.read_at_once();
    machines.assert_one_copy();
}

#[test]
fn two_machines_go_on_when_the_shared_cache_is_gone() {
    let folder = TempDir::new().expect("a folder");
    let (machines, shared) = Machines::with_test_server(256 * MIB, folder.path());
    thread::scope(|scope| {
        scope.spawn(move || {
            wait_for("some blocks are there", || shared.keys(SHARED).len() > 6);
            shared.stop();
        });
        machines.read_at_once();
    });
    assert!(machines.copies() > 1.0);
}

/// Says what was counted, for the documents.
#[expect(clippy::print_stderr, reason = "a measurement, which is run by hand")]
fn say(machines: &Machines, what: &str) {
    let gets = machines.source.stats().get_object.requests;
    eprintln!("{what}: {gets} GETs of the source, {:.3} copies", machines.copies());
}

#[test]
#[ignore = "reads 4 GiB through another server; run it with --ignored --nocapture"]
fn two_machines_share_versitygw() {
    let folder = TempDir::new().expect("a folder");
    let (machines, _shared) = Machines::with_versitygw(2 * GIB, folder.path());
    machines.read_at_once();
    say(&machines, "versitygw runs");
    machines.assert_one_copy();
}

#[test]
#[ignore = "reads 4 GiB through another server; run it with --ignored --nocapture"]
fn versitygw_is_killed_in_the_middle() {
    let folder = TempDir::new().expect("a folder");
    let (machines, shared) = Machines::with_versitygw(2 * GIB, folder.path());
    thread::scope(|scope| {
        let machines = &machines;
        scope.spawn(move || {
            wait_for("a third is read", || machines.copies() > 0.33);
            drop(shared);
        });
        machines.read_at_once();
    });
    say(&machines, "versitygw is killed");
}
