//! Files that the disk cache holds as a whole: the kernel reads them by itself, without the daemon.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::Mmap;
use nix::mount::MsFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_object::ChecksumAlgorithm;
use s3mount_testkit::{Builder, Fault, FaultKind, MountGuard, Operation, TestS3, check};
use tempfile::TempDir;

use crate::world::{
    BUCKET, KIB, MIB, Unmount, World, check_file, check_stream, map, mount_tmpfs, s3mount, wait_for,
};

const SIZE: u64 = 24 * MIB;
const SMALL: u64 = 110 * KIB;

/// A mount with a disk cache. The mount is dropped first.
struct Cached {
    world: World,
    dir: PathBuf,
    folder: TempDir,
}

impl Cached {
    fn new(server: Builder, flags: &[&str]) -> Self {
        let folder = TempDir::new().expect("a folder");
        let dir = folder.path().join("cache");
        Self { folder, ..Self::at(dir, server, flags) }
    }

    /// Mounts with the cache `dir`.
    fn at(dir: PathBuf, server: Builder, flags: &[&str]) -> Self {
        let flag = dir.display().to_string();
        let world = World::counting(server, &[&["--cache", &flag], flags].concat());
        Self { world, dir, folder: TempDir::new().expect("a folder") }
    }

    /// The files of whole versions in the cache.
    fn whole_files(&self) -> Vec<PathBuf> {
        let shards = std::fs::read_dir(self.dir.join("v1")).expect("the cache");
        let files =
            shards.flat_map(|shard| std::fs::read_dir(shard.expect("a shard").path()).expect("a shard"));
        let paths = files.map(|file| file.expect("a file").path());
        paths.filter(|path| path.extension().is_none()).collect()
    }

    /// Mounts the bucket once more, with the same cache, in the place of the mount before.
    fn remount(&mut self, flags: &[&str]) {
        let dir = TempDir::new_in(self.folder.path()).expect("a mount point").keep();
        let flag = self.dir.display().to_string();
        let flags = [&["--foreground", "--no-hedging", "--cache", &flag], flags].concat();
        let mut command = s3mount(&self.world.server.endpoint(), BUCKET, &dir, &flags);
        self.world.mount = MountGuard::new(&mut command, &dir).expect("a mount");
        self.world.server.reset_stats();
    }

    /// Waits until the cache holds so many whole versions.
    fn wait_for_whole(&self, count: usize) {
        wait_for("the cache has the files", || self.whole_files().len() == count);
    }

    /// Reads the files for the first time, until the cache has them.
    fn fill(&self, names: &[&str]) {
        for name in names {
            check_file(&self.path(name), name);
        }
        self.wait_for_whole(names.len());
        self.world.server.reset_stats();
    }

