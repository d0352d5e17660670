//! What a mount remembers is known to the daemon that takes over, and nobody waits for ever.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{FirstByte, Shape, TestS3};
use tempfile::TempDir;

use crate::takeover::{daemon_of, holder_of, take_over, upgrade, upgrade_at, wait_for_end};
use crate::world::{BUCKET, World, mounts, wait_for};

/// How long a program may take to end that was killed.
const PATIENCE: Duration = Duration::from_secs(10);

fn world(flags: &[&str]) -> World {
    World::new(TestS3::builder().object(BUCKET, "there", b"bytes".to_vec()), flags)
}

#[test]
fn who_may_run_a_file_and_whose_file_it_is_stays_known() {
    let world = world(&["--keep-alive", "--allow=write"]);
    let program = world.path("program");
    fs::write(&program, "#!/bin/sh\necho ran\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("noted");
    fs::write(world.path("temporary"), "mine").expect("written");
    take_over(&world, Signal::SIGKILL);
    let output = Command::new(&program).output().expect("it may be run");
    assert_eq!(output.stdout, b"ran\n");
    fs::rename(world.path("temporary"), world.path("final")).expect("this mount has written it");
    assert_eq!(upgrade(&world), (true, String::new()));
    assert_eq!(Command::new(&program).output().expect("it may be run").stdout, b"ran\n");
    assert!(fs::rename(world.path("there"), world.path("elsewhere")).is_err(), "it is somebody else's");
}

#[test]
fn times_and_links_are_right_after_a_takeover() {
    let world = world(&["--keep-alive", "--allow=all", "--keep-attributes"]);
    symlink("target", world.path("link")).expect("a link");
    // A clock that began anew with the next daemon would be late by this.
    thread::sleep(Duration::from_secs(3));
    take_over(&world, Signal::SIGKILL);
    assert_eq!(fs::read_link(world.path("link")).expect("a link").to_str(), Some("target"));
    let before = SystemTime::now();
    assert!(Command::new("touch").arg(world.path("there")).status().expect("touch").success());
    let touched = fs::metadata(world.path("there")).expect("a file").modified().expect("a time");
    assert!(touched + Duration::from_secs(1) > before, "{touched:?} is before {before:?}");
    // A file that a later daemon has written, too.
    let secret = || {
        let file = File::create(world.path("secret")).expect("a file");
        file.set_permissions(fs::Permissions::from_mode(0o600)).expect("kept");
    };
    secret();
    take_over(&world, Signal::SIGKILL);
    secret();
    wait_for("its attributes are stored", || {
        let stored = world.server.stored(BUCKET, "secret");
        stored.is_some_and(|stored| stored.beside.metadata.iter().any(|(_, value)| value == "33152"))
    });
    assert_eq!(upgrade(&world), (true, String::new()));
    assert_eq!(fs::metadata(world.path("secret")).expect("a file").mode() & 0o777, 0o600);
}

#[test]
fn upgrades_under_programs_that_change_names_are_no_deaths() {
    let world = world(&["--keep-alive", "--allow=all"]);
    world.server.shape(Shape { first_byte: FirstByte::Fixed(15.0), ..Shape::fast() });
    fs::create_dir(world.path("d")).expect("a folder");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..12 {
            let (world, is_over) = (&world, &is_over);
            scope.spawn(move || {
                let path = world.path(&format!("d/{number}"));
                while !is_over.load(Ordering::Relaxed) {
                    fs::write(&path, "x").expect("written");
                    fs::remove_file(&path).expect("removed");
                }
            });
        }
        let upgraded: Vec<_> = (0..5).map(|_| upgrade(&world)).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(upgraded.iter().all(|(has_made_way, _)| *has_made_way), "{upgraded:?}");
    });
    assert!(!world.mount.stderr().contains("killed"), "{}", world.mount.stderr());
}

