//! The room on real directories, with the time set by hand.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use s3mount_object::{ETag, ObjectId};

use super::{Room, Shared};
use crate::disk::clock::{Clock, file_time};
use crate::disk::evict::limit::{self, Limit, Need, SharedLimit, Space};
use crate::disk::evict::usage::Counts;
use crate::disk::layout::{Hash, Layout, SHARDS};
use crate::disk::scan;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 3600);

fn layout(folder: &Path) -> Layout {
    let layout = Layout::new(folder);
    std::fs::create_dir_all(layout.objects()).expect("a folder");
    layout
}

fn hash(number: u64) -> Hash {
    Hash::of("test", &ObjectId::new(&number.to_string(), ETag::new("\"1\"")))
}

/// Writes a whole object of `bytes`, as a writer does that has reserved them.
fn write(layout: &Layout, number: u64, bytes: u64) {
    let hash = hash(number);
    std::fs::create_dir_all(layout.shard(hash.shard())).expect("a shard");
    std::fs::write(layout.whole(&hash), vec![7; bytes as usize]).expect("a file");
}

fn clock() -> Clock {
    Clock::machine().expect("Linux")
}

/// Sets the last use and the last write of a file to `time`.
fn set_use(path: &Path, time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::empty()).expect("a file");
}

fn used(shared: &Shared) -> Option<u64> {
    shared.usage.read().expect("a file").map(|counts| counts.used)
}

/// The objects in the directory, and their bytes.
fn found(layout: &Layout) -> (usize, u64) {
    let shards = (0..SHARDS).map(|shard| scan::shard(layout, shard, file_time()).expect("a shard"));
    shards.fold((0, 0), |sum, shard| (sum.0 + shard.versions.len(), sum.1 + shard.disk_bytes))
}

#[test]
fn a_cache_that_is_full_holds_what_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, Some(MIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    assert!(!shared.reserve(MIB + 1, now).expect("a room"), "never has room");
    for number in 0..16 {
        assert!(shared.reserve(64 * KIB, now).expect("a room"), "{number}");
        write(&layout, number, 64 * KIB);
    }
    assert!(!shared.reserve(64 * KIB, now).expect("a room"), "all of it was used just now");
    assert_eq!(used(&shared), Some(MIB));
    assert_eq!(found(&layout), (16, MIB));
}

#[test]
fn a_directory_that_takes_the_place_of_another_is_counted_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cache");
    let here = layout(&path);
    let room = Room::open(&here, Some(MIB), clock(), Arc::default()).expect("a room");
    room.step();
    assert!(room.reserve(MIB) && !room.reserve(KIB));
    write(&here, 0, MIB);
    std::fs::rename(&path, folder.path().join("elsewhere")).expect("renamed");
    layout(&path);
    room.open_again().expect("a room");
    assert_eq!(used(&room.shared), Some(0));
    assert!(room.reserve(KIB));
    room.step();
    assert!(here.lock().exists() && here.pace().exists(), "it keeps house there");
}

/// A user moves the cache away, and puts another folder there.
#[test]
fn nothing_is_written_or_deleted_in_a_folder_that_was_put_in_place_of_the_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cache");
    let here = layout(&path);
    let room = Room::open(&here, Some(MIB), clock(), Arc::default()).expect("a room");
    room.step();
    std::fs::rename(&path, folder.path().join("elsewhere")).expect("renamed");
    let old = |path: &Path| {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, "mine").expect("a file");
        set_use(path, file_time() - DAY * 40);
    };
    let notes = [here.listing(&hash(0)), here.whole(&hash(0)), here.ghosts()];
    notes.iter().for_each(|path| old(path));
    let before = files(&path);
    for _ in 0..20 {
        room.step();
        assert!(!room.reserve(KIB));
    }
    assert_eq!(files(&path), before);
    assert!(notes.iter().all(|path| std::fs::read(path).expect("a file") == b"mine"));
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        found.extend(if path.is_dir() { files(&path) } else { vec![path] });
    }
    found.sort();
    found
}

