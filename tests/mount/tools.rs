//! Programs that people use read from a mount.

use std::fs;
use std::path::Path;
use std::process::Command;

use s3mount_testkit::{TestS3, content};
use tempfile::TempDir;

use crate::world::{BUCKET, KIB, MIB, World, run, run_command};

#[test]
fn tar_unpacks_what_it_packed() {
    let folder = TempDir::new().expect("a folder");
    let source = folder.path().join("source");
    fs::create_dir(&source).expect("a folder");
    for index in 0..300 {
        let name = format!("sample {index:03}.bin");
        fs::write(source.join(&name), content(&name, 0, 37_000 + index)).expect("a file");
    }
    let root = folder.path().join("bucket");
    fs::create_dir(&root).expect("a folder");
    let shard = root.join("shard.tar");
    run("tar", &["-cf", &shard.display().to_string(), "-C", &source.display().to_string(), "."]);
    let server = TestS3::builder().folder(BUCKET, &root).expect("a bucket");
    let world = World::new(server, &[]);
    let mounted = world.path("shard.tar").display().to_string();
    let listed = run("tar", &["tf", &mounted]);
    assert_eq!(listed, run("tar", &["tf", &shard.display().to_string()]));
    assert_eq!(listed.lines().count(), 301);
    let unpacked = folder.path().join("unpacked");
    fs::create_dir(&unpacked).expect("a folder");
    run("tar", &["xf", &mounted, "-C", &unpacked.display().to_string()]);
    run("diff", &["-r", &source.display().to_string(), &unpacked.display().to_string()]);
    run("cmp", &[&mounted, &shard.display().to_string()]);
}

#[test]
fn find_and_xargs_read_two_thousand_files() {
    let size = 100 * KIB;
    let server = (0..2000).fold(TestS3::builder(), |server, index| {
        server.synthetic(BUCKET, &format!("small/{index:04}.bin"), size)
    });
    let world = World::counting(server, &["--memory-limit", "256MiB"]);
    let script = "find . -name '*.bin' -print0 | xargs -0 -P32 -n8 cat | wc -c";
    let bytes = run_command(Command::new("sh").args(["-c", script]).current_dir(world.path("small")));
    assert_eq!(bytes.trim(), (2000 * size).to_string());
    let stats = world.server.stats();
    assert_eq!((stats.get_object.requests, stats.get_object.bytes), (2000, 2000 * size));
    for index in 0..2000 {
        let key = format!("small/{index:04}.bin");
        assert!(world.read(&key) == content(&key, 0, size as usize), "{key}");
    }
    world.check_memory(256 * MIB);
}

/// The part of fio's report that has the counters of its reads.
fn fio(world: &World, args: &[&str]) -> serde_json::Value {
    let mut command = Command::new("fio");
    command.args(["--name=t", "--readonly", "--output-format=json", "--filename"]).arg(world.path("one.bin"));
    let report = run_command(command.args(args));
    let report: serde_json::Value = serde_json::from_str(&report).expect("fio's report");
    report["jobs"][0].clone()
}

#[test]
fn fio_reads_without_an_error() {
    let world =
        World::new(TestS3::builder().synthetic(BUCKET, "one.bin", 256 * MIB), &["--memory-limit", "256MiB"]);
    for args in [
        &["--rw=read", "--bs=1M", "--ioengine=psync"][..],
        &[
            "--rw=randread",
            "--bs=4k",
            "--ioengine=psync",
            "--io_size=4M",
            "--thread",
            "--numjobs=4",
            "--group_reporting",
        ],
        &["--rw=randread", "--bs=128k", "--ioengine=libaio", "--iodepth=16", "--direct=1", "--io_size=64M"],
        &["--rw=read", "--bs=8M", "--ioengine=libaio", "--iodepth=4", "--direct=1"],
        &["--rw=randread", "--bs=64k", "--ioengine=mmap", "--io_size=32M"],
    ] {
        let job = fio(&world, args);
        assert_eq!(job["error"], 0, "{args:?}");
        assert!(job["read"]["io_bytes"].as_u64() >= Some(4 * MIB), "{args:?}: {}", job["read"]);
    }
    world.check_memory(256 * MIB);
}

#[test]
fn fio_verifies_what_it_has_written_elsewhere() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("f");
    let verify = ["--name=t", "--size=32M", "--verify=crc32c", "--verify_interval=4k", "--verify_fatal=1"];
    // fio would write its state into a file in the current folder.
    let verify = [&verify[..], &["--verify_state_save=0"]].concat();
    let fio = |file: &Path, args: &[&str]| {
        let filename = format!("--filename={}", file.display());
        run("fio", &[&verify[..], &["--output-format=terse", &filename], args].concat());
    };
    fio(&file, &["--rw=write", "--bs=64k", "--do_verify=0"]);
    let server = TestS3::builder().folder(BUCKET, folder.path()).expect("a folder to serve");
    let world = World::new(server, &["--memory-limit", "64MiB"]);
    for args in [
        &["--rw=read", "--bs=1M"][..],
        &["--rw=randread", "--bs=4k", "--io_size=8M"],
        &["--rw=randread", "--bs=64k", "--ioengine=mmap"],
        &["--rw=randread", "--bs=128k", "--ioengine=libaio", "--iodepth=8", "--direct=1"],
        &[
            "--rw=read",
            "--bs=256k",
            "--ioengine=libaio",
            "--iodepth=8",
            "--direct=1",
            "--numjobs=4",
            "--thread",
        ],
    ] {
        fio(&world.path("f"), &[&["--readonly"], args].concat());
    }
}

/// fio writes in patterns and reads all again, through the mount that has written and through another.
#[test]
fn fio_verifies_what_it_has_written_to_a_mount() {
    let spool = TempDir::new().expect("a folder");
    let spool_path = spool.path().to_str().expect("a plain path");
    let flags = ["--allow=overwrite", "--memory-limit", "64MiB", "--write-spool", spool_path];
    let mut world = World::new(TestS3::builder(), &flags);
    let patterns = [
        &["--name=front", "--rw=write", "--bs=128k", "--size=48m"][..],
        &["--name=anywhere", "--rw=randwrite", "--bs=4k", "--size=16m"],
        &["--name=odd", "--rw=randwrite", "--bsrange=1k-256k", "--bs_unaligned", "--size=16m"],
        &["--name=many", "--rw=write", "--bs=64k", "--size=8m", "--numjobs=4"],
        &["--name=mapped", "--rw=randwrite", "--bs=4k", "--size=8m", "--ioengine=mmap"],
        &["--name=synced", "--rw=randwrite", "--bs=16k", "--size=4m", "--fsync=64"],
    ];
    let fio = |world: &World, pattern: &[&str], more: &[&str]| {
        let folder = format!("--directory={}", world.path("").display());
        let common = ["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fallocate=none"];
        run(
            "fio",
            &[&common[..], &["--output-format=terse", "--end_fsync=1", &folder], pattern, more].concat(),
        );
    };
    for pattern in patterns {
        fio(&world, pattern, &["--do_verify=1"]);
    }
    world.check_memory(64 * MIB);
    world.remount(&flags);
    // Blocks of odd sizes leave the last bytes of a file unwritten, and fio would make a shorter file anew.
    for pattern in patterns.into_iter().filter(|pattern| !pattern.contains(&"--bs_unaligned")) {
        fio(&world, pattern, &["--verify_only"]);
    }
}
