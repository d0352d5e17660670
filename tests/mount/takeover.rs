//! The daemon of a mount with `--keep-alive` is killed, or replaced, while programs use the mount.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{FirstByte, Shape, TestS3, check, content, mix, run_with_timeout};
use tempfile::TempDir;

use crate::world::{BUCKET, KIB, MIB, World, check_file, map, s3mount, said, wait_for};

const SIZE: u64 = 48 * MIB;
const FILES: usize = 300;
const FILE_BYTES: u64 = 20 * KIB;

/// How far the deaths of daemons are apart, so that three of them do not end the mount.
const APART: Duration = Duration::from_millis(5200);

fn server() -> s3mount_testkit::Builder {
    let server = TestS3::builder().synthetic(BUCKET, "big", SIZE).synthetic(BUCKET, "deep/er/big", SIZE);
    (0..FILES).fold(server, |server, number| server.synthetic(BUCKET, &name(number), FILE_BYTES))
}

fn name(number: usize) -> String {
    format!("small/{number:05}")
}

/// The daemon of a mount that has a holder, once there is one.
pub(crate) fn daemon_of(world: &World) -> Option<i32> {
    world.mount.held().and_then(|pid| pid.try_into().ok())
}

/// Kills the daemon, and waits for the next one.
pub(crate) fn take_over(world: &World, signal: Signal) {
    let before = daemon_of(world).expect("a daemon");
    kill(Pid::from_raw(before), signal).expect("it lives");
    wait_for("another daemon", || daemon_of(world).is_some_and(|now| now != before));
}

pub(crate) fn upgrade(world: &World) -> (bool, String) {
    upgrade_at(world.mount.path())
}

pub(crate) fn upgrade_at(dir: &Path) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    command.arg("upgrade").arg(dir);
    let output = run_with_timeout(&mut command, Duration::from_secs(100)).expect("it ends");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// How often the daemon is killed: `S3MOUNT_CRASHES`, or this often.
