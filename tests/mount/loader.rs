//! PyTorch's DataLoader with worker processes, as the example in `examples` uses it.

use std::fs;
use std::path::Path;
use std::process::Command;

use s3mount_testkit::{TestS3, content};
use tempfile::TempDir;

use crate::world::{BUCKET, MIB, World, run, run_command};

/// Reads an epoch of `root` on the mount. Returns how many samples were compared with those in `truth`.
fn epoch(kind: &str, root: &Path, truth: &Path) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new("/usr/bin/python3");
    python.arg(folder.join("tests/mount/loader_epoch.py")).arg(folder.join("examples"));
    // Python must write no file beside the example.
    python.arg(kind).arg(root).arg(truth).env("PYTHONDONTWRITEBYTECODE", "1");
    run_command(&mut python).trim().parse().expect("a number")
}

#[test]
fn a_loader_reads_right_bytes_from_shuffled_files_and_from_tar_shards() {
    let folder = TempDir::new().expect("a folder");
    let (truth, bucket) = (folder.path().join("truth"), folder.path().join("bucket"));
    fs::create_dir_all(bucket.join("shards")).expect("a folder");
    for shard in 0..8 {
        let samples = truth.join(format!("{shard}"));
        fs::create_dir_all(&samples).expect("a folder");
        for index in 0..125 {
            let name = format!("{index:03}.bin");
            // The first sample of each shard is empty.
            let bytes =
                content(&format!("{shard}/{name}"), 0, if index == 0 { 0 } else { 60_000 + index * 800 });
            fs::write(samples.join(name), bytes).expect("a sample");
        }
        let tar = bucket.join(format!("shards/{shard}.tar")).display().to_string();
        run("tar", &["-cf", &tar, "-C", &truth.display().to_string(), &shard.to_string()]);
    }
    run("cp", &["-r", &truth.display().to_string(), &bucket.join("files").display().to_string()]);
    let server = TestS3::builder().folder(BUCKET, &bucket).expect("a bucket");
    let world = World::counting(server, &["--memory-limit", "256MiB"]);
    assert_eq!(epoch("files", &world.path("files"), &truth), 1000);
    let stats = world.server.stats();
    assert!(stats.get_object.requests <= 1000, "{} GETs for 1000 files", stats.get_object.requests);
    world.server.reset_stats();
    assert_eq!(epoch("tar", &world.path("shards"), &truth), 1000);
    let size: u64 = fs::read_dir(bucket.join("shards"))
        .expect("a folder")
        .map(|entry| entry.expect("a shard").metadata().expect("its size").len())
        .sum();
    assert!(world.fetched() as f64 <= 1.02 * size as f64, "{} of {size} bytes fetched", world.fetched());
    world.check_memory(256 * MIB);
}
