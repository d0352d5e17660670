//! Finds out whether the daemon of a mount is alive.
//!
//! A daemon that is stopped, or hangs, never answers, and then not even SIGKILL ends the one who asks. So a process of
//! its own asks, which is left behind where it gets no answer.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

use crate::descriptors::close_all_but;
use crate::mounts::{MountedAt, enclosing};
use crate::terminal::shown;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The exit code that says that the daemon is gone.
const GONE: u8 = 3;

/// What is known of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It answers, or can't be asked.
    Alive,
    /// It is there, and does not answer.
    Silent,
    /// It is gone.
    Gone,
}

/// Asks the daemon of a mount.
pub fn probe(mount: &MountedAt) -> Life {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("s3mount").arg("probe").arg(&mount.dir);
    // To root, too, the kernel says only EACCES of another user's mount.
    if let Some((uid, gid)) = mount.owner.filter(|(uid, _)| geteuid().is_root() && *uid != 0) {
        command.args([uid.to_string(), gid.to_string()]);
    }
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

/// Checks that whoever follows `path` does not wait for ever: for the daemon of a mount that it leads through.
///
/// # Errors
/// Names the mount whose daemon does not answer.
pub fn check_above(path: &Path) -> anyhow::Result<()> {
    let path = std::path::absolute(path)?;
    check(&path, enclosing(&path).filter(|mount| mount.dir != path))
}

/// Checks that whoever looks into the folder `path` does not wait for ever: for the daemon of a mount that is there, or
/// that it lies in.
///
/// # Errors
/// Names the mount whose daemon does not answer.
pub fn check_within(path: &Path) -> anyhow::Result<()> {
    let path = std::path::absolute(path)?;
    check(&path, enclosing(&path))
}

fn check(path: &Path, mount: Option<MountedAt>) -> anyhow::Result<()> {
    if let Some(mount) = mount.filter(|mount| mount.kind.starts_with("fuse"))
        && probe(&mount) == Life::Silent
    {
        bail!(
            "{} lies in the mount {mount}, whose daemon does not answer: it is stopped, or it hangs; end it, or name a \
             folder elsewhere",
            shown(path)
        );
    }
    Ok(())
}

/// Opens the folder `root` as the user and the group `owner`, and returns the exit code that says how that went.
pub fn run(root: &Path, owner: Option<(u32, u32)>) -> ExitCode {
    // This process may have to stay. What it has open without knowing must not stay open.
    close_all_but(&[]);
    // The path may be closed to the user.
    let held = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root);
    let held = held.and_then(|held| owner.map_or(Ok(()), become_user).map(|()| held));
    let opened = held.and_then(|held| std::fs::read_dir(format!("/proc/self/fd/{}", held.as_raw_fd())));
    let is_gone = |error: io::Error| error.raw_os_error() == Some(Errno::ENOTCONN as i32);
    if opened.is_err_and(is_gone) { ExitCode::from(GONE) } else { ExitCode::SUCCESS }
}

/// From now on this process has the rights of another user. Only root may do so.
fn become_user((uid, gid): (u32, u32)) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    Ok(setresuid(uid, uid, uid)?)
}