fn rounds(usual: usize) -> usize {
    std::env::var("S3MOUNT_CRASHES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(usual)
}

/// Runs `readers` side by side, again and again, while `change` is done.
fn read_while(readers: &[&(dyn Fn(usize) + Sync)], change: impl FnOnce()) {
    let (is_over, passes) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for reader in readers {
            let (is_over, passes) = (&is_over, &passes);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    reader(passes.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change));
        is_over.store(true, Ordering::Relaxed);
        changed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(passes.into_inner() > readers.len(), "each reader has read");
}

/// The offset of a piece of a long file that a reader reads in a pass.
fn random(pass: usize) -> u64 {
    mix(pass as u64) % (SIZE / (64 << 10)) * (64 << 10)
}

/// Reads a piece of a file.
fn read_at(file: &File, key: &str, offset: u64) {
    let mut bytes = vec![0; 64 << 10];
    file.read_exact_at(&mut bytes, offset).unwrap_or_else(|error| panic!("{key} at {offset}: {error}"));
    check(key, offset, &bytes).expect("its bytes");
}

/// Reads a file from front to back.
fn read_all(mut file: &File, key: &str) {
    file.seek(SeekFrom::Start(0)).expect("a start");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("all bytes");
    check(key, 0, &bytes).expect("its bytes");
}

/// Reads a page of a map.
fn read_page(mapped: &[u8], key: &str, offset: u64) {
    let at = offset as usize;
    check(key, offset, &mapped[at..at + 4096]).expect("its bytes");
}

#[test]
fn readers_see_nothing_of_a_daemon_that_is_killed() {
    let world = World::new(server(), &["--keep-alive", "--memory-limit", "128MiB", "--allow=write"]);
    let (open, direct) = (world.open("big"), open_direct(&world, "deep/er/big"));
    let mapped = map(&world.open("deep/er/big"));
    let folder = File::open(world.path("deep")).expect("a folder");
    let stats = File::open(world.path(".s3mount/stats")).expect("a file of the daemon");
    let inside = format!("/proc/self/fd/{}/er/big", std::os::fd::AsRawFd::as_raw_fd(&folder));
    let sequential = |_: usize| read_all(&open, "big");
    let at_random = |pass: usize| read_at(&direct, "deep/er/big", random(pass));
    let through_a_map = |pass: usize| read_page(&mapped, "deep/er/big", random(pass));
    let small = |pass: usize| {
        let name = name(pass % FILES);
        assert_eq!(fs::metadata(world.path(&name)).expect("a file").len(), FILE_BYTES);
        check_file(&world.path(&name), &name);
    };
    let listing = |_: usize| {
        let names = fs::read_dir(world.path("small")).expect("a folder");
        let names: Vec<_> = names.collect::<io::Result<_>>().expect("names");
        assert_eq!(names.len(), FILES);
    };
    let below_a_folder = |_: usize| read_at(&File::open(&inside).expect("a file"), "deep/er/big", 0);
    read_while(&[&sequential, &at_random, &through_a_map, &small, &listing, &below_a_folder], || {
        for round in 0..rounds(2) {
            thread::sleep(APART);
            take_over(&world, [Signal::SIGKILL, Signal::SIGABRT][round % 2]);
        }
        thread::sleep(Duration::from_secs(1));
    });
    (&stats).read_to_end(&mut Vec::new()).expect("what the daemon shows");
    nix::unistd::close(stats).expect("nothing was written");
    let (holder, daemon) = (world.mount.pid(), daemon_of(&world).expect("a daemon"));
    let rss = s3mount_testkit::peak_rss_bytes(daemon as u32);
    assert!(rss <= 192 * MIB, "the next daemon keeps to its memory, too: {} MiB", rss / MIB);
    let threads = fs::read_dir(format!("/proc/{holder}/task")).expect("the holder").count();
    assert_eq!(threads, 1);
}

fn open_direct(world: &World, name: &str) -> File {
    let mut options = File::options();
    options.read(true).custom_flags(nix::libc::O_DIRECT).open(world.path(name)).expect("a file")
}

/// A daemon may die between a look-up and what its caller asks next. The kernel does not look the name up once more then.
#[test]
fn a_file_that_was_only_looked_up_is_known_to_the_next_daemon() {
    let world = World::new(server(), &["--keep-alive"]);
    let found: Vec<_> = [&name(7), "deep/er/big"]
        .into_iter()
        .map(|name| {
            let mut options = File::options();
            options.read(true).custom_flags(nix::libc::O_PATH).open(world.path(name)).expect("a name")
        })
        .collect();
    for _ in 0..2 {
        take_over(&world, Signal::SIGKILL);
        for (file, key) in found.iter().zip([&name(7), "deep/er/big"]) {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
            check_file(path.as_ref(), key);
        }
    }
}

#[test]
fn inodes_pages_and_open_folders_stay() {
    let world = World::counting(server(), &["--keep-alive", "--metadata-ttl", "0"]);
    check_file(&world.path("big"), "big");
    let modified = || fs::metadata(world.path("deep")).expect("a folder").modified().expect("a time");
    let mounted = modified();
    let numbers = || {
        ["big", "deep", "deep/er", "small/00007"]
            .map(|name| fs::metadata(world.path(name)).expect(name).ino())
    };
    let before = numbers();
    let mut names = fs::read_dir(world.path("small")).expect("a folder");
    let first = names.next().expect("a name").expect("a name").file_name();
    assert_eq!(first, "00000");
    take_over(&world, Signal::SIGKILL);
    assert_eq!((numbers(), modified()), (before, mounted));
    world.server.reset_stats();
    check_file(&world.path("big"), "big");
    // Where memory is short, the kernel drops pages by itself.
    assert!(world.fetched() < SIZE / 8, "the kernel has its pages: {} bytes were fetched", world.fetched());
    let names: Vec<_> = names.collect::<io::Result<_>>().expect("names");
    assert_eq!(names.len(), FILES - 1);
}

#[test]
fn what_was_acknowledged_is_there_and_an_open_file_fails() {
    let world = World::new(server().object(BUCKET, "stored", "text"), &["--keep-alive", "--allow=all"]);
    let forgotten = File::options().write(true).open(world.path("stored")).expect("a file");
    forgotten.write_all_at(b"only in memory", 0).expect("memory");
    for round in 0..rounds(2) {
        let file = |what: &str| format!("{what}-{round}");
        world.write(&file("kept"), "kept");
        world.write(&file("gone"), "gone");
        fs::create_dir(world.path(&file("folder"))).expect("a folder");
        let moved = format!("{}/kept", file("folder"));
        fs::rename(world.path(&file("kept")), world.path(&moved)).expect("a new name");
        fs::create_dir(world.path(&file("empty"))).expect("a folder");
        fs::remove_file(world.path(&file("gone"))).expect("a file");
        let mut open = File::create(world.path(&file("open"))).expect("a file");
        open.write_all(b"only in memory").expect("memory");
        take_over(&world, Signal::SIGKILL);
        let error = open.write_all(b"more").expect_err("its bytes are lost");
        assert_eq!(error.raw_os_error(), Some(nix::libc::EIO));
        let error = nix::unistd::close(open).expect_err("its bytes are lost");
        assert_eq!(error, nix::errno::Errno::EIO);
        assert_eq!(world.read(&moved), b"kept");
        assert!(fs::metadata(world.path(&file("empty"))).expect("a folder without objects").is_dir());
        for lost in ["gone", "open", "kept"] {
            let error = fs::metadata(world.path(&file(lost))).expect_err(lost);
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{lost}");
        }
        assert!(world.server.stored(BUCKET, &file("open")).is_none());
        world.write(&file("open"), "again");
        assert_eq!(world.read(&file("open")), b"again");
        thread::sleep(APART);
    }
    let error =
        nix::unistd::close(forgotten).expect_err("its bytes are lost, however many daemons there were since");
    assert_eq!(error, nix::errno::Errno::EIO);
    assert_eq!(world.read("stored"), b"text");
}

/// A file whose bytes are all stored needs no spool: a log that was synced, or one that was only opened.
#[test]
fn who_has_saved_all_that_he_wrote_goes_on() {
    let world = World::new(server().object(BUCKET, "kept", "first"), &["--keep-alive", "--allow=all"]);
    let open = |name: &str, options: &mut fs::OpenOptions| options.open(world.path(name)).expect("a file");
    let mut log = open("log", File::options().append(true).create(true));
    let patched = open("kept", File::options().read(true).write(true));
    let mut expected = String::new();
    for round in 0..rounds(2) {
        for line in [format!("line {round}\n"), format!("and another one of {round}\n")] {
            log.write_all(line.as_bytes()).expect("a write");
            expected.push_str(&line);
        }
        log.sync_all().expect("it is stored");
        take_over(&world, Signal::SIGKILL);
        assert_eq!(world.read("log"), expected.as_bytes());
        thread::sleep(APART);
    }
    patched.write_all_at(b"F", 0).expect("a write");
    log.write_all(b"the end").expect("a write");
    nix::unistd::close(log).expect("it is stored");
    nix::unistd::close(patched).expect("it is stored");
    let stored = |name: &str| world.server.stored(BUCKET, name).expect("an object").bytes();
    assert_eq!(String::from_utf8_lossy(&stored("log")), format!("{expected}the end"));
    assert_eq!(stored("kept"), b"First");
}

/// What was written lies in the spool, so the next daemon goes on with it.
#[test]
fn who_writes_goes_on_where_there_is_a_spool() {
    let spool = TempDir::new().expect("a folder");
    let flag = spool.path().display().to_string();
    let flags = ["--keep-alive", "--allow=all", "--write-spool", &flag, "--memory-limit", "128MiB"];
    let world = World::new(server().object(BUCKET, "old", vec![7; 3 << 20]), &flags);
    let create = |name: &str| {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(world.path(name))
            .expect("a file")
    };
    let (mut long, patched, emptied) = (create("long"), create("patched"), create("old"));
    let [mut late, empty] =
        ["late", "empty"].map(|name| File::create_new(world.path(name)).expect("no such file"));
    let appended = File::options().append(true).open(world.path("small/00000")).expect("a file");
    let (mut lines, mut changed) = (content("small/00000", 0, FILE_BYTES as usize), vec![0_u8; 4 << 20]);
    let mut written = 0;
    for round in 0..rounds(3) {
        for piece in 0..20 {
            let bytes: Vec<u8> = (0..MIB / 8).map(|at| mix(written + at) as u8).collect();
            written += bytes.len() as u64;
            long.write_all(&bytes).expect("a write");
            let at = mix(piece + 100 * round as u64) % (changed.len() as u64 - 1000);
            patched.write_all_at(&[piece as u8; 777], at).expect("a write");
            changed[at as usize..at as usize + 777].fill(piece as u8);
            let line = format!("{round} {piece}\n");
            (&appended).write_all(line.as_bytes()).expect("a write");
            lines.extend_from_slice(line.as_bytes());
        }
        patched.set_len(changed.len() as u64).expect("a length");
        emptied.write_all_at(format!("round {round}").as_bytes(), 10 * round as u64).expect("a write");
        assert_eq!(kept_files(&world, &flag), 4);
        take_over(&world, Signal::SIGKILL);
        // A program that is started closes what it has inherited, and that completes nothing.
        assert!(Command::new("/bin/true").status().expect("a program").success());
        assert_eq!(world.read("patched"), changed, "round {round}");
        assert_eq!(world.read("small/00000"), lines, "round {round}");
        for name in ["long", "late", "empty"] {
            assert!(world.server.stored(BUCKET, name).is_none(), "nobody has closed {name}");
        }
        thread::sleep(APART);
    }
    assert_eq!(fs::read_dir(spool.path()).expect("a folder").count(), 0, "the files have no names");
    let (has_made_way, text) = upgrade(&world);
    assert!(has_made_way, "it need not wait for who writes: {text}");
    late.write_all(b"after all of that").expect("a write");
    for file in [long, patched, emptied, appended, late, empty] {
        nix::unistd::close(file).expect("it is stored");
    }
    let stored = |name: &str| world.server.stored(BUCKET, name).expect("an object").bytes();
    let expected: Vec<u8> = (0..written).map(|at| mix(at) as u8).collect();
    assert!(stored("long") == expected, "each byte of it");
    assert!(stored("late") == b"after all of that" && stored("empty").is_empty());
    assert!(stored("patched") == changed && stored("small/00000") == lines);
    let text: Vec<String> = (0..rounds(3)).map(|round| format!("round {round}")).collect();
    let rows = stored("old")
        .chunks(10)
        .map(|row| String::from_utf8_lossy(row).trim_end_matches('\0').to_owned())
        .collect::<Vec<_>>();
    assert_eq!(rows, text);
    wait_for("the holder gives them back", || kept_files(&world, &flag) == 0);
}

/// How many files of the `spool` the holder of a mount has open.
fn kept_files(world: &World, spool: &str) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", world.mount.pid())).expect("the holder").flatten();
    open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|path| path.starts_with(spool))).count()
}

