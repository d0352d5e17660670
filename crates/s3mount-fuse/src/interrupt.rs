//! Answers callers that are killed while their requests wait for the store.
//!
//! fuser answers ENOSYS to FUSE_INTERRUPT, and the kernel then stops sending it. A caller that is killed
//! while the daemon has its request would stay in state D until the answer comes. So the monitor looks at
//! the threads of requests that wait. It answers EINTR at once to a thread that has ended, or has a signal
//! pending that is to end it.
//!
//! When a task panics, its reply is dropped, and fuser answers EIO. The monitor therefore holds replies
//! weakly. A request that has no answer a margin after the time-out of reads is answered with EIO, whoever
//! holds its reply.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fuser::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use procfs::process::Process;
use s3mount_fs::Caller;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often the monitor looks which requests still wait.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a request waits before the monitor looks at its thread, and between two looks. A killed `cat` is
/// gone before its user wonders. Requests that wait for one GET at S3's usual latency are never looked at.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long after the time-out of reads a request counts as lost. Every other request has its answer by the
/// time-out.
const MARGIN: Duration = Duration::from_secs(10);

/// Signals by which a user ends a program. The kernel turns a fatal one into SIGKILL. Where a program has a
/// handler, as `dd` and Python have for Ctrl-C, the handler cannot run before the request is answered.
/// Other signals, such as a profiler's, are no reason to fail a read.
const ENDING_SIGNALS: [i32; 5] = [libc::SIGKILL, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The kernel's mark of a thread that a signal ends (`PF_SIGNALED` in Linux's `sched.h`). The signal is not pending any
/// more, and no other one reaches the thread while it closes its files.
const ENDED_BY_SIGNAL: u32 = 0x400;

/// A reply that can carry an errno.
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

replies!(
    fuser::ReplyEntry,
    fuser::ReplyOpen,
    fuser::ReplyData,
    fuser::ReplyDirectory,
    fuser::ReplyDirectoryPlus,
    fuser::ReplyWrite,
    fuser::ReplyEmpty,
    fuser::ReplyAttr,
    fuser::ReplyCreate
);

/// The reply to one request, shared by the task that answers it and the monitor. The first to take it
/// answers.
pub(crate) struct SharedReply<R>(Arc<Mutex<Option<R>>>);

