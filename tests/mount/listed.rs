//! Mounts that have their names from a list.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use s3mount_testkit::{Builder, TestS3, run_with_timeout};

use crate::takeover::take_over;
use crate::world::{BUCKET, DIRECTORY_BUCKET, World, check_file, run, s3mount, said};

/// Objects in three folders, and one that is large.
fn server(bucket: &'static str) -> Builder {
    let server = TestS3::builder().synthetic(bucket, "a/large", 5_000_000);
    let keys = (0..3000).map(|number| format!("{}/{number:04}.txt", ["a", "a/deep", "b"][number % 3]));
    keys.fold(server, |server, key| server.object(bucket, &key, key.clone()))
}

/// The lines of `aws s3api list-objects-v2` for all objects of the bucket.
fn lines(world: &World) -> String {
    let line = |key: String| {
        let stored = world.server.stored(world.bucket, &key).expect("it is there");
        format!("{key}\t{}\t{}\t2026-01-31T12:00:00+00:00\n", stored.size, stored.etag)
    };
    world.server.keys(world.bucket).into_iter().map(line).collect()
}

/// A list of all objects that the bucket has now, in a file.
fn list(world: &World) -> PathBuf {
    let path = world.folder().join("list.tsv");
    fs::write(&path, lines(world)).expect("a list");
    path
}

/// Mounts a bucket with its names from a list of all its objects, and an index in a folder of the test.
fn listed(bucket: &'static str, flags: &[&str]) -> World {
    let mut world = World::of_bucket(bucket, server(bucket), &[]);
    let (list, cache) =
        (list(&world).display().to_string(), world.folder().join("cache").display().to_string());
    world.remount(&[&["--names-from", &list, "--cache", &cache], flags].concat());
    world
}

/// All paths below a folder, with what is in the files.
fn tree(world: &World) -> BTreeMap<String, Vec<u8>> {
    let root = world.path("").display().to_string();
    let found = run("find", &[root.trim_end_matches('/'), "-type", "f", "-not", "-path", "*/.s3mount/*"]);
    let names = found.lines().map(|path| path[root.len()..].to_owned());
    names.map(|name| (name.clone(), world.read(&name))).collect()
}

fn check_tree(world: &World) {
    let root = world.path("").display().to_string();
    run("ls", &["-lR", &root]);
    let stored = world.stored_below("");
    assert!(tree(world) == stored, "the mount shows what the bucket has");
    let stats = world.server.stats();
    assert_eq!([stats.list_objects.requests, stats.head_object.requests], [0, 0]);
    assert!(stats.get_object.requests >= 3000);
}

#[test]
fn a_tree_is_walked_and_read_without_a_request_for_names() {
    let world = listed(BUCKET, &[]);
    check_tree(&world);
    check_file(&world.path("a/large"), "a/large");
    let modified = fs::metadata(world.path("b/0002.txt")).expect("a file").modified().expect("a time");
    let seconds = modified.duration_since(std::time::UNIX_EPOCH).expect("later").as_secs();
    assert_eq!(seconds, 1_769_860_800, "the time is that of the list");
    for absent in ["a/none", "none", "a/0000", "a/0000.txt.bak"] {
        assert!(!world.path(absent).exists(), "{absent}");
    }
    let stats = world.server.stats();
    assert_eq!([stats.list_objects.requests, stats.head_object.requests], [0, 0]);
}

#[test]
fn a_directory_bucket_is_listed_in_order() {
    check_tree(&listed(DIRECTORY_BUCKET, &[]));
}