/// Makes, renames, removes and reads files of one folder, and counts how often, in a file elsewhere.
const BUSY: &str = "
import os, random, sys
d, count = sys.argv[1], open(sys.argv[2], 'w')
while True:
    try:
        one, other = (f'{d}/f{random.randrange(6)}' for _ in range(2))
        match random.randrange(4):
            case 0: open(one, 'wb').write(b'x' * random.randrange(1000))
            case 1: os.unlink(one)
            case 2: os.rename(one, other)
            case 3: open(one, 'rb').read(); os.listdir(d)
    except OSError as error:
        if error.errno in (103, 107): sys.exit(str(error))
    count.write('.')
    count.flush()
";

/// A thread of the daemon that waits in the kernel for a folder does not end when the daemon is killed. The next daemon's
/// answer to who holds the folder lets it go.
#[test]
fn programs_that_change_one_folder_go_on() {
    let slow = Shape { first_byte: FirstByte::Fixed(30.0), ..Shape::fast() };
    let world =
        World::new(server().shape(slow).object(BUCKET, "d/f0", "text"), &["--keep-alive", "--allow=all"]);
    let count = |number: usize| world.folder().join(format!("count-{number}"));
    let start = |number| {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", BUSY]).arg(world.path("d")).arg(count(number)).spawn().expect("a program")
    };
    let mut programs: Vec<_> = (0..8).map(start).collect();
    let counts =
        || (0..8).map(|number| fs::metadata(count(number)).map_or(0, |file| file.len())).collect::<Vec<_>>();
    for _ in 0..rounds(2) {
        for number in 0..40 {
            thread::sleep(Duration::from_millis(130));
            world.server.put(BUCKET, &format!("d/f{}", number % 6), format!("theirs, {number}"));
        }
        take_over(&world, Signal::SIGKILL);
        let before = counts();
        wait_for("each program goes on", || counts().iter().zip(&before).all(|(now, before)| now > before));
    }
    for program in &mut programs {
        assert!(program.try_wait().expect("a program").is_none(), "none has seen the mount end");
        program.kill().expect("it lives");
        program.wait().expect("its end");
    }
}