    fn evict_all(&self) {
        for path in self.whole_files() {
            std::fs::remove_file(path).expect("a cached file");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// How many files were opened by passthrough.
    fn passed(&self) -> u64 {
        self.world.gauge("opens_passthrough")
    }
}

fn server() -> Builder {
    TestS3::builder().synthetic(BUCKET, "large.bin", SIZE).synthetic(BUCKET, "small.bin", SMALL)
}

fn open_direct(path: &Path) -> File {
    File::options().read(true).custom_flags(libc::O_DIRECT).open(path).expect("a file")
}

/// Compares some bytes of an open file, at many places, with the object.
fn check_pieces_of(file: &File, key: &str, size: u64, len: u64) {
    for number in 0..40 {
        let offset = (number * 1_234_577) % size;
        let mut piece = vec![0; len.min(size - offset) as usize];
        file.read_exact_at(&mut piece, offset).expect("a read");
        check(key, offset, &piece).expect("the object's bytes");
    }
}

/// A program that reads a file to its end.
fn cat(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::piped()).spawn().expect("cat")
}

fn check_cat(mut cat: Child, key: &str) -> u64 {
    let read = check_stream(cat.stdout.take().expect("a pipe"), key, 0, MIB as usize);
    assert!(cat.wait().expect("its end").success());
    read
}

#[test]
fn the_kernel_reads_cached_files_without_the_daemon() {
    let cached = Cached::new(server(), &[]);
    let before = cached.path("large.bin").metadata().expect("a file");
    cached.fill(&["large.bin", "small.bin"]);
    let (reads, passed) = (cached.world.gauge("reads"), cached.passed());
    assert_eq!(check_file(&cached.path("large.bin"), "large.bin"), SIZE);
    assert_eq!(check_file(&cached.path("small.bin"), "small.bin"), SMALL);
    let file = File::open(cached.path("large.bin")).expect("a file");
    check_pieces_of(&file, "large.bin", SIZE, 128 * KIB);
    check("large.bin", 0, &map(&file)).expect("the object's bytes");
    let open = file.metadata().expect("a file");
    assert_eq!((cached.passed() - passed, cached.world.gauge("reads")), (3, reads));
    assert_eq!(cached.world.fetched(), 0);
    let shown = |file: &std::fs::Metadata| (file.len(), file.ino(), file.mtime(), file.mode());
    assert_eq!(shown(&open), shown(&before), "the mount's, not those of the cached file");
}

#[test]
fn an_open_file_outlives_its_cached_file_and_the_daemon() {
    let cached = Cached::new(server(), &[]);
    cached.fill(&["large.bin", "small.bin"]);
    let file = File::open(cached.path("large.bin")).expect("a file");
    let mapped = map(&File::open(cached.path("small.bin")).expect("a file"));
    cached.evict_all();
    check_pieces_of(&file, "large.bin", SIZE, MIB);
    check("small.bin", 0, &mapped).expect("the object's bytes");
    // Others have the file open, so this one is opened in the same way.
    let passed = cached.passed();
    assert_eq!(check_file(&cached.path("large.bin"), "large.bin"), SIZE);
    assert_eq!((cached.passed() - passed, cached.world.fetched()), (1, 0));
    let pid = Pid::from_raw(cached.world.mount.pid().cast_signed());
    kill(pid, Signal::SIGKILL).expect("a signal");
    wait_for("the daemon has ended", || File::open(cached.path("large.bin")).is_err());
    check_pieces_of(&file, "large.bin", SIZE, MIB);
    check("small.bin", 0, &mapped).expect("the object's bytes");
}

#[test]
fn an_evicted_file_is_fetched_anew() {
    let cached = Cached::new(server(), &[]);
    cached.fill(&["large.bin", "small.bin"]);
    assert_eq!(check_file(&cached.path("small.bin"), "small.bin"), SMALL);
    cached.evict_all();
    // The daemon may have the file until it has the RELEASE of the last open.
    wait_for("the file is fetched", || {
        check_file(&cached.path("small.bin"), "small.bin");
        cached.world.fetched() >= SMALL
    });
    assert_eq!(check_file(&cached.path("large.bin"), "large.bin"), SIZE);
}

/// A map may live for weeks after its file was closed, and its mount is gone. What is mapped is in use: its bytes would
/// stay on the disk.
#[test]
fn what_is_mapped_is_not_evicted_however_old_it_is() {
    let names: Vec<_> = (0..32).map(|number| format!("d/{number:02}.bin")).collect();
    let all = names.iter().fold(server().synthetic(BUCKET, "idle.bin", SMALL), |server, name| {
        server.synthetic(BUCKET, name, MIB)
    });
    let limit = ["--max-cache-size", "16MiB"];
    let mut cached = Cached::new(all, &limit);
    cached.fill(&["small.bin"]);
    let file = File::open(cached.path("small.bin")).expect("a file");
    assert_eq!(cached.passed(), 1);
    let mapped = map(&file);
    drop(file);
    let (small, files) = (cached.whole_files(), cached.whole_files().len());
    check_file(&cached.path("idle.bin"), "idle.bin");
    cached.wait_for_whole(files + 1);
    cached.remount(&limit);
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let times = std::fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
    for path in cached.whole_files() {
        File::open(path).and_then(|file| file.set_times(times)).expect("a cached file");
    }
    let idle = cached.whole_files().into_iter().find(|path| !small.contains(path)).expect("the other file");
    for name in &names {
        check_file(&cached.path(name), name);
    }
    wait_for("what was idle makes room", || !idle.exists());
    assert!(small[0].exists(), "it is mapped");
    check("small.bin", 0, &mapped).expect("the object's bytes");
}

#[test]
fn direct_reads_go_to_the_daemon_and_maps_to_the_disk() {
    let cached = Cached::new(server().synthetic(BUCKET, "named.x", SIZE), &["--direct-io", "*.x"]);
    cached.fill(&["large.bin", "named.x"]);
    let plain = File::open(cached.path("large.bin")).expect("a file");
    for key in ["large.bin", "named.x"] {
        let reads = cached.world.gauge("reads");
        let direct = open_direct(&cached.path(key));
        // The disk itself would want aligned pieces.
        check_pieces_of(&direct, key, SIZE, 1000);
        let read = cached.world.gauge("reads") - reads;
        assert!(read >= 40, "{read} reads of {key}");
        check(key, 0, &map(&direct)).expect("the object's bytes");
        assert_eq!(cached.world.gauge("reads") - reads, read, "a map of {key}");
    }
    let named = File::open(cached.path("named.x")).expect("a file");
    check_pieces_of(&named, "named.x", SIZE, 1000);
    check("named.x", 0, &map(&named)).expect("the object's bytes");
    check_pieces_of(&plain, "large.bin", SIZE, 1000);
    assert_eq!((cached.world.gauge("passthrough_refused_busy"), cached.world.fetched()), (0, 0));
}

#[test]
fn a_file_that_is_open_from_before_keeps_all_with_the_daemon() {
    let cached = Cached::new(server(), &[]);
    let path = cached.path("large.bin");
    let old = File::open(&path).expect("a file");
    cached.fill(&["large.bin"]);
    let cats: Vec<_> = (0..8).map(|_| cat(&path)).collect();
    assert!(cats.into_iter().all(|cat| check_cat(cat, "large.bin") == SIZE));
    assert_eq!((cached.passed(), cached.world.gauge("passthrough_refused_busy")), (0, 8));
    let mapped = map(&old);
    drop(old);
    let cats: Vec<_> = (0..8).map(|_| cat(&path)).collect();
    check("large.bin", 0, &mapped).expect("the object's bytes");
    assert!(cats.into_iter().all(|cat| check_cat(cat, "large.bin") == SIZE));
    assert_eq!(cached.passed(), 0, "the map has the old file");
    drop(mapped);
    wait_for("all old files are released", || cached.world.gauge("open_files") <= 1);
    let cats: Vec<_> = (0..8).map(|_| cat(&path)).collect();
    assert!(cats.into_iter().all(|cat| check_cat(cat, "large.bin") == SIZE));
    assert_eq!((cached.passed(), cached.world.fetched()), (8, 0));
}

/// Numbers without order.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Opens one file in a way that `choice` chooses, and compares its bytes. Returns what stays open of it.
fn open_and_check(path: &Path, key: &str, choice: u64) -> (Option<File>, Option<Mmap>) {
    let file = if choice.is_multiple_of(4) { open_direct(path) } else { File::open(path).expect("a file") };
    let mapped = match choice % 3 {
        0 => {
            check_pieces_of(&file, key, SMALL, 5000);
            None
        }
        1 => {
            assert_eq!(check_stream(&file, key, 0, MIB as usize), SMALL);
            None
        }
        _ => {
            let mapped = map(&file);
            check(key, 0, &mapped).expect("the object's bytes");
            Some(mapped)
        }
    };
    let stays_open = choice.is_multiple_of(5);
    (stays_open.then_some(file), mapped.filter(|_| stays_open))
}

#[test]
fn ten_thousand_opens_while_files_become_complete_and_are_evicted() {
    const FILES: u64 = 60;
    const THREADS: u64 = 8;
    let name = |number: u64| format!("d/{number:03}.bin");
    let server =
        (0..FILES).fold(TestS3::builder(), |server, number| server.synthetic(BUCKET, &name(number), SMALL));
    let cached = Cached::new(server, &[]);
    let (is_over, evicted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let cached = &cached;
                scope.spawn(move || {
                    let (mut state, mut open) = (thread + 1, std::collections::VecDeque::new());
                    for _ in 0..10_000 / THREADS {
                        let key = name(next(&mut state) % FILES);
                        open.push_back(open_and_check(&cached.path(&key), &key, next(&mut state)));
                        if open.len() > 6 {
                            open.pop_front();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for path in cached.whole_files() {
                    // The kernel's file is another one meanwhile if it is fetched again.
                    evicted.fetch_add(u64::from(std::fs::remove_file(path).is_ok()), Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        });
        let ends: Vec<_> = readers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok), "{}", cached.world.mount.stderr());
    });
    let (passed, through_daemon) = (cached.passed(), cached.world.gauge("opens_cached"));
    assert_eq!(passed + through_daemon, 10_000);
    assert!(passed > 500 && through_daemon > 500, "{passed} and {through_daemon}");
    assert!(evicted.into_inner() > FILES);
    wait_for("all is released", || cached.world.gauge("open_files") <= 1);
}

#[test]
fn hints_of_cached_files_are_passed_when_the_files_are_opened() {
    let name = |number: u64| format!("d/{number:03}.bin");
    let names: Vec<_> = (0..20).map(name).collect();
    let server =
        names[1..].iter().fold(TestS3::builder(), |server, name| server.synthetic(BUCKET, name, SMALL));
    let mut cached = Cached::new(server.synthetic(BUCKET, &names[0], SIZE), &[]);
    cached.fill(&names.iter().map(|name| &**name).collect::<Vec<_>>());
    // The kernel's page cache holds nothing of a mount that is new.
    cached.remount(&[]);
    let looked = cached.world.gauge("disk_cache_looks_whole");
    std::fs::write(cached.path(".s3mount/prefetch"), names.join("\n")).expect("hints");
    wait_for("the hints are followed", || cached.world.gauge("hints_ahead") == 20);
    for name in &names {
        check_file(&cached.path(name), name);
    }
    wait_for("the hints are passed", || cached.world.gauge("hints_ahead") == 0);
    assert_eq!((cached.passed(), cached.world.gauge("reads")), (20, 0));
    assert_eq!((cached.world.gauge("disk_cache_reads"), cached.world.fetched()), (0, 0));
    assert_eq!(cached.world.gauge("disk_cache_looks_whole") - looked, 20, "the hint has found the file");
}

#[test]
fn without_passthrough_the_daemon_reads_the_disk() {
    let cached = Cached::new(server(), &["--no-passthrough"]);
    cached.fill(&["large.bin", "small.bin"]);
    let direct = open_direct(&cached.path("large.bin"));
    assert_eq!(check_stream(&direct, "large.bin", 0, MIB as usize), SIZE);
    assert_eq!((cached.passed(), cached.world.fetched()), (0, 0));
}

#[test]
fn a_cache_on_overlayfs_is_read_by_the_kernel_too() {
    let folder = TempDir::new().expect("a folder");
    let ram = folder.path().join("ram");
    std::fs::create_dir(&ram).expect("a folder");
    let _ram = mount_tmpfs(&ram, "");
    let [lower, upper, work, over] = ["lower", "upper", "work", "over"].map(|name| ram.join(name));
    [&lower, &upper, &work, &over].into_iter().for_each(|dir| std::fs::create_dir(dir).expect("a folder"));
    let options =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    nix::mount::mount(Some("overlay"), &over, Some("overlay"), MsFlags::empty(), Some(&*options))
        .expect("an overlayfs");
    let _over = Unmount(&over);
    let cached = Cached::at(over.join("cache"), server(), &[]);
    cached.fill(&["large.bin", "small.bin"]);
    assert_eq!(check_file(&cached.path("large.bin"), "large.bin"), SIZE);
    check_pieces_of(&open_direct(&cached.path("small.bin")), "small.bin", SMALL, 1000);
    assert_eq!((cached.passed(), cached.world.fetched()), (2, 0));
}

/// Bytes that came wrong, to a mount that did not compare them, are in the cache. A mount that compares everything
/// has them compared before the kernel may read them by itself.
#[test]
fn what_came_wrong_to_another_mount_is_not_passed_through() {
    let whole = ["--verify", "whole"];
    let mut cached = Cached::new(server(), &[]);
    let flip = Fault::new(FaultKind::FlipBit).on(Operation::GetObject).times(1);
    cached.world.server.fault(Fault { key_contains: "large".to_owned(), ..flip });
    let bytes = std::fs::read(cached.path("large.bin")).expect("a file");
    assert!(check("large.bin", 0, &bytes).is_err(), "nothing was flipped: this test could not fail");
    check_file(&cached.path("small.bin"), "small.bin");
    cached.wait_for_whole(2);
    cached.remount(&whole);
    // It is read whole: there is an error, or the bytes are right.
    let read = std::fs::read(cached.path("large.bin"));
    let is_wrong = read.as_ref().is_ok_and(|bytes| check("large.bin", 0, bytes).is_err());
    assert!(!is_wrong, "wrong bytes were read");
    assert_eq!(read.map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));
    assert_eq!((cached.passed(), cached.world.gauge("objects_corrupt")), (0, 1));
    // It is fetched anew, and right, and then the kernel may have it: now, and in the next mount.
    assert_eq!(check_file(&cached.path("large.bin"), "large.bin"), SIZE);
    wait_for("the kernel may read it", || {
        check_file(&cached.path("large.bin"), "large.bin");
        cached.passed() > 0
    });
    cached.remount(&whole);
    assert_eq!(check_file(&cached.path("large.bin"), "large.bin"), SIZE);
    // The store sends a small file with its checksum.
    assert_eq!(check_file(&cached.path("small.bin"), "small.bin"), SMALL);
    assert_eq!((cached.passed(), cached.world.fetched()), (2, 0));
}

/// Of parts of an upload, and of other CRCs than the cache keeps, the version is compared all the same.
#[test]
fn what_was_compared_is_passed_through_whatever_checksum_the_store_keeps() {
    for (checksum, in_parts) in [
        (ChecksumAlgorithm::Crc64Nvme, false),
        (ChecksumAlgorithm::Crc32c, false),
        (ChecksumAlgorithm::Crc32, true),
    ] {
        let server = server();
        let server = if in_parts {
            server.uploaded_in_parts(8 * MIB, checksum)
        } else {
            server.checksum(Some(checksum))
        };
        let cached = Cached::new(server, &["--verify", "whole"]);
        check_file(&cached.path("large.bin"), "large.bin");
        cached.wait_for_whole(1);
        wait_for("the kernel may read it", || {
            check_file(&cached.path("large.bin"), "large.bin");
            cached.passed() > 0
        });
    }
    let cached = Cached::new(server().checksum(None), &["--verify", "whole"]);
    check_file(&cached.path("large.bin"), "large.bin");
    cached.wait_for_whole(1);
    for _ in 0..3 {
        check_file(&cached.path("large.bin"), "large.bin");
    }
    assert_eq!(cached.passed(), 0, "nobody can compare it");
}
