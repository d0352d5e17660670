//! Mounts that other programs start: mount(8) by /etc/fstab, a service manager, the mounter of a CSI driver, and
//! Slurm.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::MsFlags;
use s3mount_testkit::{MountGuard, TestS3, WatchdogGuard, run_with_timeout, watchdog};
use tempfile::TempDir;

use crate::world::{BUCKET, NOBODY, World, run, s3mount, wait_for};

const LIMIT: Duration = Duration::from_secs(100);

/// Runs a script of sh as root in file systems and processes of its own, so that what it leaves ends with it.
/// `/etc/passwd` says there that root's home is `$1/home`, which has credentials, and there is no syslog. `$1` is
/// a folder, `$2` the endpoint, `$3` the binary. Returns the lines that the script prints.
fn script(server: &TestS3, folder: &Path, script: &str) -> Vec<String> {
    const BEFORE: &str = r#"
set -eu
cd "$1"
mkdir -p bin home/.aws mnt
printf '[default]\naws_access_key_id = test\naws_secret_access_key = secret\n' > home/.aws/credentials
sed "s|^root:.*|root:x:0:0:root:$1/home:/bin/sh|" /etc/passwd > passwd
mount --bind passwd /etc/passwd
[ ! -e /dev/log ] || mount --bind /dev/null /dev/log
export XDG_STATE_HOME="$1/state"
exec 2>&1
"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    command.arg(format!("{BEFORE}{script}")).arg("sh").arg(folder).arg(server.endpoint());
    command.arg(env!("CARGO_BIN_EXE_s3mount")).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = run_with_timeout(&mut command, LIMIT).expect("a script that ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said.lines().map(str::to_owned).collect()
}

fn server() -> TestS3 {
    TestS3::builder().object(BUCKET, "d/f", "text\n").credentials("test").start().expect("a server")
}

/// mount(8) looks for its helpers in /sbin, which has one here.
const FSTAB: &str = r#"
ln -s "$3" bin/mount.s3mount
mount --bind bin /usr/sbin
options="_netdev,nofail,x-systemd.requires=network-online.target,x-systemd.mount-timeout=30,endpoint_url=$2"
echo "data/d $1/mnt s3mount $options,uid=7 0 0" > fstab
mount -a -T fstab
stat -c '%u' mnt/f
cat mnt/f
findmnt -n -o SOURCE,FSTYPE mnt
mount -a -v -T fstab
grep -c " $1/mnt " /proc/self/mountinfo
mount -t s3mount data/d mnt -o remount,ro > bad 2>&1 || echo "exit code $?"
grep remount bad
umount mnt
mount -f -t s3mount data mnt -o "endpoint_url=$2"
mount -t s3mount no-such-bucket mnt -o "endpoint_url=$2" || echo "exit code $?"
mount -t s3mount data mnt -o banana > bad 2>&1 || echo "exit code $?"
grep banana bad
mount -v -t s3mount data mnt -o "endpoint_url=$2"
umount mnt
grep -c " $1/mnt " /proc/self/mountinfo || echo gone
grep -l ' mounted ' state/s3mount/log/s3mount-*.log | wc -l
"#;

#[test]
fn fstab_mounts_by_the_helper_of_mount() {
    let (server, folder) = (server(), TempDir::new().expect("a folder"));
    let said = script(&server, folder.path(), FSTAB);
    let (dir, no_log) = (folder.path().join("mnt"), "s3mount: there is no syslog here; the log is ");
    let said: Vec<_> = said.iter().map(String::as_str).filter(|line| !line.starts_with(no_log)).collect();
    let dir = dir.display();
    let missing = format!("s3mount: bucket \"no-such-bucket\" does not exist at {}", server.endpoint());
    let [
        owner,
        text,
        mounted,
        again,
        count,
        no_change,
        remount,
        refused,
        failed,
        usage,
        banana,
        done,
        none,
        gone,
        logs,
    ] = said[..]
    else {
        panic!("{said:#?}");
    };
    assert_eq!((owner, text), ("7", "text"));
    assert_eq!(mounted.split_whitespace().collect::<Vec<_>>(), ["data/d", "fuse.s3mount"]);
    assert!(again.contains("already mounted"), "{again}");
    assert_eq!(count, "1");
    assert_eq!(no_change, "exit code 1");
    assert!(remount.ends_with("unmount it, and mount it anew with others"), "{remount}");
    assert!(refused.starts_with(&missing), "{refused}");
    assert_eq!((failed, usage), ("exit code 32", "exit code 1"));
    assert!(banana.ends_with("unknown mount option 'banana'"), "{banana}");
    assert_eq!(done, format!("s3://data/ is mounted at {dir}"));
    assert_eq!((none, gone), ("0", "gone"));
    assert_eq!(logs, "2", "each daemon that has mounted has a log");
}

/// As slurmd runs the scripts on a node.
const SLURM: &str = r#"
ln -s "$3" bin/s3mount
export PATH="$1/bin:$PATH" SLURM_JOB_ID=17 SLURM_JOB_UID=65534 S3MOUNT_SLURM_CONF="$1/slurm.conf"
chmod 755 .
sed -e "s|^SOURCE=.*|SOURCE=s3://data/d|" -e "s|^ROOT=.*|ROOT=$1/run|" \
    -e "s|^OPTIONS=.*|OPTIONS='--endpoint-url $2 --log-directory $1/log'|" "$scripts/slurm.conf" > slurm.conf
"$scripts/prolog.sh"
eval "$("$scripts/task-prolog.sh")"
setpriv --reuid 65534 --regid 65534 --clear-groups cat "$S3MOUNT_DATA/f"
setpriv --reuid 65533 --regid 65533 --clear-groups cat "$S3MOUNT_DATA/f" || echo "others are kept out"
"$scripts/epilog.sh"
"$scripts/epilog.sh"
ls run | wc -l
grep -c " $1/run" /proc/self/mountinfo || echo gone
"#;

#[test]
fn slurm_mounts_for_each_job() {
    let (server, folder) = (server(), TempDir::new().expect("a folder"));
    let scripts = concat!("scripts=", env!("CARGO_MANIFEST_DIR"), "/packaging/slurm\n");
    let said = script(&server, folder.path(), &format!("{scripts}{SLURM}"));
    let [mounted, "text", refused, "others are kept out", "0", "0", "gone"] =
        said.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        panic!("{said:#?}");
    };
    assert_eq!(mounted, format!("s3://data/d/ is mounted at {}/run/17", folder.path().display()));
    assert!(refused.ends_with("Permission denied"), "{refused}");
}

