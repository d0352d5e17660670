//! What /proc says of a thread whose request waits.

use nix::sys::signal::kill;
use nix::unistd::Pid;
use procfs::process::Process;

/// Signals by which a user ends a program. The kernel turns a fatal one into SIGKILL. Where a program has a
/// handler, as `dd` and Python have for Ctrl-C, the handler cannot run before the request is answered.
/// Other signals, such as a profiler's, are no reason to fail a read.
const ENDING_SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The kernel's mark of a thread that a signal ends (`PF_SIGNALED` in Linux's `sched.h`). The signal is not pending any
/// more, and no other one reaches the thread while it closes its files.
const ENDED_BY_SIGNAL: u32 = 0x400;

/// A thread, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    /// It lives.
    Alive {
        /// The user whose rights its calls have.
        uid: u32,
        /// Whether it is one of this process.
        is_own: bool,
        /// Why it is to end.
        end: Option<End>,
    },
    /// It lives, and /proc hides it, as it may hide another user's.
    Hidden,
    /// No thread has this number.
    Absent,
}

/// Why a thread is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is killed.
    Killed,
    /// A signal asks it to end, which it handles.
    Asked,
}

/// Looks at the thread `pid`.
pub(super) fn look(pid: u32) -> Thread {
    let Ok(pid) = i32::try_from(pid) else { return Thread::Absent };
    let looked = Process::new(pid).and_then(|process| Ok((process.status()?, process.stat()?)));
    let Ok((status, stat)) = looked else {
        // kill(2) hides nobody.
        let is_absent = kill(Pid::from_raw(pid), None) == Err(nix::errno::Errno::ESRCH);
        return if is_absent { Thread::Absent } else { Thread::Hidden };
    };
    let pending = (status.sigpnd | status.shdpnd) & !status.sigblk & !status.sigign;
    let is_pending = |signal: i32| pending & 1 << (signal - 1) != 0;
    let end = if is_pending(libc::SIGKILL) || stat.flags & ENDED_BY_SIGNAL != 0 {
        Some(End::Killed)
    } else {
        ENDING_SIGNALS.into_iter().any(is_pending).then_some(End::Asked)
    };
    Thread::Alive { uid: status.fuid, is_own: status.tgid.unsigned_abs() == std::process::id(), end }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::unistd::geteuid;

    use super::{Thread, look};

    #[test]
    fn tells_the_living_from_the_dead() {
        let uid = geteuid().as_raw();
        assert_eq!(look(std::process::id()), Thread::Alive { uid, is_own: true, end: None });
        assert_ne!(look(1), Thread::Absent);
        let mut child = Command::new("sleep").arg("100").spawn().expect("a child");
        assert_eq!(look(child.id()), Thread::Alive { uid, is_own: false, end: None });
        child.kill().expect("a signal");
        child.wait().expect("its end");
        assert_eq!(look(child.id()), Thread::Absent);
    }
}
