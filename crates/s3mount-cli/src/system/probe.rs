//! Finds out whether the daemon of a mount is alive.
//!
//! A daemon that is stopped, or hangs, never answers, and then not even SIGKILL ends the one who asks. So a process of
//! its own asks, which is left behind where it gets no answer.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::descriptors::close_all_but;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The exit code that says that the daemon is gone.
const GONE: u8 = 3;

/// What is known of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It answers, or can't be asked.
    Alive,
    /// It is there, and does not answer.
    Silent,
    /// It is gone.
    Gone,
}

/// Asks the daemon of the mount at `root`.
pub(crate) fn probe(root: &Path) -> Life {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("s3mount").arg("probe").arg(root);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Life::Alive };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.code() == Some(i32::from(GONE)) => return Life::Gone,
            Ok(Some(_)) | Err(_) => return Life::Alive,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                return Life::Silent;
            }
        }
    }
}

/// Opens the folder `root`, and returns the exit code that says how that went.
pub(crate) fn run(root: &Path) -> ExitCode {
    // This process may have to stay. What it has open without knowing must not stay open.
    close_all_but(&[]);
    let is_gone = |error: io::Error| error.raw_os_error() == Some(Errno::ENOTCONN as i32);
    if std::fs::read_dir(root).is_err_and(is_gone) { ExitCode::from(GONE) } else { ExitCode::SUCCESS }
}
