//! Mounts by the real binary, which are taken down again whatever happens.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, killpg};
use procfs::ProcResult;
use procfs::process::{Process, Status};

use crate::process::group;

/// How long a mount may take to appear, and how long it may then take to answer.
const MOUNT_LIMIT: Duration = Duration::from_secs(100);

/// The mounts of this process that are up, each with its directory and its process group. The [`watchdog`]
/// takes them down.
static MOUNTS: Mutex<Vec<(PathBuf, u32)>> = Mutex::new(Vec::new());

/// A mount by a daemon in the foreground. Dropping this ends the daemon and its mount, also in a panic.
#[derive(Debug)]
pub struct MountGuard {
    dir: PathBuf,
    child: Child,
}

impl MountGuard {
    /// Runs `command`, which mounts at `dir` and stays in the foreground, and waits until the
    /// mount answers.
    ///
    /// # Errors
    /// When the daemon ends instead: the error then quotes what the daemon said. Also when the mount takes
    /// longer than 100 s to appear or to answer.
    pub fn new(command: &mut Command, dir: &Path) -> anyhow::Result<Self> {
        // The kernel lists a mount by its resolved path. Where the path can't be resolved, the daemon
        // explains this better.
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let log = File::create(log_of(&dir)).context("creating the daemon's log")?;
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {:?}", command.get_program()))?;
        let mut guard = Self { dir, child };
        MOUNTS.lock().unwrap_or_else(PoisonError::into_inner).push((guard.dir.clone(), guard.child.id()));
        guard.wait_until_up()?;
        Ok(guard)
    }

    fn wait_until_up(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + MOUNT_LIMIT;
        while !is_mounted(&self.dir) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the daemon ended with {status} and said: {}", self.stderr());
            }
            if Instant::now() > deadline {
                bail!("no mount after {MOUNT_LIMIT:?}; the daemon said: {}", self.stderr());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let (answered, answer) = mpsc::channel();
        let dir = self.dir.clone();
        // This call hangs when the mount hangs, so it runs in a thread.
        std::thread::spawn(move || answered.send(std::fs::metadata(dir).map(drop)).is_ok());
        answer
            .recv_timeout(MOUNT_LIMIT)
            .with_context(|| format!("the mount does not answer; the daemon said: {}", self.stderr()))??;
        Ok(())
    }

    /// The directory of the mount.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The process id of the daemon, or of the holder where one starts the daemon.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process id of the daemon that lives now where a holder starts it.
    pub fn held(&self) -> Option<u32> {
        let holder = self.pid();
        let children = std::fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).ok()?;
        let is_alive = |pid: &u32| process(*pid).is_ok_and(|process| process.is_alive());
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_alive)
    }

    /// What the daemon has printed so far.
    pub fn stderr(&self) -> String {
        log_text(&self.dir)
    }

    /// The daemon's largest resident size so far, in bytes.
    pub fn peak_rss_bytes(&self) -> u64 {
        peak_rss_bytes(self.pid())
    }

    /// The daemon's resident size now, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        status(self.pid()).and_then(|status| status.vmrss).unwrap_or(0) * 1024
    }

    /// How much of that are pages of files: the program, which the page cache has for all who run it.
    pub fn file_rss_bytes(&self) -> u64 {
        status(self.pid()).and_then(|status| status.rssfile).unwrap_or(0) * 1024
    }

    /// The CPU time that the daemon has used, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.pid())
    }

    /// Asks the daemon to unmount and end, by SIGTERM.
    ///
    /// # Errors
    /// When the daemon has not ended after 10 s.
    pub fn unmount(mut self) -> anyhow::Result<ExitStatus> {
        killpg(group(self.child.id()), Signal::SIGTERM).context("asking the daemon to end")?;
        self.wait(Duration::from_secs(10))?
            .with_context(|| format!("the daemon did not end; it said: {}", self.stderr()))
    }

    fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Where the daemon of the mount at `dir` writes its log.
fn log_of(dir: &Path) -> PathBuf {
    let mut log = dir.as_os_str().to_owned();
    log.push(".stderr");
    PathBuf::from(log)
}

fn log_text(dir: &Path) -> String {
    std::fs::read_to_string(log_of(dir)).unwrap_or_default()
}

/// What can be found out about a mount in which a test hangs: its counters and its log.
fn last_words(dir: &Path) -> String {
    let (answered, answer) = mpsc::channel();
    let stats = dir.join(".s3mount/stats");
    // This read may hang, too, so it runs in a thread.
    std::thread::spawn(move || answered.send(std::fs::read_to_string(stats)).is_ok());
    let stats = answer.recv_timeout(Duration::from_secs(5));
    format!("{}: {stats:?}, log: {}", dir.display(), log_text(dir))
}

fn process(pid: u32) -> ProcResult<Process> {
    Process::new(i32::try_from(pid).unwrap_or(i32::MAX))
}

