//! What a daemon leaves behind when somebody has moved, hidden or copied its mount, or has mounted inside of it; and
//! what is told of mounts that are not one's own, or do not answer.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{TestS3, WatchdogGuard, run_with_timeout, watchdog};
use tempfile::TempDir;

use crate::world::{
    BUCKET, NOBODY, Unmount, World, copy_binary, mount_tmpfs, mounts, s3mount, said, wait_for,
};

const LIMIT: Duration = Duration::from_secs(60);

fn server() -> TestS3 {
    TestS3::builder().object(BUCKET, "d/f", "text\n").start().expect("a server")
}

fn run(args: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    run_with_timeout(command.args(args).arg(path), LIMIT).expect("an end")
}

/// A daemon in the foreground, whose mount may be moved: it lies on a file system that nobody shares.
struct Started {
    daemon: Option<Child>,
    /// Where it is mounted.
    dir: PathBuf,
    /// A folder beside that.
    other: PathBuf,
    folder: TempDir,
    _server: TestS3,
    _watchdog: WatchdogGuard,
}

impl Started {
    fn new() -> Self {
        let (server, folder) = (server(), TempDir::new().expect("a folder"));
        std::mem::forget(mount_tmpfs(folder.path(), "size=1m"));
        let private = MsFlags::MS_PRIVATE;
        mount(None::<&str>, folder.path(), None::<&str>, private, None::<&str>).expect("a private mount");
        let (dir, other) = (folder.path().join("mnt"), folder.path().join("other"));
        for dir in [&dir, &other] {
            fs::create_dir(dir).expect("a mount point");
        }
        let mut command = s3mount(&server.endpoint(), BUCKET, &dir, &["--foreground"]);
        let daemon = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("s3mount");
        let started = Self {
            daemon: Some(daemon),
            dir,
            other,
            folder,
            _server: server,
            _watchdog: watchdog(3 * LIMIT),
        };
        wait_for("it mounts", || fs::read(started.dir.join("d/f")).is_ok_and(|text| text == b"text\n"));
        started
    }

