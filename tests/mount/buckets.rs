//! Several buckets in one mount (`--buckets`).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use nix::libc;
use s3mount_testkit::{
    Builder, Fault, FaultKind, MountGuard, Operation, TestS3, WatchdogGuard, run_with_timeout, watchdog,
};
use tempfile::TempDir;

use crate::world::{MIB, s3mount, wait_for};

/// A bucket that is shown whole, one below a prefix, and one that is empty.
const SPEC: &str = "train=s3://bucket-a,test=bucket-b/p/q,none=s3://bucket-c/";

fn server() -> Builder {
    let server = TestS3::builder().object("bucket-a", "d/f", "of a").object("bucket-a", "top", "at the top");
    let server = server.object("bucket-b", "p/q/d/f", "of b").object("bucket-b", "d/f", "beside");
    server.synthetic("bucket-b", "p/q/large", 20 * MIB).bucket("bucket-c")
}

/// The command for a mount of these buckets.
fn command(server: &TestS3, buckets: &str, dir: &Path, flags: &[&str]) -> Command {
    let dir = dir.to_str().expect("text");
    // The folder is the only place.
    let mut command = s3mount(&server.endpoint(), "--buckets", Path::new(buckets), flags);
    command.arg("--foreground").arg(dir);
    command
}

/// **Invariant**: the mount is dropped before its server.
struct Mounted {
    mount: MountGuard,
    server: TestS3,
    _folder: TempDir,
    _watchdog: WatchdogGuard,
}

impl Mounted {
    fn new(flags: &[&str]) -> Self {
        let watchdog = watchdog(Duration::from_secs(120));
        let server = server().start().expect("a server");
        let folder = TempDir::new().expect("a folder");
        let dir = folder.path().join("mnt");
        fs::create_dir(&dir).expect("a mount point");
        let mount = MountGuard::new(&mut command(&server, SPEC, &dir, flags), &dir).expect("a mount");
        Self { mount, server, _folder: folder, _watchdog: watchdog }
    }

    fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(self.mount.path().join(path))
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.mount.path().join(path)).expect("a folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    /// Whether the mount is as the buckets are.
    fn check(&self) {
        assert_eq!(self.names(""), ["none", "test", "train"]);
        assert_eq!(self.names("none"), Vec::<String>::new());
        assert_eq!(self.names("test"), ["d", "large"]);
        assert_eq!(self.names("train"), ["d", "top"]);
        assert_eq!(self.read("train/d/f").expect("a file"), "of a");
        assert_eq!(self.read("test/d/f").expect("a file"), "of b");
        assert_eq!(self.read("train/top").expect("a file"), "at the top");
        for absent in ["train/large", "none/d", "other", "other/f", "test/p", "d/f"] {
            let error = self.read(absent).expect_err(absent);
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{absent}");
        }
    }
}

#[test]
fn each_bucket_is_a_folder() {
    let mounted = Mounted::new(&[]);
    mounted.check();
    let root = mounted.mount.path();
    let stored = mounted.server.stored("bucket-b", "p/q/large").expect("an object").bytes();
    assert!(fs::read(root.join("test/large")).expect("a file") == stored, "other bytes than the object has");
    let file = File::open(root.join("test/large")).expect("a file");
    for offset in [19 * MIB + 5, 3, 11 * MIB] {
        let mut piece = [0_u8; 700];
        file.read_exact_at(&mut piece, offset).expect("bytes");
        assert_eq!(piece[..], stored[offset as usize..][..700], "{offset}");
    }
    // What changes in a bucket shows as it does in a mount of that bucket.
    mounted.server.put("bucket-c", "new/f", "new");
    assert_eq!(mounted.names("none"), ["new"]);
    assert_eq!(mounted.read("none/new/f").expect("a file"), "new");
    for refused in [
        fs::write(root.join("train/new"), "x"),
        fs::create_dir(root.join("more")),
        fs::remove_dir(root.join("none")),
        fs::rename(root.join("train"), root.join("other")),
        fs::remove_file(root.join("test/d/f")),
    ] {
        assert_eq!(refused.expect_err("a mount that is only read").raw_os_error(), Some(libc::EROFS));
    }
    let source = fs::read_to_string("/proc/self/mounts").expect("the mounts");
    assert!(source.contains("none=s3://bucket-c/,test=s3://bucket-b/p/q/,train=s3://bucket-a/"), "{source}");
}

