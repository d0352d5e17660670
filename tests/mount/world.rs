//! A bucket, its server, and a mount of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use memmap2::Mmap;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::{Builder, MountGuard, TestS3, WatchdogGuard, check, run_with_timeout, watchdog};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// The user `nobody` on Debian and elsewhere.
pub(crate) const NOBODY: u32 = 65534;

/// A test that takes longer than this hangs, and is ended. The slowest test takes a tenth of it on two cores.
const LIMIT: Duration = Duration::from_secs(300);

/// The bucket that nearly all tests mount.
pub(crate) const BUCKET: &str = "data";

/// A directory bucket (S3 Express One Zone).
pub(crate) const DIRECTORY_BUCKET: &str = "data--use1-az4--x-s3";

/// Memory that a daemon may use beyond `--memory-limit`, in bytes: for the program, its threads, names and
/// connections.
pub(crate) const OVERHEAD: u64 = 64 * MIB;

/// Flags of the mounts of most tests.
const USUAL: &[&str] = &["--foreground"];

/// Flags of the mounts of tests that compare numbers of GETs.
const COUNTING: &[&str] = &["--foreground", "--no-hedging"];

/// A command that mounts the bucket at `dir` with `flags`, and with credentials that the test server takes.
pub(crate) fn s3mount(endpoint: &str, source: &str, dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    command.arg(source).arg(dir).args(["--endpoint-url", endpoint]).args(flags);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
    // Mounts that write keep their journals beside the mount point.
    command.env("XDG_STATE_HOME", dir.parent().unwrap_or(dir));
    // By default a cache leaves 5 % of the disk free. How full the machine's disk is must not matter here.
    if flags.contains(&"--cache") && !flags.contains(&"--max-cache-size") {
        command.args(["--max-cache-size", "4GiB"]);
    }
    // More flags for each mount, such as --allow=write: reading costs the same requests with it.
    command.args(std::env::var("S3MOUNT_TEST_FLAGS").iter().flat_map(|flags| flags.split_whitespace()));
    command
}

/// A bucket, its server, and a mount of it.
///
/// **Invariant**: the mount is dropped before its server, so its field comes first.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) mount: MountGuard,
    pub(crate) server: TestS3,
    /// What is mounted.
    pub(crate) bucket: &'static str,
    /// Flags of each mount of this world.
    base: &'static [&'static str],
    folder: TempDir,
    _watchdog: WatchdogGuard,
}

impl World {
    /// Mounts the bucket with `flags`.
    pub(crate) fn new(server: Builder, flags: &[&str]) -> Self {
        Self::with(server, flags, |_| {})
    }

    /// Mounts the bucket with `flags` in a test that compares numbers of GETs, or of the bytes that they bring. How many
    /// GETs are slow enough to be sent a second time depends on the load of the machine, so none is.
    pub(crate) fn counting(server: Builder, flags: &[&str]) -> Self {
        Self::of(BUCKET, server, COUNTING, flags, LIMIT, |_| {})
    }

    /// Mounts the bucket with `flags`, by a command that `change` has changed.
    pub(crate) fn with(server: Builder, flags: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        Self::start(server, flags, LIMIT, change)
    }

    /// Mounts the bucket as `change` has it, in a test that takes no longer than `limit`.
    pub(crate) fn start(
        server: Builder,
        flags: &[&str],
        limit: Duration,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        Self::of(BUCKET, server, USUAL, flags, limit, change)
    }

    /// Mounts a bucket with `flags`.
    pub(crate) fn of_bucket(bucket: &'static str, server: Builder, flags: &[&str]) -> Self {
        Self::of(bucket, server, USUAL, flags, LIMIT, |_| {})
    }