    /// Ends the daemon. Returns its exit code, and its log.
    fn end(&mut self) -> (Option<i32>, String) {
        let daemon = self.daemon.take().expect("it ends once");
        kill(Pid::from_raw(daemon.id() as i32), Signal::SIGTERM).expect("a signal");
        let output = daemon.wait_with_output().expect("an end");
        (output.status.code(), said(&output))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _all = Unmount(self.folder.path());
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
fn a_mount_that_was_moved_is_taken_down_where_it_is() {
    let mut started = Started::new();
    let (dir, other) = (started.dir.clone(), started.other.clone());
    mount(Some(&dir), &other, None::<&str>, MsFlags::MS_MOVE, None::<&str>).expect("a move");
    // Something else is at the old place by now.
    let _next = mount_tmpfs(&dir, "size=1m");
    assert_eq!(fs::read(other.join("d/f")).expect("a file"), b"text\n");
    let (code, log) = started.end();
    assert_eq!((code, mounts(&other), mounts(&dir)), (Some(0), 0, 1), "{log}");
    assert!(log.contains(&format!("the mount was moved to {}, and", other.display())), "{log}");
}

#[test]
fn a_mount_that_another_one_hides_is_left_and_the_log_says_how_to_remove_it() {
    let mut started = Started::new();
    let dir = started.dir.clone();
    let cover = mount_tmpfs(&dir, "size=1m");
    let (code, log) = started.end();
    assert_eq!((code, mounts(&dir)), (Some(1), 2), "what hides it is not ours: {log}");
    let shown = dir.display();
    let expected = format!(
        "the mount is left at {shown}, and answers ENOTCONN from now on, because tmpfs at {shown} (tmpfs) hides it; \
         take both down with: umount {shown}; s3mount umount {shown}"
    );
    assert!(log.contains(&expected), "{log}");
    drop(cover);
    assert!(run(&["umount"], &dir).status.success());
    assert_eq!(mounts(&dir), 0);
}

#[test]
fn a_mount_below_a_folder_that_is_hidden_is_taken_down() {
    let mut started = Started::new();
    let folder = started.folder.path().to_owned();
    let _cover = mount_tmpfs(&folder, "size=1m");
    let (code, log) = started.end();
    assert_eq!((code, mounts(&started.dir)), (Some(0), 0), "{log}");
}

#[test]
fn mounts_inside_of_a_mount_are_named_before_they_go_with_it() {
    let mut started = Started::new();
    let inner = started.dir.join("d");
    let named = format!("tmpfs at {} (tmpfs)", inner.display());
    let mounted = mount_tmpfs(&inner, "size=1m");
    let output = run(&["umount"], &started.dir);
    assert_eq!((output.status.code(), mounts(&inner)), (Some(1), 1));
    assert!(said(&output).contains(&format!(" is in use by the mount {named}; end ")), "{}", said(&output));
    let (code, log) = started.end();
    assert_eq!((code, mounts(&inner)), (Some(0), 0), "{log}");
    assert!(log.contains(&format!("{named} lay inside of the mount, and was taken down with it")), "{log}");
    std::mem::forget(mounted);
    let started = Started::new();
    let inner = started.dir.join("d");
    std::mem::forget(mount_tmpfs(&inner, "size=1m"));
    let output = run(&["umount", "--lazy"], &started.dir);
    assert_eq!((output.status.code(), mounts(&inner)), (Some(0), 0));
    let expected = format!("s3mount: tmpfs at {} (tmpfs) lay inside of it, and was", inner.display());
    assert!(said(&output).starts_with(&expected), "{}", said(&output));
}

#[test]
fn a_copy_of_a_mount_is_named_by_all_who_meet_it() {
    let mut started = Started::new();
    let (dir, other) = (started.dir.clone(), started.other.clone());
    mount(Some(&dir.join("d")), &other, None::<&str>, MsFlags::MS_BIND, None::<&str>).expect("a bind mount");
    let copy = format!("s3://data/ at {} (fuse.s3mount)", other.display());
    let output = run(&["stats"], &other);
    let expected =
        format!("s3mount: {copy} shows only the folder /d of it; name the mount: {}\n", dir.display());
    assert_eq!(said(&output), expected);
    let output = run(&["umount"], &other);
    let expected =
        format!("s3mount: s3://data/ at {} (fuse.s3mount) shows the same bucket, and stays\n", dir.display());
    assert_eq!((output.status.code(), said(&output)), (Some(0), expected));
    mount(Some(&dir), &other, None::<&str>, MsFlags::MS_BIND, None::<&str>).expect("a bind mount");
    let (code, log) = started.end();
    assert_eq!((code, mounts(&dir), mounts(&other)), (Some(0), 0, 1), "{log}");
    let expected = format!(
        "{copy} shows the same bucket and ends, too; take it down with: s3mount umount {}",
        other.display()
    );
    assert!(log.contains(&expected), "{log}");
    assert!(run(&["umount"], &other).status.success());
}

/// In the script's namespace, /dev/fuse has the mode that it has everywhere except in some containers. `$1` is a folder
/// with the binary, and `$2` is the endpoint.
const OTHERS: &str = r#"
set -eu
exec 2>&1
cd "$1"
mknod fuse c 10 229
chmod 666 fuse
mount --bind fuse /dev/fuse
as() { user=$1; shift; setpriv --reuid "$user" --regid "$user" --clear-groups "$@"; }
setpriv --reuid 65534 --regid 65534 --clear-groups ./s3mount data mnt --endpoint-url "$2" --foreground > log 2>&1 &
daemon=$!
until as 65534 cat mnt/d/f 2> no-matter; do sleep 0.05; done
as 65533 ./s3mount umount mnt || echo "exit code $?"
as 65533 ./s3mount stats mnt || echo "exit code $?"
./s3mount data mnt --endpoint-url "$2" || echo "exit code $?"
kill -9 $daemon
until as 65534 ls mnt 2>&1 | grep -q 'not connected'; do sleep 0.05; done
./s3mount data mnt --endpoint-url "$2"
cat mnt/d/f
./s3mount umount mnt
grep -c " $1/mnt " /proc/self/mountinfo || echo gone
"#;

#[test]
fn mounts_of_other_users_are_told_to_be_theirs_and_dead_ones_make_way_for_root() {
    let (server, folder) = (server(), TempDir::new().expect("a folder"));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    copy_binary(folder.path());
    let dir = folder.path().join("mnt");
    fs::create_dir(&dir).expect("a mount point");
    chown(&dir, Some(NOBODY), Some(NOBODY)).expect("an owner");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", OTHERS, "sh"]).arg(folder.path()).arg(server.endpoint());
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
    command.env("XDG_STATE_HOME", folder.path().join("state"));
    let output = run_with_timeout(&mut command, LIMIT).expect("a script that ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let no_log = "s3mount: there is no syslog here";
    let said = || text.lines().filter(|line| !line.starts_with(no_log) && !line.contains("Killed"));
    let expected = [
        "text",
        "s3mount: cannot unmount DIR: nobody (65534) has mounted it; run this as that user, or as root: fusermount3: ",
        "exit code 1",
        "s3mount: you may not look at DIR: only the user who mounted may, nobody (65534), and root with --allow-root; ",
        "exit code 1",
        "s3mount: s3://data/ is mounted at DIR already (fuse.s3mount, by nobody (65534)); unmount it first, with: ",
        "exit code 1",
        "s3mount: s3://data/ at DIR was left behind by a daemon that is gone; unmounting it",
        "s3://data/ is mounted at DIR",
        "text",
        "0",
        "gone",
    ];
    assert_eq!(said().count(), expected.len(), "{text}");
    for (line, expected) in said().zip(expected) {
        // Of a folder that this user may not look into, the path stays as it was given.
        let expected = expected.replace("DIR", &dir.display().to_string());
        let line = line.replace("look at mnt:", &format!("look at {}:", dir.display()));
        assert!(line.starts_with(&expected), "{line:?} is not {expected:?}: {text}");
    }
}

/// Runs the binary where neither /proc nor many open files are to be had.
fn poor(before: &str, args: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{before}; exec \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_s3mount")).args(args);
    run_with_timeout(&mut command, LIMIT).expect("an end")
}

#[test]
fn what_the_machine_lacks_is_told() {
    let folder = TempDir::new().expect("a folder");
    let dir = folder.path().to_str().expect("UTF-8");
    let address = ["--endpoint-url", "http://127.0.0.1:1", "--no-sign-request"];
    let mounting = [&["data", dir, "--foreground"], &address[..]].concat();
    for args in [&mounting[..], &["umount", dir], &["stats", dir]] {
        let output = poor("umount --lazy /proc", args);
        let expected = "s3mount: cannot read /proc/self/mountinfo, by which mounts are found; mount /proc here: mount -t \
                        proc proc /proc: ";
        assert!(said(&output).starts_with(expected), "{args:?}: {}", said(&output));
    }
    let output = poor("ulimit -n 16", &mounting);
    let expected = "s3mount: only 16 files may be open at a time (ulimit -n), and a mount needs 64, and 1024 to be fast; ";
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).starts_with(expected), "{}", said(&output));
}

#[test]
fn a_limit_of_cpu_time_ends_no_daemon() {
    let world = World::with(TestS3::builder().object(BUCKET, "d/f", "text\n"), &[], |command| {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -S -t 1000; ulimit -H -t 2000; exec \"$@\"", "sh"]);
        limited.arg(command.get_program()).args(command.get_args()).env_clear();
        limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        *command = limited;
    });
    let limits = fs::read_to_string(format!("/proc/{}/limits", world.mount.pid())).expect("its limits");
    let line = limits.lines().find(|line| line.starts_with("Max cpu time")).expect("a line");
    assert_eq!(line.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["2000", "2000"]);
    let log = world.mount.stderr();
    assert!(log.contains("limit of CPU time (ulimit -t) is raised") && log.contains("seconds=2000"), "{log}");
    kill(Pid::from_raw(world.mount.pid() as i32), Signal::SIGXCPU).expect("a signal");
    assert_eq!(world.read("d/f"), b"text\n");
}

