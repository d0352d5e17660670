//! Disks that fail, hang, are full or go away: readers miss, and the cache recovers by itself.

use std::fs;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::layout::{Hash, Layout};
use super::metrics::{DiskState, Dropped};
use super::tests::{BLOCK, LIMIT, config, content, folder, id, offer, open_in_boot, range, read};
use super::{DiskCache, DiskObject};
use crate::disk::io::faults::{Faults, Op};
use crate::disk::io::health::Condition;

const SIZE: u64 = 3 * BLOCK;

/// A cache on a disk with faults, and a whole object in it.
struct Faulty {
    cache: DiskCache,
    now: Arc<AtomicU64>,
    kept: Arc<DiskObject>,
}

impl Faulty {
    fn new(path: &Path) -> Self {
        let (cache, now) = open_in_boot(path, 1);
        let kept = cache.object(&id("kept"), SIZE);
        offer(&kept, range(0, SIZE), &content("kept", SIZE));
        assert!(cache.flush(LIMIT));
        Self { cache, now, kept }
    }

    fn faults(&self) -> &Faults {
        &self.cache.0.disks[0].dir().io.faults
    }

    fn fail(&self, failing: &'static [Op], errno: Errno) {
        self.faults().set(move |op| if failing.contains(&op) { Err(errno.into()) } else { Ok(()) });
    }

    fn condition(&self) -> Condition {
        self.cache.0.disks[0].dir().health.condition()
    }

    fn wait(&self, seconds: u64) {
        self.now.fetch_add(seconds * 1_000_000_000, Ordering::Relaxed);
    }