/// A mount whose descriptor another process has opened and mounted, and whose daemon runs as nobody. `/dev/fuse`
/// may be closed to nobody.
fn passed(server: &TestS3, folder: &TempDir, flags: &[&str]) -> (WatchdogGuard, MountGuard) {
    passed_to(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], server, folder, flags)
}

/// A mount whose descriptor another process has opened and mounted. The command `by` runs the daemon.
fn passed_to(by: &[&str], server: &TestS3, folder: &TempDir, flags: &[&str]) -> (WatchdogGuard, MountGuard) {
    let watchdog = watchdog(LIMIT);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    let (program, dir) = (folder.path().join("s3mount"), folder.path().join("mnt"));
    fs::copy(env!("CARGO_BIN_EXE_s3mount"), &program).expect("a copy that nobody may run");
    fs::create_dir(&dir).expect("a mount point");
    let device = File::options().read(true).write(true).open("/dev/fuse").expect("FUSE");
    let number = device.as_raw_fd();
    let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other");
    let kind = Some("fuse.s3mount");
    nix::mount::mount(Some("s3://data/"), &dir, kind, MsFlags::MS_NOATIME, Some(options.as_str()))
        .expect("a mount");
    let target = format!("/dev/fd/{number}");
    let plain = s3mount(&server.endpoint(), BUCKET, Path::new(&target), &[&["--foreground"], flags].concat());
    let mut command = Command::new(by[0]);
    command.args(&by[1..]).arg(program).args(plain.get_args()).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    #[expect(unsafe_code, reason = "the child alone gets the descriptor")]
    // SAFETY: fcntl(2) may be called between fork and exec.
    unsafe {
        command.pre_exec(move || Ok(fcntl(&device, FcntlArg::F_SETFD(FdFlag::empty())).map(drop)?));
    }
    // The mounter's own descriptor goes with the command.
    (watchdog, MountGuard::new(&mut command, &dir).expect("a mount"))
}

/// Starts programs that wait for the store, lets `meanwhile` see them wait, and returns how they end.
fn waiting(server: &TestS3, mount: &MountGuard, meanwhile: impl FnOnce(&mut [Child])) -> Vec<ExitStatus> {
    fs::metadata(mount.path().join("d/f")).expect("a name that is known");
    server.reset_stats();
    server.freeze(true);
    let start = |program: &str, args: &[String]| {
        Command::new(program)
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a program")
    };
    let path = |name| mount.path().join(name).display().to_string();
    let mut children = [
        start("cat", &[path("d/f")]),
        start("dd", &[format!("if={}", path("d/f")), "of=/dev/null".to_owned(), "iflag=direct".to_owned()]),
        start("stat", &[path("e/f")]),
        start("ls", &[path("d")]),
    ];
    wait_for("they wait", || server.stats().requests() >= 3);
    // The daemon looks at who waits every 100 ms.
    std::thread::sleep(Duration::from_millis(500));
    meanwhile(&mut children);
    server.freeze(false);
    children.iter_mut().map(|child| child.wait().expect("its end")).collect()
}

