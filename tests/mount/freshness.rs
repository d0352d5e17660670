//! The bucket changes while it is mounted.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use nix::errno::Errno;
use s3mount_testkit::{Fault, FaultKind, Operation, TestS3, check};

use crate::world::{BUCKET, GIB, MIB, World, check_file, run, wait_for};

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

#[test]
fn a_deleted_object_is_enoent_at_open_and_estale_while_open() {
    let world = World::new(TestS3::builder().synthetic(BUCKET, "f", GIB), &["--metadata-ttl", "minimal"]);
    let file = world.open("f");
    let mut buffer = vec![0; MIB as usize];
    file.read_exact_at(&mut buffer, 0).expect("a read");
    world.server.delete(BUCKET, "f");
    let error = file.read_at(&mut buffer, 700 * MIB).expect_err("it is gone");
    assert_eq!(errno(&error), Some(Errno::ESTALE), "{error}");
    let error = File::open(world.path("f")).expect_err("it is gone");
    assert_eq!(errno(&error), Some(Errno::ENOENT), "{error}");
    let error = world.path("f").metadata().expect_err("it is gone");
    assert_eq!(errno(&error), Some(Errno::ENOENT), "{error}");
}

#[test]
fn a_replaced_object_is_estale_while_open_and_new_at_the_next_open() {
    let world = World::new(TestS3::builder().synthetic(BUCKET, "f", GIB), &["--metadata-ttl", "minimal"]);
    let file = world.open("f");
    let mut buffer = vec![0; 4096];
    file.read_exact_at(&mut buffer, 0).expect("a read");
    let old = file.metadata().expect("attributes").ino();
    world.server.put(BUCKET, "f", "new content");
    let error = file.read_at(&mut buffer, 700 * MIB).expect_err("another version");
    assert_eq!(errno(&error), Some(Errno::ESTALE), "{error}");
    // Bytes of the old version that were read before stay readable.
    file.read_exact_at(&mut buffer, 0).expect("from memory");
    check("f", 0, &buffer).expect("the old version's bytes");
    assert_eq!(fs::read(world.path("f")).expect("the new version"), b"new content");
    assert_ne!(world.path("f").metadata().expect("attributes").ino(), old);
}

#[test]
fn who_opens_again_at_once_after_estale_has_the_new_version() {
    let world = World::new(TestS3::builder().synthetic(BUCKET, "f", GIB), &["--metadata-ttl", "indefinite"]);
    let mut buffer = [0; 4096];
    for turn in 1..=200 {
        let file = world.open("f");
        // The object has another size each time, and so it is another version.
        world.server.put_synthetic(BUCKET, "f", GIB + turn);
        let error = file.read_at(&mut buffer, 700 * MIB).expect_err("the version is gone");
        assert_eq!(errno(&error), Some(Errno::ESTALE), "{error}");
        let file = File::open(world.path("f")).expect("the new version");
        file.read_exact_at(&mut buffer, 100 * MIB).unwrap_or_else(|error| panic!("turn {turn}: {error}"));
    }
}

#[test]
fn one_wrong_404_ends_only_the_handles_that_have_met_it() {
    let world = World::new(TestS3::builder().synthetic(BUCKET, "f", GIB), &[]);
    let read = |file: &File, at| {
        let mut buffer = vec![0; 4096];
        file.read_exact_at(&mut buffer, at).map(|()| check("f", at, &buffer).expect("right bytes"))
    };
    let mut dead = Vec::new();
    for (turn, status) in (1..).zip([404, 412, 416]) {
        let file = world.open("f");
        let fault = Fault::new(FaultKind::Status(status, "Wrong".to_owned())).on(Operation::GetObject);
        world.server.fault(fault.times(1));
        let error = read(&file, turn * 100 * MIB).expect_err("the store says that it is gone");
        assert_eq!(errno(&error), Some(Errno::ESTALE), "{status}: {error}");
        dead.push(file);
        let again = world.open("f");
        read(&again, turn * 100 * MIB).unwrap_or_else(|error| panic!("{status}: {error}"));
    }
    let error = read(&dead[0], 900 * MIB).expect_err("it stays as it is");
    assert_eq!(errno(&error), Some(Errno::ESTALE), "{error}");
}