#[test]
fn an_upgrade_waits_for_a_file_that_has_lost_its_name() {
    let spool = TempDir::new().expect("a folder");
    let spool = spool.path().display().to_string();
    let world = world(&["--keep-alive", "--allow=all", "--write-spool", &spool]);
    let mut nameless = File::create(world.path("nameless")).expect("a file");
    nameless.write_all(b"one ").expect("a write");
    fs::remove_file(world.path("nameless")).expect("removed");
    let before = daemon_of(&world);
    thread::scope(|scope| {
        let upgraded = scope.spawn(|| upgrade(&world));
        thread::sleep(Duration::from_millis(500));
        nameless.write_all(b"two").expect("a write");
        assert_eq!(nameless.metadata().expect("a file").size(), 7);
        assert_eq!(daemon_of(&world), before);
        drop(nameless);
        assert_eq!(upgraded.join().expect("it ends"), (true, String::new()));
    });
    assert_ne!(daemon_of(&world), before);
}

#[test]
fn a_program_can_be_killed_while_the_next_daemon_has_no_store() {
    let world = world(&["--keep-alive", "--allow=write"]);
    let file = world.open("there");
    let mut program = Command::new("sleep").arg("100").stdin(Stdio::from(file)).spawn().expect("sleep");
    world.server.freeze(true);
    take_over(&world, Signal::SIGKILL);
    program.kill().expect("it lives");
    let since = Instant::now();
    wait_for("its end", || program.try_wait().expect("a child").is_some());
    assert!(since.elapsed() < PATIENCE, "the last FLUSH needs no store");
    world.server.thaw();
    assert_eq!(world.read("there"), b"bytes");
}

/// The kernel gives the numbers of a mount that is gone to the next one.
#[test]
fn a_holder_that_ends_takes_down_no_other_mount() {
    let world = world(&["--keep-alive"]);
    let (holder, daemon) = (holder_of(&world), daemon_of(&world).expect("a daemon"));
    kill(holder, Signal::SIGSTOP).expect("it lives");
    umount2(world.mount.path(), MntFlags::empty()).expect("nobody uses it");
    wait_for_end(Pid::from_raw(daemon));
    let folder = TempDir::new().expect("a folder");
    let other = world.also(folder.path(), &[]);
    kill(holder, Signal::SIGCONT).expect("it lives");
    wait_for_end(holder);
    assert_eq!(fs::read(other.path().join("there")).expect("it is mounted"), b"bytes");
}

/// Kills a daemon that has not published yet what `close` has left to it. Then `end` ends the mount.
fn all_is_published_by(end: impl FnOnce(&World)) {
    let spool = TempDir::new().expect("a folder");
    let spool = spool.path().display().to_string();
    let world = world(&["--keep-alive", "--allow=all", "--write-spool", &spool, "--append-delay", "100s"]);
    for name in ["one", "two"] {
        let log = OpenOptions::new().append(true).create(true).open(world.path(name));
        log.and_then(|mut log| log.write_all(b"a line")).expect("written");
    }
    let holder = holder_of(&world);
    // No other daemon begins before `end` has begun.
    kill(holder, Signal::SIGSTOP).expect("it lives");
    kill(Pid::from_raw(daemon_of(&world).expect("a daemon")), Signal::SIGKILL).expect("it lives");
    end(&world);
    wait_for_end(holder);
    assert_eq!(mounts(world.mount.path()), 0);
    let stored = world.stored_below("");
    assert_eq!(stored.get("one").zip(stored.get("two")), Some((&b"a line".to_vec(), &b"a line".to_vec())));
}