#[test]
fn the_list_is_the_truth_about_names() {
    let world = listed(BUCKET, &[]);
    world.server.put(BUCKET, "b/later.txt", "not listed");
    world.server.put(BUCKET, "b/0002.txt", "changed!!!");
    world.server.delete(BUCKET, "b/0005.txt");
    let names = run("ls", &[world.path("b")]);
    assert!(!names.contains("later") && names.contains("0002.txt") && names.contains("0005.txt"));
    assert!(!world.path("b/later.txt").exists());
    // Whoever tries again gets the same answer at once: the list says the same again.
    for _ in 0..3 {
        for name in ["b/0002.txt", "b/0005.txt"] {
            let error = fs::read(world.path(name)).expect_err("it is not what the list says");
            assert_eq!(error.raw_os_error(), Some(Errno::ESTALE as i32), "{name}: {error}");
        }
    }
    assert_eq!(world.read("b/0008.txt"), b"b/0008.txt");
    let told = world.mount.stderr();
    let told: Vec<_> = told.lines().filter(|line| line.contains("mount anew with a newer list")).collect();
    assert_eq!(told.len(), 1, "it is told once: {told:?}");
    let stats = world.server.stats();
    assert_eq!([stats.list_objects.requests, stats.head_object.requests], [0, 0]);
    assert_eq!(world.stats()["list_requests"], 0, "what an index answers is no LIST");
}

#[test]
fn a_later_mount_finds_the_index_until_the_list_changes() {
    let mut world = listed(BUCKET, &[]);
    assert!(told(&world, "the index of the list was built"));
    let (list, cache) = (world.folder().join("list.tsv"), world.folder().join("cache"));
    let [from, cache_dir] = [&list, &cache].map(|path| path.display().to_string());
    let flags = ["--names-from", &*from, "--cache", &cache_dir];
    world.remount(&flags);
    assert!(told(&world, "the index of the list was found") && !told(&world, "was built"));
    // A damaged one is built anew.
    let index = fs::read_dir(cache.join("lists"))
        .expect("a folder")
        .next()
        .expect("an index")
        .expect("a file")
        .path();
    let bytes = fs::read(&index).expect("an index");
    fs::write(&index, &bytes[..bytes.len() - 1]).expect("it is damaged");
    world.remount(&flags);
    assert!(told(&world, "the index of the list was built"));
    world.server.put(BUCKET, "b/later.txt", "listed now");
    fs::write(&list, lines(&world)).expect("another list");
    world.remount(&flags);
    assert_eq!(world.read("b/later.txt"), b"listed now");
    // A mount without the list shows none of what it has seen.
    world.server.put(BUCKET, "b/unlisted.txt", "there");
    world.remount(&["--cache", &cache_dir, "--immutable"]);
    assert_eq!(world.read("b/unlisted.txt"), b"there");
    assert!(run("ls", &[world.path("b")]).contains("unlisted.txt"));
}

fn told(world: &World, text: &str) -> bool {
    world.mount.stderr().contains(text)
}

/// Changes a byte of the only index.
fn damage_index(world: &World, at: impl FnOnce(u64) -> u64) {
    let indexes = fs::read_dir(world.folder().join("cache/lists")).expect("a folder");
    let index = indexes.map(|entry| entry.expect("a file").path()).next().expect("an index");
    let file = fs::File::options().read(true).write(true).open(&index).expect("the index");
    let at = at(file.metadata().expect("a length").len());
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[!byte[0]], at).expect("it is damaged");
}

#[test]
fn an_index_that_is_damaged_where_the_names_begin_is_built_anew() {
    let mut world = listed(BUCKET, &[]);
    let [list, cache] = ["list.tsv", "cache"].map(|name| world.folder().join(name).display().to_string());
    let before = run("ls", &[world.path("a/deep")]);
    damage_index(&world, |_| 1081);
    world.remount(&["--names-from", &list, "--cache", &cache]);
    assert!(told(&world, "an index of names is damaged") && told(&world, "the index of the list was built"));
    assert_eq!(run("ls", &[world.path("a/deep")]), before);
}

#[test]
fn a_damage_that_a_later_daemon_finds_is_mended_by_the_next_mount() {
    let mut world = listed(BUCKET, &["--keep-alive"]);
    let [list, cache] = ["list.tsv", "cache"].map(|name| world.folder().join(name).display().to_string());
    damage_index(&world, |len| len / 2);
    take_over(&world, Signal::SIGKILL);
    let walked = Command::new("find").arg(world.path("")).output().expect("find");
    assert!(!walked.status.success(), "a block is damaged");
    world.remount(&["--names-from", &list, "--cache", &cache]);
    assert!(told(&world, "the index of the list was built"));
    let walked = Command::new("find").arg(world.path("")).output().expect("find");
    assert!(walked.status.success(), "{}", String::from_utf8_lossy(&walked.stderr));
}