#[test]
fn files_that_the_kernel_reads_by_itself_stay_open() {
    let cache = TempDir::new().expect("a folder");
    let flag = cache.path().join("cache").display().to_string();
    let world = World::counting(server(), &["--keep-alive", "--cache", &flag]);
    check_file(&world.path("big"), "big");
    let passed = || world.gauge("opens_passthrough");
    wait_for("the file is read by the kernel", || {
        drop(world.open("big"));
        passed() > 0
    });
    let (open, other, direct) = (world.open("big"), world.open("big"), open_direct(&world, "big"));
    take_over(&world, Signal::SIGKILL);
    check_file(&world.path("big"), "big");
    drop((other, direct));
    let mut bytes = vec![0; MIB as usize];
    open.read_exact_at(&mut bytes, 5 * MIB).expect("bytes");
    check("big", 5 * MIB, &bytes).expect("its bytes");
    // Another open of the inode has to name the same file to the kernel.
    check_file(&world.path("big"), "big");
    drop(open);
    check_file(&world.path("big"), "big");
    assert!(passed() > 0);
}

#[test]
fn a_daemon_makes_way_once_no_file_is_being_written() {
    let world = World::new(server(), &["--keep-alive", "--allow=all"]);
    let open = world.open("big");
    let before = daemon_of(&world).expect("a daemon");
    assert_eq!(upgrade(&world), (true, String::new()));
    assert_ne!(daemon_of(&world), Some(before));
    let mut bytes = [0; 4096];
    open.read_exact_at(&mut bytes, SIZE - 4096).expect("bytes");
    check("big", SIZE - 4096, &bytes).expect("its bytes");
    let mut written = File::create(world.path("written")).expect("a file");
    written.write_all(b"one ").expect("memory");
    thread::scope(|scope| {
        let upgraded = scope.spawn(|| upgrade(&world));
        thread::sleep(Duration::from_millis(500));
        let before = daemon_of(&world);
        // Who begins to write waits for the next daemon.
        let begun = scope.spawn(|| world.write("later", "later"));
        written.write_all(b"two").expect("memory");
        assert_eq!(daemon_of(&world), before);
        drop(written);
        assert_eq!(upgraded.join().expect("it ends"), (true, String::new()));
        begun.join().expect("it is written");
    });
    assert_eq!((world.read("written"), world.read("later")), (b"one two".to_vec(), b"later".to_vec()));
}