#[test]
fn what_is_idle_goes_the_oldest_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, Some(MIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    for number in 0..16 {
        assert!(shared.reserve(64 * KIB, now).expect("a room"));
        write(&layout, number, 64 * KIB);
        set_use(&layout.whole(&hash(number)), now - DAY * (number as u32 % 8));
    }
    // No uses are known, so objects that were not used for a day may be evicted.
    assert!(shared.reserve(128 * KIB, now).expect("a room"));
    assert!(!layout.whole(&hash(7)).exists() && !layout.whole(&hash(15)).exists());
    assert_eq!(found(&layout), (14, MIB - 128 * KIB));
    for _ in 0..20 {
        shared.reserve(64 * KIB, now).expect("a room");
        assert!(used(&shared) <= Some(MIB), "never more than the limit");
    }
    assert_eq!(found(&layout), (2, 128 * KIB), "0 and 8 were used within a day");
}

/// A process may have an object mapped for days, and its bytes would stay on the disk.
#[test]
fn what_somebody_has_open_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, Some(256 * KIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    for number in 0..4 {
        assert!(shared.reserve(64 * KIB, now).expect("a room"));
        write(&layout, number, 64 * KIB);
        set_use(&layout.whole(&hash(number)), now - DAY * (3 + number as u32));
    }
    let open = [2, 3].map(|number| File::open(layout.whole(&hash(number))).expect("a file"));
    assert!(shared.reserve(128 * KIB, now).expect("a room"));
    assert_eq!([0, 1, 2, 3].map(|number| layout.whole(&hash(number)).exists()), [false, false, true, true]);
    assert_eq!((found(&layout), used(&shared)), ((2, 128 * KIB), Some(256 * KIB)));
    assert!(!shared.reserve(64 * KIB, now).expect("a room"), "the others are open");
    // Also if there is far too much: the disk would get no space back.
    shared.usage.change(|counts| counts.as_mut().expect("known").add(MIB)).expect("a file");
    shared.tick(now, false).expect("a room");
    assert_eq!(found(&layout).0, 2);
    drop(open);
    shared.tick(now + Duration::from_secs(11), false).expect("a room");
    assert_eq!(found(&layout).0, 0, "later it goes");
}

#[test]
fn what_is_being_filled_is_not_looked_for_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, Some(128 * KIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    assert!(shared.reserve(128 * KIB, now).expect("a room"));
    write(&layout, 0, 128 * KIB);
    // An old partial object that its process still fills. Nothing else may be evicted.
    std::fs::rename(layout.whole(&hash(0)), layout.part(&hash(0))).expect("renamed");
    let filled = File::open(layout.part(&hash(0))).expect("a file");
    filled.lock().expect("nobody else has it");
    set_use(&layout.part(&hash(0)), now - DAY * 3);
    let (sender, receiver) = std::sync::mpsc::channel();
    let reserve = move || sender.send(shared.reserve(64 * KIB, now).expect("a room"));
    std::thread::Builder::new().spawn(reserve).expect("a thread");
    let has_room = receiver.recv_timeout(Duration::from_secs(60)).expect("it does not look for ever");
    assert!(!has_room && layout.part(&hash(0)).exists());
    drop(filled);
}

#[test]
fn a_use_is_noted_and_keeps_a_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, Some(128 * KIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    for number in 0..2 {
        assert!(shared.reserve(64 * KIB, now).expect("a room"));
        write(&layout, number, 64 * KIB);
        set_use(&layout.whole(&hash(number)), now - DAY * 3);
    }
    let file = File::open(layout.whole(&hash(0))).expect("a file");
    shared.on_use(&hash(0), Some(&file), now);
    assert_eq!(scan::last_use(&file.metadata().expect("a file")).as_secs(), now.as_secs());
    let before = file.metadata().expect("a file");
    shared.on_use(&hash(0), Some(&file), now + Duration::from_secs(30));
    let after = file.metadata().expect("a file");
    assert_eq!(scan::last_use(&after), scan::last_use(&before), "not for each use");
    assert!(shared.reserve(64 * KIB, now).expect("a room"));
    assert!(layout.whole(&hash(0)).exists() && !layout.whole(&hash(1)).exists());
}

/// Uses `numbers` one after the other, a second apart, and returns the time after.
fn use_all(shared: &Shared, numbers: std::ops::Range<u64>, mut now: Duration) -> Duration {
    for number in numbers {
        shared.on_use(&hash(number), None, now);
        now += Duration::from_secs(1);
    }
    shared.use_history.exchange().expect("a room");
    now
}

