//! A process that fills the cache is killed at any time. What it leaves behind has no wrong byte.
//!
//! The test starts itself again as the process to be killed.
#![expect(clippy::print_stdout, reason = "the process tells the test when it has begun")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use s3mount_cache::{DiskCache, DiskConfig};
use s3mount_object::{ByteRange, ETag, ObjectId};

/// Set to the cache's directory, it makes this test the process that fills it.
const FILLS: &str = "S3MOUNT_TEST_FILLS";

const KILLS: u64 = 100;

const BLOCK: u64 = 128 << 10;

const SIZES: [u64; 5] = [100, 5000, BLOCK + 1, 3 * BLOCK, 20 * BLOCK + 9];

/// The record of the last object does not fit into an extended attribute.
const LARGE_BYTES: u64 = 260 * BLOCK;

const OBJECTS: u64 = 16;

fn open(path: &Path) -> DiskCache {
    let config = DiskConfig {
        dirs: vec![path.to_owned()],
        max_bytes: Some(8 << 30),
        source: "https://s3.example|bucket".to_owned(),
        queue_bytes: 64 << 20,
        ..DiskConfig::default()
    };
    DiskCache::open(&config).expect("the test's own directory")
}

/// Object `number` of this round. In each round the objects have other ETags and bytes.
fn object(round: u64, number: u64) -> (ObjectId, u64, Bytes) {
    let size = if number == OBJECTS - 1 { LARGE_BYTES } else { SIZES[number as usize % SIZES.len()] };
    let seed = (round * 1000 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bytes =
        (0..size).map(|at| ((at / 5).wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(seed) >> 48) as u8);
    (ObjectId::new(&format!("{number}"), ETag::new(&format!("\"{round}\""))), size, bytes.collect())
}

/// Offers all objects of a round, in pieces, again and again until the process is killed.
fn fill(path: &Path, round: u64) {
    let cache = open(path);
    let objects: Vec<_> = (0..OBJECTS).map(|number| object(round, number)).collect();
    println!("filling");
    for (number, (id, size, bytes)) in (0u64..).zip(&objects).cycle() {
        let kept = cache.object(id, *size);
        let step = if number % 2 == 0 { *size } else { 7 * BLOCK };
        for start in (0..*size).step_by(step as usize) {
            let range = ByteRange::new(start, (start + step).min(*size));
            kept.offer(range, &bytes.slice(range.start() as usize..range.end() as usize));
        }
        if number % 5 == 4 {
            cache.flush(Duration::from_secs(10));
        }
        if number + 1 == OBJECTS {
            objects.iter().step_by(3).for_each(|(id, ..)| cache.forget(id));
        }
    }
}

fn start(path: &Path, round: u64) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_kill_leaves_no_wrong_byte", "--nocapture"])
        .env(FILLS, format!("{round} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts");
    let mut said = [0; 512];
    let mut out = child.stdout.take().expect("a pipe");
    let mut text = String::new();
    while !text.contains("filling") {
        let count = std::io::Read::read(&mut out, &mut said).expect("a pipe");
        assert!(count > 0, "the process has ended: {text}");
        text.push_str(&String::from_utf8_lossy(&said[..count]));
    }
    child
}

/// Reads what is there of a round, through the cache and as the kernel does. Returns how many bytes these were.
async fn check(path: &Path, round: u64) -> u64 {
    let cache = open(path);
    let mut served = 0;
    for number in 0..OBJECTS {
        let (id, size, bytes) = object(round, number);
        let kept = cache.object(&id, size);
        kept.look().await;
        if kept.whole_file().is_some() {
            let folder = std::fs::read_dir(path.join("v1")).expect("a cache").flatten();
            let files = folder.flat_map(|shard| std::fs::read_dir(shard.path()).expect("a shard").flatten());
            let same = files.map(|file| file.path()).filter(|path| path.extension().is_none());
            let is_there = same.into_iter().any(|file| std::fs::read(file).expect("a file") == bytes);
            assert!(is_there, "object {number} of round {round} is trusted, and no file has its bytes");
        }
        let mut at = 0;
        while at < size {
            let run = kept.run(at);
            let range = ByteRange::new(at, run.end.min(at + 16 * BLOCK));
            let found = kept.read(range, None, vec![0; range.len() as usize]).await;
            assert_eq!(found.is_ok(), run.is_here, "{range} of object {number} of round {round}");
            if let Ok(found) = found {
                assert!(
                    found == bytes.slice(at as usize..range.end() as usize),
                    "{range} of object {number}"
                );
                served += range.len();
            }
            at = range.end();
        }
    }
    served
}

#[test]
fn a_kill_leaves_no_wrong_byte() {
    if let Ok(what) = std::env::var(FILLS) {
        let (round, path) = what.split_once(' ').expect("round and directory");
        return fill(&PathBuf::from(path), round.parse().expect("a number"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cache");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut served, mut random) = (0, 17u64);
    for kill in 0..KILLS {
        // Each round begins with an empty directory, and is killed four times.
        let round = kill / 4;
        if kill % 4 == 0 {
            let _ = std::fs::remove_dir_all(&path);
        }
        let mut child = start(&path, round);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((random >> 33) % 60_000));
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
        if kill % 4 > 1 {
            served += runtime.block_on(check(&path, round));
        }
    }
    assert!(served > KILLS * BLOCK, "only {served} bytes were served");
}
