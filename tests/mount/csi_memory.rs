//! The memory of a node, which a driver divides among its mounts by use.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{Builder, FirstByte, Shape, check};
use tonic::Code;

use crate::csi::{Node, bucket, processes_below};
use crate::world::{BUCKET, wait_for};

const MIB: u64 = 1 << 20;

const NODE: u64 = 512 * MIB;
const FLOOR: u64 = 104 * MIB;

/// What a daemon takes beside its memory.
const BESIDE: u64 = 64 * MIB;

const VOLUMES: [&str; 4] = ["v0", "v1", "v2", "v3"];

/// So many streams have use for all that a mount can get.
const STREAMS: usize = 16;
const FILE_BYTES: u64 = 64 * MIB;

fn file(stream: usize) -> String {
    format!("f{stream:02}")
}

fn server() -> Builder {
    let shape = Shape { first_byte: FirstByte::Fixed(30.0), ..Shape::fast() };
    (0..STREAMS)
        .fold(bucket().shape(shape), |server, stream| server.synthetic(BUCKET, &file(stream), FILE_BYTES))
}

/// A number of what the mount at `dir` says of its memory.
fn memory(dir: &Path, name: &str) -> Option<u64> {
    let text = fs::read(dir.join(".s3mount/memory")).ok()?;
    serde_json::from_slice::<serde_json::Value>(&text).ok()?.get(name)?.as_u64()
}

/// The resident bytes of all daemons of the node.
fn resident(node: &Path) -> u64 {
    let of = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let daemons = processes_below(node).into_iter().filter(|(_, parent)| *parent != 1);
    daemons.filter_map(|(pid, _)| of(pid)).sum::<u64>() << 10
}

/// Reads all files below `dir` again and again, one in each thread, and compares all bytes, while `goes_on`.
fn read_while(dir: &Path, goes_on: &AtomicBool) {
    thread::scope(|scope| {
        for stream in 0..STREAMS {
            scope.spawn(move || {
                let name = file(stream);
                let mut bytes = vec![0; MIB as usize];
                while goes_on.load(Ordering::Relaxed) {
                    let file = File::open(dir.join(&name)).expect("a file");
                    let mut offset = 0;
                    while offset < FILE_BYTES && goes_on.load(Ordering::Relaxed) {
                        file.read_exact_at(&mut bytes, offset).expect("bytes");
                        check(&name, offset, &bytes).expect("the object's bytes");
                        offset += MIB;
                    }
                }
            });
        }
    });
}

#[test]
fn whoever_reads_has_what_the_others_do_not_use() {
    let mut node = Node::new(server(), &["--node-memory=512MiB", "--memory-floor=104MiB"]);
    // Each read reaches the daemon, which fetches more ahead than the floor holds.
    let publish = |node: &Node, volume: &str| {
        node.publish(node.publishing_with(
            volume,
            volume,
            &["immutable", "direct-io=*", "verify=whole", "prefetch-initial=16MiB"],
        ))
    };
    for volume in VOLUMES {
        publish(&node, volume).expect("published");
    }
    let options = ["memory-limit=64MiB", "part-size=much"];
    let unusable = node.publish(node.publishing_with("v4", "v4", &options)).expect_err("no size");
    assert!(unusable.code() == Code::InvalidArgument && unusable.message().contains("much"), "{unusable}");
    let refused = publish(&node, "v4").expect_err("there is no floor for a fifth");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("4 volumes have at least 416MiB of --node-memory 512MiB"),
        "{refused}"
    );
    assert_eq!(node.mounts().len(), VOLUMES.len(), "nothing is left of it");
    let dirs = VOLUMES.map(|volume| node.target(volume));
    let limit = |volume: usize| memory(&dirs[volume], "limit").unwrap_or_default();
    let has_most = |volume: usize| limit(volume) >= NODE - 3 * FLOOR - 4 * MIB;
    assert!((0..4).all(|volume| limit(volume) == FLOOR));
    let (is_over, most_resident) = (AtomicBool::new(false), AtomicU64::new(0));
    let folder = node.folder.path().to_owned();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                most_resident.fetch_max(resident(&folder), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let reads = [(); 2].map(|()| AtomicBool::new(true));
        thread::scope(|scope| {
            scope.spawn(|| read_while(&dirs[0], &reads[0]));
            wait_for("the first has what is free", || has_most(0));
            // The next daemon begins with the floor, and readers notice nothing.
            let name = node
                .mounts()
                .into_iter()
                .map(|dir| dir.join("data"))
                .find(|dir| memory(dir, "limit").is_some_and(|limit| limit > FLOOR));
            let name = name.expect("its mount").display().to_string();
            let daemon = processes_below(&folder).into_iter().find(|(pid, parent)| {
                let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                *parent != 1 && line.contains(&name)
            });
            kill(Pid::from_raw(daemon.expect("a daemon").0), Signal::SIGKILL).expect("it lives");
            wait_for("it has that again", || has_most(0));
            node.start_anew(env!("CARGO_BIN_EXE_s3mount"));
            assert!(has_most(0), "mounts keep what they have");
            scope.spawn(|| read_while(&dirs[1], &reads[1]));
            wait_for("both have a part", || {
                limit(0).abs_diff(limit(1)) <= 4 * MIB && limit(0) > FLOOR + 8 * MIB
            });
            reads[0].store(false, Ordering::Relaxed);
            wait_for("the second has what the first had", || has_most(1) && limit(0) == FLOOR);
            reads[1].store(false, Ordering::Relaxed);
        });
        is_over.store(true, Ordering::Relaxed);
    });
    assert!((1..4).all(|volume| limit(volume) >= FLOOR));
    let most = most_resident.into_inner();
    assert!(most > NODE / 4 && most <= NODE + 4 * BESIDE, "{} MiB were resident", most / MIB);
    for volume in VOLUMES {
        node.unpublish(volume, volume).expect("gone");
    }
    publish(&node, "v4").expect("there is room now");
    node.unpublish("v4", "v4").expect("gone");
}