/// The daemon does not see the processes of who has mounted. Their numbers stand for nobody, or for others.
#[test]
fn callers_of_another_pid_namespace_wait_for_the_store() {
    let server = TestS3::builder().object(BUCKET, "d/f", "text\n").object(BUCKET, "e/f", "").start();
    let (server, folder) = (server.expect("a server"), TempDir::new().expect("a folder"));
    let apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let (_watchdog, mount) = passed_to(&apart, &server, &folder, &[]);
    let ends = waiting(&server, &mount, |children| {
        for child in children {
            assert!(child.try_wait().expect("its state").is_none(), "it waits");
        }
    });
    assert!(ends.iter().all(ExitStatus::success), "{ends:?}");
    wait_for("the log says so", || {
        mount.stderr().contains("programs of another pid namespace use this mount")
    });
    assert_eq!(mount.unmount().expect("an end").code(), Some(0));
}

#[test]
fn killed_callers_of_a_passed_mount_are_let_go() {
    let server = TestS3::builder().object(BUCKET, "d/f", "text\n").object(BUCKET, "e/f", "").start();
    let (server, folder) = (server.expect("a server"), TempDir::new().expect("a folder"));
    let (_watchdog, mount) = passed(&server, &folder, &[]);
    waiting(&server, &mount, |children| {
        for child in children.iter_mut() {
            child.kill().expect("a signal");
        }
        for child in children {
            assert!(!child.wait().expect("its end").success());
        }
    });
    assert_eq!(mount.unmount().expect("an end").code(), Some(0));
}

#[test]
fn the_daemon_of_a_descriptor_can_keep_all_but_root_out() {
    let (server, folder) = (server(), TempDir::new().expect("a folder"));
    let (_watchdog, mount) = passed(&server, &folder, &["--allow-root"]);
    let path = mount.path().join("d/f").display().to_string();
    let read_by = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), "--clear-groups", "cat", &path]);
        run_with_timeout(&mut command, LIMIT).expect("an end").status.success()
    };
    // The kernel lets all users in. The daemon runs as nobody.
    assert!(read_by("0") && read_by("65534") && !read_by("1"));
    assert_eq!(mount.unmount().expect("an end").code(), Some(0));
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    mounts.lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}

#[test]
fn a_daemon_without_privileges_serves_a_descriptor_until_it_is_unmounted() {
    let (server, folder) = (server(), TempDir::new().expect("a folder"));
    let (_watchdog, mount) = passed(&server, &folder, &["--allow=write"]);
    assert_eq!(fs::read_to_string(mount.path().join("d/f")).expect("a file"), "text\n");
    let status = fs::read_to_string(format!("/proc/{}/status", mount.pid())).expect("its status");
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((value("Uid:"), value("CapEff:")), (vec![NOBODY.to_string(); 4], vec!["0".repeat(16)]));
    fs::write(mount.path().join("d/new"), "more").expect("a new file");
    let dir = mount.path().to_owned();
    run("umount", &[&dir]);
    wait_for("the daemon ends", || !Path::new(&format!("/proc/{}/exe", mount.pid())).exists());
    assert!(!is_mounted(&dir));
    assert_eq!(mount.unmount().expect("an end").code(), Some(0));
}

#[test]
fn a_daemon_that_is_asked_to_end_leaves_the_mount_to_who_mounted_it() {
    let (server, folder) = (server(), TempDir::new().expect("a folder"));
    let (_watchdog, mount) = passed(&server, &folder, &[]);
    let dir = mount.path().to_owned();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(mount.pid() as i32), nix::sys::signal::Signal::SIGTERM)
        .expect("a signal");
    wait_for("nobody serves it", || {
        fs::read_dir(&dir).is_err_and(|error| error.raw_os_error() == Some(Errno::ENOTCONN as i32))
    });
    assert!(is_mounted(&dir));
    assert_eq!(mount.unmount().expect("an end").code(), Some(0));
}

#[test]
fn a_service_manager_hears_when_the_mount_answers_and_when_it_ends() {
    let folder = TempDir::new().expect("a folder");
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(LIMIT)).expect("a limit");
    let hear = || {
        let mut message = [0; 4096];
        let length = manager.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let world = World::with(TestS3::builder().object(BUCKET, "f", "text"), &[], |command| {
        command.env("NOTIFY_SOCKET", &socket);
    });
    let status = format!("STATUS=s3://data/ is mounted at {}", world.mount.path().display());
    assert_eq!(hear().lines().collect::<Vec<_>>(), ["READY=1", &status]);
    assert_eq!(world.mount.unmount().expect("an end").code(), Some(0));
    assert!(hear().starts_with("STOPPING=1\n"));
    manager.set_nonblocking(true).expect("a mode");
    let nothing = manager.recv(&mut [0; 1]).expect_err("nothing more");
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_python_job_mounts_for_as_long_as_it_runs() {
    let _watchdog = watchdog(LIMIT);
    let (server, folder) = (
        TestS3::builder().object(BUCKET, "d/f", "text").start().expect("a server"),
        TempDir::new().expect("a folder"),
    );
    let program = Path::new(env!("CARGO_BIN_EXE_s3mount")).parent().expect("its folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command.arg(root.join("tests/mount/package.py")).arg(server.endpoint());
    command.env("PYTHONPATH", root.join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("TMPDIR", folder.path());
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", program.display()));
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
    let output = run_with_timeout(&mut command, LIMIT).expect("a program that ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().count(), 6, "{said}");
}
