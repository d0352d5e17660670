use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fuser::Errno;
use tokio::time::Instant;

use super::thread::{End, Thread};
use super::{
    InterruptMonitor, MOST_LOOKS, PATIENCE, POLL_INTERVAL, Reply, RequestKind, SharedReply, Unanswered,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The user who sends all requests.
const USER: u32 = 7;

/// A reply that notes its errno.
struct Noted(Arc<Mutex<Option<Errno>>>);

impl Reply for Noted {
    fn fail(self, errno: Errno) {
        *self.0.lock().expect("no panic") = Some(errno);
    }
}

/// A request that waits, and the errno that it gets.
struct Request(SharedReply<Noted>, Arc<Mutex<Option<Errno>>>);

impl Request {
    fn new(monitor: &InterruptMonitor, kind: RequestKind, pid: u32) -> Self {
        let errno = Arc::<Mutex<Option<Errno>>>::default();
        let reply = SharedReply::new(Noted(errno.clone()), &Unanswered::default());
        monitor.add_as(kind, (pid, USER), &reply);
        Self(reply, errno)
    }

    /// The code of its errno, or 0 if it waits.
    fn code(&self) -> i32 {
        assert_eq!(self.0.is_waiting()(), self.1.lock().expect("no panic").is_none());
        self.1.lock().expect("no panic").as_ref().map_or(0, |errno| errno.code())
    }
}

fn alive(uid: u32, end: Option<End>) -> Thread {
    Thread::Alive { uid, is_own: false, end }
}

#[test]
fn many_callers_are_looked_at_in_turn() {
    static SEEN: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let look = |pid| {
        SEEN.lock().expect("no panic").push(pid);
        alive(USER, None)
    };
    let (monitor, _come) = InterruptMonitor::new(TIMEOUT, false, look);
    let requests: Vec<_> = (1..=1000).map(|pid| Request::new(&monitor, RequestKind::Read, pid)).collect();
    let (start, polls) = (Instant::now() + PATIENCE, 1000_usize.div_ceil(MOST_LOOKS));
    for poll in 0..u32::try_from(polls).expect("few") {
        assert!(!monitor.check(start + poll * POLL_INTERVAL));
    }
    let seen = SEEN.lock().expect("no panic");
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (polls * MOST_LOOKS, 1000));
    assert!(requests.iter().all(|request| request.code() == 0));
}

#[test]
fn who_is_killed_is_let_go_and_who_changes_something_only_then() {
    let look = |pid| match pid {
        1 => alive(USER, Some(End::Asked)),
        2 => alive(USER, Some(End::Killed)),
        3 => alive(USER, None),
        4 => Thread::Hidden,
        _ => Thread::Absent,
    };
    for is_passed in [false, true] {
        let (monitor, _come) = InterruptMonitor::new(TIMEOUT, is_passed, look);
        let codes = |kind| {
            let requests = [1, 2, 3, 4].map(|pid| Request::new(&monitor, kind, pid));
            monitor.check(Instant::now() + PATIENCE);
            requests.map(|request| request.code())
        };
        assert_eq!(codes(RequestKind::Ask), [libc::EINTR, libc::EINTR, 0, 0]);
        assert_eq!(codes(RequestKind::Read), [libc::EINTR, libc::EINTR, 0, 0]);
        assert_eq!(codes(RequestKind::Change), [0, libc::EINTR, 0, 0]);
    }
}

/// A number that stands for nobody may be one of another pid namespace, where its thread lives. So may one that
/// stands for another user's thread, or for one of the daemon.
#[test]
fn a_passed_mount_believes_what_it_has_seen() {
    static ROUND: AtomicUsize = AtomicUsize::new(0);
    let look = |pid| match (pid, ROUND.load(Ordering::Relaxed)) {
        (1, 0) => alive(USER, None),
        (2, 0) => alive(USER + 1, None),
        (3, _) => alive(USER + 1, Some(End::Killed)),
        (4, _) => Thread::Alive { uid: USER, is_own: true, end: Some(End::Killed) },
        _ => Thread::Absent,
    };
    let codes = |is_passed| {
        ROUND.store(0, Ordering::Relaxed);
        let (monitor, _come) = InterruptMonitor::new(TIMEOUT, is_passed, look);
        let requests = [1, 2, 3, 4, 5].map(|pid| Request::new(&monitor, RequestKind::Read, pid));
        monitor.check(Instant::now() + PATIENCE);
        ROUND.store(1, Ordering::Relaxed);
        monitor.check(Instant::now() + 2 * PATIENCE);
        requests.map(|request| request.code())
    };
    assert_eq!(codes(false), [libc::EINTR; 5], "its own numbers");
    assert_eq!(codes(true), [libc::EINTR, 0, 0, 0, 0]);
}

#[test]
fn nobody_is_looked_at_once_a_caller_who_waits_is_nobody() {
    static LOOKS: AtomicUsize = AtomicUsize::new(0);
    let look = |_| {
        LOOKS.fetch_add(1, Ordering::Relaxed);
        Thread::Absent
    };
    let (monitor, _come) = InterruptMonitor::new(TIMEOUT, true, look);
    // The kernel reads ahead for a program that may have ended.
    let ahead = Request::new(&monitor, RequestKind::Read, 1);
    for round in 1..4 {
        monitor.check(Instant::now() + round * PATIENCE);
    }
    assert_eq!(LOOKS.load(Ordering::Relaxed), 3);
    let asked = Request::new(&monitor, RequestKind::Ask, 2);
    for round in 5..10 {
        monitor.check(Instant::now() + round * PATIENCE);
    }
    assert_eq!(LOOKS.load(Ordering::Relaxed), 5);
    assert_eq!((ahead.code(), asked.code()), (0, 0));
    monitor.check(Instant::now() + 2 * TIMEOUT);
    assert_eq!((ahead.code(), asked.code()), (libc::EIO, libc::EIO), "they are lost");
}