#[test]
fn a_replaced_object_of_the_same_size_is_never_served_from_old_pages() {
    let server = TestS3::builder().object(BUCKET, "f", "one");
    let world = World::new(server, &["--metadata-ttl", "minimal"]);
    for text in ["two", "six", "ten"] {
        assert_ne!(world.read("f"), text.as_bytes());
        world.server.put(BUCKET, "f", text);
        assert_eq!(world.read("f"), text.as_bytes());
    }
}

#[test]
fn names_and_their_neighbours_are_believed_for_the_ttl() {
    let server = TestS3::builder().synthetic(BUCKET, "d/f", MIB).object(BUCKET, "d/g", "old");
    let world = World::new(server, &["--metadata-ttl", "indefinite"]);
    check_file(&world.path("d/f"), "d/f");
    world.server.delete(BUCKET, "d/f");
    world.server.put(BUCKET, "d/g", "longer");
    assert!(world.path("d/f").exists(), "within the TTL");
    assert_eq!(world.path("d/g").metadata().expect("a file").len(), 3, "it was listed with d/f");
    let names: Vec<_> = fs::read_dir(world.path("d"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["g"], "readdir lists anew");
}

#[test]
fn a_name_is_looked_up_anew_once_its_ttl_is_over() {
    let server = TestS3::builder().object(BUCKET, "d/f", "old").object(BUCKET, "d/g", "old");
    let world = World::new(server, &["--metadata-ttl", "1"]);
    assert_eq!(world.path("d/f").metadata().expect("d/f").len(), 3);
    assert_eq!(world.path("d/g").metadata().expect("d/g").len(), 3);
    world.server.put(BUCKET, "d/f", "longer");
    world.server.delete(BUCKET, "d/g");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(world.path("d/f").metadata().expect("d/f").len(), 6, "the mount has asked again");
    assert!(!world.path("d/g").exists(), "the mount has asked again");
}

#[test]
fn the_kernel_is_told_what_a_listing_finds_changed() {
    let server = (0..10).fold(TestS3::builder(), |server, index| {
        server.object(BUCKET, &format!("a/d/f{index}"), "old").object(BUCKET, &format!("a/e{index}/x"), "old")
    });
    let world = World::new(server, &["--metadata-ttl", "indefinite"]);
    let [kept, replaced, deleted] = ["a/d/f1", "a/d/f2", "a/d/f3"].map(|path| world.path(path));
    for path in [&kept, &replaced, &deleted, &world.path("a/e3/x")] {
        assert_eq!(fs::read(path).expect("a file"), b"old");
    }
    let ino = kept.metadata().expect("attributes").ino();
    world.server.put(BUCKET, "a/d/f2", "new content");
    world.server.delete(BUCKET, "a/d/f3");
    world.server.delete(BUCKET, "a/e3/x");
    assert_eq!(fs::read(&replaced).expect("within the TTL"), b"old");
    run("ls", &[world.path("a/d")]);
    run("ls", &[world.path("a")]);
    wait_for("the names are told of", || {
        fs::read(&replaced).expect("a file") == b"new content"
            && !deleted.exists()
            && !world.path("a/e3").exists()
    });
    assert_eq!(kept.metadata().expect("attributes").ino(), ino);
}

#[test]
fn twenty_thousand_changed_names_are_fresh_once_a_listing_has_seen_them() {
    let key = |index: u64| format!("d/{index:05}");
    let server =
        (0..20_000).fold(TestS3::builder(), |server, index| server.synthetic(BUCKET, &key(index), 7));
    let world = World::new(server, &["--metadata-ttl", "indefinite"]);
    let sizes =
        |size| (0..20_000).all(|index| world.path(&key(index)).metadata().expect("a file").len() == size);
    assert!(sizes(7));
    (0..20_000).for_each(|index| world.server.put_synthetic(BUCKET, &key(index), 8));
    assert!(sizes(7), "within the TTL");
    run("ls", &[world.path("d")]);
    // From here on, a program that opens a file gets the new version. The new attributes follow in a moment.
    for index in (0..20_000).step_by(50) {
        assert_eq!(check_file(&world.path(&key(index)), &key(index)), 8, "{index}");
    }
    wait_for("all attributes are the new ones", || sizes(8));
}

#[test]
fn no_look_up_waits_for_a_listing_that_hangs_because_a_name_has_changed() {
    let server = TestS3::builder().object(BUCKET, "d/f", "old").object(BUCKET, "d/g", "x");
    let world = World::new(server, &["--metadata-ttl", "indefinite"]);
    assert_eq!(world.read("d/f"), b"old");
    let list = || fs::read_dir(world.path("d")).expect("a folder").count();
    world.server.fault(Fault::new(FaultKind::Freeze).on(Operation::ListObjects).times(1));
    std::thread::scope(|scope| {
        let hangs = scope.spawn(list);
        wait_for("it is open", || world.gauge("open_folders") == 1);
        std::thread::sleep(Duration::from_millis(200));
        world.server.put(BUCKET, "d/f", "new content");
        assert_eq!(list(), 2);
        let error = world.path("d/h").metadata().expect_err("no such file");
        assert_eq!(errno(&error), Some(Errno::ENOENT));
        assert_eq!(world.read("d/f"), b"new content");
        assert!(!hangs.is_finished(), "they did not wait for it");
        world.server.thaw();
        assert_eq!(hangs.join().expect("a listing"), 2);
    });
    wait_for("its attributes are the new ones", || {
        world.path("d/f").metadata().expect("a file").len() == b"new content".len() as u64
    });
}

#[test]
fn what_a_walk_has_listed_ahead_is_used_once() {
    let server = (0..40).fold(TestS3::builder(), |server, index| {
        server.object(BUCKET, &format!("t/{index:02}/a/f"), "x").object(
            BUCKET,
            &format!("t/{index:02}/g"),
            "x",
        )
    });
    let world = World::new(server, &[]);
    let files = || run("find", &[world.path("t"), "-type".into(), "f".into()]).lines().count();
    assert_eq!(files(), 80);
    for index in 0..40 {
        world.server.put(BUCKET, &format!("t/{index:02}/a/new"), "x");
        world.server.delete(BUCKET, &format!("t/{index:02}/g"));
    }
    assert_eq!(files(), 80 + 40 - 40, "a walk lists anew");
    let names: Vec<_> = fs::read_dir(world.path("t/20/a")).expect("a folder").collect();
    assert_eq!(names.len(), 2);
}

#[test]
fn what_a_walk_has_listed_ahead_hides_nothing_that_was_learnt_since() {
    let folders = ["a", "b", "c", "next"];
    let server = folders
        .iter()
        .fold(TestS3::builder(), |server, folder| server.object(BUCKET, &format!("{folder}/f"), "x"));
    let world = World::new(server, &["--allow=write"]);
    let names = |folder: &str| {
        let names = fs::read_dir(world.path(folder)).expect("a folder");
        let names = names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
        names.collect::<std::collections::BTreeSet<_>>()
    };
    assert!(names("").is_superset(&folders.map(str::to_owned).into()));
    folders[..3].iter().for_each(|folder| assert_eq!(names(folder).len(), 1));
    wait_for("the next folder is listed ahead", || world.server.stats().list_objects.requests >= 5);
    fs::create_dir(world.path("next/made")).expect("made");
    fs::write(world.path("next/made/f"), "x").expect("written");
    world.server.put(BUCKET, "next/put", "x");
    // Then the mount lists the folder for a name that it does not know.
    std::thread::sleep(Duration::from_secs(2));
    assert!(world.path("next/put").exists());
    assert_eq!(names("next"), ["f", "made", "put"].map(str::to_owned).into());
}

#[test]
fn a_new_name_is_found_after_the_negative_ttl() {
    let server = TestS3::builder().object(BUCKET, "d/f", "text");
    let world = World::new(server, &["--metadata-ttl", "indefinite", "--negative-metadata-ttl", "2"]);
    assert!(!world.path("d/g").exists());
    world.server.put(BUCKET, "d/g", "there");
    assert!(!world.path("d/g").exists(), "a listing has told that it is not");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(fs::read(world.path("d/g")).expect("a new file"), b"there");
}

#[test]
fn immutable_believes_that_a_name_is_absent() {
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text"), &["--immutable"]);
    assert!(!world.path("d/g").exists());
    world.server.put(BUCKET, "d/g", "there");
    // Without the flag, absence is believed for less than this time.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!world.path("d/g").exists());
}