#[test]
fn another_process_knows_what_one_has_learnt() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let open = || Shared::open(&layout, Some(MIB), clock(), Arc::default()).expect("a room");
    let (one, now) = (open(), file_time());
    let mut time = now;
    for _ in 0..3 {
        time = use_all(&one, 0..100, time);
    }
    let idle = one.use_history.ageing().idle();
    assert!(idle < DAY, "epochs of 100 s are known: {idle:?}");
    let other = open();
    assert_eq!(other.use_history.ageing().idle(), idle);
    // Both use the same objects again, and neither takes them for new ones.
    let time = use_all(&other, 0..50, time);
    use_all(&one, 50..100, time);
    assert!(!one.use_history.ageing().has_changed());
    other.use_history.exchange().expect("a room");
    assert_eq!(*other.use_history.ageing(), *one.use_history.ageing());
    let time = use_all(&other, 1000..1032, time + DAY);
    assert!(other.use_history.ageing().has_changed(), "all of these are new");
    assert!(one.use_history.exchange().expect("a room"), "so the jobs have just changed");
    assert_eq!(one.use_history.ageing().oldest_kept(time), other.use_history.ageing().oldest_kept(time));
    std::fs::write(layout.pace(), "damaged").expect("a file");
    assert!(open().use_history.ageing().idle() >= DAY, "nothing is known");
}

#[test]
fn counts_that_are_lost_are_counted_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    (0..20).for_each(|number| write(&layout, number, 64 * KIB));
    let shared = Shared::open(&layout, Some(2 * MIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    assert_eq!(used(&shared), None);
    assert!(!shared.reserve(KIB, now).expect("a room"), "not before all is counted");
    shared.tick(now, false).expect("a room");
    assert_eq!(used(&shared), Some(20 * 64 * KIB));
    assert!(shared.reserve(64 * KIB, now).expect("a room"));
}

#[test]
fn a_pass_corrects_and_tidies_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, None, clock(), Arc::default()).expect("a room");
    (0..20).for_each(|number| write(&layout, number, 64 * KIB));
    // A killed process had reserved bytes that it did not write, and left unfinished files.
    shared.usage.change(|counts| counts.as_mut().expect("known").add(99 * MIB)).expect("a file");
    let (now, digits) = (file_time(), hash(3).to_string());
    let shard = layout.shard(hash(3).shard());
    let lone = layout.map(&hash(77));
    std::fs::create_dir_all(layout.shard(hash(77).shard())).expect("a shard");
    let old = [shard.join(format!("{digits}.9-1.new")), lone];
    let young = shard.join(format!("{digits}.9-2.new"));
    for path in &old {
        std::fs::write(path, "half").expect("a file");
        set_use(path, now - DAY);
    }
    std::fs::write(&young, "half").expect("a file");
    set_use(&layout.whole(&hash(4)), now + DAY * 300);
    // Listings: one of last week, one of last year, and one that was not finished.
    let listings = layout.names().join("001");
    std::fs::create_dir_all(&listings).expect("a folder");
    let [week, year] = [201, 202].map(|number| hash(number).to_string());
    let kept = [(&*week, 7), (&*year, 365), (".new3", 1), (".new4", 0)].map(|(name, days)| {
        let path = listings.join(name);
        std::fs::write(&path, "names").expect("a file");
        set_use(&path, now - DAY * days);
        path
    });
    assert_eq!(pass_through(&shared, now), 16, "a small cache takes seconds");
    let counts = shared.usage.read().expect("a file").expect("known");
    let files = 20 * 64 * KIB + 3 * 4096;
    assert_eq!((counts.used, counts.listings), (files + 4096, 4096), "with the files that it has deleted");
    assert!(!old[0].exists() && !old[1].exists() && young.exists());
    assert_eq!(kept.map(|path| path.exists()), [true, false, false, true]);
    let metadata = layout.whole(&hash(4)).metadata().expect("a file");
    assert_eq!(scan::last_use(&metadata).as_secs(), now.as_secs(), "the clock was wrong");
}

