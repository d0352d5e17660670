//! Runs random operations of programs that write, and compares the mount, the bucket and a second mount with a model
//! in memory. Now and then the daemon is killed: then the bucket holds what was closed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use s3mount_testkit::{MountGuard, TestS3, content};

use crate::world::{BUCKET, DIRECTORY_BUCKET, World, wait_for};

const PATHS: [&str; 7] = ["a", "b", "d", "d/a", "d/b", "e/a", "e/f/a"];
const FOLDERS: [&str; 4] = ["d", "e", "e/f", "a"];

#[derive(Clone, Debug)]
enum Step {
    /// Opens a file: which, and whether it is made (`O_CREAT`), new (`O_EXCL`), emptied.
    Open(usize, bool, bool, bool),
    /// Writes by a handle at a share of the file in thousandths.
    Write(usize, usize, usize),
    Append(usize, usize),
    Truncate(usize, usize),
    Sync(usize),
    Close(usize),
    /// Reads by a handle.
    Read(usize, usize, usize),
    Unlink(usize),
    Rename(usize, usize),
    MakeFolder(usize),
    RemoveFolder(usize),
    /// Looks at a path.
    Look(usize),
    /// Looks at all.
    Find,
    /// The daemon is killed.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (path, folder, handle) = (0..PATHS.len(), 0..FOLDERS.len(), 0..6_usize);
    let len = prop_oneof![6 => 1..3000_usize, 3 => 100_000..400_000_usize, 1 => 6_000_000..11_000_000_usize];
    let step = prop_oneof![
        8 => (path.clone(), any::<bool>(), 0..8, 0..4)
            .prop_map(|(path, makes, new, empties)| Step::Open(path, makes, new == 0, empties == 0)),
        12 => (handle.clone(), 0..1500_usize, len.clone()).prop_map(|(file, at, len)| Step::Write(file, at, len)),
        4 => (path.clone(), len.clone()).prop_map(|(path, len)| Step::Append(path, len)),
        2 => (handle.clone(), 0..1500_usize).prop_map(|(file, at)| Step::Truncate(file, at)),
        2 => handle.clone().prop_map(Step::Sync),
        6 => handle.clone().prop_map(Step::Close),
        6 => (handle, 0..1000_usize, len).prop_map(|(file, at, len)| Step::Read(file, at, len)),
        3 => path.clone().prop_map(Step::Unlink),
        6 => (path.clone(), path.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        3 => folder.clone().prop_map(Step::MakeFolder),
        2 => folder.prop_map(Step::RemoveFolder),
        5 => path.prop_map(Step::Look),
        2 => Just(Step::Find),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The bytes of a file, which all its handles share.
type Bytes = Rc<RefCell<Vec<u8>>>;

struct Model {
    files: BTreeMap<String, Bytes>,
    folders: BTreeSet<String>,
    /// What the bucket holds.
    stored: BTreeMap<String, Vec<u8>>,
    open: Vec<(File, Bytes)>,
    writes: u32,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn errno<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

/// A world, and a second mount of its bucket.
struct Mounts {
    /// **Invariant**: it is dropped first. Its folder is one of the world's, and its server is the world's, too.
    other: MountGuard,
    world: World,
}

impl Mounts {
    fn path(&self, path: &str) -> PathBuf {
        self.world.path(path)
    }
}

impl Model {
    fn new() -> Self {
        Self {
            files: BTreeMap::new(),
            folders: BTreeSet::from([String::new()]),
            stored: BTreeMap::new(),
            open: Vec::new(),
            writes: 0,
        }
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        self.writes += 1;
        content(&format!("write {}", self.writes), 0, len)
    }

    fn is_empty(&self, folder: &str) -> bool {
        let below = format!("{folder}/");
        !self.files.keys().chain(&self.folders).any(|path| path.starts_with(&below))
    }

    /// The errno for a path that has to be a file, or may be made.
    fn missing(&self, path: &str) -> i32 {
        match parent(path) {
            parent if self.files.contains_key(parent) => libc::ENOTDIR,
            _ => libc::ENOENT,
        }
    }

    fn open(&mut self, mounts: &Mounts, path: &str, makes: bool, is_new: bool, empties: bool) {
        let (makes, empties) = (makes || is_new, empties && !is_new);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(makes).create_new(is_new).truncate(empties);
        let result = options.open(mounts.path(path));
        let expected = match self.files.get(path) {
            Some(_) if is_new => Some(libc::EEXIST),
            Some(_) => None,
            None if self.folders.contains(path) && is_new => Some(libc::EEXIST),
            None if self.folders.contains(path) => Some(libc::EISDIR),
            None if makes && self.folders.contains(parent(path)) => None,
            None => Some(self.missing(path)),
        };
        assert_eq!(errno(&result), expected, "open {path} {makes} {is_new} {empties}");
        let Ok(file) = result else { return };
        let bytes = self.files.entry(path.to_owned()).or_default().clone();
        if empties {
            bytes.borrow_mut().clear();
        }
        self.open.push((file, bytes));
    }

    /// After a close, the bucket holds what was written.
    fn close(&mut self, mounts: &Mounts, file: File, bytes: &Bytes) {
        nix::unistd::close(file).expect("a close");
        let Some(path) = self.path_of(bytes) else { return };
        let expected = bytes.borrow().clone();
        let is_there = || {
            mounts
                .world
                .server
                .stored(mounts.world.bucket, &path)
                .is_some_and(|stored| stored.bytes() == expected)
        };
        if self.open.iter().any(|(_, other)| Rc::ptr_eq(other, bytes)) && !is_there() {
            // Nobody has written to it since it was published, or made.
            return;
        }
        // A file to which nobody has written is an object a moment later.
        wait_for("the object", is_there);
        let second = fs::read(mounts.other.path().join(&path));
        assert!(second.is_ok_and(|second| second == expected), "{path} in the second mount");
        self.stored.insert(path, expected);
    }

    fn path_of(&self, bytes: &Bytes) -> Option<String> {
        self.files.iter().find(|(_, other)| Rc::ptr_eq(other, bytes)).map(|(path, _)| path.clone())
    }

    /// The bucket may hold what was written by now, before anybody has closed it.
    fn note_stored(&mut self, mounts: &Mounts, path: &str) {
        let now = self.files.get(path).map(|bytes| bytes.borrow().clone());
        let found = mounts.world.server.stored(mounts.world.bucket, path).map(|stored| stored.bytes());
        if let Some(found) = found.filter(|found| now.as_ref() == Some(found)) {
            self.stored.insert(path.to_owned(), found);
        }
    }

    fn rename(&mut self, mounts: &Mounts, from: &str, to: &str) {
        let result = fs::rename(mounts.path(from), mounts.path(to));
        if self.folders.contains(from) && from != to {
            // What becomes of folders depends on what the bucket holds of them: only look that all is as it was.
            if result.is_ok() {
                fs::rename(mounts.path(to), mounts.path(from)).expect("the old name");
                if self.folders.contains(to) {
                    fs::create_dir(mounts.path(to)).expect("the empty folder that it replaced");
                }
            }
            return;
        }
        // The folders of both names are looked up first.
        let no_folder = [from, to].into_iter().find(|path| !self.folders.contains(parent(path)));
        let expected = if let Some(path) = no_folder {
            Some(self.missing(path))
        } else if !self.files.contains_key(from) && !self.folders.contains(from) {
            Some(libc::ENOENT)
        } else if from == to {
            None
        } else if self.folders.contains(to) {
            Some(if from.starts_with(&format!("{to}/")) { libc::ENOTEMPTY } else { libc::EISDIR })
        } else {
            None
        };
        assert_eq!(errno(&result), expected, "rename {from} {to}");
        if result.is_ok() && from != to {
            let bytes = self.files.remove(from).expect("a file");
            self.files.insert(to.to_owned(), bytes);
            if let Some(stored) = self.stored.remove(from) {
                self.stored.insert(to.to_owned(), stored);
            }
            self.note_stored(mounts, to);
        }
    }

    fn look(&self, mounts: &Mounts, path: &str) {
        let found = fs::metadata(mounts.path(path));
        match self.files.get(path) {
            Some(bytes) => {
                assert_eq!(found.expect("attributes").len(), bytes.borrow().len() as u64, "{path}");
                assert!(fs::read(mounts.path(path)).expect("a file") == *bytes.borrow(), "{path}");
            }
            None if self.folders.contains(path) => assert!(found.expect("attributes").is_dir(), "{path}"),
            None => assert_eq!(errno(&found), Some(self.missing(path)), "{path}"),
        }
    }

    fn find(&self, mounts: &Mounts) {
        for folder in &self.folders {
            let mut found: Vec<String> = fs::read_dir(mounts.path(folder))
                .expect("a folder")
                .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
                .collect();
            found.sort();
            let all = self.files.keys().chain(&self.folders);
            let within = all.filter(|path| !path.is_empty() && parent(path) == folder);
            let mut names: Vec<&str> = within.map(|path| path.rsplit('/').next().expect("a name")).collect();
            names.sort_unstable();
            assert_eq!(found, names, "in {folder:?}");
        }
    }

    /// What is there after a crash is what the bucket holds, and that is what was closed, or published since.
    fn crash(&mut self, mounts: &mut Mounts) {
        mounts.world.crash();
        mounts.world.remount(&FLAGS);
        let known: BTreeMap<String, Vec<u8>> =
            self.files.iter().map(|(path, bytes)| (path.clone(), bytes.borrow().clone())).collect();
        self.open.clear();
        self.files.clear();
        self.folders = BTreeSet::from([String::new()]);
        let server = &mounts.world.server;
        for key in server.keys(mounts.world.bucket) {
            let bytes = server.stored(mounts.world.bucket, &key).expect("an object").bytes();
            let is_known = known.get(&key) == Some(&bytes) || self.stored.get(&key) == Some(&bytes);
            assert!(is_known, "{key} is torn");
            let mut folder = parent(&key);
            while !folder.is_empty() {
                self.folders.insert(folder.to_owned());
                folder = parent(folder);
            }
            self.files.insert(key, Rc::new(RefCell::new(bytes)));
        }
    }
}

const FLAGS: [&str; 6] =
    ["--allow=overwrite", "--allow=delete", "--write-part-size", "5MiB", "--memory-limit", "96MiB"];

fn step(model: &mut Model, mounts: &mut Mounts, step: &Step) {
    let count = model.open.len().max(1);
    let handle = |model: &Model, file: usize| {
        model.open.get(file % count).map(|(_, bytes)| (file % count, bytes.clone()))
    };
    match *step {
        Step::Open(path, makes, is_new, empties) => model.open(mounts, PATHS[path], makes, is_new, empties),
        Step::Write(file, at, len) => {
            let Some((file, bytes)) = handle(model, file) else { return };
            let data = model.data(len);
            let mut bytes = bytes.borrow_mut();
            let at = bytes.len() * at / 1000;
            model.open[file].0.write_all_at(&data, at as u64).expect("a write");
            if bytes.len() < at + len {
                bytes.resize(at + len, 0);
            }
            bytes[at..at + len].copy_from_slice(&data);
        }
        Step::Append(path, len) => {
            let path = PATHS[path];
            let file = OpenOptions::new().append(true).open(mounts.path(path));
            let expected = match path {
                path if model.files.contains_key(path) => None,
                path if model.folders.contains(path) => Some(libc::EISDIR),
                path => Some(model.missing(path)),
            };
            assert_eq!(errno(&file), expected, "append {path}");
            let (Ok(mut file), Some(bytes)) = (file, model.files.get(path).cloned()) else { return };
            let data = model.data(len);
            file.write_all(&data).expect("a write");
            bytes.borrow_mut().extend_from_slice(&data);
            model.close(mounts, file, &bytes);
        }
        Step::Truncate(file, at) => {
            let Some((file, bytes)) = handle(model, file) else { return };
            let len = bytes.borrow().len() * at / 1000;
            model.open[file].0.set_len(len as u64).expect("a size");
            bytes.borrow_mut().resize(len, 0);
        }
        Step::Sync(file) => {
            let Some((file, bytes)) = handle(model, file) else { return };
            model.open[file].0.sync_all().expect("safe");
            if let Some(path) = model.path_of(&bytes) {
                model.note_stored(mounts, &path);
            }
        }
        Step::Close(file) => {
            let Some((file, bytes)) = handle(model, file) else { return };
            let (file, _) = model.open.swap_remove(file);
            model.close(mounts, file, &bytes);
        }
        Step::Read(file, at, len) => {
            let Some((file, bytes)) = handle(model, file) else { return };
            let bytes = bytes.borrow();
            let at = bytes.len() * at / 1000;
            let mut buffer = vec![0; len];
            let read = model.open[file].0.read_at(&mut buffer, at as u64).expect("a read");
            assert!(buffer[..read] == bytes[at..bytes.len().min(at + len)], "{read} bytes at {at}");
        }
        Step::Unlink(path) => {
            let path = PATHS[path];
            let result = fs::remove_file(mounts.path(path));
            let expected = match model.files.remove(path) {
                Some(_) => None,
                None if model.folders.contains(path) => Some(libc::EISDIR),
                None => Some(model.missing(path)),
            };
            assert_eq!(errno(&result), expected, "unlink {path}");
            if expected.is_none() {
                assert!(mounts.world.server.stored(mounts.world.bucket, path).is_none(), "{path} is there");
                model.stored.remove(path);
            }
        }
        Step::Rename(from, to) => model.rename(mounts, PATHS[from], PATHS[to]),
        Step::MakeFolder(folder) => {
            let folder = FOLDERS[folder];
            let result = fs::create_dir(mounts.path(folder));
            let expected = if model.files.contains_key(folder) || model.folders.contains(folder) {
                Some(libc::EEXIST)
            } else if model.folders.contains(parent(folder)) {
                None
            } else {
                Some(model.missing(folder))
            };
            assert_eq!(errno(&result), expected, "mkdir {folder}");
            if expected.is_none() {
                model.folders.insert(folder.to_owned());
            }
        }
        Step::RemoveFolder(folder) => {
            let folder = FOLDERS[folder];
            let result = fs::remove_dir(mounts.path(folder));
            let expected = if model.files.contains_key(folder) {
                Some(libc::ENOTDIR)
            } else if !model.folders.contains(folder) {
                Some(model.missing(folder))
            } else if model.is_empty(folder) {
                None
            } else {
                Some(libc::ENOTEMPTY)
            };
            assert_eq!(errno(&result), expected, "rmdir {folder}");
            if expected.is_none() {
                model.folders.remove(folder);
            }
        }
        Step::Look(path) => model.look(mounts, PATHS[path]),
        Step::Find => model.find(mounts),
        Step::Crash => model.crash(mounts),
    }
}

fn run(mounts: &mut Mounts, steps: &[Step]) {
    let mut model = Model::new();
    for next in steps {
        step(&mut model, mounts, next);
    }
    while let Some((file, bytes)) = model.open.pop() {
        model.close(mounts, file, &bytes);
    }
    model.find(mounts);
    for path in PATHS {
        model.look(mounts, path);
    }
    let keys = mounts.world.server.keys(mounts.world.bucket);
    assert_eq!(keys, model.files.keys().cloned().collect::<Vec<_>>());
    for key in &keys {
        fs::remove_file(mounts.path(key)).expect("gone");
    }
    for folder in model.folders.iter().rev().filter(|folder| !folder.is_empty()) {
        fs::remove_dir(mounts.path(folder)).expect("gone");
    }
}

/// The sequences are the same in each run, so that a change is what makes it fail. `S3MOUNT_CASES` runs as many
/// others.
#[test]
fn writers_and_their_bucket_are_as_their_model() {
    check(BUCKET, 40);
}

#[test]
fn writers_and_their_directory_bucket_are_as_their_model() {
    check(DIRECTORY_BUCKET, 10);
}

/// Compares two mounts of `bucket` with the model, `few` times unless the environment wants more.
fn check(bucket: &'static str, few: u32) {
    let cases: Option<u32> = std::env::var("S3MOUNT_CASES").ok().and_then(|number| number.parse().ok());
    let world = World::of_bucket(bucket, TestS3::builder(), &FLAGS);
    let dir = world.folder().join("other");
    fs::create_dir(&dir).expect("a folder");
    let other = world.also(&dir, &["--metadata-ttl", "minimal", "--negative-metadata-ttl", "minimal"]);
    let mounts = RefCell::new(Mounts { world, other });
    let config = ProptestConfig {
        cases: cases.unwrap_or(few),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    };
    let mut runner = match cases {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let result = runner.run(&steps(), |steps| {
        let mounts = &mut *mounts.borrow_mut();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(mounts, &steps)));
        outcome.map_err(|cause| {
            // The next sequence begins anew.
            mounts.world.remount(&FLAGS);
            for key in mounts.world.server.keys(mounts.world.bucket) {
                mounts.world.server.delete(mounts.world.bucket, &key);
            }
            let text = cause.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
            TestCaseError::fail(text)
        })
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
