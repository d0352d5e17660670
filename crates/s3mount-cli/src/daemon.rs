//! Becoming a daemon, whose parent waits until the mount answers.
#![expect(unsafe_code, reason = "fork")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe, setsid};

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
    /// Tells that the mount answers.
    pub(crate) fn ready(&self) {
        self.send(READY);
    }

    /// Tells why there will be no mount.
    pub(crate) fn failed(&self, why: &str) {
        self.send(why);
    }

    fn send(&self, text: &str) {
        // A parent that is gone does not wait.
        let _ = (&self.0).write_all(text.as_bytes()).and_then(|()| (&self.0).write_all(b"\n"));
    }
}

/// Forks. To be called while the process has one thread.
pub(crate) fn daemonise() -> io::Result<Role> {
    let (read, write) = pipe()?;
    // SAFETY: this process has one thread, so the child's copy of its memory is consistent.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(write);
            let mut text = Vec::new();
            let mut from_daemon = File::from(read);
            let mut byte = [0];
            // The first line says it all; the daemon keeps the pipe no longer than it needs.
            while from_daemon.read(&mut byte)? == 1 && byte != *b"\n" {
                text.push(byte[0]);
            }
            let text = String::from_utf8_lossy(&text).into_owned();
            Ok(Role::Parent(match text.as_str() {
                READY => Outcome::Ready,
                "" => Outcome::Failed(last_words(waitpid(child, None)?)),
                _ => Outcome::Failed(text),
            }))
        }
        ForkResult::Child => {
            drop(read);
            setsid()?;
            chdir("/")?;
            let null = File::options().read(true).write(true).open("/dev/null")?;
            dup2_stdin(null.as_fd())?;
            dup2_stdout(null.as_fd())?;
            dup2_stderr(null.as_fd())?;
            Ok(Role::Daemon(Parent(File::from(write))))
        }
    }
}

fn last_words(status: WaitStatus) -> String {
    format!("the daemon ended without a word ({status:?}); run it with --foreground to see why")
}
