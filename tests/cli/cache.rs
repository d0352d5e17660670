//! `s3mount cache`, on folders that a cache of this process has filled.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use s3mount_cache::{DiskCache, DiskConfig};
use s3mount_object::{ByteRange, ETag, ObjectId};
use serde_json::Value;
use tempfile::TempDir;

use crate::run::{Output, check_fails, run, s3mount};

/// How long writing may take, on slow machines.
const LIMIT: Duration = Duration::from_secs(60);

const KIB: u64 = 1 << 10;

/// The objects that [`Cache::new`] keeps whole.
const WHOLE: [(&str, u64); 5] =
    [("a/1", 10 * KIB), ("a/2", 300 * KIB), ("b/1", 1), ("b/a/1", 700 * KIB), ("b/2", 4096)];

/// An object that is kept in part: 256 KiB of it.
const PART: (&str, u64) = ("b/part", 1000 * KIB + 7);

/// Two folders of one cache.
struct Cache {
    folders: [TempDir; 2],
}

impl Cache {
    fn new() -> Self {
        let folder = || {
            let folder = TempDir::new().expect("a folder");
            fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("the owner's folder");
            folder
        };
        let cache = Self { folders: [folder(), folder()] };
        let opened = cache.open();
        for (key, size) in WHOLE {
            offer(&opened, key, size, size);
        }
        offer(&opened, PART.0, PART.1, 256 * KIB);
        assert!(opened.flush(LIMIT));
        drop(opened);
        // Another test of this process may be about to run a command: until then that has our files open.
        let is_used = || cache.run("stats", &["--json"]).stdout.contains("\"is_used\":true");
        assert!((0..200).any(|_| !is_used()), "nobody uses the folders any more");
        cache
    }

    fn open(&self) -> DiskCache {
        let config = DiskConfig {
            dirs: self.folders.iter().map(|folder| folder.path().to_owned()).collect(),
            max_bytes: Some(1 << 30),
            source: "http://127.0.0.1:9000/data".to_owned(),
            queue_bytes: 1 << 30,
            ..DiskConfig::default()
        };
        DiskCache::open(&config).expect("folders of this test")
    }

    /// Runs a command on both folders.
    fn run(&self, command: &str, flags: &[&str]) -> Output {
        let dirs = self.folders.each_ref().map(|folder| folder.path().to_str().expect("text"));
        run(s3mount(&[&["cache", command], &dirs[..], flags].concat()))
    }

    /// The objects that `cache ls --json` shows, by their keys.
    fn list(&self) -> BTreeMap<String, Value> {
        let objects = json(&self.run("ls", &["--json"]), 0);
        objects
            .into_iter()
            .map(|object| (object["key"].as_str().expect("a key").to_owned(), object))
            .collect()
    }

    fn file(&self, key: &str) -> PathBuf {
        self.list()[key]["file"].as_str().expect("a path").into()
    }

    /// Says that an object was used and written last so long ago.
    #[expect(clippy::disallowed_methods, reason = "the command compares with the machine's time")]
    fn set_age(&self, key: &str, age: Duration) {
        let (file, time) = (File::open(self.file(key)).expect("a file"), SystemTime::now() - age);
        file.set_times(FileTimes::new().set_accessed(time).set_modified(time)).expect("its times");
    }
}

fn content(size: u64) -> Bytes {
    (0..size).map(|at| (at / 7 % 251) as u8).collect()
}

fn offer(cache: &DiskCache, key: &str, size: u64, end: u64) {
    let object = cache.object(&ObjectId::new(key, ETag::new("\"e1\"")), size);
    object.offer(ByteRange::new(0, end), &content(end));
}

/// The lines of JSON that a run has printed.
fn json(output: &Output, code: i32) -> Vec<Value> {
    assert_eq!(output.code, Some(code), "{output:?}");
    output.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], at).expect("a byte");
}

#[test]
fn objects_are_listed() {
    let cache = Cache::new();
    let listed = cache.list();
    let sizes: BTreeMap<_, _> = listed
        .iter()
        .map(|(key, object)| (key.as_str(), object["size_bytes"].as_u64().expect("a size")))
        .collect();
    assert_eq!(sizes, WHOLE.into_iter().chain([PART]).collect());
    let part = &listed[PART.0];
    assert_eq!((&part["state"], part["held_bytes"].as_u64()), (&"part".into(), Some(256 * KIB)));
    let whole = &listed["b/2"];
    assert_eq!((&whole["state"], whole["held_bytes"].as_u64()), (&"whole".into(), Some(4096)));
    assert_eq!(whole["object"], "s3://data/b/2");
    assert_eq!(whole["source"], "http://127.0.0.1:9000/data");
    assert_eq!(whole["etag"], "\"e1\"");
    let text = cache.run("ls", &[]).stdout;
    assert_eq!(text.lines().count(), 7, "{text}");
    let line = |object: &str| text.lines().find(|line| line.ends_with(object)).expect("a line").to_owned();
    let words = line("s3://data/b/part").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words[..4], ["1000.01", "KiB", "25", "%"]);
    assert!(line("s3://data/a/1").contains("10.00 KiB  whole "), "{text}");
}

