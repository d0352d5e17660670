//! Clocks that jump beneath a disk cache. The wall clock of the machine belongs to all, so these tests move the
//! times of the cache's files, which means the same.

use std::fs::{File, FileTimes, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use s3mount_testkit::{MountGuard, TestS3};
use tempfile::TempDir;

use crate::disk_cache::{Cache, FILES, fill, world};
use crate::world::{BUCKET, MIB, World, check_file, run, s3mount, wait_for};

const DAY: Duration = Duration::from_secs(24 * 3600);

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Says of all files below `folder` that they were used and written at `time`.
fn set_times(folder: &Path, time: SystemTime) {
    let files = run("find", &[folder.as_os_str(), "-type".as_ref(), "f".as_ref()]);
    for path in files.lines() {
        let file = OpenOptions::new().write(true).open(path).expect("a file");
        file.set_times(FileTimes::new().set_accessed(time).set_modified(time)).expect("its times");
    }
}

fn read_all(dir: &Path) {
    for (key, size) in FILES {
        assert_eq!(check_file(&dir.join(key), key), size);
    }
}

#[test]
fn a_wall_clock_that_jumps_loses_nothing() {
    let cache = Cache::new();
    // The cache has room for what it holds, and for nothing else.
    let flags = cache.flags(&["--max-cache-size", "44MiB"]);
    let mut world = world(&cache, &["--max-cache-size", "44MiB"]);
    fill(&world, &cache);
    let now = SystemTime::now();
    for time in [now - DAY, now + DAY, now - YEAR, now + YEAR] {
        set_times(cache.path(), time);
        world.remount(&flags);
        read_all(world.mount.path());
        assert_eq!(world.server.stats().get_object.requests, 0);
        assert_eq!(cache.whole().len(), FILES.len());
        let used_now = |file: &File| {
            let used = file.metadata().and_then(|file| file.accessed()).expect("a time");
            used.duration_since(now).unwrap_or_else(|error| error.duration()) < DAY / 24
        };
        wait_for("what was used says so", || {
            cache.whole().iter().all(|path| used_now(&File::open(path).expect("a file")))
        });
    }
}

/// Where all that is kept looks idle, other objects get the room that they need, and not more.
#[test]
fn objects_that_look_old_make_room_for_others() {
    let cache = Cache::new();
    let flags = cache.flags(&["--max-cache-size", "16MiB"]);
    let names: Vec<_> = (0..20).map(|index| format!("d/{index:02}")).collect();
    // Each of the others has a folder of its own, so none of them is fetched ahead.
    let others: Vec<_> = (0..4).map(|index| format!("e{index}/f")).collect();
    let all = names.iter().chain(&others);
    let server = all.fold(TestS3::builder(), |server, name| server.synthetic(BUCKET, name, MIB));
    let mut world = World::new(server, &flags);
    let read = |world: &World, names: &[String]| {
        for name in names {
            assert_eq!(check_file(&world.path(name), name), MIB);
        }
        wait_for("what was read is kept or dropped", || world.gauge("disk_cache_queued_bytes") == 0);
    };
    read(&world, &names);
    let kept = cache.whole();
    assert!((14..=16).contains(&kept.len()), "{} objects of 1 MiB are kept in 16 MiB", kept.len());
    for (time, new) in [(DAY * 2, &others[..2]), (YEAR, &others[2..])] {
        set_times(cache.path(), SystemTime::now() - time);
        world.remount(&flags);
        let before = cache.whole();
        read(&world, new);
        let missing =
            |of: &[PathBuf], from: &[PathBuf]| of.iter().filter(|path| !from.contains(path)).count();
        wait_for("they are kept", || missing(&cache.whole(), &before) == new.len());
        let left = missing(&before, &cache.whole());
        assert!(left <= new.len(), "{left} objects went for {}", new.len());
    }
    read(&world, &names);
}

/// Mounts the bucket of `world` at `dir` by a daemon whose time since the boot is shifted by `seconds`.
fn mount_shifted(world: &World, cache: &Cache, dir: &Path, seconds: i64) -> MountGuard {
    let flags = cache.flags(&["--foreground", "--no-hedging", "--max-cache-size", "100MiB"]);
    let inner = s3mount(&world.server.endpoint(), BUCKET, dir, &flags);
    let mut command = Command::new("unshare");
    command.args(["--time", "--boottime", &seconds.to_string(), "--"]).arg(inner.get_program());
    command.args(inner.get_args()).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    MountGuard::new(&mut command, dir).expect("a mount")
}

/// Containers may have times since the boot of their own. A cache that they share with others stays right.
#[test]
fn mounts_with_other_times_since_the_boot_share_a_cache() {
    let cache = Cache::new();
    let flags = ["--max-cache-size", "100MiB"];
    let mut world = world(&cache, &flags);
    let folder = TempDir::new().expect("a folder");
    let uptime = std::fs::read_to_string("/proc/uptime").expect("the time since the boot");
    let uptime: f64 = uptime.split(' ').next().and_then(|text| text.parse().ok()).expect("seconds");
    // What one of them has published, the others find.
    fill(&world, &cache);
    world.server.reset_stats();
    for (number, seconds) in [86_400, 365 * 86_400, -(uptime as i64 / 2)].into_iter().enumerate() {
        let dir = folder.path().join(number.to_string());
        std::fs::create_dir(&dir).expect("a mount point");
        let key = format!("new{number}");
        world.server.put_synthetic(BUCKET, &key, 700_000);
        let mount = mount_shifted(&world, &cache, &dir, seconds);
        read_all(mount.path());
        assert_eq!(check_file(&mount.path().join(&key), &key), 700_000);
        wait_for("it is kept", || cache.whole().len() == FILES.len() + number + 1);
    }
    assert_eq!(world.server.stats().get_object.requests, 3, "the new ones");
    world.remount(&cache.flags(&flags));
    read_all(world.mount.path());
    for number in 0..3 {
        let key = format!("new{number}");
        assert_eq!(check_file(&world.path(&key), &key), 700_000);
    }
    assert_eq!(world.server.stats().get_object.requests, 0);
}
