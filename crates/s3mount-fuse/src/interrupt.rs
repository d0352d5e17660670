//! Answers callers that are killed while their requests wait for the store.
//!
//! fuser answers ENOSYS to FUSE_INTERRUPT, and the kernel then stops sending it. A caller that is killed
//! while the daemon has its request would stay in state D until the answer comes. So the monitor looks at
//! the threads of requests that wait. It answers EINTR at once to a thread that has ended, or has a signal
//! pending that is to end it.
//!
//! The kernel numbers threads as the pid namespace of the process that has mounted does. Where another process
//! has mounted, its numbers may stand for nobody here, or for somebody else. So there the monitor believes only
//! what it has seen (decision 51).
//!
//! When a task panics, its reply is dropped, and fuser answers EIO. The monitor therefore holds replies
//! weakly. A request that has no answer a margin after the time-out of reads is answered with EIO, whoever
//! holds its reply.

mod thread;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fuser::{Errno, Request};
use s3mount_fs::Caller;
use tokio::time::Instant;

use self::thread::{End, Thread, look};

/// How often the monitor looks which requests still wait.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a request waits before the monitor looks at its thread, and between two looks. A killed `cat` is
/// gone before its user wonders. Requests that wait for one GET at S3's usual latency are never looked at.
const PATIENCE: Duration = Duration::from_millis(100);

/// How many threads the monitor looks at in one poll: those first that it has not looked at for longest. A look
/// takes some 60 us, so all looks together take less than 4 % of a processor. 64 callers are each looked at every
/// 100 ms, and 1,000 every 1.6 s.
const MOST_LOOKS: usize = 32;

/// How long after the time-out of reads a request counts as lost. Every other request has its answer by the
/// time-out.
const MARGIN: Duration = Duration::from_secs(10);

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

/// Counts the replies that are shared. Each request without an answer has one.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Arc<()>);

impl Unanswered {
    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// The reply to one request, shared by the task that answers it and the monitor. The first to take it
/// answers. Each drops it after that.
pub(crate) struct SharedReply<R>(Arc<OneReply<R>>);

struct OneReply<R> {
    reply: Mutex<Option<R>>,
    /// After the reply: where that is dropped, fuser answers.
    _counted: Arc<()>,
}

impl<R> Clone for SharedReply<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Reply> SharedReply<R> {
    pub(crate) fn new(reply: R, unanswered: &Unanswered) -> Self {
        Self(Arc::new(OneReply { reply: Mutex::new(Some(reply)), _counted: unanswered.0.clone() }))
    }

    fn lock(&self) -> MutexGuard<'_, Option<R>> {
        self.0.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether the request has no answer yet.
    pub(crate) fn is_waiting(&self) -> impl Fn() -> bool + Send + Sync + use<R> {
        let reply = Arc::downgrade(&self.0);
        move || reply.is_waiting()
    }

    /// The reply, if the request has no answer yet. Who takes it answers at once, because the monitor cannot.
    pub(crate) fn take(&self) -> Option<R> {
        self.lock().take()
    }

    /// Adds to the reply, if the request has no answer yet.
    pub(crate) fn add<T>(&self, add: impl FnOnce(&mut R) -> T) -> Option<T> {
        self.lock().as_mut().map(add)
    }
}

/// A request that waits for its answer.
trait Waiting: Send {
    fn is_waiting(&self) -> bool;
    fn fail(&self, errno: Errno);
}

impl<R: Reply> Waiting for Weak<OneReply<R>> {
    fn is_waiting(&self) -> bool {
        self.upgrade().is_some_and(|reply| SharedReply(reply).lock().is_some())
    }

    fn fail(&self, errno: Errno) {
        let Some(shared) = self.upgrade().map(SharedReply) else { return };
        if let Some(reply) = shared.take() {
            reply.fail(errno);
        }
    }
}

/// What a request is to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    /// Its caller waits for it.
    Ask,
    /// A READ. The kernel also reads ahead, for nobody who waits.
    Read,
    /// It changes something. Its caller may think that an interrupted request has changed nothing, so only a caller
    /// that is killed gets such an answer. It may take long: each of its requests to the store has a deadline of
    /// its own.
    Change,
}

