//! Keeps connections open while nothing is asked.
//!
//! Every five seconds the CRT destroys each host's connections if no request to the host is under way
//! in that moment (`s_s3_endpoints_cleanup_task` in its source), so a job that reads in bursts would
//! pay for handshakes in each. It has no setting for this. A request of ours therefore stays under way:
//! it asks the pool for its buffer, as each does before it is sent, and the pool makes it wait. It takes
//! no connection and sends nothing.
//!
//! It ends when nothing was asked for [`IDLE`], so that connections which a firewall has forgotten
//! meanwhile are not used again; the next request begins another. A thread of ours watches for that. A
//! timer of the CRT can't be taken back, and would delay the exit of a process that drops its client.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
/// Connections are let go of after this time without a request. Steps of training jobs take seconds;
/// firewalls and NAT forget connections after some minutes.
const IDLE: Duration = Duration::from_secs(60);

/// The id under which the request that stays asks for its buffer. Others have ids from 1.
pub(crate) const ID: u64 = 0;

/// Whether connections are kept, and for how long yet.
#[derive(Debug)]
pub(crate) struct Warm {
    started: Instant,
    /// Milliseconds from `started` to the last request.
    used: AtomicU64,
    is_kept: AtomicBool,
    ends: Mutex<Ends>,
}

/// What ends the keeping.
#[derive(Debug, Default)]
struct Ends {
    /// The request that stays waits for this.
    idle: Option<oneshot::Receiver<()>>,
    /// The thread that watches ends when this is dropped.
    client: Option<mpsc::Sender<()>>,
}

impl Warm {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            used: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
            ends: Mutex::default(),
        })
    }

    fn set<R>(&self, change: impl FnOnce(&mut Ends) -> R) -> R {
        change(&mut self.ends.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long ago the last request was.
    fn idle(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.used.load(Ordering::Relaxed)))
    }

    /// Something is asked. Whether the request that keeps the connections has to be begun.
    pub(crate) fn touch(&self) -> bool {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
        !self.is_kept.load(Ordering::Relaxed) && !self.is_kept.swap(true, Ordering::Relaxed)
    }

    /// Starts the thread that watches.
    pub(crate) fn watch(self: &Arc<Self>) -> io::Result<()> {
        let ((client, over), (end, idle)) = (mpsc::channel::<()>(), oneshot::channel::<()>());
        self.set(|ends| *ends = Ends { idle: Some(idle), client: Some(client) });
        let warm = self.clone();
        let watch = move || {
            while let Some(left) = IDLE.checked_sub(warm.idle())
                && over.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
            {}
            warm.is_kept.store(false, Ordering::Relaxed);
            drop(end);
        };
        std::thread::Builder::new().name("warm".to_owned()).spawn(watch).map(drop)
    }

    /// Ends the keeping: the client is dropped.
    pub(crate) fn end(&self) {
        self.set(|ends| ends.client = None);
    }

    /// Comes back when the connections shall be let go of. Called in the CRT's threads: it can't fail.
    pub(crate) async fn kept(&self) {
        if let Some(idle) = self.set(|ends| ends.idle.take()) {
            // Nothing is ever sent: it ends when the other side is dropped.
            let _ = idle.await;
        }
    }
}
