//! Runs random sequences of operations, by several handles, while the bucket changes and requests fail. Their
//! results are compared with a model that is too simple to be wrong. The model knows the bytes of each
//! version, and what a fresh look at the bucket shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use s3mount_fs::{
    DirOffset, FileHandle, FileKind, Filesystem, FsConfig, FsError, InodeNo, MetadataTtl, ROOT,
};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::ErrorKind;
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::{MemoryClient, content};
use tokio::runtime::Handle;

/// There are few keys, and they are alike, so that often one key is a file where another needs a folder.
const KEYS: [&str; 10] = ["a", "a/b", "a/b/c", "a/d", "a-b", "b/", "b/x", "c//d", "./e", "long/name.bin"];

/// A time limit that is longer than all failures of a sequence take, one after another.
const PATIENCE: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
enum Step {
    /// Puts a version of this many bytes.
    Put(usize, u64),
    Delete(usize),
    /// Makes this many of the next requests fail.
    Fail(u8),
    /// Looks a path up, and opens it if it is a file.
    Open(usize),
    /// Reads by one of the open handles: by which handle, at which offset in thousandths of the size, and how
    /// many bytes.
    Read(usize, u64, usize),
    Close(usize),
    /// Lists a folder, from its beginning.
    List(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS.len();
    let size = prop_oneof![Just(0), 1..5000_u64, 60_000..200_000_u64, 3_000_000..4_000_000_u64];
    let step = prop_oneof![
        3 => (key.clone(), size).prop_map(|(key, size)| Step::Put(key, size)),
        1 => key.clone().prop_map(Step::Delete),
        1 => (1..4_u8).prop_map(Step::Fail),
        4 => key.clone().prop_map(Step::Open),
        8 => (0..8_usize, 0..1100_u64, 1..300_000_usize).prop_map(|(file, at, len)| Step::Read(file, at, len)),
        1 => (0..8_usize).prop_map(Step::Close),
        2 => key.prop_map(Step::List),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A failing sequence as a script that shows the same by hand, with the AWS CLI and a mount.
fn script(steps: &[Step]) -> String {
    let mut script = String::from("# s3mount --metadata-ttl minimal s3://$B $M\n");
    for (turn, step) in steps.iter().enumerate() {
        let line = match step {
            Step::Put(key, size) => {
                format!("head -c {size} /dev/urandom | aws s3 cp - \"s3://$B/{}\"", KEYS[*key])
            }
            Step::Delete(key) => format!("aws s3 rm \"s3://$B/{}\"", KEYS[*key]),
            Step::Fail(count) => format!("# the next {count} requests fail with 503"),
            Step::Open(key) => format!("exec {{f{turn}}}< \"$M/{}\"", KEYS[*key]),
            Step::Read(file, at, len) => {
                format!("# handle {file} modulo those open: pread {len} bytes at {at}/1000 of its size")
            }
            Step::Close(file) => format!("# close handle {file} modulo those open"),
            Step::List(key) => format!("ls -la \"$M/{}\"", parent(KEYS[*key])),
        };
        // Writing to a string can't fail.
        let _ = writeln!(script, "{line}");
    }
    script
}

fn parent(key: &str) -> &str {
    key.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// One version. Its bytes follow from its number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Version {
    number: usize,
    size: u64,
}

fn bytes(version: Version, at: u64, len: usize) -> Vec<u8> {
    let len = usize::try_from(version.size.saturating_sub(at)).unwrap_or(usize::MAX).min(len);
    content(&format!("version {}", version.number), at, len)
}

/// What the bucket holds now, and how many versions there ever were.
#[derive(Default)]
struct Model {
    now: BTreeMap<&'static str, Version>,
    ever: usize,
}

impl Model {
    /// Whether a path is a file, a folder, or nothing, by the rules of SEMANTICS.md for all keys.
    fn look(&self, path: &str) -> Option<FileKind> {
        let possible = |name: &str| !(name.is_empty() || name == "." || name == "..");
        if !path.split('/').all(possible) {
            return None;
        }
        if self.now.keys().any(|key| key.starts_with(&format!("{path}/"))) {
            return Some(FileKind::Directory);
        }
        self.now.contains_key(path).then_some(FileKind::File)
    }

    /// The names in a folder.
    fn list(&self, folder: &str) -> BTreeSet<String> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let names = self.now.keys().filter_map(|key| key.strip_prefix(&prefix));
        let names = names.map(|rest| rest.split('/').next().unwrap_or_default().to_owned());
        names.filter(|name| !(name.is_empty() || name == "." || name == "..")).collect()
    }
}

struct Open {
    handle: FileHandle,
    version: Version,
    /// Whether a read has found that the version is gone.
    is_stale: bool,
}

async fn look_up(fs: &Filesystem, path: &str) -> Result<(InodeNo, FileKind, u64), FsError> {
    let mut found = (ROOT, FileKind::Directory, 0);
    for name in path.split('/').filter(|_| !path.is_empty()) {
        let entry = fs.lookup(found.0, name).await?;
        found = (entry.attr.ino, entry.attr.kind, entry.attr.size);
    }
    Ok(found)
}

async fn read(fs: &Arc<Filesystem>, handle: FileHandle, at: u64, len: usize) -> Result<Vec<u8>, FsError> {
    let (send, receive) = tokio::sync::oneshot::channel();
    fs.read(handle, at, len, move |result| {
        let _ = send.send(result.map(<[u8]>::to_vec));
    });
    receive.await.expect("an answer")
}

async fn list(fs: &Filesystem, ino: InodeNo) -> Result<BTreeSet<String>, FsError> {
    let handle = fs.opendir(ino)?;
    let (mut names, mut offset) = (BTreeSet::new(), DirOffset::AFTER_DOTS);
    let result = loop {
        match fs.readdir(handle, offset, 3).await {
            Err(error) => break Err(error),
            Ok(page) => match page.last() {
                None => break Ok(names),
                Some(last) => {
                    offset = last.next;
                    names.extend(page.into_iter().map(|entry| entry.name));
                }
            },
        }
    };
    fs.releasedir(handle);
    result
}

fn mount(client: &Arc<MemoryClient>) -> Arc<Filesystem> {
    let pool = BufferPool::new(MemoryBudget::new(8 << 20)).expect("a pool");
    let prefetch = PrefetchConfig {
        hedge_share: 0.0,
        part_bytes: 1 << 20,
        read_timeout: PATIENCE,
        ..PrefetchConfig::default()
    };
    let prefetcher = Prefetcher::new(client.clone(), pool, prefetch, &Handle::current());
    let config = FsConfig {
        metadata_ttl: MetadataTtl::Minimal,
        negative_metadata_ttl: Duration::ZERO,
        timeout: PATIENCE,
        ..FsConfig::default()
    };
    Arc::new(Filesystem::new(client.clone(), prefetcher, config, &Handle::current()))
}

async fn run(steps: &[Step], is_directory_bucket: bool) -> Result<(), TestCaseError> {
    let client = Arc::new(MemoryClient::new());
    if is_directory_bucket {
        client.make_directory_bucket();
    }
    let fs = mount(&client);
    let (mut model, mut open) = (Model::default(), Vec::<Open>::new());
    for step in steps {
        match *step {
            Step::Put(key, size) => {
                model.ever += 1;
                let version = Version { number: model.ever, size };
                client.put(KEYS[key], bytes(version, 0, usize::MAX));
                model.now.insert(KEYS[key], version);
            }
            Step::Delete(key) => {
                client.delete(KEYS[key]);
                model.now.remove(KEYS[key]);
            }
            Step::Fail(count) => client.fail_next((0..count).map(|_| ErrorKind::Throttled)),
            Step::Open(key) => {
                let path = KEYS[key].trim_end_matches('/');
                let found = look_up(&fs, path).await;
                match (model.look(path), found) {
                    (None, Err(FsError::NotFound)) => {}
                    // The path has a file where a folder would have to be.
                    (None, Err(FsError::NotDirectory)) => {}
                    (Some(FileKind::Directory), Ok((ino, FileKind::Directory, _))) => {
                        prop_assert!(fs.open(ino).is_err());
                    }
                    (Some(FileKind::File), Ok((ino, FileKind::File, size))) => {
                        let version = model.now[path];
                        prop_assert_eq!(size, version.size);
                        let handle = fs.open(ino).expect("a file").handle;
                        open.push(Open { handle, version, is_stale: false });
                    }
                    (expected, found) => {
                        return Err(TestCaseError::fail(format!("{path}: {expected:?}, but {found:?}")));
                    }
                }
            }
            Step::Read(file, at, len) => {
                let count = open.len();
                let Some(file) = open.get_mut(file % count.max(1)) else { continue };
                let at = file.version.size * at / 1000;
                let is_there = model.now.values().any(|version| *version == file.version);
                match read(&fs, file.handle, at, len).await {
                    // If the version is gone, memory may still hold some of its bytes.
                    Ok(read) => prop_assert!(read == bytes(file.version, at, len), "other bytes"),
                    Err(error) => {
                        prop_assert!(!is_there || file.is_stale, "{error}");
                        prop_assert_eq!(error.errno(), libc::ESTALE);
                        file.is_stale = true;
                    }
                }
            }
            Step::Close(file) if !open.is_empty() => {
                let file = open.swap_remove(file % open.len());
                fs.release(file.handle);
            }
            Step::Close(_) => {}
            Step::List(key) => {
                let folder = parent(KEYS[key]).trim_end_matches('/');
                match (model.look(folder), look_up(&fs, folder).await) {
                    (_, Ok((ino, FileKind::Directory, _))) => {
                        prop_assert_eq!(list(&fs, ino).await.expect("a folder"), model.list(folder));
                    }
                    (Some(FileKind::Directory), found) => {
                        return Err(TestCaseError::fail(format!("{folder}: {found:?}")));
                    }
                    (None | Some(FileKind::File | FileKind::Link), _) => {}
                }
            }
        }
    }
    open.drain(..).for_each(|file| fs.release(file.handle));
    prop_assert_eq!(fs.metrics().open_files.get(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_filesystem_is_as_its_model(steps in steps(), is_directory_bucket in any::<bool>()) {
        // The clock is paused, so pauses between attempts take no time.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let result = runtime.expect("a runtime").block_on(run(&steps, is_directory_bucket));
        let kind = if is_directory_bucket { "# in a directory bucket\n" } else { "" };
        prop_assert!(result.is_ok(), "{:?}\n{}{}", result, kind, script(&steps));
    }
}