fn status(pid: u32) -> Option<Status> {
    process(pid).and_then(|process| process.status()).ok()
}

/// A process's largest resident size so far, in bytes, or 0 when the process is gone.
pub fn peak_rss_bytes(pid: u32) -> u64 {
    status(pid).and_then(|status| status.vmhwm).unwrap_or(0) * 1024
}

/// The CPU time that a process has used, in seconds, or 0 when the process is gone.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = process(pid).and_then(|process| process.stat());
    stat.map_or(0.0, |stat| (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

/// How often the threads of a process have given up their processor to wait, for a lock, for another thread or for bytes.
/// Threads that have ended are not counted.
pub fn switches(pid: u32) -> u64 {
    let tasks = process(pid).and_then(|process| process.tasks());
    let status = tasks.into_iter().flatten().flatten().filter_map(|task| task.status().ok());
    status.filter_map(|status| status.voluntary_ctxt_switches).sum()
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let pid = self.child.id();
        // A daemon that has ended needs no signal. Its number may belong to another process by now.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = killpg(group(pid), Signal::SIGTERM);
            if !matches!(self.wait(PATIENCE), Ok(Some(_))) {
                let _ = killpg(group(pid), Signal::SIGKILL);
                let _ = self.wait(PATIENCE);
            }
        }
        if is_mounted(&self.dir) {
            let _ = umount2(&self.dir, MntFlags::MNT_DETACH);
        }
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "what the daemon said may tell why")]
            {
                eprintln!("the daemon said: {}", self.stderr());
            }
        }
        // A log that can't be removed lies beside the mount's directory, and both are temporary.
        let _ = std::fs::remove_file(log_of(&self.dir));
        MOUNTS.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, mounted)| *mounted != pid);
    }
}

/// Whether a FUSE filesystem is mounted at `dir`.
fn is_mounted(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dir = dir.display().to_string();
    mounts.lines().any(|line| {
        let mut point = line.split(' ').nth(4).unwrap_or_default().to_owned();
        for (escape, character) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
            point = point.replace(escape, character);
        }
        point == dir && line.contains(" - fuse")
    })
}

/// Stops a [`watchdog`] when it is dropped.
#[derive(Debug)]
#[must_use = "the time runs until it is dropped"]
pub struct WatchdogGuard {
    /// The watchdog notices when this sender is dropped.
    _leash: mpsc::Sender<()>,
}

/// Takes down this process's mounts and ends this process, unless the guard is dropped within `limit`. A test
/// that hangs in the kernel can't be ended in another way.
pub fn watchdog(limit: Duration) -> WatchdogGuard {
    let (leash, let_go) = mpsc::channel();
    std::thread::spawn(move || {
        if let_go.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        #[expect(clippy::print_stderr, reason = "the last words of a test")]
        {
            eprintln!("watchdog: the test did not end within {limit:?}");
        }
        for (dir, pid) in MOUNTS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            #[expect(clippy::print_stderr, reason = "the last words of a test")]
            {
                eprintln!("{}", last_words(dir));
            }
            let _ = killpg(group(*pid), Signal::SIGKILL);
            let _ = umount2(dir, MntFlags::MNT_DETACH);
        }
        std::process::abort();
    });
    WatchdogGuard { _leash: leash }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use super::{MountGuard, watchdog};
    use crate::process::run_with_timeout;

    #[test]
    fn a_daemon_that_ends_is_quoted() {
        let dir = tempfile::tempdir().expect("a folder");
        let mount = dir.path().join("mnt");
        std::fs::create_dir(&mount).expect("a mount point");
        let error =
            MountGuard::new(Command::new("sh").args(["-c", "echo no such bucket >&2; exit 3"]), &mount)
                .expect_err("nothing mounts");
        let error = error.to_string();
        assert!(error.contains("no such bucket") && error.contains('3'), "{error}");
        let left = std::fs::read_dir(dir.path()).expect("the folder").count();
        assert_eq!(left, 1, "the log is gone");
    }

    #[test]
    #[ignore = "hangs; the next test runs it"]
    fn hangs() {
        let _watchdog = watchdog(Duration::from_millis(100));
        std::thread::sleep(Duration::from_secs(100));
    }

    #[test]
    fn the_watchdog_ends_a_test_that_hangs() {
        let tests = std::env::current_exe().expect("this program");
        let output = run_with_timeout(
            Command::new(tests).args(["--exact", "mount::tests::hangs", "--ignored", "--nocapture"]),
            Duration::from_secs(30),
        )
        .expect("it ends in time");
        assert_eq!(output.status.signal(), Some(6), "SIGABRT");
        assert!(String::from_utf8_lossy(&output.stderr).contains("watchdog: "));
        drop(watchdog(Duration::from_millis(1)));
        std::thread::sleep(Duration::from_millis(50));
    }
}