#[test]
fn one_bucket_that_fails_leaves_the_others_alone() {
    let mounted = Mounted::new(&["--read-timeout", "2", "--metadata-ttl", "minimal"]);
    let refused = Fault::new(FaultKind::Status(403, "AccessDenied".to_owned())).on(Operation::GetObject);
    mounted.server.fault(Fault { key_contains: "p/q/d/f".to_owned(), ..refused });
    let error = mounted.read("test/d/f").expect_err("it is refused");
    assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    assert_eq!(mounted.read("train/d/f").expect("a file"), "of a");
}

#[test]
fn the_next_daemon_has_the_same_buckets() {
    let mounted = Mounted::new(&["--keep-alive"]);
    let open = File::open(mounted.mount.path().join("test/large")).expect("a file");
    let stored = mounted.server.stored("bucket-b", "p/q/large").expect("an object").bytes();
    let daemon = mounted.mount.held().expect("a daemon");
    let daemon = nix::unistd::Pid::from_raw(i32::try_from(daemon).expect("a pid"));
    nix::sys::signal::kill(daemon, nix::sys::signal::Signal::SIGKILL).expect("it lives");
    mounted.check();
    let mut all = vec![0; stored.len()];
    open.read_exact_at(&mut all, 0).expect("bytes");
    assert!(all == stored, "other bytes than the object has");
}

#[test]
fn what_was_read_is_kept_on_the_disk_by_bucket() {
    let folder = TempDir::new().expect("a folder");
    let cache = folder.path().join("cache");
    let mounted = Mounted::new(&["--cache", cache.to_str().expect("text"), "--no-passthrough"]);
    mounted.check();
    wait_for("both files are on the disk", || {
        let output = Command::new(env!("CARGO_BIN_EXE_s3mount")).args(["cache", "ls"]).arg(&cache).output();
        let said = String::from_utf8(output.expect("s3mount").stdout).expect("text");
        said.contains("train/d/f") && said.contains("test/d/f")
    });
}

/// How many threads a daemon has that mounts these buckets.
fn threads(server: &TestS3, buckets: &str) -> usize {
    let folder = TempDir::new().expect("a folder");
    let mount = MountGuard::new(&mut command(server, buckets, folder.path(), &[]), folder.path());
    let mount = mount.expect("a mount");
    fs::read_dir(format!("/proc/{}/task", mount.pid())).expect("its threads").count()
}

#[test]
fn many_buckets_share_the_threads_of_one() {
    let _watchdog = watchdog(Duration::from_secs(120));
    let server = server().start().expect("a server");
    let one = threads(&server, "a=bucket-a");
    let many: Vec<_> = (0..16).map(|number| format!("a{number}=bucket-a")).collect();
    let sixteen = threads(&server, &many.join(","));
    // For each bucket, one keeps its connections open.
    assert!(sixteen <= one + 15, "{one} threads for one bucket, {sixteen} for 16");
}

/// What a mount says that can't be.
fn refused(server: &TestS3, buckets: &str, flags: &[&str]) -> String {
    let folder = TempDir::new().expect("a folder");
    let mut command = command(server, buckets, folder.path(), flags);
    let Output { status, stderr, .. } =
        run_with_timeout(&mut command, Duration::from_secs(45)).expect("s3mount");
    let said = String::from_utf8(stderr).expect("text");
    assert!(!status.success(), "{said}");
    said
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    let _watchdog = watchdog(Duration::from_secs(60));
    let server = server().start().expect("a server");
    let said = refused(&server, "a=bucket-a,b=no-such-bucket", &[]);
    assert!(said.contains("bucket \"no-such-bucket\" does not exist"), "{said}");
}