/// A bucket may have as many names as it likes.
#[test]
fn the_listings_of_longest_ago_go_where_there_are_too_many() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let room = Room::open(&layout, Some(MIB), clock(), Arc::default()).expect("a room");
    let (shared, now) = (&room.shared, file_time());
    assert_eq!(room.most_listing_bytes().expect("a file system"), 64 * KIB);
    // Three of each day, which take 24 KiB.
    let listing = |number: u64| layout.listing(&hash(number));
    let keep = |number: u64| {
        std::fs::create_dir_all(listing(number).parent().expect("a folder")).expect("a folder");
        std::fs::write(listing(number), vec![7; 8 * KIB as usize]).expect("a file");
        set_use(&listing(number), now - DAY * (number as u32 / 3));
        room.on_listing(0, 8 * KIB);
    };
    let kept = |numbers: std::ops::Range<u64>| {
        numbers.filter(|number| listing(*number).exists()).collect::<Vec<_>>()
    };
    (0..8).for_each(keep);
    shared.tick(now, false).expect("a room");
    assert_eq!((kept(0..8).len(), used(shared)), (8, Some(64 * KIB)), "no more than they may take");
    keep(8);
    shared.tick(now, false).expect("a room");
    let left = kept(0..9);
    assert!(left.starts_with(&[0, 1, 2, 3, 4, 5]) && left.len() == 7, "seven eighths: {left:?}");
    let counts = shared.usage.read().expect("a file").expect("known");
    assert_eq!((counts.used, counts.listings), (56 * KIB, 56 * KIB));
    // Objects get the room that listings do not take, and no more.
    assert!(!shared.reserve(MIB - 48 * KIB, now).expect("a room"));
    assert!(shared.reserve(MIB - 56 * KIB, now).expect("a room"));
    shared.tick(now, false).expect("a room");
    assert_eq!(kept(0..9), left);
    // A listing that replaces another, and wrong counts.
    room.on_listing(8 * KIB, 8 * KIB);
    shared.usage.change(|counts| counts.as_mut().expect("known").replace_listing(0, MIB)).expect("a file");
    shared.tick(now, false).expect("a room");
    assert_eq!(shared.usage.read().expect("a file").expect("known").listings, 56 * KIB);
    assert_eq!(kept(0..9), left);
}