impl<R> Clone for SharedReply<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Reply> SharedReply<R> {
    pub(crate) fn new(reply: R) -> Self {
        Self(Arc::new(Mutex::new(Some(reply))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether the request has no answer yet.
    pub(crate) fn is_waiting(&self) -> impl Fn() -> bool + Send + Sync + use<R> {
        let reply = Arc::downgrade(&self.0);
        move || reply.is_waiting()
    }

    /// The reply, if the request has no answer yet.
    pub(crate) fn take(&self) -> Option<R> {
        self.lock().take()
    }
}

/// A request that waits for its answer.
trait Waiting: Send {
    fn is_waiting(&self) -> bool;
    fn fail(&self, errno: Errno);
}

impl<R: Reply> Waiting for Weak<Mutex<Option<R>>> {
    fn is_waiting(&self) -> bool {
        self.upgrade().is_some_and(|reply| SharedReply(reply).lock().is_some())
    }

    fn fail(&self, errno: Errno) {
        if let Some(reply) = self.upgrade().and_then(|reply| SharedReply(reply).take()) {
            reply.fail(errno);
        }
    }
}

/// The requests that wait, and the threads that have sent them.
pub(crate) struct InterruptMonitor {
    requests: Mutex<Vec<Entry>>,
    has_come: Notify,
    /// How long a request may wait before it is answered with EIO.
    limit: Duration,
}

struct Entry {
    /// The thread that has sent the request. 0 stands for a thread of the kernel, and for one of another pid
    /// namespace.
    pid: u32,
    came: Instant,
    /// When the request came, or when the monitor last looked at its thread.
    checked: Instant,
    /// Whether the request changes something. Its caller may think that an interrupted request has changed
    /// nothing, so only a caller that is killed gets such an answer.
    is_change: bool,
    request: Box<dyn Waiting>,
}

impl InterruptMonitor {
    /// A monitor of requests that are answered within `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        let limit = timeout.saturating_add(MARGIN);
        Self { requests: Mutex::default(), has_come: Notify::new(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Monitors the request of the thread `pid`, if it has no answer yet.
    pub(crate) fn add<R: Reply>(&self, pid: u32, reply: &SharedReply<R>) {
        self.add_as(pid, reply, false);
    }

    /// Monitors a request that changes something, if it has no answer yet. It may take long: each of its requests
    /// to the store has a deadline of its own.
    pub(crate) fn add_change<R: Reply>(&self, pid: u32, reply: &SharedReply<R>) {
        self.add_as(pid, reply, true);
    }

    fn add_as<R: Reply>(&self, pid: u32, reply: &SharedReply<R>, is_change: bool) {
        if reply.lock().is_none() {
            return;
        }
        let (now, request) = (Instant::now(), Box::new(Arc::downgrade(&reply.0)));
        let mut requests = self.lock();
        requests.push(Entry { pid, came: now, checked: now, is_change, request });
        if requests.len() == 1 {
            self.has_come.notify_one();
        }
    }

    /// The threads whose requests have no answer yet.
    pub(crate) fn callers(&self) -> Vec<Caller> {
        let requests = self.lock();
        let waiting = requests.iter().filter(|entry| entry.request.is_waiting());
        waiting.map(|entry| Caller { pid: entry.pid, waits: entry.came.elapsed() }).collect()
    }

    /// Checks the requests until the monitor is dropped.
    pub(crate) async fn run(monitor: Weak<Self>) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Some(monitor) = monitor.upgrade() else { return };
            monitor.check();
            let is_empty = monitor.lock().is_empty();
            if is_empty {
                // A request that came meanwhile has left a permit.
                monitor.has_come.notified().await;
            }
        }
    }

    /// Answers the requests of threads that are to end, and those that are lost.
    fn check(&self) {
        let now = Instant::now();
        let mut pids = Vec::new();
        self.lock().retain_mut(|entry| {
            if now.saturating_duration_since(entry.checked) >= PATIENCE {
                entry.checked = now;
                pids.push((entry.pid, entry.is_change));
            }
            entry.request.is_waiting()
        });
        let is_overdue =
            |entry: &mut Entry| !entry.is_change && now.saturating_duration_since(entry.came) >= self.limit;
        let overdue: Vec<_> = self.lock().extract_if(.., is_overdue).collect();
        for entry in overdue {
            tracing::error!(pid = entry.pid, after = ?self.limit, "a request has no answer: it fails with EIO");
            entry.request.fail(Errno::EIO);
        }
        pids.retain(|(pid, _)| *pid != 0);
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|(pid, is_change)| {
            is_to_end(*pid, if *is_change { &[libc::SIGKILL] } else { &ENDING_SIGNALS })
        });
        if pids.is_empty() {
            return;
        }
        let killed: Vec<_> =
            self.lock().extract_if(.., |entry| pids.contains(&(entry.pid, entry.is_change))).collect();
        killed.iter().for_each(|entry| entry.request.fail(Errno::EINTR));
    }
}

/// Whether one of these signals is pending, or the thread has ended, or is ending by a signal.
fn is_to_end(pid: u32, signals: &[i32]) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    let looked = Process::new(pid).and_then(|process| Ok((process.status()?, process.stat()?)));
    match looked {
        Ok((status, stat)) => {
            let pending = (status.sigpnd | status.shdpnd) & !status.sigblk & !status.sigign;
            signals.iter().any(|signal| pending & 1 << (signal - 1) != 0) || stat.flags & ENDED_BY_SIGNAL != 0
        }
        // /proc may hide another user's threads. kill(2) does not.
        Err(_) => kill(Pid::from_raw(pid), None) == Err(nix::errno::Errno::ESRCH),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{ENDING_SIGNALS, is_to_end};

    #[test]
    fn tells_the_living_from_the_dead() {
        let is_to_end = |pid| is_to_end(pid, &ENDING_SIGNALS);
        assert!(!is_to_end(std::process::id()) && !is_to_end(1));
        let mut child = Command::new("true").spawn().expect("a child");
        let pid = child.id();
        child.wait().expect("its end");
        assert!(is_to_end(pid));
    }
}
