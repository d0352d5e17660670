//! The store gives no answer. Programs that are killed end, and the mount can be taken down.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{Shape, TestS3};

use crate::world::{BUCKET, GIB, KIB, World, check_file, map, run, wait_for};

/// No call ends because its time is up, so what ends has not waited for the store.
const PATIENT: [&str; 2] = ["--read-timeout", "86400"];

/// Starts a program that will wait for the store.
fn start<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Child {
    Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program")
}

/// Ends a program as Ctrl-C does, and waits for it. The program must not outlive the test in any case.
fn interrupt(mut child: Child, what: &str) {
    assert!(child.try_wait().expect("its state").is_none(), "{what} has not waited");
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), Signal::SIGINT).expect("a signal");
    wait_for(&format!("{what} has ended"), || child.try_wait().expect("its state").is_some());
}

#[test]
fn killed_readers_are_let_go_while_the_store_is_frozen() {
    let server = TestS3::builder().synthetic(BUCKET, "d/f", GIB).synthetic(BUCKET, "e/f", GIB);
    let world = World::counting(server, &PATIENT);
    std::fs::metadata(world.path("d/f")).expect("a name that is known");
    world.server.reset_stats();
    world.server.freeze(true);
    let file = world.path("d/f").display().to_string();
    // Python would run a handler after the current instruction, and that instruction waits for the mount.
    let map = format!(
        "import mmap,signal; signal.signal(signal.SIGINT, signal.SIG_DFL); f=open('{file}','rb'); mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[500<<20]"
    );
    let waiting = [
        ("cat", start("cat", &[&file])),
        ("dd", start("dd", &[&format!("if={file}"), "of=/dev/null", "bs=8M", "iflag=direct", "skip=9"])),
        ("a mapped read", start("/usr/bin/python3", &["-c", &map])),
        ("stat", start("stat", &[world.path("e/f")])),
        ("ls", start("ls", &[world.path("d")])),
    ];
    // A request of each program waits in the daemon.
    wait_for("they all wait", || world.server.stats().requests() >= 5);
    std::thread::sleep(Duration::from_millis(100));
    for (what, child) in waiting {
        interrupt(child, what);
    }
    world.server.freeze(false);
    assert_eq!(std::fs::metadata(world.path("e/f")).expect("the next is answered").len(), GIB);
}

/// A program that dies closes its files, and can't be killed while it does.
#[test]
fn killed_writers_are_let_go_while_the_store_is_frozen() {
    let world = World::counting(TestS3::builder(), &[&PATIENT[..], &["--allow=overwrite"]].concat());
    world.write("log", "line\n");
    world.server.reset_stats();
    world.server.freeze(true);
    let write = |name: &str, mode: &str| {
        let (file, signal) = (world.path(name), "signal.signal(signal.SIGINT, signal.SIG_DFL)");
        let program = format!(
            "import os,signal; {signal}; f=open('{}','{mode}',0); f.write(b'x'); os.fsync(f.fileno())",
            file.display()
        );
        start("/usr/bin/python3", &["-c", &program])
    };
    let waiting = [("a new file", write("new", "wb")), ("a log", write("log", "ab"))];
    wait_for("they all wait", || world.server.stats().requests() >= 2);
    std::thread::sleep(Duration::from_millis(100));
    for (what, child) in waiting {
        interrupt(child, what);
    }
    world.server.freeze(false);
    wait_for("what they have written is stored", || {
        ["new", "log"].map(|key| world.server.stored(BUCKET, key).map(|stored| stored.bytes().len()))
            == [Some(1), Some(6)]
    });
}

#[test]
fn a_killed_reader_does_no_harm_to_those_who_read_the_same() {
    let server = TestS3::builder().synthetic(BUCKET, "f", 64 * KIB * KIB / 16);
    let world = World::new(server.shape(Shape { list_latency_ms: 0.0, ..Shape::aws() }), &[]);
    let file = world.path("f");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| check_file(&file, "f"));
        for _ in 0..20 {
            let mut cat = start("cat", &[&file]);
            std::thread::sleep(Duration::from_millis(7));
            let _ = cat.kill();
            cat.wait().expect("its end");
        }
        assert_eq!(reader.join().expect("a reader"), 4 * KIB * KIB);
    });
}

/// Whether the mount and its daemon are gone.
fn is_gone(dir: &Path, pid: u32) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    // A process that has ended has no command line any more.
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    !mounts.contains(&dir.display().to_string()) && command.is_empty()
}

#[test]
fn the_mount_comes_down_while_the_store_is_frozen() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
        let world = World::counting(TestS3::builder().synthetic(BUCKET, "f", GIB), &PATIENT);
        std::fs::metadata(world.path("f")).expect("a name that is known");
        world.server.reset_stats();
        world.server.freeze(true);
        let mut cat = start("cat", &[world.path("f")]);
        let mut stat = start("stat", &[world.path("other")]);
        wait_for("they wait", || world.server.stats().requests() >= 2);
        let pid = world.mount.pid();
        kill(Pid::from_raw(i32::try_from(pid).expect("a pid")), signal).expect("a signal");
        for child in [&mut cat, &mut stat] {
            assert!(!child.wait().expect("its end").success(), "an error");
        }
        if signal == Signal::SIGKILL {
            // A killed daemon leaves a mount behind that gives errors. The next mount at this folder removes
            // it, and a user can unmount it.
            assert!(std::fs::metadata(world.path("f")).is_err());
        } else {
            wait_for("it is gone", || is_gone(world.mount.path(), pid));
        }
    }
}

#[test]
fn what_is_known_is_told_while_the_store_is_frozen() {
    let server = (0..100).fold(TestS3::builder(), |server, index| {
        server.synthetic(BUCKET, &format!("d/{index:02}"), 100 * KIB)
    });
    let world = World::counting(server, &["--immutable"]);
    assert_eq!(check_file(&world.path("d/07"), "d/07"), 100 * KIB);
    run("ls", &["-l".into(), world.path("d")]);
    // The kernel drops pages when memory is short, but none of those that are locked.
    let file = world.open("d/07");
    let pages = map(&file);
    pages.lock().expect("its pages are read and locked");
    world.server.freeze(true);
    assert!(run("df", &[world.path("")]).contains("s3://data/"));
    run("stat", &[world.path("d/42")]);
    assert!(std::fs::metadata(world.path("d/none")).is_err());
    assert_eq!(check_file(&world.path("d/07"), "d/07"), 100 * KIB, "from the page cache");
    drop(pages);
    assert!(
        std::fs::read_to_string(world.path(".s3mount/stats")).expect("the counters").contains("get_requests")
    );
}

#[test]
fn an_unused_mount_is_unmounted_while_the_store_is_frozen() {
    let world = World::new(TestS3::builder().synthetic(BUCKET, "f", GIB), &PATIENT);
    world.server.freeze(true);
    let (pid, dir) = (world.mount.pid(), world.mount.path().to_owned());
    let mut umount = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    assert!(umount.arg("umount").arg(&dir).status().expect("s3mount umount").success());
    wait_for("it is gone", || is_gone(&dir, pid));
}
