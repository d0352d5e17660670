//! Runs random operations through the kernel while the bucket changes, and compares the bytes with those of
//! each version.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use s3mount_testkit::{Fault, FaultKind, TestS3, content};

use crate::world::{BUCKET, DIRECTORY_BUCKET, World};

const KEYS: [&str; 6] = ["a", "a/b", "a-b", "b/x", "b/y/z", "c"];

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize),
    Delete(usize),
    /// Makes one request fail.
    Fail,
    Open(usize),
    /// Reads: by which handle, at which offset in thousandths of the size, and how many bytes.
    Read(usize, usize, usize),
    /// Lists all names below the root.
    Find,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (key, size) = (0..KEYS.len(), prop_oneof![0..3000_usize, 100_000..400_000_usize]);
    let step = prop_oneof![
        3 => (key.clone(), size).prop_map(|(key, size)| Step::Put(key, size)),
        1 => key.clone().prop_map(Step::Delete),
        1 => Just(Step::Fail),
        4 => key.prop_map(Step::Open),
        8 => (0..6_usize, 0..1000_usize, 1..200_000_usize).prop_map(|(file, at, len)| Step::Read(file, at, len)),
        1 => Just(Step::Find),
    ];
    proptest::collection::vec(step, 1..40)
}

/// The content of each version follows from its number.
fn bytes(number: usize, size: usize) -> Vec<u8> {
    content(&format!("version {number}"), 0, size)
}

/// The files that a tree of these keys shows.
fn files<'a>(now: &BTreeMap<&'a str, Vec<u8>>) -> Vec<&'a str> {
    let is_folder = |key: &str| now.keys().any(|other| other.starts_with(&format!("{key}/")));
    now.keys().copied().filter(|key| !is_folder(key)).collect()
}

fn found(world: &World) -> Vec<String> {
    let (mut folders, mut files) = (vec![world.path("")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                let below = path.strip_prefix(world.path("")).expect("below the root");
                files.push(below.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    files.sort_unstable();
    files
}

fn run(world: &World, steps: &[Step]) -> Result<(), TestCaseError> {
    for key in KEYS {
        world.server.delete(world.bucket, key);
    }
    world.server.clear_faults();
    let (mut now, mut open, mut number) =
        (BTreeMap::<&str, Vec<u8>>::new(), Vec::<(File, Vec<u8>)>::new(), 0);
    for step in steps {
        match *step {
            Step::Put(key, size) => {
                number += 1;
                let bytes = bytes(number, size);
                world.server.put(world.bucket, KEYS[key], bytes.clone());
                now.insert(KEYS[key], bytes);
            }
            Step::Delete(key) => {
                world.server.delete(world.bucket, KEYS[key]);
                now.remove(KEYS[key]);
            }
            Step::Fail => world.server.fault(Fault::new(FaultKind::Reset).times(1)),
            Step::Open(key) => {
                let is_file = files(&now).contains(&KEYS[key]);
                let metadata = fs::metadata(world.path(KEYS[key]));
                prop_assert_eq!(metadata.as_ref().is_ok_and(fs::Metadata::is_file), is_file, "{}", KEYS[key]);
                if is_file {
                    prop_assert_eq!(metadata.expect("attributes").len(), now[KEYS[key]].len() as u64);
                    let file = world.open(KEYS[key]);
                    open.push((file, now[KEYS[key]].clone()));
                }
            }
            Step::Read(file, at, len) => {
                let count = open.len();
                let Some((file, bytes)) = open.get(file % count.max(1)) else { continue };
                let at = bytes.len() * at / 1000;
                let mut buffer = vec![0; len];
                match file.read_at(&mut buffer, at as u64) {
                    Ok(read) => {
                        let expected = &bytes[at..bytes.len().min(at + len)];
                        // Of a version that is gone, only the bytes that the kernel keeps can be read.
                        let is_there = now.values().any(|other| other == bytes);
                        prop_assert!(expected.starts_with(&buffer[..read]), "other bytes");
                        prop_assert!(read == expected.len() || !is_there, "{read} of {}", expected.len());
                    }
                    Err(error) => {
                        prop_assert_eq!(error.raw_os_error(), Some(Errno::ESTALE as i32));
                        prop_assert!(!now.values().any(|other| other == bytes), "it is there: {error}");
                    }
                }
            }
            Step::Find => prop_assert_eq!(found(world), files(&now)),
        }
    }
    Ok(())
}

/// Compares a mount of `bucket` with the model, `cases` times.
fn check(bucket: &'static str, cases: u32) {
    let flags = ["--metadata-ttl", "minimal", "--negative-metadata-ttl", "minimal"];
    let world = World::of_bucket(bucket, TestS3::builder(), &flags);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&steps(), |steps| run(&world, &steps));
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_mount_is_as_its_model() {
    check(BUCKET, 60);
}

#[test]
fn the_mount_of_a_directory_bucket_is_as_its_model() {
    check(DIRECTORY_BUCKET, 20);
}
