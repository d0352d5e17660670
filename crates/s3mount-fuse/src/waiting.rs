//! Callers that are killed while they wait for the store.
//!
//! fuser knows no FUSE_INTERRUPT: it answers ENOSYS, and the kernel stops sending it. A caller that
//! is killed while its request is with us then stays, in state D, until it is answered. So the ones
//! that wait are looked at, and who has a signal pending that is to end it, or is gone, is answered at
//! once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use fuser::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use procfs::process::Process;
use tokio::sync::Notify;

/// How often it is looked who still waits.
const LOOK: Duration = Duration::from_millis(50);

/// Who has waited so long is looked at, and again each time it has passed: a killed `cat` is gone
/// before its user wonders, and the many who wait for a GET of S3's usual latency cost nothing.
const PATIENCE: Duration = Duration::from_millis(100);

/// Signals by which a user ends a program. The kernel makes SIGKILL of those that are fatal; the others
/// have a handler that cannot run before the request is answered, as `dd` and Python have for Ctrl-C.
/// Other signals, such as a profiler's, are no reason to fail a read.
const ENDING: [i32; 5] = [libc::SIGKILL, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// A reply that can say what went wrong.
pub(crate) trait Reply: Send + 'static {
    fn fail(self, errno: Errno);
}

macro_rules! replies {
    ($($kind:ty),*) => {
        $(impl Reply for $kind {
            fn fail(self, errno: Errno) {
                self.error(errno);
            }
        })*
    };
}

replies!(fuser::ReplyEntry, fuser::ReplyData, fuser::ReplyDirectory, fuser::ReplyDirectoryPlus);

/// The reply to one request, taken by whoever answers first.
pub(crate) struct Slot<R>(Arc<Mutex<Option<R>>>);

impl<R> Clone for Slot<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Reply> Slot<R> {
    pub(crate) fn new(reply: R) -> Self {
        Self(Arc::new(Mutex::new(Some(reply))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply, if it was not answered yet.
    pub(crate) fn take(&self) -> Option<R> {
        self.lock().take()
    }
}

/// One who waits.
trait Waiter: Send {
    fn is_waiting(&self) -> bool;
    fn interrupt(&self);
}

impl<R: Reply> Waiter for Slot<R> {
    fn is_waiting(&self) -> bool {
        self.lock().is_some()
    }

    fn interrupt(&self) {
        if let Some(reply) = self.take() {
            reply.fail(Errno::EINTR);
        }
    }
}

/// Those who wait.
#[derive(Default)]
pub(crate) struct Watch {
    waiters: Mutex<Vec<Entry>>,
    has_come: Notify,
}

struct Entry {
    pid: u32,
    /// When it came, or was looked at.
    since: Instant,
    waiter: Box<dyn Waiter>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the thread `pid`, if its request is not answered yet.
    pub(crate) fn add<R: Reply>(&self, pid: u32, slot: Slot<R>) {
        // The kernel's own, or one of another pid namespace.
        if pid == 0 || !slot.is_waiting() {
            return;
        }
        let mut waiters = self.lock();
        waiters.push(Entry { pid, since: Instant::now(), waiter: Box::new(slot) });
        if waiters.len() == 1 {
            self.has_come.notify_one();
        }
    }

    /// Looks at them, as long as there is a watch.
    pub(crate) async fn run(watch: Weak<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(watch) = watch.upgrade() else { return };
            watch.look();
            let is_empty = watch.lock().is_empty();
            if is_empty {
                // One that came meanwhile has left a permit.
                watch.has_come.notified().await;
            }
        }
    }

    fn look(&self) {
        let now = Instant::now();
        let mut pids = Vec::new();
        self.lock().retain_mut(|entry| {
            if now.saturating_duration_since(entry.since) >= PATIENCE {
                entry.since = now;
                pids.push(entry.pid);
            }
            entry.waiter.is_waiting()
        });
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| is_to_end(*pid));
        if pids.is_empty() {
            return;
        }
        let killed: Vec<_> = self.lock().extract_if(.., |entry| pids.contains(&entry.pid)).collect();
        killed.iter().for_each(|entry| entry.waiter.interrupt());
    }
}

/// Whether a thread is told to end, or has ended.
fn is_to_end(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    match Process::new(pid).and_then(|process| process.status()) {
        Ok(status) => {
            let pending = (status.sigpnd | status.shdpnd) & !status.sigblk & !status.sigign;
            ENDING.iter().any(|signal| pending & 1 << (signal - 1) != 0)
        }
        // Another user's may be hidden in /proc; this is not deceived.
        Err(_) => kill(Pid::from_raw(pid), None) == Err(nix::errno::Errno::ESRCH),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::is_to_end;

    #[test]
    fn tells_the_living_from_the_dead() {
        assert!(!is_to_end(std::process::id()) && !is_to_end(1));
        let mut child = Command::new("true").spawn().expect("a child");
        let pid = child.id();
        child.wait().expect("its end");
        assert!(is_to_end(pid));
    }
}
