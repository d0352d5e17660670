//! No log or message shows a secret, and no user sees the mount of another.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use s3mount_testkit::{TestS3, run_with_timeout};
use tempfile::TempDir;

use crate::world::{BUCKET, NOBODY, World, copy_binary};

const LIMIT: Duration = Duration::from_secs(60);

/// The output of `program` when another user runs it with `path`.
fn as_nobody(program: &str, path: &Path) -> Output {
    let mut command = Command::new(program);
    run_with_timeout(command.arg(path).uid(NOBODY).gid(NOBODY), LIMIT).expect("a program that ends")
}

fn is_refused(output: &Output) -> bool {
    !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("Permission denied")
}

/// Lets other users see the files in a folder that belongs to root.
fn open_up(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a mode");
}

#[test]
fn no_secret_is_written_anywhere() {
    let secrets = ["verysecretkey", "sessiontokenxyz", "Signature="];
    let logs = TempDir::new().expect("a folder");
    let directory = logs.path().display().to_string();
    let server = TestS3::builder().object(BUCKET, "d/f", "text").credentials("AKIDTEST");
    let world = World::with(server, &["--debug", "--log-directory", &directory], |command| {
        command.env("AWS_ACCESS_KEY_ID", "AKIDTEST").env("AWS_SECRET_ACCESS_KEY", secrets[0]);
        command.env("AWS_SESSION_TOKEN", secrets[1]).env("S3MOUNT_LOG", "trace");
    });
    assert_eq!(world.read("d/f"), b"text");
    assert!(fs::read(world.path("d/none")).is_err());
    world.server.set_access_key("OTHER");
    assert!(fs::read(world.path("e")).is_err(), "a refused request is logged, too");
    let mut seen = vec![
        fs::read_to_string(format!("/proc/{}/cmdline", world.mount.pid())).expect("its command line"),
        fs::read_to_string(world.path(".s3mount/stats")).expect("the counters"),
        world.mount.stderr(),
    ];
    let is_busy = |text: &str| text.contains("ListObjectsV2") || text.contains("awscrt");
    for entry in fs::read_dir(logs.path()).expect("the logs") {
        seen.push(fs::read_to_string(entry.expect("a log").path()).expect("text"));
    }
    assert!(seen.iter().any(|text| is_busy(text)), "there is a log in detail");
    for secret in secrets {
        let told: Vec<_> =
            seen.iter().flat_map(|text| text.lines()).filter(|line| line.contains(secret)).collect();
        assert!(told.is_empty(), "{secret} is in {told:?}");
    }
}

/// Mounts as another user. In the script's namespace, /dev/fuse has the mode that it has everywhere except in
/// some containers, and there is no syslog. `$1` is a folder with the binary, and `$2` is the endpoint.
const UNPRIVILEGED: &str = r#"
set -eu
cd "$1"
mknod fuse c 10 229
chmod 666 fuse
mount --bind fuse /dev/fuse
[ ! -e /dev/log ] || mount --bind /dev/null /dev/log
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
FUSERMOUNT_PATH=/no/fusermount3 nobody ./s3mount data mnt --endpoint-url "$2" 2>&1 | grep fuse3
nobody ./s3mount 'data/a,b' mnt --endpoint-url "$2" 2>&1
grep -c " $1/mnt .* fuse.s3mount s3://data/a,b/ " /proc/self/mountinfo
nobody cat mnt/d/f
nobody cat mnt/.s3mount/stats | head -c 1
cat mnt/d/f 2>&1 || echo "root may not look into it"
nobody ./s3mount umount mnt
grep -c " $1/mnt " /proc/self/mountinfo || echo gone
"#;

#[test]
fn a_mount_is_its_user_s_alone() {
    let server = TestS3::builder().object(BUCKET, "a,b/d/f", "text\n").start().expect("a server");
    let folder = TempDir::new().expect("a folder");
    open_up(folder.path());
    copy_binary(folder.path());
    let dir = folder.path().join("mnt");
    fs::create_dir(&dir).expect("a mount point");
    chown(&dir, Some(NOBODY), Some(NOBODY)).expect("an owner");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", UNPRIVILEGED, "sh"]).arg(folder.path()).arg(server.endpoint());
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
    let output = run_with_timeout(&mut command, LIMIT).expect("a script that ends");
    let (said, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = said.lines().collect();
    let [no_fuse3, no_log, mounted, "1", "text", refused, "root may not look into it", "0", "gone"] =
        lines[..]
    else {
        panic!("{said}{stderr}");
    };
    assert!(no_fuse3.ends_with("and there is none; install the package fuse3"), "{no_fuse3}");
    assert!(no_log.contains("nothing is logged; --log-directory DIR keeps a log"), "{no_log}");
    assert!(mounted.starts_with("s3://data/a,b/ is mounted at "), "{mounted}");
    assert_eq!(refused, "{cat: mnt/d/f: Permission denied", "after the counters' first letter");
}

#[test]
fn modes_bind_other_users() {
    let server = || TestS3::builder().object(BUCKET, "d/f", "text");
    let world = World::new(server(), &["--allow-other", "--uid", "0", "--file-mode", "0640"]);
    open_up(world.mount.path().parent().expect("a folder"));
    assert!(is_refused(&as_nobody("cat", &world.path("d/f"))));
    assert!(as_nobody("ls", &world.path("d")).status.success());
    assert!(is_refused(&as_nobody("ls", &world.path(".s3mount"))));
    let world = World::new(server(), &["--allow-other"]);
    open_up(world.mount.path().parent().expect("a folder"));
    assert_eq!(as_nobody("cat", &world.path("d/f")).stdout, b"text");
    let world = World::new(server(), &[]);
    open_up(world.mount.path().parent().expect("a folder"));
    assert!(is_refused(&as_nobody("cat", &world.path("d/f"))), "only you, by default");
}