/// Makes a pass. Returns how many ticks it takes.
fn pass_through(shared: &Shared, now: Duration) -> u32 {
    let (mut pass, mut ticks) = (None, 1);
    loop {
        let rest = shared.go_on(&mut pass, now).expect("a room");
        if pass.is_none() {
            return ticks;
        }
        ticks += 1 + rest;
    }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A room of 16 objects that is full of objects that were used at `now`.
fn full_room(layout: &Layout, now: Duration) -> Shared {
    let shared = Shared::open(layout, Some(MIB), clock(), Arc::default()).expect("a room");
    for number in 0..16 {
        assert!(shared.reserve(64 * KIB, now).expect("a room"));
        write(layout, number, 64 * KIB);
        set_use(&layout.whole(&hash(number)), now);
    }
    shared
}

/// When the clock jumps ahead, the cache evicts as much as is needed, and no used object.
#[test]
fn a_clock_that_jumps_ahead_evicts_what_is_needed() {
    for jump in [DAY * 2, YEAR] {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = layout(folder.path());
        let before = file_time();
        let (shared, now) = (full_room(&layout, before), before + jump);
        shared.tick(now, false).expect("a room");
        assert_eq!(found(&layout), (16, MIB), "nothing goes by itself");
        for number in 0..15 {
            let file = File::open(layout.whole(&hash(number))).expect("a file");
            shared.on_use(&hash(number), Some(&file), now);
        }
        assert!(shared.reserve(64 * KIB, now).expect("a room"));
        assert_eq!(found(&layout), (15, 15 * 64 * KIB), "the one that was not used");
        write(&layout, 16, 64 * KIB);
        set_use(&layout.whole(&hash(16)), now);
        assert!(!shared.reserve(64 * KIB, now).expect("a room"), "all of it was used just now");
        assert_eq!((found(&layout), used(&shared)), ((16, MIB), Some(MIB)));
    }
}

/// A clock that is set back leaves times in the future behind. A use corrects the time of its object, a pass corrects
/// the others, and then they age as ever. The cache does not stay closed.
#[test]
fn a_clock_that_is_set_back_closes_nothing_for_good() {
    for jump in [DAY, YEAR] {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = layout(folder.path());
        let before = file_time();
        let (shared, now) = (full_room(&layout, before), before - jump);
        assert!(!shared.reserve(64 * KIB, before).expect("a room"), "it is closed for some seconds");
        let file = File::open(layout.whole(&hash(0))).expect("a file");
        shared.on_use(&hash(0), Some(&file), now);
        drop(file);
        set_use(&layout.whole(&hash(1)), now - DAY * 2);
        assert!(shared.reserve(64 * KIB, now).expect("a room"), "what is idle may go");
        assert!(!layout.whole(&hash(1)).exists() && found(&layout).0 == 15);
        write(&layout, 1, 64 * KIB);
        set_use(&layout.whole(&hash(1)), now);
        assert!(!shared.reserve(64 * KIB, now).expect("a room"), "no other may");
        pass_through(&shared, now);
        let used_at = |number| scan::last_use(&layout.whole(&hash(number)).metadata().expect("a file"));
        assert!((0..16).all(|number| used_at(number).as_secs() <= now.as_secs()));
        let later = now + DAY + Duration::from_secs(120);
        for _ in 0..16 {
            assert!(shared.reserve(64 * KIB, later).expect("a room"));
        }
        assert_eq!((found(&layout), used(&shared)), ((0, 0), Some(MIB)));
    }
}

#[test]
fn each_mount_keeps_to_its_own_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let large = Shared::open(&layout, Some(MIB), clock(), Arc::default()).expect("a room");
    let join = |bytes| SharedLimit::open(&layout, Limit::Bytes(bytes)).expect("a file").1;
    assert_eq!((join(256 * KIB), join(MIB)), (Some(Limit::Bytes(MIB)), None), "what is logged");
    let small = Shared::open(&layout, Some(256 * KIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    for number in 0..4 {
        assert!(small.reserve(64 * KIB, now).expect("a room"));
        write(&layout, number, 64 * KIB);
    }
    assert!(!small.reserve(64 * KIB, now).expect("a room"), "its own limit");
    for number in 4..16 {
        assert!(large.reserve(64 * KIB, now).expect("a room"));
        write(&layout, number, 64 * KIB);
    }
    assert!(!large.reserve(64 * KIB, now).expect("a room"));
    assert_eq!((used(&large), used(&small)), (Some(MIB), Some(MIB)));
    // Neither evicts objects that the other is allowed to hold.
    small.tick(now, false).expect("a room");
    large.tick(now, false).expect("a room");
    assert_eq!(found(&layout).0, 16);
    assert_eq!(limit::look(&layout).expect("a file"), (Some(Limit::Bytes(MIB)), true));
    drop((large, small));
    assert_eq!(limit::look(&layout).expect("a file"), (Some(Limit::Bytes(MIB)), false));
    // The next mount alone has a smaller limit: it evicts the excess, however young.
    let next = Shared::open(&layout, Some(512 * KIB), clock(), Arc::default()).expect("a room");
    next.tick(now, false).expect("a room");
    assert_eq!(found(&layout), (8, 512 * KIB));
    assert_eq!(used(&next), Some(512 * KIB));
}

#[test]
fn several_rooms_never_take_more_than_the_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let rooms = [(), ()]
        .map(|()| Arc::new(Room::open(&layout, Some(4 * MIB), clock(), Arc::default()).expect("a room")));
    rooms.iter().for_each(|room| room.start().expect("a thread"));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (room, layout) = (rooms[thread as usize % 2].clone(), &layout);
            scope.spawn(move || {
                for number in 0..200 {
                    if room.reserve(64 * KIB) {
                        let path = layout.whole(&hash(thread * 1000 + number));
                        write(layout, thread * 1000 + number, 64 * KIB);
                        // Half of them have not been used for long.
                        if number % 2 == 0 {
                            set_use(&path, file_time() - DAY * 2);
                        }
                    }
                    assert!(used(&room.shared) <= Some(4 * MIB));
                }
            });
        }
    });
    let (count, bytes) = found(&layout);
    assert_eq!(bytes, count as u64 * 64 * KIB);
    assert!(bytes <= 4 * MIB);
    assert_eq!(used(&rooms[0].shared), Some(bytes), "nothing is counted twice");
    rooms[0].give_back(64 * KIB);
    let counts: Counts = rooms[1].shared.usage.read().expect("a file").expect("known");
    assert_eq!(counts.used, bytes - 64 * KIB);
}