#[test]
fn a_daemon_does_not_make_way_while_a_file_is_being_written() {
    let world = World::new(server(), &["--keep-alive", "--allow=all"]);
    let mut written = File::create(world.path("written")).expect("a file");
    written.write_all(b"one ").expect("memory");
    let before = daemon_of(&world).expect("a daemon");
    let (is_done, said) = upgrade(&world);
    assert!(!is_done && said.contains("files are open for writing"), "{said}");
    assert_eq!(daemon_of(&world), Some(before));
    written.write_all(b"two").expect("memory");
    drop(written);
    assert_eq!(world.read("written"), b"one two");
}

#[test]
fn a_daemon_that_is_killed_again_and_again_ends_the_mount() {
    let world = World::new(server(), &["--keep-alive"]);
    for _ in 0..2 {
        take_over(&world, Signal::SIGKILL);
    }
    kill(Pid::from_raw(daemon_of(&world).expect("a daemon")), Signal::SIGKILL).expect("it lives");
    let said = last_words(&world);
    assert!(said.contains("3 daemons were killed within 10s"), "{said}");
}

/// The daemon takes the kernel for one before Linux 6.9, which sends no request again.
fn without_resend(flags: &[&str]) -> World {
    let flags = [&["--keep-alive"], flags].concat();
    World::with(server(), &flags, |command| {
        command.env("S3MOUNT_WITHOUT_RESEND", "1");
    })
}

/// The process that was started, which keeps the mount.
pub(crate) fn holder_of(world: &World) -> Pid {
    Pid::from_raw(world.mount.pid().cast_signed())
}

/// Waits for the end of a process that nobody waits for.
pub(crate) fn wait_for_end(pid: Pid) {
    wait_for("its end", || {
        fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
    });
}

/// Waits for the holder's end, and returns what was said until then.
fn last_words(world: &World) -> String {
    wait_for_end(holder_of(world));
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    assert!(!mounts.contains(&world.mount.path().display().to_string()), "nothing is left");
    world.mount.stderr()
}