/// The requests that wait, and the threads that have sent them.
pub(crate) struct InterruptMonitor {
    requests: Mutex<Vec<Entry>>,
    has_come: SyncSender<()>,
    /// How long a request may wait before it is answered with EIO.
    limit: Duration,
    /// Whether another process has mounted.
    is_passed: bool,
    /// Whether the kernel numbers threads otherwise than this process.
    is_foreign: AtomicBool,
    /// Whether it was told that some callers are not seen.
    was_told: AtomicBool,
    look: fn(u32) -> Thread,
}

struct Entry {
    /// The thread that has sent the request. 0 stands for a thread of the kernel, and for one that the mounter's
    /// pid namespace does not have.
    pid: u32,
    uid: u32,
    came: Instant,
    /// When the request came, or when the monitor last looked at its thread.
    checked: Instant,
    /// Whether the thread was seen alive since the request came.
    was_seen: bool,
    kind: RequestKind,
    request: Box<dyn Waiting>,
}

impl InterruptMonitor {
    /// Starts a monitor of requests that are answered within `timeout`. `is_passed` says that another process has
    /// mounted.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(crate) fn start(timeout: Duration, is_passed: bool) -> io::Result<Arc<Self>> {
        let (monitor, come) = Self::new(timeout, is_passed, look);
        let monitor = Arc::new(monitor);
        let watched = Arc::downgrade(&monitor);
        let thread = std::thread::Builder::new().name("interrupts".to_owned());
        thread.spawn(move || watch(&watched, &come))?;
        Ok(monitor)
    }

    fn new(timeout: Duration, is_passed: bool, look: fn(u32) -> Thread) -> (Self, Receiver<()>) {
        let (has_come, come) = sync_channel(1);
        let monitor = Self {
            requests: Mutex::default(),
            has_come,
            limit: timeout.saturating_add(MARGIN),
            is_passed,
            is_foreign: AtomicBool::new(false),
            was_told: AtomicBool::new(false),
            look,
        };
        (monitor, come)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Monitors a request that asks for something, if it has no answer yet.
    pub(crate) fn add<R: Reply>(&self, req: &Request, reply: &SharedReply<R>) {
        self.add_as(RequestKind::Ask, (req.pid(), req.uid()), reply);
    }

    /// Monitors a READ, if it has no answer yet.
    pub(crate) fn add_read<R: Reply>(&self, req: &Request, reply: &SharedReply<R>) {
        self.add_as(RequestKind::Read, (req.pid(), req.uid()), reply);
    }

    /// Monitors a request that changes something, if it has no answer yet.
    pub(crate) fn add_change<R: Reply>(&self, req: &Request, reply: &SharedReply<R>) {
        self.add_as(RequestKind::Change, (req.pid(), req.uid()), reply);
    }

    fn add_as<R: Reply>(&self, kind: RequestKind, (pid, uid): (u32, u32), reply: &SharedReply<R>) {
        if reply.lock().is_none() {
            return;
        }
        let (now, request) = (Instant::now(), Box::new(Arc::downgrade(&reply.0)));
        let mut requests = self.lock();
        requests.push(Entry { pid, uid, came: now, checked: now, was_seen: false, kind, request });
        if requests.len() == 1 {
            // If it is full, the monitor knows already.
            let _ = self.has_come.try_send(());
        }
    }

    /// The threads whose requests have no answer yet.
    pub(crate) fn callers(&self) -> Vec<Caller> {
        let requests = self.lock();
        let waiting = requests.iter().filter(|entry| entry.request.is_waiting());
        waiting.map(|entry| Caller { pid: entry.pid, waits: entry.came.elapsed() }).collect()
    }

    /// The number by which /proc knows the thread of a request. 0 if it does not.
    pub(crate) fn thread_of(&self, req: &Request) -> u32 {
        if self.is_foreign.load(Ordering::Relaxed) { 0 } else { req.pid() }
    }

    /// Answers the requests of threads that are to end, and those that are lost. Returns whether some were to end.
    fn check(&self, now: Instant) -> bool {
        let due = self.due(now);
        let threads: HashMap<u32, Thread> = due.into_iter().map(|pid| (pid, (self.look)(pid))).collect();
        let is_overdue = |entry: &mut Entry| {
            entry.kind != RequestKind::Change && now.saturating_duration_since(entry.came) >= self.limit
        };
        let overdue: Vec<_> = self.lock().extract_if(.., is_overdue).collect();
        for entry in overdue {
            tracing::error!(pid = entry.pid, after = ?self.limit, "a request has no answer: it fails with EIO");
            entry.request.fail(Errno::EIO);
        }
        let is_to_end = |entry: &mut Entry| {
            let thread = threads.get(&entry.pid).copied();
            thread.is_some_and(|thread| self.is_to_end(entry, thread))
        };
        let ended: Vec<_> = self.lock().extract_if(.., is_to_end).collect();
        ended.iter().for_each(|entry| entry.request.fail(Errno::EINTR));
        !ended.is_empty()
    }

    /// Drops the requests that have an answer, and returns the threads that are looked at now.
    fn due(&self, now: Instant) -> Vec<u32> {
        let mut requests = self.lock();
        requests.retain(|entry| entry.request.is_waiting());
        let is_due = |entry: &Entry| now.saturating_duration_since(entry.checked) >= PATIENCE;
        if requests.iter().any(|entry| entry.pid == 0 && entry.kind == RequestKind::Ask && is_due(entry)) {
            self.tell();
        }
        if self.is_foreign.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let waiting = requests.iter().filter(|entry| entry.pid != 0 && is_due(entry));
        let mut waiting: Vec<_> = waiting.map(|entry| (entry.checked, entry.pid)).collect();
        waiting.sort_unstable();
        let mut due = Vec::new();
        for (_, pid) in waiting {
            if due.len() < MOST_LOOKS && !due.contains(&pid) {
                due.push(pid);
            }
        }
        requests.iter_mut().filter(|entry| due.contains(&entry.pid)).for_each(|entry| entry.checked = now);
        due
    }

    /// Whether the thread that has sent a request is to end. `thread` is the one that has its number.
    fn is_to_end(&self, entry: &mut Entry, thread: Thread) -> bool {
        match thread {
            Thread::Alive { uid, is_own, .. } if self.is_passed && (is_own || uid != entry.uid) => false,
            Thread::Alive { end, .. } => {
                entry.was_seen = true;
                match end {
                    Some(End::Killed) => true,
                    Some(End::Asked) => entry.kind != RequestKind::Change,
                    None => false,
                }
            }
            Thread::Hidden => false,
            Thread::Absent if entry.was_seen || !self.is_passed => true,
            Thread::Absent => {
                // Who waits is there.
                if entry.kind == RequestKind::Ask && entry.request.is_waiting() {
                    self.is_foreign.store(true, Ordering::Relaxed);
                    self.tell();
                }
                false
            }
        }
    }

    /// Tells once that some callers are not seen.
    fn tell(&self) {
        if !self.was_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "programs of another pid namespace use this mount: one that is killed while it waits for the store \
                 ends when the store answers; start s3mount, and what mounts for it, in the pid namespace of the \
                 machine (Kubernetes: hostPID)"
            );
        }
    }
}

/// Checks the requests until the monitor is dropped.
fn watch(monitor: &Weak<InterruptMonitor>, come: &Receiver<()>) {
    // The monitor has the other end.
    while come.recv().is_ok() {
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let Some(monitor) = monitor.upgrade() else { return };
            // Many threads of one program may be to end at the same time.
            while monitor.check(Instant::now()) {}
            // A request that comes from now on wakes this thread again.
            if monitor.lock().is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
