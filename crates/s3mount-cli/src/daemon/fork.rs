//! Becoming a daemon, whose parent waits until the mount answers.
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

/// Who we are after the fork.
#[derive(Debug)]
pub(crate) enum Role {
    /// The one that the user started; with what became of the daemon.
    Parent(Outcome),
    /// The one that mounts.
    Daemon(Parent),
}

/// What became of the daemon.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The mount answers.
    Ready,
    /// It failed, and says why.
    Failed(String),
}

/// The daemon's word to the one that waits for it.
#[derive(Debug)]
pub(crate) struct Parent(File);

const READY: &str = "ready";

impl Parent {
    /// Tells that the mount answers. From here on the daemon has no terminal, and needs nobody.
    ///
    /// To be called by the thread that came out of [`daemonise`].
    pub(crate) fn ready(&self) {
        let _ = set_pdeathsig(None);
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            let _ = dup2_stderr(null.as_fd());
        }
        self.send(READY);
    }

    /// Tells why there will be no mount.
    pub(crate) fn failed(&self, why: &str) {
        // One line: the other side reads no more.
        self.send(&why.replace(['\n', '\r'], " "));
    }

    fn send(&self, text: &str) {
        // A parent that is gone does not wait.
        let _ = (&self.0).write_all(format!("{text}\n").as_bytes());
    }
}

/// Forks. To be called while the process has one thread.
pub(crate) fn daemonise() -> io::Result<Role> {
    // Programs that the daemon starts must not hold the pipe open.
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    let parent = getpid();
    // SAFETY: this process has one thread, so the child's copy of its memory is consistent.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(write);
            let mut line = Vec::new();
            // The first line says it all.
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
            // Who ends the one that waits (Ctrl-C) wants no mount later.
            set_pdeathsig(Signal::SIGTERM)?;
            if getppid() != parent {
                return Err(io::Error::other("nobody waits for this daemon any more"));
            }
            chdir("/")?;
            // Standard error stays until the mount is ready: a panic, or the C below us, may have
            // something to say.
            let null = File::options().read(true).write(true).open("/dev/null")?;
            dup2_stdin(null.as_fd())?;
            dup2_stdout(null.as_fd())?;
            Ok(Role::Daemon(Parent(File::from(write))))
        }
    }
}

/// What is known of a daemon that told nothing.
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