#[test]
fn an_old_kernel_lets_a_mount_be_upgraded_under_its_readers() {
    let world = without_resend(&["--memory-limit", "128MiB", "--allow=all", "--metadata-ttl", "0"]);
    let (open, direct) = (world.open("big"), open_direct(&world, "deep/er/big"));
    let mapped = map(&world.open("deep/er/big"));
    let sequential = |_: usize| read_all(&open, "big");
    let at_random = |pass: usize| read_at(&direct, "deep/er/big", random(pass));
    let through_a_map = |pass: usize| read_page(&mapped, "deep/er/big", random(pass));
    let small = |pass: usize| {
        check_file(&world.path(&name(pass % FILES)), &name(pass % FILES));
    };
    let listing = |_: usize| {
        let names = fs::read_dir(world.path("small")).expect("a folder");
        assert_eq!(names.collect::<io::Result<Vec<_>>>().expect("names").len(), FILES);
    };
    let changing = |pass: usize| {
        let (one, other) = (world.path(&format!("made-{pass}")), world.path(&format!("moved-{pass}")));
        fs::create_dir(&one).expect("a folder");
        fs::rename(&one, &other).expect("another name");
        fs::remove_dir(&other).expect("a folder");
    };
    read_while(&[&sequential, &at_random, &through_a_map, &small, &listing, &changing], || {
        for _ in 0..rounds(20) {
            let before = daemon_of(&world).expect("a daemon");
            assert_eq!(upgrade(&world), (true, String::new()));
            assert_ne!(daemon_of(&world), Some(before));
            thread::sleep(Duration::from_millis(100));
        }
    });
    world.write("written", "by the last daemon");
    assert_eq!(world.read("written"), b"by the last daemon");
    let said = world.mount.stderr();
    assert_eq!(said.matches("older than Linux 6.9").count(), 1, "it is said once: {said}");
    assert!(!said.contains("is no setting"), "{said}");
}

#[test]
fn an_old_kernel_has_no_daemon_replaced_while_a_file_is_being_written() {
    let world = without_resend(&["--allow=all"]);
    let mut written = File::create(world.path("written")).expect("a file");
    written.write_all(b"one ").expect("memory");
    thread::scope(|scope| {
        let upgraded = scope.spawn(|| upgrade(&world));
        thread::sleep(Duration::from_millis(500));
        let before = daemon_of(&world);
        // Nobody waits meanwhile.
        world.write("later", "later");
        written.write_all(b"two").expect("memory");
        assert_eq!(daemon_of(&world), before);
        drop(written);
        assert_eq!(upgraded.join().expect("it ends"), (true, String::new()));
        assert_ne!(daemon_of(&world), before);
    });
    assert_eq!((world.read("written"), world.read("later")), (b"one two".to_vec(), b"later".to_vec()));
}

#[test]
fn a_daemon_that_is_killed_on_an_old_kernel_ends_the_mount() {
    let world = without_resend(&[]);
    assert_eq!(upgrade(&world), (true, String::new()));
    check_file(&world.path("big"), "big");
    kill(Pid::from_raw(daemon_of(&world).expect("a daemon")), Signal::SIGKILL).expect("it lives");
    let said = last_words(&world);
    assert!(said.contains("the daemon was killed by SIGKILL; on a kernel before Linux 6.9"), "{said}");
}

/// Whatever becomes of the file, and wherever `upgrade` is called.
#[test]
fn settings_from_a_file_are_those_of_the_first_daemon() {
    let folder = TempDir::new().expect("a folder");
    let settings = folder.path().join("settings.toml");
    fs::write(&settings, "part-size = \"3MiB\"").expect("a file");
    let world = World::with(server(), &["--keep-alive", "--config", "settings.toml"], |command| {
        command.current_dir(folder.path());
    });
    fs::write(&settings, "part-size = ???").expect("a file");
    take_over(&world, Signal::SIGKILL);
    check_file(&world.path("big"), "big");
    fs::remove_file(&settings).expect("a file");
    assert_eq!(upgrade(&world), (true, String::new()));
    check_file(&world.path(&name(1)), &name(1));
    thread::sleep(APART);
    take_over(&world, Signal::SIGKILL);
    check_file(&world.path(&name(2)), &name(2));
}