#[test]
fn stats_say_what_is_there() {
    let cache = Cache::new();
    let sum = |stats: &[Value], name: &str| {
        stats.iter().map(|dir| dir[name].as_u64().expect("a number")).sum::<u64>()
    };
    let stats = json(&cache.run("stats", &["--json"]), 0);
    assert_eq!((sum(&stats, "whole_objects"), sum(&stats, "partial_objects")), (5, 1));
    assert_eq!(sum(&stats, "max_bytes"), 1 << 30, "half of it for each folder");
    let bytes = sum(&stats, "disk_bytes");
    assert!((1024 * KIB..2048 * KIB).contains(&bytes), "{bytes} of 1,271 KiB and the records");
    assert_eq!(sum(&stats, "counted_bytes") + 4 * KIB, bytes, "but for the map of the part");
    assert!(
        stats
            .iter()
            .all(|dir| dir["is_used"] == false && dir["idle_s"] == 86_400.0 && dir["pace_s"].is_null())
    );
    let open = cache.open();
    let stats = json(&cache.run("stats", &["--json"]), 0);
    assert!(stats.iter().all(|dir| dir["is_used"] == true));
    drop(open);
    let text = cache.run("stats", &[]).stdout;
    assert!(text.contains(": not in use\n") && text.contains("at most 512.00 MiB\n"), "{text}");
}

#[test]
fn what_is_wrong_is_found_and_deleted() {
    let cache = Cache::new();
    let clean = cache.run("verify", &[]);
    assert_eq!((clean.code, clean.stdout.as_str()), (Some(0), "6 objects, 1.24 MiB compared\n"), "{clean:?}");
    let (whole, part) = (cache.file("b/a/1"), cache.file(PART.0));
    flip(&whole, 400 * KIB);
    flip(&part, 200 * KIB);
    flip(&part, 900 * KIB);
    let found = cache.run("verify", &["--dry-run", "--json", "--jobs", "2"]);
    let mut lines = json(&found, 1);
    let total = lines.pop().expect("the totals");
    assert_eq!((&total["objects"], &total["wrong"], &total["deleted"]), (&6.into(), &2.into(), &0.into()));
    let wrong: BTreeMap<_, _> =
        lines.iter().map(|line| (line["object"].as_str(), line["is_deleted"].as_bool())).collect();
    assert_eq!(
        wrong,
        [(Some("s3://data/b/a/1"), Some(false)), (Some("s3://data/b/part"), Some(false))].into()
    );
    assert!(whole.exists() && part.exists());
    let deleted = cache.run("verify", &[]);
    assert_eq!(deleted.code, Some(1));
    assert_eq!(
        deleted.stderr,
        "s3mount: 2 of these are wrong, 2 deleted; mounts fetch again what is deleted\n"
    );
    let line =
        format!("s3://data/b/a/1: its bytes differ from their checksums, in {}; deleted", whole.display());
    assert!(deleted.stdout.lines().any(|found| found == line), "{deleted:?}");
    assert!(!whole.exists() && !part.exists());
    assert_eq!(cache.run("verify", &[]).code, Some(0));
    assert_eq!(cache.list().len(), 4);
    // A file that another program has put there.
    let copy = cache.file("a/1");
    let name = copy.file_name().and_then(|name| name.to_str()).expect("a name");
    let other = copy.with_file_name(name.replace(&name[60..], "0000"));
    fs::copy(cache.file("a/2"), &other).expect("a copy");
    let found = cache.run("verify", &[]);
    assert!(
        found.stdout.starts_with("an object that is not known: it has no record of which object it is, in ")
    );
    assert_eq!((found.code, other.exists()), (Some(1), false));
}

#[test]
fn objects_are_evicted_by_prefix_by_age_and_by_size() {
    let cache = Cache::new();
    let evict = |flags: &[&str]| cache.run("evict", flags).stdout;
    let keys = || cache.list().into_keys().collect::<Vec<_>>();
    assert_eq!(evict(&["--prefix", "s3://other/a"]), "0 objects, 0 B evicted\n");
    let dry = json(&cache.run("evict", &["--prefix", "s3://data/a/", "--dry-run", "--json"]), 0);
    assert_eq!((&dry[0]["objects"], keys().len()), (&2.into(), 6));
    assert!(evict(&["--prefix", "s3://data/a/"]).starts_with("2 objects, "));
    assert_eq!(keys(), ["b/1", "b/2", "b/a/1", "b/part"]);
    let hour = Duration::from_secs(3600);
    cache.set_age("b/1", 30 * hour);
    cache.set_age("b/2", 20 * hour);
    cache.set_age("b/part", 10 * hour);
    assert!(evict(&["--idle", "1d", "--prefix", "s3://data"]).starts_with("1 object, "));
    assert_eq!(keys(), ["b/2", "b/a/1", "b/part"]);
    assert_eq!(evict(&["--to-size", "1GiB"]), "0 objects, 0 B evicted\n");
    assert!(evict(&["--to-size", "710KiB"]).starts_with("2 objects, "));
    assert_eq!(keys(), ["b/a/1"], "those used least recently are gone");
    assert!(evict(&["--idle", "0s"]).starts_with("1 object, "));
    assert!(keys().is_empty());
}