#[test]
fn who_waits_for_a_daemon_that_is_stopped_is_told() {
    let world = World::new(TestS3::builder().object(BUCKET, "d/f", "text\n"), &[]);
    let daemon = Pid::from_raw(world.mount.pid() as i32);
    kill(daemon, Signal::SIGSTOP).expect("a signal");
    let mut warm = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    warm.arg("warm").arg(world.path("d")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut warm = warm.spawn().expect("s3mount");
    let below = s3mount(&world.server.endpoint(), BUCKET, &world.path("d"), &["--foreground"]);
    let below = run_with_timeout(&mut { below }, LIMIT).expect("an end");
    let mut cache = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    cache.args(["cache", "stats"]).arg(world.mount.path());
    let cache = run_with_timeout(&mut cache, LIMIT).expect("an end");
    let mut told = String::new();
    BufReader::new(warm.stderr.take().expect("a pipe")).read_line(&mut told).expect("a line");
    kill(daemon, Signal::SIGCONT).expect("a signal");
    assert!(warm.wait().expect("an end").success(), "it goes on with the daemon");
    let dir = world.mount.path().display();
    assert!(
        told.starts_with(&format!("s3mount: nothing has come from {dir}/d for 10s: the store is ")),
        "{told}"
    );
    let expected = format!(
        "s3mount: {dir}/d lies in the mount s3://data/ at {dir} (fuse.s3mount), whose daemon does not"
    );
    assert!(said(&below).starts_with(&expected), "{}", said(&below));
    let expected =
        format!("s3mount: {dir} lies in the mount s3://data/ at {dir} (fuse.s3mount), whose daemon");
    assert!(said(&cache).starts_with(&expected), "{}", said(&cache));
}
