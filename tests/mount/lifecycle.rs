//! Mounts that start as a daemon in the background, and how they end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{MountGuard, TestS3, WatchdogGuard, run_with_timeout, watchdog};
use tempfile::TempDir;

use crate::world::{BUCKET, MIB, Unmount, World, check_stream, s3mount, wait_for};

const LIMIT: Duration = Duration::from_secs(100);

/// A daemon in the background, its server and its mount point. Dropping this takes the mount down.
struct Daemon {
    dir: PathBuf,
    server: TestS3,
    folder: TempDir,
    _watchdog: WatchdogGuard,
}

fn umount(dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    run_with_timeout(command.arg("umount").arg(dir), LIMIT).expect("s3mount umount")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The same command, run by another program.
fn run_by(program: &[&str], command: &Command) -> Command {
    let mut by = Command::new(program[0]);
    by.args(&program[1..]).arg(command.get_program()).args(command.get_args());
    by.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    by
}

impl Daemon {
    fn new(name: &str) -> Self {
        let _watchdog = watchdog(3 * LIMIT);
        let folder = TempDir::new().expect("a folder");
        let dir = folder.path().join(name);
        fs::create_dir(&dir).expect("a mount point");
        let server = TestS3::builder().object(BUCKET, "d/f", "text").start().expect("a server");
        Self { dir, server, folder, _watchdog }
    }

    fn start(&self) -> Output {
        let log = self.folder.path().join("log").display().to_string();
        let command = s3mount(&self.server.endpoint(), BUCKET, &self.dir, &["--log-directory", &log]);
        // The tests may be run by nohup, and a daemon ignores what its parent ignores.
        let mut usual = run_by(&["env", "--default-signal=HUP"], &command);
        run_with_timeout(&mut usual, LIMIT).expect("s3mount")
    }

    /// The line of /proc/self/mountinfo about the mount.
    fn mounted(&self) -> Option<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let dir = self.dir.display().to_string().replace(' ', "\\040");
        mounts.lines().find(|line| line.split(' ').nth(4) == Some(&dir)).map(str::to_owned)
    }

    /// The process that serves the mount. Its command line has the mount point, as for a moment has that of a child of
    /// it, the warden.
    fn pid(&self) -> Option<Pid> {
        let dir = self.dir.as_os_str().as_encoded_bytes();
        let of = |entry: fs::DirEntry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            let mut words = command.split(|byte| *byte == 0);
            let is_ours = words.next()?.ends_with(b"s3mount") && words.any(|word| word == dir);
            let stat = fs::read_to_string(entry.path().join("stat")).ok().filter(|_| is_ours)?;
            let parent: i32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
            Some((pid, parent))
        };
        let all: Vec<_> = fs::read_dir("/proc").expect("processes").flatten().filter_map(of).collect();
        let is_child = |parent: &i32| all.iter().any(|(pid, _)| pid == parent);
        all.iter().find(|(_, parent)| !is_child(parent)).map(|(pid, _)| Pid::from_raw(*pid))
    }

    fn wait_for_end(&self) {
        let deadline = Instant::now() + LIMIT;
        while self.pid().is_some() || self.mounted().is_some() {
            assert!(Instant::now() < deadline, "daemon {:?}, mount {:?}", self.pid(), self.mounted());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        if self.mounted().is_some() {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

#[test]
fn a_daemon_answers_when_the_command_returns_and_umount_ends_it() {
    let daemon = Daemon::new("with space");
    let output = daemon.start();
    let said = format!("s3://data/ is mounted at {}\n", daemon.dir.display());
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(0), said, String::new())
    );
    assert_eq!(fs::read_to_string(daemon.dir.join("d/f")).expect("a file"), "text");
    let mounted = daemon.mounted().expect("a mount");
    assert!(mounted.contains(" - fuse.s3mount s3://data/ rw,"), "{mounted}");

    // A second mount at the same folder is refused, and does no harm to the first.
    let output = daemon.start();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let dir = daemon.dir.display();
    let expected = format!(
        "s3://data/ is mounted at {dir} already (fuse.s3mount); unmount it first, with: s3mount umount {dir}"
    );
    assert_eq!(said.trim_end(), format!("s3mount: {expected}"));

    // A mount in use stays, and the message names the process that uses it.
    let file = File::open(daemon.dir.join("d/f")).expect("a file");
    let output = umount(&daemon.dir);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is in use by ") && said.contains(&format!("({})", std::process::id())), "{said}");
    drop(file);

    let output = umount(&daemon.dir);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    daemon.wait_for_end();
}

#[test]
fn a_lazy_umount_leaves_files_to_those_who_have_them_open() {
    let daemon = Daemon::new("mnt");
    assert_eq!(daemon.start().status.code(), Some(0));
    let file = File::open(daemon.dir.join("d/f")).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    let output =
        run_with_timeout(command.args(["umount", "--lazy"]).arg(&daemon.dir), LIMIT).expect("its end");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert_eq!(daemon.mounted(), None);
    assert_eq!(io::read_to_string(&file).expect("a read"), "text");
    assert!(daemon.pid().is_some());
    drop(file);
    daemon.wait_for_end();
}

#[test]
fn a_prefix_that_holds_nothing_is_told_to_the_one_who_mounts_it() {
    let daemon = Daemon::new("mnt");
    let log = daemon.folder.path().join("log").display().to_string();
    let flags = ["--log-directory", &log];
    let mut command = s3mount(&daemon.server.endpoint(), "data/no/such", &daemon.dir, &flags);
    let output = run_with_timeout(&mut command, LIMIT).expect("s3mount");
    let said = "s3mount: warning: there is no key below the prefix \"no/such/\" of bucket \"data\": the mount is empty\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), said));
    assert_eq!(umount(&daemon.dir).status.code(), Some(0));
    daemon.wait_for_end();
}

#[test]
fn a_daemon_that_cannot_mount_says_why_to_the_one_who_started_it() {
    let daemon = Daemon::new("mnt");
    let log = daemon.folder.path().join("log").display().to_string();
    let flags = ["--log-directory", &log];
    let mut command = s3mount(&daemon.server.endpoint(), "no-such-bucket", &daemon.dir, &flags);
    let output = run_with_timeout(&mut command, LIMIT).expect("s3mount");
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{said}");
    assert!(
        said.starts_with("s3mount: bucket \"no-such-bucket\" does not exist at http://127.0.0.1:"),
        "{said}"
    );
    assert_eq!(daemon.pid(), None);
}

#[test]
fn a_start_that_is_given_up_mounts_nothing() {
    let daemon = Daemon::new("mnt");
    daemon.server.freeze(true);
    let mut command = s3mount(&daemon.server.endpoint(), BUCKET, &daemon.dir, &[]);
    let mut child = command.spawn().expect("s3mount");
    wait_for("its daemon waits for an answer", || daemon.server.stats().requests() > 0);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("a signal");
    child.wait().expect("an end");
    daemon.server.freeze(false);
    daemon.wait_for_end();
}

#[test]
fn signals_unmount() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let daemon = Daemon::new("mnt");
        assert_eq!(daemon.start().status.code(), Some(0));
        kill(daemon.pid().expect("a daemon"), signal).expect("a signal");
        daemon.wait_for_end();
    }
    let world = World::new(TestS3::builder().object(BUCKET, "f", "text"), &[]);
    assert_eq!(world.mount.unmount().expect("an end").code(), Some(0));
}

