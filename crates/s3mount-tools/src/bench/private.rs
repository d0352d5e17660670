//! Mounts for a measurement, by a second process of this program.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_settings::layers::environment;
use s3mount_system::mounts::mount_at;
use s3mount_system::unmounting::detach;
use tempfile::TempDir;

use super::measured::{Measured, usage};
use super::subject::Bench;
use crate::watch::metrics::Metrics;

/// The time that a mount may take to appear, without the time that the store takes to answer.
const UP_LIMIT: Duration = Duration::from_secs(40);

/// The time that the mount may take to go away.
const DOWN_LIMIT: Duration = Duration::from_secs(5);

/// The number of bytes that the reader asks for at once.
const READ_BYTES: usize = 1 << 20;

/// A mount that is unmounted when this is dropped.
pub(crate) struct PrivateMount {
    daemon: Child,
    folder: PathBuf,
    file: PathBuf,
    log: PathBuf,
    /// The folder that contains the mount and the log. No other user may enter it.
    _home: TempDir,
}

impl PrivateMount {
    /// Mounts the folder of the bench's object, with `flags`.
    pub(crate) fn new(bench: &Bench, flags: &[OsString]) -> anyhow::Result<Self> {
        let key = bench.object.key();
        let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
        let home = tempfile::Builder::new().prefix("s3mount-bench-").tempdir();
        let home = home.context("cannot make a folder to mount in; $TMPDIR says where")?;
        let folder = home.path().join("mount");
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        // The log is a file and not a pipe, because nobody reads it while the daemon runs.
        let log = home.path().join("log");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["mount", "--foreground"]).args(bench.store.flags()).args(flags);
        command.arg("--memory-limit").arg(bench.memory_limit_bytes.to_string());
        command.arg("--").arg(format!("{}/{prefix}", bench.store.bucket)).arg(&folder);
        // What the environment sets is for the mounts of jobs, and not measured here.
        for (name, _) in std::env::vars_os().filter(|(name, _)| environment::is_setting(name)) {
            command.env_remove(name);
        }
        let daemon = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("cannot start a daemon")?;
        let file = folder.join(name);
        let mut mount = Self { daemon, folder, file, log, _home: home };
        mount.wait_until_up()?;
        Ok(mount)
    }

    fn wait_until_up(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + UP_LIMIT;
        while mount_at(&self.folder).is_none() {
            if self.daemon.try_wait()?.is_some() {
                let said = std::fs::read_to_string(&self.log)?;
                bail!("the mount failed: {}", said.trim().trim_start_matches("s3mount: "));
            }
            if Instant::now() > deadline {
                bail!("the mount did not answer within {UP_LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Reads up to `bytes` of the file, for at most `limit`.
    pub(crate) fn measure(&self, bytes: u64, limit: Duration) -> anyhow::Result<Measured> {
        let pid = i32::try_from(self.daemon.id())?;
        let (cpu_before, _) = usage(pid)?;
        let shown = self.file.display();
        let failed = || format!("cannot read {shown}; --client-only leaves the mount out");
        let start = Instant::now();
        let mut file = File::open(&self.file).with_context(failed)?;
        let mut buffer = vec![0; READ_BYTES];
        let mut read = 0;
        while read < bytes && start.elapsed() < limit {
            match file.read(&mut buffer).with_context(failed)? {
                0 => break,
                some => read += some as u64,
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let (cpu, peak_memory_bytes) = usage(pid)?;
        let stats = std::fs::read_to_string(self.folder.join(".s3mount/stats"))?;
        Ok(Measured {
            bytes: read,
            seconds,
            cpu_seconds: cpu - cpu_before,
            peak_memory_bytes,
            requests: Metrics::parse(&stats)?.get_requests,
            parts: Vec::new(),
        })
    }
}

impl Drop for PrivateMount {
    fn drop(&mut self) {
        // Ctrl-C may have ended the daemon already. Then none of these steps does anything.
        if let Ok(pid) = i32::try_from(self.daemon.id())
            && matches!(self.daemon.try_wait(), Ok(None))
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let deadline = Instant::now() + DOWN_LIMIT;
        while matches!(self.daemon.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.daemon.kill();
                let _ = self.daemon.wait();
                // The mount of a daemon that had to be killed is left.
                let _ = mount_at(&self.folder).map(|mount| detach(&mount));
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
