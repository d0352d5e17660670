//! What is read is kept on the disk: for the next epoch, for the next mount, and for other mounts.

use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statvfs::statvfs;
use s3mount_testkit::{TestS3, check, mix, run_with_timeout};
use tempfile::TempDir;

use crate::world::{BUCKET, KIB, MIB, World, check_file, mount_tmpfs, run, wait_for};

const LIMIT: u64 = 128 * MIB;

/// A folder for a cache.
pub(crate) struct Cache {
    /// Deleted with what is in it.
    guard: TempDir,
    path: PathBuf,
}

impl Cache {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().expect("a folder");
        let path = dir.path().join("above").join("cache");
        fs::create_dir(dir.path().join("above")).and_then(|()| fs::create_dir(&path)).expect("a folder");
        fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("the owner's folder");
        Self { guard: dir, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that the cache's folder lies in.
    fn above(&self) -> PathBuf {
        self.guard.path().join("above")
    }

    /// The flags of a mount that keeps what it reads here.
    pub(crate) fn flags<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let path = self.path().to_str().expect("a plain path");
        [&["--cache", path, "--memory-limit", "128MiB"], more].concat()
    }

    /// The files of whole objects.
    pub(crate) fn whole(&self) -> Vec<PathBuf> {
        let shards = fs::read_dir(self.path().join("v1")).into_iter().flatten().flatten();
        let files = shards.flat_map(|shard| fs::read_dir(shard.path()).into_iter().flatten().flatten());
        files.map(|file| file.path()).filter(|path| path.extension().is_none()).collect()
    }
}

/// Drops the pages of these files of the mount from the kernel's cache, and of no other test's files.
fn drop_pages<'a>(world: &World, keys: impl IntoIterator<Item = &'a str>) {
    for key in keys {
        let file = world.open(key);
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("advice");
    }
}

/// A bucket with a large, a middling and a small file.
const KEYS: [&str; 3] = ["large", "middling", "small"];
pub(crate) const FILES: [(&str, u64); 3] =
    [(KEYS[0], 40 * MIB + 12_345), (KEYS[1], 3 * MIB + 1), (KEYS[2], 100 * KIB + 7)];

pub(crate) fn world(cache: &Cache, more: &[&str]) -> World {
    let server =
        FILES.iter().fold(TestS3::builder(), |server, (key, size)| server.synthetic(BUCKET, key, *size));
    World::counting(server, &cache.flags(more))
}