    /// Advances the clock until the disk has this condition.
    async fn until(&self, condition: Condition) {
        for _ in 0..200 {
            if self.condition() == condition {
                return;
            }
            self.wait(1);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the disk is {:?}", self.condition());
    }

    async fn hits(&self) -> bool {
        let found = read(&self.kept, range(0, SIZE)).await;
        assert!(found.as_ref().is_none_or(|found| *found == content("kept", SIZE)));
        found.is_some()
    }

    /// Offers another object. Returns whether it is kept.
    async fn keeps(&self, key: &str) -> bool {
        let object = self.cache.object(&id(key), SIZE);
        offer(&object, range(0, SIZE), &content(key, SIZE));
        assert!(self.cache.0.disks[0].wait_written(LIMIT));
        object.look().await;
        object.run(0).is_here
    }
}

#[tokio::test]
async fn a_disk_with_errors_is_left_alone_until_it_works() {
    let (_folder, path) = folder();
    let disk = Faulty::new(&path);
    disk.fail(&[Op::Open, Op::Read, Op::Write, Op::Publish], Errno::IO);
    for _ in 0..3 {
        assert!(!disk.hits().await);
        disk.wait(11);
    }
    assert_eq!(disk.condition(), Condition::Failing);
    // The disk still fails when it is used less, and the probe fails.
    while disk.condition() == Condition::Failing {
        disk.wait(5);
        assert!(!disk.keeps("other").await && !disk.hits().await);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(disk.condition(), Condition::Off);
    disk.wait(60);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(disk.condition(), Condition::Off);
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    disk.faults().set(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert!(!disk.hits().await && !disk.kept.run(0).is_here && disk.kept.whole_file().is_none());
    assert_eq!(calls.load(Ordering::Relaxed), 0, "a disk that is off gets no operation");
    disk.until(Condition::Healthy).await;
    assert!(disk.hits().await && disk.keeps("other").await);
}

#[tokio::test]
async fn who_reads_from_a_disk_that_hangs_is_let_go() {
    let (_folder, path) = folder();
    let disk = Faulty::new(&path);
    let (release, hung) = mpsc::channel::<()>();
    let (hung, asked) = (std::sync::Mutex::new(hung), Arc::new(AtomicU64::new(0)));
    let counted = asked.clone();
    disk.faults().set(move |op| {
        if op == Op::Read {
            counted.fetch_add(1, Ordering::Relaxed);
            // It ends when the test drops the other end.
            let _ = hung.lock().map(|hung| hung.recv());
        }
        Ok(())
    });
    let mut reads = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let kept = disk.kept.clone();
        reads.spawn(async move { kept.read(range(0, SIZE), None, vec![0; SIZE as usize]).await.err() });
    }
    // An open(2) of another object goes on, too. Until then, its caller's thread is free.
    let other = disk.cache.object(&id("other"), SIZE);
    let (sender, opened) = tokio::sync::oneshot::channel();
    other.with_whole_file(move |file| {
        let _ = sender.send(file.is_some());
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    disk.wait(6);
    assert_eq!(opened.await, Ok(false));
    while let Some(result) = reads.join_next().await {
        let left = result.expect("no panic").expect("a miss");
        assert!(left.is_none(), "the read that hangs still has the buffer");
    }
    assert_ne!(disk.condition(), Condition::Healthy);
    let before = asked.load(Ordering::Relaxed);
    assert!(!disk.hits().await);
    assert!(before > 0 && asked.load(Ordering::Relaxed) == before, "no other reader asks the disk");
    disk.until(Condition::Off).await;
    drop(release);
    disk.faults().clear();
    disk.until(Condition::Healthy).await;
    assert!(disk.hits().await);
}

#[tokio::test]
async fn a_full_disk_is_read_and_filled_again_when_there_is_room() {
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS] {
        let (_folder, path) = folder();
        let disk = Faulty::new(&path);
        disk.fail(&[Op::Write], errno);
        assert!(!disk.keeps("one").await && !disk.keeps("two").await);
        assert!(disk.hits().await, "{errno:?}");
        assert_eq!(disk.cache.0.metrics.dropped_bytes.at(Dropped::Disk).get(), 2 * SIZE);
        disk.faults().clear();
        assert!(!disk.keeps("three").await, "it is left alone for a while");
        disk.wait(31);
        assert!(disk.keeps("four").await && disk.condition() == Condition::Healthy);
    }
}

#[tokio::test]
async fn an_object_that_is_too_long_for_the_disk_is_tried_once() {
    let (_folder, path) = folder();
    let disk = Faulty::new(&path);
    let tried = Arc::new(AtomicU64::new(0));
    let count = tried.clone();
    disk.faults().set(move |op| match op {
        Op::Write if count.fetch_add(1, Ordering::Relaxed) < 100 => Err(Errno::FBIG.into()),
        _ => Ok(()),
    });
    let long = disk.cache.object(&id("long"), 3 * SIZE);
    for start in [0, SIZE, 0] {
        offer(&long, range(start, start + SIZE), &content("long", 3 * SIZE));
        assert!(disk.cache.flush(LIMIT));
    }
    assert_eq!(disk.cache.0.metrics.dropped_bytes.at(Dropped::Long).get(), 3 * SIZE);
    assert_eq!((tried.load(Ordering::Relaxed), disk.condition()), (1, Condition::Healthy));
    disk.faults().clear();
    assert!(disk.keeps("short").await, "at once");
}

/// The limit says that there is room, and the file system has none.
#[tokio::test]
async fn what_is_idle_makes_way_on_a_full_disk() {
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        let (_folder, path) = folder();
        let disk = Faulty::new(&path);
        let layout = Layout::new(&path);
        let idle = layout.whole(&Hash::of(&config(&path).source, &id("kept")));
        let full = idle.clone();
        disk.faults().set(move |op| match op {
            Op::Write if full.exists() => Err(errno.into()),
            _ => Ok(()),
        });
        assert!(!disk.keeps("one").await && idle.exists(), "it was used just now");
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let times = fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
        fs::File::open(&idle).and_then(|file| file.set_times(times)).expect("a file");
        disk.wait(31);
        // For a moment after the last look there is no other look.
        for attempt in 0.. {
            if disk.keeps(&format!("two-{attempt}")).await {
                break;
            }
            assert!(attempt < 600, "nothing was evicted");
            disk.wait(31);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(!idle.exists() && disk.condition() == Condition::Healthy);
    }
}

#[tokio::test]
async fn a_directory_that_is_deleted_is_only_a_miss() {
    let (_folder, path) = folder();
    let disk = Faulty::new(&path);
    fs::remove_dir_all(&path).expect("deleted");
    assert!(!disk.hits().await && !disk.keeps("one").await);
    assert_eq!(disk.condition(), Condition::Healthy);
    // The housekeeper makes the directory again, and it is filled at once.
    assert!(disk.cache.flush(LIMIT));
    assert!(disk.keeps("two").await);
    let (other, _) = open_in_boot(&path, 1);
    let two = other.object(&id("two"), SIZE);
    two.look().await;
    assert!(two.run(0).is_here, "others find it");
}

#[tokio::test]
async fn a_directory_that_housekeepers_find_first_is_used() {
    let (_folder, path) = folder();
    let disk = Faulty::new(&path);
    let dir = disk.cache.0.disks[0].dir();
    fs::remove_dir_all(&path).expect("deleted");
    fs::create_dir(&path).expect("made");
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("changed");
    dir.room.step();
    assert_eq!(fs::read_dir(&path).expect("a folder").count(), 0, "nobody has checked it");
    // A mount that looked at the directory just before it was made.
    fs::write(path.join("pace"), "").expect("written");
    fs::write(path.join("thesis.tex"), "text").expect("written");
    assert!(disk.cache.flush(LIMIT));
    assert_eq!(dir.health.state(), DiskState::Gone, "somebody else's file");
    fs::remove_file(path.join("thesis.tex")).expect("deleted");
    assert!(disk.cache.flush(LIMIT));
    assert_eq!(dir.health.state(), DiskState::Healthy);
    assert!(disk.keeps("one").await);
}

#[tokio::test]
async fn a_directory_in_its_place_is_checked_before_it_is_used() {
    let (_folder, path) = folder();
    let disk = Faulty::new(&path);
    let state = || disk.cache.0.disks[0].dir().health.state();
    let elsewhere = path.with_extension("elsewhere");
    fs::rename(&path, &elsewhere).expect("renamed");
    // Another directory with the same content: other users may write to it.
    fs::create_dir(&path).expect("made");
    fs::copy(elsewhere.join("s3mount-cache"), path.join("s3mount-cache")).expect("copied");
    fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("changed");
    assert!(disk.cache.flush(LIMIT));
    assert_eq!(state(), DiskState::Gone);
    assert!(!disk.hits().await && !disk.keeps("one").await);
    assert!(!path.join("v1").exists(), "nothing is written to it");
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("changed");
    assert!(disk.cache.flush(LIMIT));
    assert_eq!(state(), DiskState::Healthy);
    assert!(disk.keeps("two").await);
    // The first directory comes back, with its contents.
    fs::remove_dir_all(&path).expect("deleted");
    fs::rename(&elsewhere, &path).expect("renamed");
    assert!(disk.cache.flush(LIMIT));
    disk.wait(11);
    assert!(disk.hits().await && disk.keeps("three").await);
}

#[tokio::test]
async fn an_error_of_one_operation_is_no_error_of_a_reader() {
    for failing in [Op::Open, Op::Read, Op::Write, Op::Publish, Op::Remove, Op::Sync] {
        let (_folder, path) = folder();
        let disk = Faulty::new(&path);
        let faults = Arc::new(AtomicU64::new(0));
        let counted = faults.clone();
        // Every third call of this kind fails, so the disk stays healthy.
        disk.faults().set(move |op| {
            let number = if op == failing { counted.fetch_add(1, Ordering::Relaxed) } else { 1 };
            if number % 3 == 0 { Err(io::Error::from(Errno::IO)) } else { Ok(()) }
        });
        let size = 8 * BLOCK;
        for number in 0..20 {
            let key = format!("{number}");
            let (object, bytes) = (disk.cache.object(&id(&key), size), content(&key, size));
            for start in [0, 4 * BLOCK] {
                offer(&object, range(start, start + 4 * BLOCK), &bytes);
            }
            assert!(disk.cache.flush(LIMIT));
            disk.wait(2);
            for start in [0, 3 * BLOCK] {
                let found = read(&object, range(start, start + 2 * BLOCK)).await;
                let expected = bytes.slice(start as usize..(start + 2 * BLOCK) as usize);
                assert!(found.is_none_or(|found| found == expected), "{failing:?}");
            }
        }
        assert!(faults.load(Ordering::Relaxed) > 0 || failing == Op::Remove, "{failing:?}");
    }
}

/// The version is no longer in use, and some of its bytes wait to be written.
#[test]
fn what_waits_of_a_version_that_is_deleted_is_not_written() {
    let (_folder, path) = folder();
    let (cache, hands) = DiskCache::open_by_hand(&config(&path), 1, || 1 << 40).expect("a directory");
    for (key, is_wrong) in [("right", false), ("wrong", true)] {
        offer(&cache.object(&id(key), SIZE), range(0, SIZE), &content(key, SIZE));
        if is_wrong {
            cache.forget(&id(key));
        }
    }
    while hands[0].step(0) {}
    let layout = Layout::new(&path);
    let is_kept = |key| layout.whole(&Hash::of(&config(&path).source, &id(key))).exists();
    assert!(is_kept("right") && !is_kept("wrong"));
}

/// An error has left a partial object with all of its blocks.
#[tokio::test]
async fn a_part_that_could_not_be_finished_is_finished_later() {
    let (_folder, path) = folder();
    let disk = Faulty::new(&path);
    let object = disk.cache.object(&id("part"), SIZE);
    offer(&object, range(0, BLOCK), &content("part", SIZE));
    assert!(disk.cache.flush(LIMIT));
    disk.fail(&[Op::Publish], Errno::IO);
    offer(&object, range(BLOCK, SIZE), &content("part", SIZE));
    assert!(disk.cache.0.disks[0].wait_written(LIMIT));
    disk.faults().clear();
    assert!(object.run(0).is_here && object.whole_file().is_none());
    let found = read(&object, range(0, SIZE)).await;
    assert_eq!(found, Some(content("part", SIZE)));
    disk.fail(&[Op::Publish], Errno::IO);
    disk.wait(11);
    object.look().await;
    disk.faults().clear();
    assert!(object.run(0).is_here && object.whole_file().is_none(), "it is read all the same");
    disk.wait(11);
    object.look().await;
    assert!(object.whole_file().is_some(), "who has it open needs nothing for that");

    let object = disk.cache.object(&id("closed"), SIZE);
    offer(&object, range(0, BLOCK), &content("closed", SIZE));
    assert!(disk.cache.flush(LIMIT));
    disk.fail(&[Op::Publish], Errno::IO);
    offer(&object, range(BLOCK, SIZE), &content("closed", SIZE));
    assert!(disk.cache.0.disks[0].wait_written(LIMIT));
    disk.faults().clear();
    assert!(disk.cache.flush(LIMIT));
    drop((object, disk));
    let (cache, _) = open_in_boot(&path, 1);
    let object = cache.object(&id("closed"), SIZE);
    object.look().await;
    assert!(object.whole_file().is_some(), "nor does the next mount");
}