#[test]
fn a_signal_in_the_moment_of_mounting_unmounts() {
    let daemon = Daemon::new("mnt");
    let mut command = s3mount(&daemon.server.endpoint(), BUCKET, &daemon.dir, &["--foreground"]);
    for _ in 0..5 {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("s3mount");
        while daemon.mounted().is_none() {
            assert_eq!(child.try_wait().expect("its status"), None);
        }
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("a signal");
        assert_eq!(child.wait().expect("an end").code(), Some(0));
        assert_eq!(daemon.mounted(), None);
    }
}

#[test]
fn a_signal_that_is_to_be_ignored_is() {
    let daemon = Daemon::new("mnt");
    let command = s3mount(&daemon.server.endpoint(), BUCKET, &daemon.dir, &["--foreground"]);
    let mount = MountGuard::new(&mut run_by(&["nohup"], &command), &daemon.dir).expect("a mount");
    kill(Pid::from_raw(mount.pid() as i32), Signal::SIGHUP).expect("a signal");
    assert_eq!(fs::read_to_string(daemon.dir.join("d/f")).expect("a file"), "text");
    assert_eq!(mount.unmount().expect("an end").code(), Some(0));
}

/// A mount that was asked to end while a large file of it is open, and this open file.
fn ending() -> (World, File) {
    let world = World::counting(TestS3::builder().synthetic(BUCKET, "f", 4096 * MIB), &[]);
    let mut file = world.open("f");
    file.read_exact(&mut [0; 4096]).expect("a read");
    kill(Pid::from_raw(world.mount.pid() as i32), Signal::SIGTERM).expect("a signal");
    let dir = world.mount.path().display().to_string();
    wait_for("it is out of the tree", || {
        !fs::read_to_string("/proc/self/mountinfo").expect("the mounts").contains(&dir)
    });
    (world, file)
}

