//! A directory bucket (S3 Express One Zone): sessions, listings in no order, renames by one request.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use s3mount_testkit::{Builder, TestS3, mix, run_with_timeout};
use tempfile::TempDir;

use crate::world::{DIRECTORY_BUCKET, MIB, World, check_file, run, run_command, s3mount, wait_for};

const WRITES: [&str; 3] = ["--allow=write", "--allow=delete", "--allow=overwrite"];

/// A program that reads all files whose paths it is given, and prints the sum of their bytes.
const READ_ALL: &str = "import sys\nfor p in open(sys.argv[2]).read().split():\n  print(p, sum(open(sys.argv[1] + '/' + p, 'rb').read()))\n";

fn world(server: Builder, flags: &[&str]) -> World {
    World::of_bucket(DIRECTORY_BUCKET, server, flags)
}

/// 3,000 small files in several folders.
fn tree() -> Vec<String> {
    (0..3000).map(|index| format!("{}/{index:04}.txt", ["a", "a/deep", "b", "c-d"][index % 4])).collect()
}

#[test]
fn a_tree_is_walked_and_read_in_any_order() {
    let keys = tree();
    let builder = keys
        .iter()
        .fold(TestS3::builder(), |builder, key| builder.object(DIRECTORY_BUCKET, key, key.clone()));
    let world = world(builder, &[]);
    let root = world.path("").display().to_string();
    let found = run("find", &[root.trim_end_matches('/'), "-type", "f", "-not", "-path", "*/.s3mount/*"]);
    let found: BTreeSet<_> = found.lines().filter_map(|line| line.strip_prefix(&root)).collect();
    assert_eq!(found, keys.iter().map(String::as_str).collect());
    let listed = run("ls", &["-R", &root]);
    assert_eq!(listed.lines().filter(|line| line.ends_with(".txt")).count(), keys.len());
    let lists = world.server.stats().list_objects.requests;
    assert!(lists < 40, "{lists} LISTs for two walks of 5 folders and 3,000 names");
    assert_eq!(run("cat", &[world.path("a/0000.txt")]), "a/0000.txt");
    let mut order = keys.clone();
    order.sort_by_key(|key| key.bytes().fold(7, |hash, byte| mix(hash ^ u64::from(byte))));
    let (list, mut python) = (world.folder().join("order"), Command::new("python3"));
    fs::write(&list, order.join("\n")).expect("a file");
    let printed = run_command(python.args(["-c", READ_ALL, &root]).arg(&list));
    for (line, key) in printed.lines().zip(&order) {
        let sum: u64 = key.bytes().map(u64::from).sum();
        assert_eq!(line, format!("{key} {sum}"));
    }
    assert_eq!(printed.lines().count(), keys.len());
    for name in ["a/none", "none", "a/000", "a/0000.txt.bak", "c"] {
        assert!(!world.path(name).exists(), "{name}");
    }
}

#[test]
fn names_of_a_fresh_mount_are_found_without_listing_their_folder() {
    let builder = tree()
        .iter()
        .fold(TestS3::builder(), |builder, key| builder.object(DIRECTORY_BUCKET, key, key.clone()));
    let world = world(builder.synthetic(DIRECTORY_BUCKET, "only/a/prefix/large", 20 * MIB), &[]);
    assert_eq!(world.read("a/deep/0001.txt"), b"a/deep/0001.txt");
    assert_eq!(check_file(&world.path("only/a/prefix/large"), "only/a/prefix/large"), 20 * MIB);
    assert!(world.path("only/a").is_dir() && !world.path("only/b").exists());
    let stats = world.server.stats();
    assert_eq!(stats.create_session.requests, 0, "the session of mounting is still good");
    assert!(stats.list_objects.requests < 30, "{:?}", stats.list_objects);
}

