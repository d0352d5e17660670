//! Lets go those who wait for a daemon that was killed.
//!
//! The kernel ends a mount when the last thread of its daemon closes `/dev/fuse`. A thread that tells the kernel of a
//! name waits inside the kernel for the folder's lock, and no signal ends that wait. A program that makes, renames or
//! removes a file in this folder holds the lock until the daemon answers. If the daemon is killed between the two
//! (SIGKILL, or because memory is short), each waits for the other for ever, and so does every program that comes to
//! the mount: 5 of 8 kills did so beside eight such programs.
//!
//! So each daemon has a warden: a process of the same program, which sleeps until the kernel says by a signal that the
//! daemon's first thread has ended. If the mount is still there then, it aborts the mount's connection. All who wait
//! get `ENOTCONN`, and the folder is left as after any kill. No file descriptor or pidfd would tell: all of the
//! daemon's files stay open as long as the thread waits.
#![expect(unsafe_code, reason = "a process that is told of its parent's end")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use s3mount_fuse::MountId;
use s3mount_system::descriptors::close_all_but;
use s3mount_system::mounts::{MountedAt, by_id};

use crate::stat::Stat;

/// The argument of a warden that waits as long as the holder lives.
const PATIENT: &str = "--patient";

/// The signal by which the kernel tells of the daemon's end.
const ENDED: Signal = Signal::SIGUSR1;

/// How long a thread may take from this signal to its end.
const SIGNAL_LEAD: Duration = Duration::from_secs(1);

/// How long a thread may wait in the kernel where no daemon is started as long as one waits: systemd starts none.
const NEXT_LIMIT: Duration = Duration::from_secs(10);

/// How often it is looked whether the holder lives.
const LOOK: Duration = Duration::from_millis(500);

/// Starts the warden of this process, for its mount `there`. Must be called by the first thread: its end is told.
/// `holder` keeps the mount for another daemon, which lets them go: then the warden does nothing. If it `is_patient`, it
/// waits for that as long as the holder lives.
pub(super) fn start(there: &MountedAt, holder: Option<u32>, is_patient: bool) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    let numbers = [std::process::id().to_string(), there.numbers().to_string()];
    command.arg0("s3mount").arg("warden").args(numbers).args(holder.map(|holder| holder.to_string()));
    command.args(is_patient.then_some(PATIENT));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec these calls allocate nothing and take no lock.
    unsafe {
        command.pre_exec(|| {
            // It has to outlive all signals that end a daemon, and must not lose the one that it waits for.
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
            set_pdeathsig(ENDED)?;
            Ok(())
        });
    }
    command.spawn()
}

/// Ends the warden of a mount that is gone.
pub(super) fn dismiss(mut warden: Child) {
    // It fails for a warden that has ended.
    let _ = warden.kill();
    let _ = warden.wait();
}

/// Waits until the process `daemon` has ended, and aborts the connection of its mount, if that is still there: the one
/// with the numbers `id`. Its folder may have another path by then.
pub(crate) fn run(daemon: u32, id: MountId, holder: Option<u32>, is_patient: bool) -> anyhow::Result<()> {
    // What the daemon has open without knowing must not stay open.
    close_all_but(&[]);
    let holder = holder.and_then(|holder| File::open(format!("/proc/{holder}/stat")).ok());
    let mut ended = SigSet::empty();
    ended.add(ENDED);
    // The kernel sends the signal just before the daemon's first thread is a zombie. Another thread may wait in the
    // kernel: then this process stays the daemon's child.
    while parent_id() == daemon && !has_ended(daemon, SIGNAL_LEAD) {
        ended.wait()?;
    }
    if holder.is_some_and(|holder| is_let_go(daemon, &holder, is_patient)) {
        return Ok(());
    }
    by_id(id).map_or(Ok(()), |mount| abort(&mount))
}

/// Whether the last thread of the daemon ends because another daemon answers whom it waits for. That may take long: a
/// program may rename a large folder, and the next daemon may be killed, too.
fn is_let_go(daemon: u32, holder: &File, is_patient: bool) -> bool {
    while lives(holder) {
        if has_gone(daemon, if is_patient { LOOK } else { NEXT_LIMIT }) {
            return true;
        }
        if !is_patient {
            return false;
        }
    }
    false
}

/// Whether the last thread of the daemon has ended, or does so within `limit`: then the process has another parent.
fn has_gone(daemon: u32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while parent_id() == daemon {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Whether the process whose `stat` in /proc is open lives.
fn lives(stat: &File) -> bool {
    let mut text = [0; 1024];
    // It fails for a process that is gone, also where another one has its number by now.
    let len = stat.read_at(&mut text, 0).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..len]);
    Stat::parse(&text).is_some_and(|stat| !stat.has_ended())
}

/// Whether the first thread of a process has ended, or does so within `limit`.
fn has_ended(pid: u32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while Stat::of(format!("/proc/{pid}")).is_some_and(|stat| !stat.has_ended()) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Aborts the connection of a mount, and leaves the mount where it is.
pub(super) fn abort(mount: &MountedAt) -> anyhow::Result<()> {
    // To open the mount asks the daemon nothing.
    Ok(s3mount_fuse::abort(&mount.dir, mount.numbers())?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::parent_id;
    use std::process::Command;

    use super::{is_let_go, lives};

    #[test]
    fn who_starts_daemons_is_waited_for_as_long_as_he_lives() {
        let mut holder = Command::new("sleep").arg("1").spawn().expect("a process");
        let stat = File::open(format!("/proc/{}/stat", holder.id())).expect("it lives");
        assert!(lives(&stat));
        // The parent of this process stays.
        assert!(!is_let_go(parent_id(), &stat, true));
        assert!(!lives(&stat), "so long it was waited for");
        holder.wait().expect("it has ended");
        assert!(!is_let_go(parent_id(), &stat, false), "nobody is there to wait for");
    }
}