    fn of(
        bucket: &'static str,
        server: Builder,
        base: &'static [&'static str],
        flags: &[&str],
        limit: Duration,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let watchdog = watchdog(limit);
        let folder = TempDir::new().expect("a folder");
        let server = server.bucket(bucket).start().expect("a server");
        let dir = folder.path().join("mnt");
        fs::create_dir(&dir).expect("a mount point");
        let mut flags = [base, flags].concat();
        let bundle = folder.path().join("ca.pem").display().to_string();
        if let Some(authority) = server.ca_pem() {
            fs::write(&bundle, authority).expect("a file");
            flags.extend(["--ca-bundle", &bundle]);
        }
        let mut command = s3mount(&server.endpoint(), bucket, &dir, &flags);
        change(&mut command);
        let mount = MountGuard::new(&mut command, &dir).expect("a mount");
        // The requests of mounting are not counted.
        // The server counts a request after its answer.
        std::thread::sleep(Duration::from_millis(20));
        server.reset_stats();
        Self { mount, server, bucket, base, folder, _watchdog: watchdog }
    }

    /// All that the bucket holds below a prefix, by what follows the prefix. An object that is deleted meanwhile is left
    /// out.
    pub(crate) fn stored_below(&self, prefix: &str) -> BTreeMap<String, Vec<u8>> {
        let keys = self.server.keys(self.bucket);
        let below = keys.iter().filter_map(|key| Some((key, key.strip_prefix(prefix)?)));
        let bytes = |key| Some(self.server.stored(self.bucket, key)?.bytes());
        below.filter_map(|(key, rest)| Some((rest.to_owned(), bytes(key)?))).collect()
    }

    /// Mounts the bucket with `flags` in another folder, and then ends the mount before. The requests of
    /// mounting are not counted.
    pub(crate) fn remount(&mut self, flags: &[&str]) {
        let dir = tempfile::tempdir_in(self.folder.path()).expect("a folder").keep();
        let next = self.also(&dir, flags);
        drop(std::mem::replace(&mut self.mount, next));
        self.server.reset_stats();
    }

    /// Kills the daemon, as a crash does.
    pub(crate) fn crash(&self) {
        let pid = self.mount.pid();
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("it lives");
        // The last of its threads closes its files.
        let (stat, threads) = (format!("/proc/{pid}/stat"), format!("/proc/{pid}/task"));
        let is_over = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        wait_for("its end", || is_over() && fs::read_dir(&threads).map_or(0, Iterator::count) <= 1);
        // The store may still carry out what it has got.
        std::thread::sleep(Duration::from_millis(200));
    }

    /// A folder for the test's own files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Mounts the bucket at `dir` too.
    pub(crate) fn also(&self, dir: &Path, flags: &[&str]) -> MountGuard {
        let flags = [self.base, flags].concat();
        MountGuard::new(&mut s3mount(&self.server.endpoint(), self.bucket, dir, &flags), dir)
            .expect("a mount")
    }

    /// The mount's metrics.
    pub(crate) fn stats(&self) -> Value {
        let json = std::fs::read(self.path(".s3mount/stats")).expect("the counters");
        serde_json::from_slice(&json).expect("JSON")
    }

    /// The value of one metric.
    pub(crate) fn gauge(&self, name: &str) -> u64 {
        self.stats()[name].as_u64().expect("a number")
    }

    /// Ends the server, and returns its port, which another server may take.
    pub(crate) fn stop_server(&mut self) -> u16 {
        let elsewhere = TestS3::builder().start().expect("a server");
        std::mem::replace(&mut self.server, elsewhere).stop()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    /// Opens a file of the mount for reading.
    #[track_caller]
    pub(crate) fn open(&self, name: &str) -> File {
        File::open(self.path(name)).unwrap_or_else(|error| panic!("{name} is not opened: {error}"))
    }

    /// All bytes of a file of the mount.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name} is not read: {error}"))
    }

    /// Makes a file of the mount, or replaces it.
    #[track_caller]
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap_or_else(|error| panic!("{name} is not written: {error}"));
    }

    /// Bytes of objects that the server has sent.
    pub(crate) fn fetched(&self) -> u64 {
        self.server.stats().get_object.bytes
    }

    /// Asserts that the daemon has kept to `--memory-limit`.
    pub(crate) fn check_memory(&self, limit: u64) {
        let peak = self.mount.peak_rss_bytes();
        assert!(peak > 0 && peak <= limit + OVERHEAD, "peak RSS {} MiB", peak / MIB);
    }
}

/// Runs a program, which must succeed, and returns what it printed.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> String {
    run_command(Command::new(program).args(args))
}

/// Copies the binary into a folder, where other users can run it. Another process copies it: a file that this one has
/// open for writing can't be run as long as a program that another test starts holds it, too.
pub(crate) fn copy_binary(to: &Path) {
    run("cp", &[Path::new(env!("CARGO_BIN_EXE_s3mount")), to]);
}

/// Runs a command, which must succeed, and returns what it printed.
pub(crate) fn run_command(command: &mut Command) -> String {
    let output = run_with_timeout(command, LIMIT).expect("a program that ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

/// Reads `from` to its end in pieces of `piece` bytes, and compares it with the synthetic object `key` from
/// `offset` on. Returns how many bytes were read.
pub(crate) fn check_stream(mut from: impl Read, key: &str, offset: u64, piece: usize) -> u64 {
    let mut buffer = vec![0; piece];
    let mut at = offset;
    loop {
        match from.read(&mut buffer).expect("a read") {
            0 => return at - offset,
            read => {
                check(key, at, &buffer[..read]).expect("the object's bytes");
                at += read as u64;
            }
        }
    }
}

/// Reads a file to its end, in pieces of 1 MiB, and compares it with the synthetic object `key`.
pub(crate) fn check_file(path: &Path, key: &str) -> u64 {
    check_stream(File::open(path).expect("a file"), key, 0, MIB as usize)
}

/// A map of a whole file.
#[expect(unsafe_code, reason = "a map")]
pub(crate) fn map(file: &File) -> Mmap {
    // SAFETY: what is mapped never changes.
    unsafe { Mmap::map(file) }.expect("a map")
}

/// Waits until a condition holds that comes true by itself soon.
pub(crate) fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a Python program that prints pieces of a file, each after its offset and its length. Compares each
/// piece with the synthetic object `key`. Returns the number of pieces and their bytes.
pub(crate) fn check_pieces(python: &mut Command, key: &str) -> (u64, u64) {
    let mut child = python.stdout(Stdio::piped()).spawn().expect("python");
    let mut stdout = child.stdout.take().expect("a pipe");
    let (mut count, mut bytes, mut head, mut data) = (0, 0, [0; 16], Vec::new());
    while stdout.read_exact(&mut head).is_ok() {
        let (offset, length) = head.split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        data.resize(number(length) as usize, 0);
        stdout.read_exact(&mut data).expect("a piece");
        check(key, number(offset), &data).expect("the object's bytes");
        count += 1;
        bytes += number(length);
    }
    assert!(child.wait().expect("its end").success());
    (count, bytes)
}

/// How many mounts there are at `dir`.
pub(crate) fn mounts(dir: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    mounts.lines().filter(|line| line.split(' ').nth(4) == dir.to_str()).count()
}

/// What a command wrote to standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Mounts a file system in memory at a folder, with these options of tmpfs.
pub(crate) fn mount_tmpfs<'a>(at: &'a Path, options: &str) -> Unmount<'a> {
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(options)).expect("a tmpfs");
    Unmount(at)
}

/// Unmounts a path when it is dropped, also in a panic.
pub(crate) struct Unmount<'a>(pub(crate) &'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}