/// Reads all files, until all of them are kept.
pub(crate) fn fill(world: &World, cache: &Cache) {
    for _ in 0..20 {
        for (key, size) in FILES {
            assert_eq!(check_file(&world.path(key), key), size);
        }
        for _ in 0..100 {
            if cache.whole().len() == FILES.len() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop_pages(world, KEYS);
    }
    panic!("{} of {} files are kept", cache.whole().len(), FILES.len());
}

/// Only what the patterns leave is kept, and a mount without them does not lose it.
#[test]
fn files_that_the_patterns_leave_out_are_not_kept() {
    let cache = Cache::new();
    let flags = ["--cache-include", "*l*", "--cache-include", "mid?ling", "--cache-exclude", "/large"];
    let mut world = world(&cache, &flags);
    let read = |world: &World| {
        for (key, size) in FILES {
            assert_eq!(check_file(&world.path(key), key), size);
        }
    };
    read(&world);
    wait_for("two files are kept", || cache.whole().len() == 2);
    world.remount(&cache.flags(&flags));
    let before = world.fetched();
    read(&world);
    let fetched = world.fetched() - before;
    assert!(
        (FILES[0].1..FILES[0].1 + MIB).contains(&fetched),
        "{fetched} bytes: only the large file is fetched"
    );
    assert_eq!(cache.whole().len(), 2);
    let (has_succeeded, said) = warm(&world.path(""));
    assert!(has_succeeded && said.contains("1 files are left out by --cache-include"), "{said}");
    world.remount(&cache.flags(&[]));
    fill(&world, &cache);
    // What was kept by others is not read where it is left out.
    world.remount(&cache.flags(&flags));
    let before = world.fetched();
    read(&world);
    assert!(world.fetched() - before >= FILES[0].1);
}

#[test]
fn a_later_mount_reads_from_the_disk() {
    let cache = Cache::new();
    let mut world = world(&cache, &[]);
    fill(&world, &cache);
    for _ in 0..2 {
        world.remount(&cache.flags(&[]));
        for (key, size) in FILES {
            assert_eq!(check_file(&world.path(key), key), size);
            let file = world.open(key);
            for turn in 0..50 {
                let (mut piece, at) = (vec![0; 5000], mix(turn) % (size - 5000));
                file.read_exact_at(&mut piece, at).expect("a piece");
                check(key, at, &piece).expect("the object's bytes");
            }
        }
        assert_eq!(world.server.stats().get_object.requests, 0);
        world.check_memory(LIMIT);
    }
}

#[test]
fn the_second_epoch_of_one_mount_reads_from_the_disk() {
    let cache = Cache::new();
    let world = world(&cache, &["--no-passthrough"]);
    fill(&world, &cache);
    drop_pages(&world, KEYS);
    world.server.reset_stats();
    let before = world.gauge("disk_cache_read_bytes");
    for (key, size) in FILES {
        assert_eq!(check_file(&world.path(key), key), size);
    }
    assert_eq!(world.server.stats().get_object.requests, 0);
    let read = world.gauge("disk_cache_read_bytes") - before;
    assert!(read >= 30 * MIB, "{} KiB were read from the disk", read / KIB);
    world.check_memory(LIMIT);
}

#[test]
fn another_version_is_fetched() {
    let cache = Cache::new();
    let mut world = world(&cache, &[]);
    fill(&world, &cache);
    world.server.put(BUCKET, "small", "new content");
    world.remount(&cache.flags(&[]));
    assert_eq!(world.read("small"), b"new content");
    assert_eq!(world.server.stats().get_object.requests, 1);
}

#[test]
fn two_mounts_share_a_cache() {
    let cache = Cache::new();
    let world = world(&cache, &[]);
    let other = TempDir::new().expect("a folder");
    let second = world.also(other.path(), &cache.flags(&[]));
    fill(&world, &cache);
    world.server.reset_stats();
    for (key, size) in FILES {
        assert_eq!(check_file(&second.path().join(key), key), size);
    }
    assert_eq!(world.server.stats().get_object.requests, 0);
}

/// Pieces that are read at random are kept. Reading on fetches only what is missing.
#[test]
fn pieces_are_kept_and_holes_are_filled() {
    const SIZE: u64 = 64 * MIB;
    const UNIT: u64 = 128 * KIB;
    let cache = Cache::new();
    let mut world = World::counting(TestS3::builder().synthetic(BUCKET, "f", SIZE), &cache.flags(&[]));
    let read = |world: &World| {
        let file = world.open("f");
        for turn in 0..60 {
            let (mut piece, at) = (vec![0; UNIT as usize], mix(turn) % (SIZE / UNIT) * UNIT);
            file.read_exact_at(&mut piece, at).expect("a piece");
            check("f", at, &piece).expect("the object's bytes");
        }
    };
    read(&world);
    let fetched = world.fetched();
    wait_for("the pieces are kept", || world.gauge("disk_cache_queued_bytes") == 0);
    world.remount(&cache.flags(&[]));
    read(&world);
    assert!(
        world.fetched() <= 2 * MIB,
        "{} KiB of the same pieces were fetched again",
        world.fetched() / KIB
    );
    world.server.reset_stats();
    assert_eq!(check_file(&world.path("f"), "f"), SIZE);
    let kept = SIZE - world.fetched();
    assert!((fetched / 8 * 7..=fetched).contains(&kept), "{} KiB came from the disk", kept / KIB);
    // Now all of it is there.
    wait_for("the holes are filled", || cache.whole().len() == 1);
    world.remount(&cache.flags(&[]));
    assert_eq!(check_file(&world.path("f"), "f"), SIZE);
    assert_eq!(world.fetched(), 0);
}

/// The daemon compares what it reads with checksums, and fetches again what is wrong.
#[test]
fn a_flipped_bit_reaches_nobody() {
    let cache = Cache::new();
    let mut world = world(&cache, &[]);
    fill(&world, &cache);
    for path in cache.whole() {
        let mut file = File::options().read(true).write(true).open(&path).expect("a file");
        let at = file.metadata().expect("its size").len() / 2;
        let mut byte = [0];
        file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut byte)).expect("a byte");
        file.write_all_at(&[byte[0] ^ 1], at).and_then(|()| file.flush()).expect("another byte");
    }
    world.remount(&cache.flags(&["--no-passthrough"]));
    for (key, size) in FILES {
        assert_eq!(check_file(&world.path(key), key), size);
    }
    assert_eq!(world.gauge("disk_cache_corrupt_files"), 3);
    assert!(world.server.stats().get_object.requests >= 3, "the wrong bytes were fetched");
}

