//! Keeps connections open while no request is sent.
//!
//! Every five seconds the CRT looks at each host. If no request to the host is under way at that moment, the
//! CRT destroys the connections to the host (`s_s3_endpoints_cleanup_task` in its source). So a job that
//! reads in bursts would pay for handshakes in each burst. The CRT has no setting for this. Therefore a
//! request of ours stays under way. Like every request, it asks the pool for its buffer before it is sent,
//! and the pool makes it wait. It takes no connection and sends nothing.
//!
//! This request ends when there was no other request for [`IDLE`], so that we do not use connections which a
//! firewall has forgotten meanwhile. The next request begins another one. A thread of ours watches the time.
//! A timer of the CRT can't be cancelled, so it would delay the exit of a process that drops its client.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
/// After this time without a request, connections are no longer kept. Steps of training jobs take seconds;
/// firewalls and NAT forget connections after some minutes.
const IDLE: Duration = Duration::from_secs(60);

/// Whether connections are kept, and when the last request was.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// The id under which the request that stays under way asks for its buffer.
    id: u64,
    started: Instant,
    /// The milliseconds from `started` to the last request.
    used: AtomicU64,
    is_kept: AtomicBool,
    ends: Mutex<Ends>,
}

/// The channels that end the keeping of connections.
#[derive(Debug, Default)]
struct Ends {
    /// The request that stays under way ends when the sender of this is dropped.
    idle: Option<oneshot::Receiver<()>>,
    /// The watching thread ends when this sender is dropped.
    client: Option<mpsc::Sender<()>>,
}

impl KeepAlive {
    /// Keeps the connections of a client by a request with this id.
    pub(crate) fn new(id: u64) -> Arc<Self> {
        Arc::new(Self {
            id,
            started: Instant::now(),
            used: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
            ends: Mutex::default(),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn set<R>(&self, change: impl FnOnce(&mut Ends) -> R) -> R {
        change(&mut self.ends.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The time since the last request.
    fn idle(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.used.load(Ordering::Relaxed)))
    }

    /// Notes a request. Returns whether the caller has to begin the request that stays under way.
    pub(crate) fn touch(&self) -> bool {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
        !self.is_kept.load(Ordering::Relaxed) && !self.is_kept.swap(true, Ordering::Relaxed)
    }

    /// Starts the thread that ends the keeping after [`IDLE`].
    pub(crate) fn watch(self: &Arc<Self>) -> io::Result<()> {
        let ((client, over), (end, idle)) = (mpsc::channel::<()>(), oneshot::channel::<()>());
        self.set(|ends| *ends = Ends { idle: Some(idle), client: Some(client) });
        let keep_alive = self.clone();
        let watch = move || {
            while let Some(left) = IDLE.checked_sub(keep_alive.idle())
                && over.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
            {}
            keep_alive.is_kept.store(false, Ordering::Relaxed);
            drop(end);
        };
        std::thread::Builder::new().name("warm".to_owned()).spawn(watch).map(drop)
    }

    /// Stops keeping connections, because the client is dropped.
    pub(crate) fn end(&self) {
        self.set(|ends| ends.client = None);
    }

    /// Waits until the connections need not be kept any more. Runs in the CRT's threads, so it can't fail.
    pub(crate) async fn kept(&self) {
        if let Some(idle) = self.set(|ends| ends.idle.take()) {
            // The sender sends nothing: this wait ends when the sender is dropped.
            let _ = idle.await;
        }
    }
}