#[test]
fn a_holder_that_is_asked_to_end_after_a_kill_has_all_published() {
    all_is_published_by(|world| {
        kill(holder_of(world), Signal::SIGCONT).expect("it lives");
        // Who is impatient asks twice, and asks the daemon that begins.
        for _ in 0..2 {
            kill(holder_of(world), Signal::SIGTERM).expect("it lives");
            daemon_of(world).map(|daemon| kill(Pid::from_raw(daemon), Signal::SIGTERM));
            thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_mount_that_is_unmounted_while_it_has_no_daemon_has_all_published() {
    all_is_published_by(|world| {
        umount2(world.mount.path(), MntFlags::empty()).expect("nobody uses it");
        kill(holder_of(world), Signal::SIGCONT).expect("it lives");
    });
}

#[test]
fn a_daemon_that_ends_by_its_own_will_is_followed_by_none() {
    let world = world(&["--keep-alive", "--allow=all"]);
    let mut file = File::create(world.path("open")).expect("made");
    file.write_all(b"bytes that are lost: so the daemon ends with an error").expect("written");
    let holder = holder_of(&world);
    kill(Pid::from_raw(daemon_of(&world).expect("a daemon")), Signal::SIGTERM).expect("it lives");
    // While the file is open.
    wait_for_end(holder);
    assert_eq!(mounts(world.mount.path()), 0);
}

/// The kernel forgets the inode of a file that nobody has open when it drops the name, or when memory is short.
#[test]
fn a_file_that_the_kernel_has_forgotten_keeps_what_close_has_left() {
    let spool = TempDir::new().expect("a folder");
    let spool = spool.path().display().to_string();
    let world = world(&["--keep-alive", "--allow=all", "--write-spool", &spool, "--append-delay", "100s"]);
    let log = OpenOptions::new().append(true).open(world.path("there"));
    log.and_then(|mut log| log.write_all(b", and a line")).expect("written");
    // That of names and inodes.
    fs::write("/proc/sys/vm/drop_caches", "2").expect("root");
    take_over(&world, Signal::SIGKILL);
    assert_eq!(world.read("there"), b"bytes, and a line");
}

#[test]
fn an_upgrade_gives_up_no_daemon_that_another_one_could_not_follow() {
    let folder = TempDir::new().expect("a folder");
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    fs::create_dir(&before).expect("a folder");
    let socket = before.join("socket").display().to_string();
    let world = world(&["--keep-alive", "--control-socket", &socket]);
    let daemon = daemon_of(&world);
    fs::rename(&before, &after).expect("moved");
    let (is_done, said) = upgrade(&world);
    assert!(!is_done && said.contains("--control-socket: the folder"), "{said}");
    assert_eq!((daemon_of(&world), world.read("there").as_slice()), (daemon, &b"bytes"[..]));
    fs::rename(&after, &before).expect("moved back");
    assert_eq!(upgrade(&world), (true, String::new()));
}

#[test]
fn a_daemon_that_has_no_client_of_its_store_ends_when_it_is_asked() {
    let folder = TempDir::new().expect("a folder");
    let bundle = folder.path().join("bundle.pem");
    fs::copy("/etc/ssl/certs/ca-certificates.crt", &bundle).expect("the package ca-certificates");
    let world = world(&["--keep-alive", "--ca-bundle", &bundle.display().to_string()]);
    let holder = holder_of(&world);
    fs::remove_file(&bundle).expect("removed");
    kill(Pid::from_raw(daemon_of(&world).expect("a daemon")), Signal::SIGKILL).expect("it lives");
    kill(holder, Signal::SIGTERM).expect("it lives");
    wait_for_end(holder);
    assert_eq!(mounts(world.mount.path()), 0);
}

/// A mount below a folder that is moved has another path from then on, and a bind mount another number.
#[test]
fn a_mount_is_upgraded_wherever_it_shows() {
    let world = world(&["--keep-alive"]);
    let bound = TempDir::new().expect("a folder");
    let none: Option<&str> = None;
    mount(Some(world.mount.path()), bound.path(), none, MsFlags::MS_BIND, none).expect("a bind mount");
    let upgraded = upgrade_at(bound.path());
    umount2(bound.path(), MntFlags::MNT_DETACH).expect("unmounted");
    assert_eq!(upgraded, (true, String::new()));
    assert_eq!(world.read("there"), b"bytes");
    let (dir, above) = (world.mount.path(), world.mount.path().parent().expect("a folder"));
    let elsewhere = above.with_extension("elsewhere");
    fs::rename(above, &elsewhere).expect("moved");
    let moved = elsewhere.join(dir.file_name().expect("a name"));
    let upgraded = [upgrade_at(&moved), upgrade_at(&moved)];
    fs::rename(&elsewhere, above).expect("moved back");
    assert_eq!(upgraded, [(true, String::new()), (true, String::new())]);
    assert_eq!(world.read("there"), b"bytes");
}

/// The kernel gives the number of a mount that is gone to the next one, also while its file system shows elsewhere.
#[test]
fn an_upgrade_asks_no_daemon_whose_mount_had_the_same_number() {
    let world = world(&["--keep-alive"]);
    let (bound, folder) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let none: Option<&str> = None;
    mount(Some(world.mount.path()), bound.path(), none, MsFlags::MS_BIND, none).expect("a bind mount");
    umount2(world.mount.path(), MntFlags::empty()).expect("nobody uses it");
    let next = world.also(folder.path(), &["--keep-alive"]);
    let before = (daemon_of(&world), next.held());
    let upgraded = upgrade_at(folder.path());
    let after = (daemon_of(&world), next.held());
    umount2(bound.path(), MntFlags::MNT_DETACH).expect("unmounted");
    assert_eq!(upgraded, (true, String::new()));
    assert_eq!((after.0, after.1 == before.1), (before.0, false), "the daemons before were {before:?}");
    assert_eq!(fs::read(folder.path().join("there")).expect("it is mounted"), b"bytes");
}

/// The store takes its time for the copy, so that the daemon dies between the copy and the deletion.
#[test]
fn a_name_that_is_given_only_if_it_is_free_is_given_once() {
    // The store has ETags that do not follow from the bytes, as for encrypted objects.
    let server = TestS3::builder().opaque_etags().object(BUCKET, "there", b"bytes".to_vec());
    let world = World::new(server, &["--keep-alive", "--allow=all"]);
    world.server.shape(Shape { first_byte: FirstByte::Fixed(300.0), ..Shape::fast() });
    let rename = |to: &str| {
        let (from, to) = (world.path("there"), world.path(to));
        renameat2(AT_FDCWD, &from, AT_FDCWD, &to, RenameFlags::RENAME_NOREPLACE)
    };
    thread::scope(|scope| {
        let renamed = scope.spawn(|| rename("free"));
        wait_for("the copy", || world.server.stored(BUCKET, "free").is_some());
        take_over(&world, Signal::SIGKILL);
        assert_eq!(renamed.join().expect("it ends"), Ok(()));
    });
    assert_eq!(world.read("free"), b"bytes");
    assert_eq!(world.stored_below("").keys().collect::<Vec<_>>(), ["free"]);
}

/// The ETags do not follow from the bytes. What a daemon has sent before it dies, the store does after that.
#[test]
fn a_folder_whose_rename_is_under_way_gets_its_name_once() {
    let mut server = TestS3::builder().opaque_etags();
    for number in 0..5 {
        server = server.object(BUCKET, &format!("old/{number}"), vec![number; 500]);
    }
    let world = World::new(server, &["--keep-alive", "--allow=all"]);
    let slow_copies = Shape { copy_latency_ms: 400.0, ..Shape::fast() };
    let slow_deletions = Shape { first_byte: FirstByte::Fixed(300.0), ..Shape::fast() };
    let (mut from, mut to) = ("old", "new");
    for (signal, shape) in [
        (Signal::SIGKILL, &slow_copies),
        (Signal::SIGABRT, &slow_copies),
        (Signal::SIGKILL, &slow_deletions),
        (Signal::SIGABRT, &slow_deletions),
    ] {
        world.server.shape(*shape);
        thread::scope(|scope| {
            let renamed = scope.spawn(|| {
                let (from, to) = (world.path(from), world.path(to));
                renameat2(AT_FDCWD, &from, AT_FDCWD, &to, RenameFlags::RENAME_NOREPLACE)
            });
            if shape == &slow_copies {
                wait_for("the copies", || world.server.stats().copy_object.requests == 5);
                world.server.reset_stats();
            } else {
                wait_for("the copies", || world.stored_below(to).len() == 5);
            }
            take_over(&world, signal);
            assert_eq!(renamed.join().expect("it ends"), Ok(()));
        });
        world.server.shape(Shape::fast());
        assert_eq!(world.stored_below(from).len(), 0);
        assert_eq!(world.stored_below(to).len(), 5);
        assert_eq!(fs::read_dir(world.path(to)).expect("it is there").count(), 5);
        (from, to) = (to, from);
        // Three ends in ten seconds end the mount.
        thread::sleep(Duration::from_secs(5));
    }
    for number in 0..5 {
        assert_eq!(world.read(&format!("{from}/{number}")), vec![number; 500]);
    }
}

/// A directory that the kernel has forgotten is kept for a minute after a takeover.
#[test]
fn folders_that_change_places_after_a_takeover_are_told_apart() {
    let world = world(&["--keep-alive", "--allow=all"]);
    let path = |name: &str| world.path(name);
    fs::create_dir(path("b")).expect("a folder");
    take_over(&world, Signal::SIGKILL);
    fs::create_dir(path("c")).expect("a folder");
    fs::write(path("b/h"), "inner").expect("written");
    fs::rename(path("b"), path("c/x")).expect("moved");
    fs::write(path("c/h"), "outer").expect("written");
    fs::create_dir(path("b")).expect("a folder");
    fs::rename(path("c"), path("b/x")).expect("moved");
    fs::read_dir(world.mount.path()).expect("listed").for_each(drop);
    fs::rename(path("b"), path("c")).expect("moved");
    assert_eq!((world.read("c/x/h"), world.read("c/x/x/h")), (b"outer".to_vec(), b"inner".to_vec()));
    fs::remove_file(path("c/x/h")).expect("removed");
    assert_eq!(world.stored_below("c/").keys().collect::<Vec<_>>(), ["x/x/h"]);
}

/// The ETag of a copy is another one, as that of an encrypted object.
#[test]
fn a_file_that_is_open_to_write_is_known_where_its_folder_was_renamed_to() {
    for spool in [None, Some(TempDir::new().expect("a folder"))] {
        let spool = spool.as_ref().map(|spool| spool.path().display().to_string());
        let flags = spool.iter().flat_map(|spool| ["--write-spool", spool]);
        let flags: Vec<&str> = ["--keep-alive", "--allow=all"].into_iter().chain(flags).collect();
        let server = TestS3::builder().opaque_etags().object(BUCKET, "old/untouched", b"bytes".to_vec());
        let world = World::new(server.object(BUCKET, "old/saved", b"bytes".to_vec()), &flags);
        let open =
            |name: &str| File::options().read(true).write(true).open(world.path(name)).expect("it is there");
        let (untouched, saved) = (open("old/untouched"), open("old/saved"));
        saved.write_all_at(b"B", 0).expect("written");
        saved.sync_all().expect("saved");
        fs::rename(world.path("old"), world.path("new")).expect("another name");
        take_over(&world, Signal::SIGKILL);
        for (file, name) in [(untouched, "new/untouched"), (saved, "new/saved")] {
            let mut bytes = [0; 5];
            file.read_exact_at(&mut bytes, 0).expect("it is the same file");
            file.write_all_at(b"!", 4).expect("written");
            drop(file);
            bytes[4] = b'!';
            wait_for("it is stored", || world.stored_below("")[name] == bytes);
        }
        assert_eq!(world.stored_below("").len(), 2);
    }
}

/// Renames `there` onto `name`, with a daemon that dies when the store has the copy. The store takes its time for it.
fn rename_onto(world: &World, name: &str) {
    world.server.shape(Shape { first_byte: FirstByte::Fixed(300.0), ..Shape::fast() });
    thread::scope(|scope| {
        let renamed = scope.spawn(|| fs::rename(world.path("there"), world.path(name)));
        let is_copied = || world.server.stored(BUCKET, name).is_some_and(|stored| stored.bytes() == b"bytes");
        wait_for("the copy", is_copied);
        take_over(world, Signal::SIGKILL);
        renamed.join().expect("it ends").expect("it is renamed once");
    });
    world.server.shape(Shape::fast());
    assert_eq!(world.read(name), b"bytes");
    assert_eq!(world.stored_below("").keys().collect::<Vec<_>>(), [name]);
}

#[test]
fn a_name_that_is_open_to_write_is_given_once() {
    for is_changed in [false, true] {
        let spool = TempDir::new().expect("a folder");
        let spool = spool.path().display().to_string();
        let server = TestS3::builder().object(BUCKET, "there", b"bytes".to_vec());
        let server = if is_changed { server.opaque_etags() } else { server };
        let world = World::new(server, &["--keep-alive", "--allow=all", "--write-spool", &spool]);
        fs::write(world.path("open"), "replaced").expect("written");
        let open = File::options().read(true).write(true).open(world.path("open")).expect("it is there");
        if is_changed {
            open.write_all_at(b"more", 0).expect("written");
            open.sync_all().expect("safe");
        }
        rename_onto(&world, "open");
        // The handle's file has no name any more, and goes with it.
        drop(open);
        fs::write(world.path("open"), "anew").expect("written");
        assert_eq!(world.stored_below("")["open"], b"anew");
    }
}

#[test]
fn what_was_appended_to_a_file_that_a_rename_replaces_goes_with_it() {
    let spool = TempDir::new().expect("a folder");
    let spool = spool.path().display().to_string();
    let world = world(&["--keep-alive", "--allow=all", "--append-delay=30s", "--write-spool", &spool]);
    fs::write(world.path("log"), "replaced").expect("written");
    let mut log = File::options().append(true).open(world.path("log")).expect("it is there");
    log.write_all(b"a line").expect("written");
    drop(log);
    rename_onto(&world, "log");
    fs::write(world.path("log"), "anew").expect("nobody misses the line");
    assert_eq!(world.stored_below("")["log"], b"anew");
}

#[test]
fn a_daemon_whose_spool_is_away_for_a_moment_is_tried_again() {
    let folder = TempDir::new().expect("a folder");
    let spool = folder.path().join("spool");
    fs::create_dir(&spool).expect("a folder");
    let world = world(&["--keep-alive", "--allow=all", "--write-spool", &spool.display().to_string()]);
    fs::remove_dir(&spool).expect("it is empty");
    let daemon = Pid::from_raw(daemon_of(&world).expect("a daemon"));
    kill(daemon, Signal::SIGKILL).expect("it lives");
    wait_for_end(daemon);
    thread::sleep(Duration::from_secs(1));
    fs::create_dir(&spool).expect("a folder");
    assert_eq!(world.read("there"), b"bytes");
}

#[test]
fn no_more_files_are_kept_than_the_next_daemon_may_have_open() {
    let spool = TempDir::new().expect("a folder");
    let spool = spool.path().display().to_string();
    let world = world(&["--keep-alive", "--allow=all", "--write-spool", &spool]);
    let daemon = daemon_of(&world).expect("a daemon");
    for pid in [daemon, holder_of(&world).as_raw()] {
        let limited = Command::new("prlimit").args(["--nofile=128:128", "--pid", &pid.to_string()]).status();
        assert!(limited.expect("prlimit").success());
    }
    let mut open: Vec<_> =
        (0..60).map(|number| File::create(world.path(&number.to_string())).expect("a file")).collect();
    open.iter_mut().for_each(|file| file.write_all(b"bytes").expect("written"));
    take_over(&world, Signal::SIGKILL);
    assert_eq!(world.read("there"), b"bytes");
    let kept = open.iter().filter(|file| file.sync_all().is_ok()).count();
    assert_eq!(kept, 32, "a quarter of the limit");
}
