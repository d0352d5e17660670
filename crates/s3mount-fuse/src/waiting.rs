//! Callers that are killed while they wait for the store.
//!
//! fuser knows no FUSE_INTERRUPT: it answers ENOSYS, and the kernel stops sending it. A caller that
//! is killed while its request is with us then stays, in state D, until it is answered. So the ones
//! that wait are looked at, and who has a signal pending that is to end it, or is gone, is answered at
//! once.
//!
//! A reply that nobody can give any more, because a task has panicked, is dropped, and fuser answers EIO
//! for it. So the watch holds replies weakly. What is not answered by the time-out of reads and a margin
//! is answered with EIO, whoever holds it.

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

/// A request is answered by the time-out of reads, or not at all: what is not answered so much later was
/// lost.
const MARGIN: Duration = Duration::from_secs(10);

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
    fn fail(&self, errno: Errno);
}

impl<R: Reply> Waiter for Weak<Mutex<Option<R>>> {
    fn is_waiting(&self) -> bool {
        self.upgrade().is_some_and(|slot| Slot(slot).lock().is_some())
    }

    fn fail(&self, errno: Errno) {
        if let Some(reply) = self.upgrade().and_then(|slot| Slot(slot).take()) {
            reply.fail(errno);
        }
    }
}

/// Those who wait.
pub(crate) struct Watch {
    waiters: Mutex<Vec<Entry>>,
    has_come: Notify,
    /// Who has waited so long is answered with EIO.
    limit: Duration,
}

struct Entry {
    /// The caller's thread; 0 for the kernel's own, and for one of another pid namespace.
    pid: u32,
    came: Instant,
    /// When it came, or was looked at.
    since: Instant,
    waiter: Box<dyn Waiter>,
}

impl Watch {
    /// A watch over requests that are answered within `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        let limit = timeout.saturating_add(MARGIN);
        Self { waiters: Mutex::default(), has_come: Notify::new(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the thread `pid`, if its request is not answered yet.
    pub(crate) fn add<R: Reply>(&self, pid: u32, slot: &Slot<R>) {
        if slot.lock().is_none() {
            return;
        }
        let (now, waiter) = (Instant::now(), Box::new(Arc::downgrade(&slot.0)));
        let mut waiters = self.lock();
        waiters.push(Entry { pid, came: now, since: now, waiter });
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
        let is_overdue = |entry: &mut Entry| now.saturating_duration_since(entry.came) >= self.limit;
        let overdue: Vec<_> = self.lock().extract_if(.., is_overdue).collect();
        for entry in overdue {
            tracing::error!(pid = entry.pid, after = ?self.limit, "a request was not answered: it gets EIO");
            entry.waiter.fail(Errno::EIO);
        }
        pids.retain(|pid| *pid != 0);
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| is_to_end(*pid));
        if pids.is_empty() {
            return;
        }
        let killed: Vec<_> = self.lock().extract_if(.., |entry| pids.contains(&entry.pid)).collect();
        killed.iter().for_each(|entry| entry.waiter.fail(Errno::EINTR));
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
