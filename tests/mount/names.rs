//! Unusual names, and trees of folders.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom};
use std::time::{Duration, UNIX_EPOCH};

use s3mount_testkit::TestS3;

use crate::world::{BUCKET, GIB, MIB, World, check_stream, run};

#[test]
fn odd_names_are_listed_and_read() {
    let longest = "x".repeat(255);
    let names = [
        "with space",
        " leading",
        "trailing ",
        "tab\tin",
        "new\nline",
        "naïve-café",
        "数据集",
        "🦀.bin",
        "100%",
        "%20",
        "a%2Fb",
        "a+b",
        "a&b=c",
        "quote\"s",
        "it's",
        "back\\slash",
        "semi;colon",
        "#hash",
        "?query",
        "[b]*",
        "$HOME",
        "~",
        "-rf",
        "...",
        "<xml>&amp;",
        longest.as_str(),
    ];
    let server = names.iter().fold(TestS3::builder(), |server, name| {
        server.object(BUCKET, name, name.to_string()).object(BUCKET, &format!("dir {name}/{name}"), "below")
    });
    let world = World::new(server, &[]);
    for name in names {
        assert_eq!(fs::read_to_string(world.path(name)).expect(name), name);
    }
    // For the longest name, the name of the folder `dir NAME` would be too long.
    let fitting: Vec<_> = names.iter().filter(|name| name.len() + 4 <= 255).collect();
    for name in &fitting {
        assert_eq!(fs::read_to_string(world.path(&format!("dir {name}/{name}"))).expect(name), "below");
    }
    let listed: BTreeSet<_> = fs::read_dir(world.mount.path())
        .expect("the root")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    let folders = fitting.iter().map(|name| format!("dir {name}"));
    let expected: BTreeSet<_> =
        names.iter().map(|name| (*name).to_owned()).chain(folders).map(Into::into).collect();
    assert_eq!(listed, expected);
}

#[test]
fn keys_that_are_no_paths_are_hidden() {
    let keys = ["a//b", "/c", "d/../e", "./f", "g/", "h/i", "h"];
    let server = keys.iter().fold(TestS3::builder(), |server, key| server.object(BUCKET, key, "x"));
    let world = World::new(server.object(BUCKET, &"y".repeat(256), "x"), &[]);
    let names = |dir: &str| -> BTreeSet<_> {
        fs::read_dir(world.path(dir))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect()
    };
    assert_eq!(names(""), ["a", "d", "g", "h"].map(Into::into).into());
    assert_eq!(names("h"), [OsStr::new("i").to_owned()].into());
    for empty in ["a", "d", "g"] {
        assert!(names(empty).is_empty(), "{empty}");
    }
    assert!(world.path("h").is_dir(), "a folder wins over a key of its name");
    // What is listed of a key that is hidden: the key, or the folder that it begins with.
    let hidden = ["a//", "/", "d/../", "./", "h", &"y".repeat(256)];
    let said = world.mount.stderr();
    let told: Vec<_> = said.lines().filter(|line| line.contains("key hidden")).collect();
    assert!(
        told.len() == 1 && hidden.iter().any(|key| told[0].ends_with(&format!("key={key:?}"))),
        "{told:?}"
    );
}

#[test]
fn ls_shows_ten_thousand_keys_with_a_list_for_each_folder() {
    let server = (0..10_000).fold(TestS3::builder(), |server, index| {
        server.synthetic(BUCKET, &format!("t/{:02}/{:02}/f{index:05}", index / 1000, index / 100 % 10), index)
    });
    let world = World::new(server, &[]);
    let listed = run("ls", &[OsStr::new("-lR"), world.path("t").as_os_str()]);
    let files: BTreeSet<(u64, &str)> = listed
        .lines()
        .filter(|line| line.starts_with('-'))
        .map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            (fields[4].parse().expect("a size"), *fields.last().expect("a name"))
        })
        .collect();
    let expected: Vec<_> = (0..10_000).map(|index| (index, format!("f{index:05}"))).collect();
    assert_eq!(files, expected.iter().map(|(size, name)| (*size, name.as_str())).collect());
    // The folder t, its 10 folders, and their 100 folders take one LIST each. The look-up of t takes another
    // one.
    let lists = world.server.stats().list_objects.requests;
    assert!(lists <= 112, "{lists} LISTs");
}

#[test]
fn the_largest_the_empty_and_the_oldest_object_are_shown_as_they_are() {
    let before = UNIX_EPOCH - Duration::from_millis(86_400_500);
    let server = TestS3::builder()
        .synthetic(BUCKET, "largest", 5 * 1024 * GIB)
        .object(BUCKET, "empty", "")
        .written_at(BUCKET, "oldest", before);
    let world = World::new(server, &[]);
    let mut largest = world.open("largest");
    assert_eq!(largest.metadata().expect("attributes").len(), 5 * 1024 * GIB);
    let last = largest.seek(SeekFrom::End(-10_000)).expect("a place");
    check_stream(largest, "largest", last, 10_000);
    assert_eq!(world.read("empty"), b"");
    let oldest = world.path("oldest").metadata().expect("attributes");
    assert_eq!(oldest.modified().expect("a time"), before);
    world.check_memory(256 * MIB);
}

#[test]
fn a_prefix_is_the_root_of_the_mount() {
    let server = TestS3::builder().object(BUCKET, "train/a/0", "zero").object(BUCKET, "train2", "no");
    let world = World::new(server, &["--prefix", "train"]);
    assert_eq!(fs::read_to_string(world.path("a/0")).expect("a file"), "zero");
    assert_eq!(fs::read_dir(world.mount.path()).expect("the root").count(), 1);
}

#[test]
fn a_prefix_can_be_mounted_where_a_policy_allows_nothing_else() {
    let server = TestS3::builder().object(BUCKET, "train/a/0", "zero").object(BUCKET, "other", "no");
    let world = World::new(server.allow_only("train/"), &["--prefix", "train"]);
    assert_eq!(fs::read_to_string(world.path("a/0")).expect("a file"), "zero");
    assert_eq!(fs::read_dir(world.mount.path()).expect("the root").count(), 1);
    assert!(!world.path("b").exists());
}