#[test]
fn a_mount_goes_on_when_its_cache_is_cleared() {
    let cache = Cache::new();
    let open = cache.open();
    let mut file = File::open(cache.file("a/2")).expect("a file");
    let cleared = json(&cache.run("clear", &["--json"]), 0);
    assert_eq!(cleared.iter().map(|dir| dir["objects"].as_u64().expect("a number")).sum::<u64>(), 6);
    assert!(cache.list().is_empty());
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("a file that is open");
    assert!(bytes == content(300 * KIB), "what is open stays readable");
    offer(&open, "new", 20 * KIB, 20 * KIB);
    assert!(open.flush(LIMIT));
    assert_eq!(cache.list().into_keys().collect::<Vec<_>>(), ["new"], "the mount keeps more");
}

#[test]
fn nothing_else_is_cleared() {
    let cache = Cache::new();
    // The numbers of the folders are random, so all objects may lie in one of them.
    let shard = |folder: &TempDir| fs::read_dir(folder.path().join("v1")).expect("a folder").next();
    let full = cache.folders.iter().position(|folder| shard(folder).is_some()).expect("an object");
    let (dir, beside) = (cache.folders[full].path(), cache.folders[1 - full].path());
    let shard = shard(&cache.folders[full]).expect("a shard").expect("a shard");
    let others = [dir.join("mine"), shard.path().join("mine"), dir.join("v1/mine")];
    others.iter().for_each(|path| fs::write(path, "mine").expect("a file"));
    let listings = beside.join("names/00a");
    fs::create_dir(&listings).expect("a folder");
    fs::write(listings.join(format!("00a{:061}", 7)), "a kept listing").expect("a file");
    // A mount was killed in the middle of something.
    for name in ["names/00b/.newAbC", "durable.77-1.new", "probe", "probe.77-2.new"] {
        let path = beside.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, "half").expect("a file");
    }
    assert!(cache.run("clear", &[]).stdout.contains(" deleted\n"));
    let left = |dir: &Path| {
        let mut left = Vec::new();
        let mut folders = vec![dir.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { folders.push(path) } else { left.push(path) }
            }
        }
        left.sort();
        left
    };
    let mut others = others.to_vec();
    others.sort();
    assert_eq!(left(dir), others);
    assert_eq!(fs::read_dir(beside).expect("a folder").count(), 0, "it is as it was before");
    check_fails(
        &["cache", "ls", beside.to_str().expect("text")],
        &format!("{beside:?} is not a disk cache of s3mount; give the folder of a mount's --cache"),
    );
}

#[test]
fn what_is_no_cache_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let dir = folder.path().to_str().expect("text");
    for command in ["ls", "stats", "verify", "clear"] {
        for path in ["/no/such", dir, "/etc/passwd"] {
            check_fails(
                &["cache", command, path],
                &format!("{path:?} is not a disk cache of s3mount; give the folder of a mount's --cache"),
            );
        }
        for again in
            [dir.to_owned(), format!("{dir}/../{}", folder.path().file_name().expect("a name").display())]
        {
            let refusal = format!("{again} is given twice; name each folder once");
            check_fails(&["cache", command, dir, &again], &refusal);
        }
    }
    check_fails(
        &["cache", "evict", dir],
        "nothing says what to evict; give --idle, --prefix or --to-size, or use s3mount cache clear",
    );
    check_fails(
        &["cache", "evict", dir, "--prefix", "data/a"],
        "--prefix \"data/a\" names no bucket; write s3://BUCKET/PREFIX",
    );
    let marker = folder.path().join("s3mount-cache");
    fs::write(&marker, "s3mount kache, layout 1\n").expect("a file");
    check_fails(
        &["cache", "clear", dir],
        &format!(
            "the marker file of the disk cache {dir:?} is damaged; delete {marker:?}, and mount with this --cache once"
        ),
    );
    fs::write(&marker, "s3mount cache, layout 9\n").expect("a file");
    check_fails(
        &["cache", "stats", dir],
        &format!(
            "the disk cache {dir:?} has the layout \"s3mount cache, layout 9\"; use the version of s3mount that \
             has made it"
        ),
    );
}