#[test]
fn a_cache_that_goes_away_is_only_slower() {
    let cache = Cache::new();
    let mut world = world(&cache, &[]);
    fill(&world, &cache);
    world.remount(&cache.flags(&[]));
    assert_eq!(check_file(&world.path("small"), "small"), FILES[2].1);
    fs::rename(cache.path().join("v1"), cache.path().join("elsewhere")).expect("a folder");
    drop_pages(&world, KEYS);
    for (key, size) in FILES {
        assert_eq!(check_file(&world.path(key), key), size);
    }
    assert!(world.server.stats().get_object.requests > 0, "they were fetched");
    run("rm", &["-rf".as_ref(), cache.path().as_os_str()]);
    drop_pages(&world, KEYS);
    for (key, size) in FILES {
        assert_eq!(check_file(&world.path(key), key), size);
    }
    // It is made again, and filled again.
    fill(&world, &cache);
}

/// Reads go on while the directory of the cache can't be made again. When it can, it is filled again.
#[test]
fn a_deleted_cache_is_used_again_once_it_can_be_made() {
    let cache = Cache::new();
    let world = world(&cache, &[]);
    fill(&world, &cache);
    assert_eq!(world.gauge("disk_cache_directories_healthy"), 1);
    run("rm", &["-rf".as_ref(), cache.above().as_os_str()]);
    wait_for("it is missed", || world.gauge("disk_cache_directories_gone") == 1);
    world.server.reset_stats();
    for _ in 0..2 {
        drop_pages(&world, KEYS);
        for (key, size) in FILES {
            assert_eq!(check_file(&world.path(key), key), size);
        }
    }
    assert!(world.server.stats().get_object.requests > 0, "they were fetched");
    assert!(!cache.path().exists());
    fs::create_dir(cache.above()).expect("a folder");
    wait_for("it is made again", || world.gauge("disk_cache_directories_healthy") == 1);
    assert_eq!(fs::metadata(cache.path()).expect("a folder").permissions().mode() & 0o777, 0o700);
    fill(&world, &cache);
    drop_pages(&world, KEYS);
    world.server.reset_stats();
    for (key, size) in FILES {
        assert_eq!(check_file(&world.path(key), key), size);
    }
    assert_eq!(world.server.stats().get_object.requests, 0);
    let said = world.mount.stderr();
    let warnings = said.lines().filter(|line| line.contains("WARN") && line.contains("disk cache")).count();
    assert_eq!(warnings, 1, "{said}");
}

/// What is missing of a file that is opened again comes by itself.
#[test]
fn the_rest_of_a_file_that_is_opened_again_is_kept() {
    // More than the rest fits the memory, so nothing fetches it ahead.
    const SIZE: u64 = 320 * MIB;
    let cache = Cache::new();
    // A disk that can't keep up drops some of what is read, and only a file of which half is kept has a turn.
    let _ram = mount_tmpfs(cache.path(), "mode=0700");
    let server = TestS3::builder().synthetic(BUCKET, "large", SIZE);
    let world = World::counting(server, &cache.flags(&["--max-cache-size", "1GiB"]));
    let read = |len: u64| {
        let mut piece = vec![0; MIB as usize];
        let file = world.open("large");
        for at in 0..len / MIB {
            file.read_exact_at(&mut piece, at * MIB).expect("a piece");
            wait_for("what was read is kept", || world.gauge("disk_cache_queued_bytes") == 0);
        }
    };
    read(170 * MIB);
    assert_eq!((cache.whole().len(), world.gauge("refilled_bytes")), (0, 0));
    let kept = world.gauge("disk_cache_written_bytes");
    assert!(kept >= SIZE / 2, "{} MiB: a file of which less is kept is left to its readers", kept / MIB);
    // The kernel releases a file after `close` has returned. Until then, the next open is no second reading.
    wait_for("the file is released", || world.gauge("open_files") == 0);
    read(MIB);
    wait_for("the file is kept", || cache.whole().len() == 1);
    let (refilled, fetched) = (world.gauge("refilled_bytes"), world.server.stats().get_object.bytes);
    assert!((MIB..=SIZE / 2).contains(&refilled), "{} MiB", refilled / MIB);
    assert!(fetched < SIZE + LIMIT, "{} MiB: more than what was dropped on the way", fetched / MIB);
    world.server.reset_stats();
    drop_pages(&world, ["large"]);
    assert_eq!(check_file(&world.path("large"), "large"), SIZE);
    assert_eq!(world.server.stats().get_object.requests, 0);
    world.check_memory(LIMIT);
}