#[test]
fn a_part_of_the_file_system_stays_free() {
    let space = |free| Space { total: 1000, free, ..Space::ENDLESS };
    assert_eq!(Limit::LeaveFree.listings(space(0)), 950 / 16);
    let excess = |free, more| Limit::LeaveFree.excess(u64::MAX / 2, more, space(free)).bytes;
    assert_eq!((excess(500, 450), excess(500, 451), excess(40, 5)), (0, 1, 15));
    let surplus = |free, used| Limit::LeaveFree.surplus(used, space(free)).bytes;
    assert_eq!((surplus(45, 700), surplus(40, 700), surplus(0, 7)), (0, 5, 7));
    let bytes = |used| Limit::Bytes(100).excess(used, 10, Space::ENDLESS).bytes;
    assert_eq!((bytes(90), bytes(91), bytes(200)), (0, 1, 110));
    // With a limit, as much stays free, and 2 GiB of a large disk.
    let limited = Limit::Bytes(1 << 50);
    assert_eq!((limited.excess(0, 10, space(60)).bytes, limited.excess(0, 10, space(55)).bytes), (0, 5));
    assert_eq!((limited.surplus(700, space(45)).bytes, limited.surplus(700, space(40)).bytes), (0, 5));
    let large = Space { total: 1 << 44, ..space((2 << 30) + 10) };
    assert_eq!((limited.excess(0, 10, large).bytes, limited.excess(0, 11, large).bytes), (0, 1));
}

#[test]
fn a_part_of_the_inodes_stays_free() {
    for limit in [Limit::LeaveFree, Limit::Bytes(1 << 50)] {
        let space = |free_files| Space { total_files: 1000, free_files, ..Space::ENDLESS };
        let excess = |free_files| limit.excess(0, 10, space(free_files)).files;
        assert_eq!((excess(53), excess(52), excess(0)), (0, 1, 53));
        let surplus = |used, free_files| limit.surplus(used, space(free_files)).files;
        assert_eq!((surplus(700, 45), surplus(700, 40), surplus(0, 40)), (0, 5, 0));
        assert_eq!(limit.excess(0, 10, Space::ENDLESS), Need::NONE, "inodes are made as they are needed");
    }
}

#[test]
fn files_go_where_inodes_are_needed() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, Some(MIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    for number in 0..16 {
        assert!(shared.reserve(4 * KIB, now).expect("a room"));
        write(&layout, number, 4 * KIB);
        set_use(&layout.whole(&hash(number)), now - DAY * (number as u32 % 8));
    }
    let evicted = shared.evict(Need { bytes: 0, files: 5 }, now - DAY, now).expect("a room");
    assert_eq!((shared.metrics.evicted.get(), shared.metrics.evicted_bytes.get()), (5, 20 * KIB));
    assert!(evicted.is_enough(Need { bytes: 20 * KIB, files: 5 }));
    assert_eq!((evicted.files, found(&layout).0), (5, 11), "as many as are needed");
}

#[test]
fn who_meets_a_full_disk_evicts_what_is_idle() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, Some(MIB), clock(), Arc::default()).expect("a room");
    let now = file_time();
    for number in 0..8 {
        assert!(shared.reserve(64 * KIB, now).expect("a room"));
        write(&layout, number, 64 * KIB);
        set_use(&layout.whole(&hash(number)), now - DAY * 2 * (number as u32 % 2));
    }
    assert!(shared.make_way(200 * KIB, now).expect("a room"));
    assert_eq!(found(&layout), (4, 256 * KIB), "four were idle");
    assert!(!shared.make_way(200 * KIB, now).expect("a room"), "the others are used");
    assert_eq!((found(&layout), used(&shared)), ((4, 256 * KIB), Some(256 * KIB)));
}

/// The room is too full, and all that is here is being filled: the housekeeper looks seldom.
#[test]
fn the_housekeeper_does_not_look_again_and_again_for_what_is_being_filled() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = layout(folder.path());
    let shared = Shared::open(&layout, Some(64 * KIB), clock(), Arc::default()).expect("a room");
    write(&layout, 0, 128 * KIB);
    std::fs::rename(layout.whole(&hash(0)), layout.part(&hash(0))).expect("renamed");
    let filled = File::open(layout.part(&hash(0))).expect("a file");
    filled.lock().expect("nobody else has it");
    shared.usage.change(|counts| counts.as_mut().expect("known").add(128 * KIB)).expect("a file");
    let (now, random) = (file_time(), shared.evictor.random());
    for _ in 0..100 {
        shared.tick(now, false).expect("a room");
    }
    let looks = shared.evictor.looks_since(random);
    assert!((1..=2).contains(&looks), "{looks} looks");
    drop(filled);
    shared.tick(now + Duration::from_secs(11), false).expect("a room");
    assert_eq!(found(&layout), (0, 0), "later it goes");
}