#[test]
fn the_holder_says_why_no_daemon_starts() {
    let cache = TempDir::new().expect("a folder");
    let dir = cache.path().join("cache");
    let world = World::new(server(), &["--keep-alive", "--cache", &dir.display().to_string()]);
    check_file(&world.path("big"), "big");
    fs::rename(&dir, cache.path().join("elsewhere")).expect("another name");
    fs::write(&dir, "no folder").expect("a file");
    kill(Pid::from_raw(daemon_of(&world).expect("a daemon")), Signal::SIGKILL).expect("it lives");
    let said = last_words(&world);
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("the last one has ended with exit code 1: ") && last.contains("cache"), "{said}");
}

#[test]
fn upgrades_wait_for_each_other() {
    let world = World::new(server(), &["--keep-alive"]);
    thread::scope(|scope| {
        let upgrades: Vec<_> = (0..3).map(|_| scope.spawn(|| upgrade(&world))).collect();
        for upgrade in upgrades {
            assert_eq!(upgrade.join().expect("it ends"), (true, String::new()));
        }
    });
    check_file(&world.path("big"), "big");
}

/// Who makes a file holds the lock of its folder in the kernel.
#[test]
fn nobody_waits_long_while_a_writer_keeps_a_daemon_from_making_way() {
    let world = World::new(server(), &["--keep-alive", "--allow=all"]);
    let mut written = File::create(world.path("small/written")).expect("a file");
    written.write_all(b"one ").expect("memory");
    thread::scope(|scope| {
        let upgraded = scope.spawn(|| upgrade(&world));
        let began = Instant::now();
        for round in 0.. {
            let turn = Instant::now();
            world.write(&format!("small/made-{round}"), "made");
            fs::read_dir(world.path("small")).expect("a folder").for_each(drop);
            assert!(turn.elapsed() < Duration::from_secs(3), "{:?}", turn.elapsed());
            if began.elapsed() > Duration::from_secs(4) {
                break;
            }
        }
        written.write_all(b"two").expect("memory");
        drop(written);
        assert_eq!(upgraded.join().expect("it ends"), (true, String::new()));
    });
    assert_eq!(world.read("small/written"), b"one two");
}

/// A service manager that stores descriptors, as systemd does for `packaging/systemd/s3mount@.service`.
#[test]
fn a_service_manager_can_keep_the_mount() {
    keep_by_service_manager(&[]);
}

#[test]
fn a_service_manager_keeps_the_mount_of_an_old_kernel_while_its_daemon_is_replaced() {
    keep_by_service_manager(&[("S3MOUNT_WITHOUT_RESEND", "1")]);
}

fn keep_by_service_manager(variables: &[(&str, &str)]) {
    let _watchdog = s3mount_testkit::watchdog(Duration::from_secs(200));
    let (server, folder) =
        (server().bucket(BUCKET).start().expect("a server"), TempDir::new().expect("a folder"));
    let dir = folder.path().join("mnt");
    fs::create_dir(&dir).expect("a mount point");
    let mount = s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]);
    let expected = folder.path().join("expected");
    fs::write(&expected, content("big", 0, SIZE as usize)).expect("a file");
    let mut python = Command::new("/usr/bin/python3");
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/service_manager.py"));
    python.arg(&dir).arg("big").arg(&expected).arg(mount.get_program()).args(mount.get_args());
    for (name, value) in mount.get_envs() {
        value.map(|value| python.env(name, value));
    }
    python.envs(variables.iter().copied());
    let output = run_with_timeout(&mut python, Duration::from_secs(150)).expect("it ends");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn without_its_holder_a_daemon_goes_on_and_is_the_last_one() {
    let world = World::new(server(), &["--keep-alive"]);
    let daemon = daemon_of(&world).expect("a daemon");
    kill(Pid::from_raw(world.mount.pid() as i32), Signal::SIGKILL).expect("it lives");
    thread::sleep(Duration::from_millis(300));
    check_file(&world.path("big"), "big");
    let (is_done, said) = upgrade(&world);
    assert!(!is_done, "{said}");
    kill(Pid::from_raw(daemon), Signal::SIGUSR2).expect("it lives");
    thread::sleep(Duration::from_millis(300));
    check_file(&world.path("small/00001"), &name(1));
    kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("it lives");
    wait_for("an answer", || {
        fs::metadata(world.path("big")).is_err_and(|error| error.raw_os_error() == Some(nix::libc::ENOTCONN))
    });
}