#[test]
fn a_block_of_an_index_that_is_damaged_gives_no_wrong_names() {
    let world = listed(BUCKET, &[]);
    let indexes = fs::read_dir(world.folder().join("cache/lists")).expect("a folder");
    let index = indexes.map(|entry| entry.expect("a file").path()).next().expect("an index");
    let file = fs::File::options().write(true).open(&index).expect("the index");
    file.write_all_at(&[0xff; 4000], file.metadata().expect("a length").len() / 2).expect("it is damaged");
    let listed = ["a", "a/deep", "b"]
        .map(|folder| fs::read_dir(world.path(folder)).and_then(Iterator::collect::<Result<Vec<_>, _>>));
    let failed: Vec<_> = listed.iter().filter_map(|listed| listed.as_ref().err()?.raw_os_error()).collect();
    assert!(!failed.is_empty() && failed.iter().all(|errno| *errno == Errno::EIO as i32), "{failed:?}");
    assert!(world.mount.stderr().contains("the index of names can't be read"));
    assert!(!index.exists(), "the next mount builds it");
}

#[test]
fn an_index_may_be_made_before() {
    let mut world = World::new(server(BUCKET), &[]);
    let (list, index) = (list(&world), world.folder().join("index"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    command.arg("names").arg(&list).arg(&index).env_clear();
    let output = run_with_timeout(&mut command, Duration::from_secs(60)).expect("it ends");
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("3001 names in "), "{}", said(&output));
    fs::remove_file(list).expect("it is not needed any more");
    world.remount(&["--names-from", &index.display().to_string()]);
    check_tree(&world);
}

#[test]
fn a_list_may_lie_in_another_bucket() {
    let mut world = World::new(server(BUCKET).bucket("lists"), &[]);
    world.server.put("lists", "today/names.tsv", lines(&world));
    let cache = world.folder().join("cache").display().to_string();
    world.remount(&["--names-from", "s3://lists/today/names.tsv", "--cache", &cache]);
    check_tree(&world);
}

#[test]
fn who_writes_can_have_no_list() {
    let world = World::new(server(BUCKET), &[]);
    let dir = world.folder().join("other");
    fs::create_dir(&dir).expect("a folder");
    let refused = |flags: &[&str]| {
        let mut command = s3mount(&world.server.endpoint(), BUCKET, &dir, flags);
        let output = run_with_timeout(&mut command, Duration::from_secs(60)).expect("it ends");
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        said(&output)
    };
    let list = list(&world).display().to_string();
    let cache = world.folder().join("cache").display().to_string();
    for allow in ["write", "delete"] {
        let text = refused(&["--names-from", &list, "--allow", allow]);
        assert!(text.contains("--names-from is for mounts that only read"), "{text}");
    }
    fs::write(&list, "a/0000.txt\tmany\te\n").expect("a list");
    let text = refused(&["--names-from", &list, "--cache", &cache]);
    let expected = format!("--names-from: {list}, line 1: the size is \"many\", which is no number of bytes");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn names_stay_after_a_takeover_though_the_list_is_gone() {
    let world = listed(BUCKET, &["--keep-alive"]);
    let before = run("ls", &[world.path("a/deep")]);
    assert!(before.lines().count() == 1000);
    fs::write(world.folder().join("list.tsv"), "other\t1\te\n").expect("another list");
    world.server.put(BUCKET, "b/later.txt", "not listed");
    take_over(&world, Signal::SIGKILL);
    assert_eq!(run("ls", &[world.path("a/deep")]), before);
    fs::remove_file(world.folder().join("list.tsv")).expect("removed");
    fs::remove_dir_all(world.folder().join("cache/lists")).expect("removed, with its index");
    take_over(&world, Signal::SIGKILL);
    assert!(!world.path("b/later.txt").exists() && !world.path("other").exists());
    let stored = world.stored_below("a/");
    let read: BTreeMap<_, _> = tree(&world)
        .into_iter()
        .filter_map(|(name, bytes)| Some((name.strip_prefix("a/")?.to_owned(), bytes)))
        .collect();
    assert!(read == stored);
    let stats = world.server.stats();
    assert_eq!([stats.list_objects.requests, stats.head_object.requests], [0, 0]);
}