/// A cache that is full keeps what it has, and more is not admitted.
#[test]
fn a_cache_keeps_to_its_size() {
    let cache = Cache::new();
    let names: Vec<_> = (0..40).map(|index| format!("d/{index:02}")).collect();
    let server = names.iter().fold(TestS3::builder(), |server, name| server.synthetic(BUCKET, name, MIB));
    let world = World::counting(server, &cache.flags(&["--max-cache-size", "16MiB"]));
    for _ in 0..3 {
        for name in &names {
            assert_eq!(check_file(&world.path(name), name), MIB);
        }
        wait_for("what was read is kept", || world.gauge("disk_cache_queued_bytes") == 0);
        drop_pages(&world, names.iter().map(String::as_str));
    }
    let whole = cache.whole().len();
    assert!((14..=16).contains(&whole), "{whole} files of 1 MiB are kept in 16 MiB");
    world.server.reset_stats();
    for name in &names {
        assert_eq!(check_file(&world.path(name), name), MIB);
    }
    assert_eq!(world.server.stats().get_object.requests, 40 - whole as u64, "the others are fetched");
}

/// Whatever the limit of the cache is: others can make files on its disk.
#[test]
fn others_find_room_on_the_disk_of_the_cache() {
    let names: Vec<_> = (0..2_500).map(|index| format!("d/{index:04}")).collect();
    let cache = Cache::new();
    let above = cache.above();
    let _disk = mount_tmpfs(&above, "size=200m,nr_inodes=2000");
    let server = names.iter().fold(TestS3::builder(), |server, key| server.synthetic(BUCKET, key, 5 * KIB));
    let world = World::new(server, &cache.flags(&["--max-cache-size", "1GiB"]));
    for key in &names {
        assert_eq!(check_file(&world.path(key), key), 5 * KIB);
    }
    wait_for("what was read is kept", || world.gauge("disk_cache_queued_bytes") == 0);
    let space = statvfs(&above).expect("a file system");
    let free = space.files_available() * 100 / space.files();
    assert!((4..20).contains(&free), "{free} % of the inodes are free");
    assert_eq!(world.gauge("disk_cache_directories_full"), 0, "no write has failed");
}

#[test]
fn names_that_never_change_are_listed_once_for_all_mounts() {
    let cache = Cache::new();
    let names = (0..5000).map(|index| format!("d/f{index:05}.bin"));
    let server = names.fold(TestS3::builder().synthetic(BUCKET, "e/f", 10), |server, name| {
        server.synthetic(BUCKET, &name, 10)
    });
    let mut world = World::new(server, &cache.flags(&["--immutable"]));
    let list = |world: &World| fs::read_dir(world.path("d")).expect("a folder").count();
    assert_eq!(list(&world), 5000);
    let kept = || {
        run("find", &[cache.path().join("names").as_os_str(), "-type".as_ref(), "f".as_ref()]).lines().count()
    };
    wait_for("the listing is kept", || kept() == 1);
    run("ls", &[world.path("")]);
    wait_for("the listing is kept", || kept() == 2);
    world.remount(&cache.flags(&["--immutable"]));
    assert_eq!(list(&world), 5000);
    for index in (0..5000).step_by(7) {
        world.path(&format!("d/f{index:05}.bin")).metadata().expect("a file");
    }
    assert!(world.path("d/none").metadata().is_err());
    assert_eq!(world.server.stats().list_objects.requests, 0);
    // A folder that nobody has listed is asked for.
    world.path("e/f").metadata().expect("a file");
    assert_eq!(world.server.stats().list_objects.requests, 1);
    // Names that may change are listed anew, and looked up in what is young enough.
    world.server.put(BUCKET, "d/new", "content");
    world.remount(&cache.flags(&["--metadata-ttl", "3600"]));
    // From all of its pages, in no order.
    for index in 0..500 {
        world.path(&format!("d/f{:05}.bin", mix(index) % 5000)).metadata().expect("a file");
    }
    assert_eq!(world.server.stats().list_objects.requests, 0);
    assert_eq!(list(&world), 5001);
    assert!(world.server.stats().list_objects.requests >= 5);
    world.remount(&cache.flags(&["--metadata-ttl", "1"]));
    std::thread::sleep(Duration::from_millis(1100));
    world.path("d/f00007.bin").metadata().expect("a file");
    assert!(world.server.stats().list_objects.requests > 0, "the listing is too old");
}