/// **Promise of SEMANTICS.md.**
#[test]
fn a_file_is_renamed_by_one_request() {
    let world = world(TestS3::builder().object(DIRECTORY_BUCKET, "there", "old"), &WRITES);
    world.write("draft", "new text");
    let no_replace = |to: &str| {
        let [from, to] = [world.path("draft"), world.path(to)];
        renameat2(AT_FDCWD, &from, AT_FDCWD, &to, RenameFlags::RENAME_NOREPLACE)
    };
    assert_eq!(no_replace("there"), Err(nix::errno::Errno::EEXIST));
    world.server.reset_stats();
    no_replace("free").expect("a new name");
    let stats = world.server.stats();
    assert_eq!((stats.rename_object.requests, stats.rename_object.errors), (1, 0));
    assert_eq!(
        (stats.copy_object.requests, stats.delete_object.requests, stats.put_object.requests),
        (0, 0, 0)
    );
    fs::rename(world.path("free"), world.path("there")).expect("it is replaced");
    assert_eq!(world.server.keys(DIRECTORY_BUCKET), ["there"]);
    assert_eq!(world.read("there"), b"new text");
    assert_eq!(world.server.stats().copy_object.requests, 0);
}

#[test]
fn files_are_written_changed_copied_and_deleted() {
    let flags = [&WRITES[..], &["--folder-markers", "--allow=rename"]].concat();
    let world = world(TestS3::builder(), &flags);
    let large = world.path("run/large.bin");
    fs::create_dir(world.path("run")).expect("a folder");
    assert_eq!(world.server.keys(DIRECTORY_BUCKET), ["run/"]);
    let bytes: Vec<u8> = (0..20 * MIB).map(|at| mix(at) as u8).collect();
    fs::write(&large, &bytes).expect("a file in parts");
    OpenOptions::new()
        .append(true)
        .open(&large)
        .and_then(|mut file| file.write_all(b"end"))
        .expect("an append");
    let copy = world.path("run/copy.bin");
    run("cp", &[&large, &copy]);
    world.write("run/small", "small");
    fs::rename(world.path("run"), world.path("done")).expect("a folder's new name");
    let expected = [bytes, b"end".to_vec()].concat();
    let stored = world.stored_below("done/");
    assert_eq!(stored.keys().collect::<Vec<_>>(), ["", "copy.bin", "large.bin", "small"]);
    assert!(stored["large.bin"] == expected && stored["copy.bin"] == expected);
    assert!(world.read("done/large.bin") == expected);
    run("rm", &["-r".as_ref(), world.path("done").as_os_str()]);
    wait_for("nothing is left", || world.server.keys(DIRECTORY_BUCKET).is_empty());
    assert!(world.server.open_uploads(DIRECTORY_BUCKET).is_empty() && !world.path("done").exists());
}

#[test]
fn a_mount_outlives_its_sessions() {
    let server =
        TestS3::builder().session_life(Duration::from_secs(2)).synthetic(DIRECTORY_BUCKET, "d/f", 3 * MIB);
    let world = world(server, &["--metadata-ttl", "minimal"]);
    for _ in 0..16 {
        assert_eq!(check_file(&world.path("d/f"), "d/f"), 3 * MIB);
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(world.server.stats().create_session.requests >= 2, "{:?}", world.server.stats().create_session);
    // A session that the store has ended by itself is replaced, and no program sees an error.
    world.server.end_sessions();
    assert_eq!(fs::read_dir(world.path("d")).expect("a folder").count(), 1);
}

/// The error of a mount that is refused.
fn refused(endpoint: &str, bucket: &str, dir: &Path, flags: &[&str]) -> String {
    let output = run_with_timeout(&mut s3mount(endpoint, bucket, dir, flags), Duration::from_secs(60))
        .expect("an end");
    assert!(!output.status.success(), "{bucket} {flags:?} is mounted");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_a_directory_bucket_does_not_do_is_refused_clearly() {
    let server = TestS3::builder().bucket(DIRECTORY_BUCKET).start().expect("a server");
    let folder = TempDir::new().expect("a folder");
    let of = |bucket: &str, flags: &[&str]| refused(&server.endpoint(), bucket, folder.path(), flags);
    let elsewhere = of("data--use1-az5--x-s3", &[]);
    assert!(elsewhere.contains("does not exist") && elsewhere.contains("zone \"use1-az5\""), "{elsewhere}");
    for (flags, part) in [
        (&["--no-sign-request"][..], "--no-sign-request does not go with the directory bucket"),
        (&["--requester-pays"][..], "--requester-pays does not go with the directory bucket"),
        (&["--allow=write", "--storage-class", "STANDARD_IA"][..], "--storage-class STANDARD_IA does not go"),
        (&["--allow=write", "--sse", "aws:kms"][..], "--sse aws:kms does not go with the directory bucket"),
    ] {
        let error = of(DIRECTORY_BUCKET, flags);
        assert!(error.contains(part), "{error}");
    }
}
