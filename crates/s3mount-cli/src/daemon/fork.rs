//! Forks into a daemon and a parent that waits until the mount answers.
#![expect(unsafe_code, reason = "fork")]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;

use nix::fcntl::OFlag;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{
    ForkResult, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, getpid, getppid, pipe2, setsid,
};

/// Which of the two processes this is after the fork.
#[derive(Debug)]
pub(crate) enum Role {
    /// The process that the user started, with the outcome of the daemon.
    Parent(Outcome),
    /// The process that mounts.
    Daemon(Parent),
}

/// The outcome of the daemon's start.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The mount answers.
    Ready,
    /// The daemon failed, for this reason.
    Failed(String),
}

/// The pipe by which the daemon reports to the parent that waits for it.
#[derive(Debug)]
pub(crate) struct Parent(File);

const READY: &str = "ready";

impl Parent {
    /// Reports that the mount answers. From now on the daemon has no terminal and outlives its parent.
    ///
    /// Must be called by the thread that returned from [`daemonise`].
    pub(crate) fn ready(&self) {
        let _ = set_pdeathsig(None);
        leave_terminal();
        self.send(READY);
    }

    /// Reports why the mount failed.
    pub(crate) fn failed(&self, why: &str) {
        // The text must be one line: the parent reads no more.
        self.send(&why.replace(['\n', '\r'], " "));
    }

    fn send(&self, text: &str) {
        // Writing fails if the parent is gone. Then nobody waits for the report.
        let _ = (&self.0).write_all(format!("{text}\n").as_bytes());
    }
}

/// Writes nothing to the terminal any more.
pub(super) fn leave_terminal() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = dup2_stderr(null.as_fd());
    }
}

/// Forks. Must be called while the process has one thread.
pub(crate) fn daemonise() -> io::Result<Role> {
    // O_CLOEXEC: programs that the daemon starts must not hold the pipe open.
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    let parent = getpid();
    // SAFETY: this process has one thread, so the child's copy of its memory is consistent.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(write);
            let mut line = Vec::new();
            // The daemon reports with one line.
            BufReader::new(File::from(read)).read_until(b'\n', &mut line)?;
            Ok(Role::Parent(match String::from_utf8_lossy(&line).trim_end() {
                READY => Outcome::Ready,
                "" => Outcome::Failed(last_words(waitpid(child, None)?)),
                why => Outcome::Failed(why.to_owned()),
            }))
        }
        ForkResult::Child => {
            drop(read);
            setsid()?;
            // A user who ends the waiting parent (Ctrl-C) does not want the mount to appear later.
            set_pdeathsig(Signal::SIGTERM)?;
            if getppid() != parent {
                return Err(io::Error::other("nobody waits for this daemon any more"));
            }
            chdir("/")?;
            // Standard error stays open until the mount is ready: a panic or a C library may write to it.
            let null = File::options().read(true).write(true).open("/dev/null")?;
            dup2_stdin(null.as_fd())?;
            dup2_stdout(null.as_fd())?;
            Ok(Role::Daemon(Parent(File::from(write))))
        }
    }
}

/// Describes the end of a daemon that reported nothing.
fn last_words(status: WaitStatus) -> String {
    let how = match status {
        WaitStatus::Exited(_, code) => format!("ended with exit code {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("was killed by {signal:?}"),
        other => format!("ended ({other:?})"),
    };
    format!("the daemon {how} before it had mounted; look into its log, or run it with --foreground --debug")
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;
    use nix::sys::wait::WaitStatus;
    use nix::unistd::Pid;

    use super::last_words;

    #[test]
    fn a_silent_death_is_told() {
        let text = last_words(WaitStatus::Signaled(Pid::from_raw(1), Signal::SIGABRT, false));
        assert!(text.contains("was killed by SIGABRT") && text.contains("--foreground"), "{text}");
    }
}