/// A listing that a read has shown wrong is not used again, also not by a later mount.
#[test]
fn a_wrong_listing_is_dropped() {
    let cache = Cache::new();
    let mut world = world(&cache, &["--immutable"]);
    run("ls", &[world.path("")]);
    let kept = || run("find", &[cache.path().join("names").as_os_str(), "-type".as_ref(), "f".as_ref()]);
    wait_for("the listing is kept", || !kept().is_empty());
    world.server.put(BUCKET, "small", "new content");
    world.remount(&cache.flags(&["--immutable"]));
    let error = fs::read(world.path("small")).expect_err("another version is there now");
    assert_eq!(error.raw_os_error(), Some(Errno::ESTALE as i32));
    assert_eq!(fs::read(world.path("small")).expect("the new version"), b"new content");
    wait_for("the listing is dropped", || kept().is_empty());
    world.remount(&cache.flags(&["--immutable"]));
    assert_eq!(fs::read(world.path("small")).expect("the new version"), b"new content");
}

/// Runs `s3mount warm --to-cache` with these paths. Returns whether it succeeded, and all that it said.
fn warm(path: &Path) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    let output = run_with_timeout(command.args(["warm", "--to-cache"]).arg(path), Duration::from_secs(100));
    let output = output.expect("a program that ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).expect("text"))
}

#[test]
fn a_tree_is_kept_ahead_of_a_job() {
    let cache = Cache::new();
    let mut world = world(&cache, &["--immutable"]);
    let (is_done, said) = warm(&world.path(""));
    assert!(is_done && said.contains("3 files are kept"), "{said}");
    assert_eq!(cache.whole().len(), FILES.len());
    let bytes: u64 = FILES.iter().map(|(_, size)| size).sum();
    assert_eq!(world.fetched(), bytes, "each byte once");
    world.server.reset_stats();
    let list = world.folder().join("list");
    fs::write(&list, format!("{0}\n{1}\n", world.path("large").display(), world.path("small").display()))
        .expect("a list");
    let (is_done, said) = warm(&list);
    assert!(is_done && said.contains("2 files are kept"), "{said}");
    fs::write(world.path(".s3mount/keep"), "small\nmiddling\t100\t5000\n").expect("they are kept");
    world.remount(&cache.flags(&["--immutable"]));
    for (key, size) in FILES {
        assert_eq!(check_file(&world.path(key), key), size);
    }
    assert_eq!(world.server.stats().requests(), 0, "names and bytes were kept");
}

#[test]
fn what_cannot_be_kept_is_said() {
    let cache = Cache::new();
    let mut world = world(&cache, &["--max-cache-size", "16MiB"]);
    let list = world.folder().join("list");
    fs::write(&list, world.path("large").display().to_string()).expect("a list");
    let (is_done, said) = warm(&list);
    assert!(!is_done && said.contains("the cache has no room for"), "{said}");
    let write =
        |world: &World, line| fs::write(world.path(".s3mount/keep"), line).expect_err("it can't be kept");
    assert_eq!(write(&world, "none\n").raw_os_error(), Some(Errno::ENOENT as i32));
    assert_eq!(write(&world, "a//b\n").raw_os_error(), Some(Errno::ENOENT as i32));
    assert_eq!(write(&world, "large\n").raw_os_error(), Some(Errno::ENOSPC as i32));
    world.remount(&[]);
    assert_eq!(write(&world, "small\n").raw_os_error(), Some(Errno::EOPNOTSUPP as i32));
    fs::write(&list, world.path("small").display().to_string()).expect("a list");
    let (is_done, said) = warm(&list);
    assert!(!is_done && said.contains("mount it with --cache DIR"), "{said}");
    fs::write(&list, cache.path().join("usage").display().to_string()).expect("a list");
    let (is_done, said) = warm(&list);
    assert!(!is_done && said.contains("does not lie on a mount of s3mount"), "{said}");
}