#[test]
fn a_mount_that_is_told_to_end_serves_who_is_about_to_close() {
    let (world, mut file) = ending();
    check_stream(file.by_ref().take(16 * MIB), "f", 4096, MIB as usize);
    drop(file);
    assert!(!world.mount.stderr().contains("still open"), "{}", world.mount.stderr());
    assert_eq!(world.mount.unmount().expect("an end").code(), Some(0));
}

#[test]
fn a_signal_ends_a_mount_in_use_and_its_readers_get_an_error() {
    let (world, mut file) = ending();
    let mut piece = vec![0; MIB as usize];
    let error = (0..4000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        file.read_exact(&mut piece).err()
    });
    let error = error.expect("an end");
    assert_eq!(error.raw_os_error(), Some(Errno::ENOTCONN as i32), "{error}");
    let said = world.mount.stderr();
    assert!(said.contains("files are still open; their readers will get ENOTCONN"), "{said}");
    assert_eq!(world.mount.unmount().expect("an end").code(), Some(0));
}

#[test]
fn a_mount_whose_connection_is_aborted_is_taken_down() {
    // The usual folder of fusectl may be empty, because nothing mounts fusectl there in a container.
    let folder = TempDir::new().expect("a folder");
    let connections = folder.path();
    let kind = Some("fusectl");
    nix::mount::mount(kind, connections, kind, MsFlags::empty(), None::<&str>).expect("fusectl");
    let guard = Unmount(connections);
    let daemon = Daemon::new("mnt");
    assert_eq!(daemon.start().status.code(), Some(0));
    let device = fs::metadata(&daemon.dir).expect("the mount").dev();
    // The mount ends although a file is in use.
    let _file = File::open(daemon.dir.join("d/f")).expect("a file");
    fs::write(connections.join((device & 0xff).to_string()).join("abort"), "1").expect("fusectl");
    drop(guard);
    daemon.wait_for_end();
    fs::read_dir(&daemon.dir).expect("the folder beneath");
}

#[test]
fn what_a_killed_daemon_leaves_is_taken_over_by_the_next() {
    let daemon = Daemon::new("mnt");
    assert_eq!(daemon.start().status.code(), Some(0));
    kill(daemon.pid().expect("a daemon"), Signal::SIGKILL).expect("a signal");
    let deadline = Instant::now() + LIMIT;
    let is_dead = || {
        fs::read_dir(&daemon.dir)
            .is_err_and(|error: io::Error| error.raw_os_error() == Some(Errno::ENOTCONN as i32))
    };
    while !is_dead() {
        assert!(Instant::now() < deadline, "the kernel has not noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = daemon.start();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("was left behind by a daemon that is gone; unmounting it"), "{said}");
    assert_eq!(fs::read_to_string(daemon.dir.join("d/f")).expect("a file"), "text");

    kill(daemon.pid().expect("a daemon"), Signal::SIGKILL).expect("a signal");
    while !is_dead() {
        assert!(Instant::now() < deadline, "the kernel has not noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = umount(&daemon.dir);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert_eq!(daemon.mounted(), None);
}
