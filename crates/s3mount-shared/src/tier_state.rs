//! The state that all requests to the tier share, and what they learn from its answers.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use s3mount_bucket::{Backoff, Bucket, WritableBucket};
use s3mount_memory::BufferPool;
use s3mount_object::{Breaker, Change, ErrorKind, Fault, ObjectError, ObjectId, Rule};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::SharedConfig;
use crate::block::{Block, Version};
use crate::books::Books;
use crate::holders::{Holder, Holders};
use crate::metrics::{PutOutcome, SharedMetrics};
use crate::patience::Patience;

/// How many MiB GETs to the tier may bring at once: 16 blocks, or 128 small pieces. A store that answers within
/// milliseconds fills any link with these. With more, each of them would take longer, and look like a store
/// that hangs.
const MOST_IN_FLIGHT_MIB: usize = 128;

/// Blocks that are fetched behind random reads at once. They use connections to the source that readers may
/// need.
const MOST_FILLS: usize = 2;

/// After this time, a mount that may not write to the bucket tries again: permissions change.
const READ_ONLY: Duration = Duration::from_secs(600);

/// The most versions with wrong bytes that are remembered. A network with more errors is unusable.
const MOST_DISTRUSTED: usize = 100_000;

/// When the tier is left alone: when more than a third of the answers are bad.
const RULE: Rule = Rule { good: 0.5, first_rest: Duration::from_secs(5) };

/// Decides whether requests are sent, and how long they may take.
#[derive(Debug)]
pub(crate) struct Policy {
    /// For GETs and HEADs.
    pub(crate) reads: Breaker,
    /// For leases and blocks. A bucket that is full can still be read.
    pub(crate) writes: Breaker,
    pub(crate) patience: Patience,
    pub(crate) holders: Holders,
    /// The bucket is not written to before this time, because the store forbade it.
    read_only_until: Duration,
}

pub(crate) struct TierState {
    pub(crate) config: SharedConfig,
    /// Where the blocks are.
    pub(crate) blocks: WritableBucket,
    pub(crate) source: Bucket,
    /// What the leases of this mount say.
    pub(crate) holder: Holder,
    pub(crate) pool: BufferPool,
    pub(crate) runtime: Handle,
    /// The MiB that GETs may still bring.
    pub(crate) in_flight: Semaphore,
    pub(crate) fills: Arc<Semaphore>,
    books: Mutex<Books>,
    policy: Mutex<Policy>,
    /// The start of the time that the policies see.
    started: Instant,
    /// Whether the store knows conditions on uploads.
    has_conditions: AtomicBool,
    said_read_only: AtomicBool,
    said_damaged: AtomicBool,
    pub(crate) metrics: Arc<SharedMetrics>,
}

impl fmt::Debug for TierState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTier").field("config", &self.config).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a request to the tier ended, if it brought nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    Error(ObjectError),
    /// There was no answer within this time.
    Silence(Duration),
}

impl Failure {
    /// Whether the store asks for fewer requests.
    pub(crate) fn is_throttled(&self) -> bool {
        matches!(self, Self::Error(error) if *error.kind() == ErrorKind::Throttled)
    }
}

/// Which requests a failure speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
}

impl TierState {
    pub(crate) fn new(
        config: SharedConfig,
        blocks: WritableBucket,
        source: Bucket,
        pool: BufferPool,
        runtime: Handle,
    ) -> Arc<Self> {
        let policy = Policy {
            reads: Breaker::new(RULE),
            writes: Breaker::new(RULE),
            patience: Patience::default(),
            holders: Holders::default(),
            read_only_until: Duration::ZERO,
        };
        Arc::new(Self {
            config,
            holder: Holder::new(blocks.random()),
            blocks,
            source,
            pool,
            runtime,
            in_flight: Semaphore::new(MOST_IN_FLIGHT_MIB),
            fills: Arc::new(Semaphore::new(MOST_FILLS)),
            books: Mutex::default(),
            policy: Mutex::new(policy),
            started: Instant::now(),
            has_conditions: AtomicBool::new(true),
            said_read_only: AtomicBool::new(false),
            said_damaged: AtomicBool::new(false),
            metrics: Arc::default(),
        })
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }

    pub(crate) fn policy(&self) -> MutexGuard<'_, Policy> {
        lock(&self.policy)
    }

    /// The time that the policies see.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn version(&self, object: &ObjectId) -> Version {
        Version::new(&self.config.source_endpoint, &self.config.source_bucket, object)
    }

    pub(crate) fn key(&self, block: &Block) -> String {
        block.key(&self.config.prefix)
    }

    /// Whether the store knows conditions, as far as is known.
    pub(crate) fn has_conditions(&self) -> bool {
        self.has_conditions.load(Ordering::Relaxed)
    }

    /// Notes that the store knows no conditions.
    pub(crate) fn forget_conditions(&self) {
        if self.has_conditions.swap(false, Ordering::Relaxed) {
            tracing::info!(
                "the shared cache knows no If-None-Match: machines may fetch the same block twice"
            );
        }
    }

    /// Whether a request may be sent now.
    pub(crate) fn admits(&self, kind: RequestKind) -> bool {
        let (now, mut policy) = (self.now(), self.policy());
        match kind {
            RequestKind::Read => policy.reads.admit(now),
            RequestKind::Write => policy.read_only_until <= now && policy.writes.admit(now),
        }
    }

    /// Whether blocks are worth keeping for an upload.
    pub(crate) fn is_writable(&self) -> bool {
        let (now, policy) = (self.now(), self.policy());
        // While reads rest, it is unknown which blocks are in the bucket.
        policy.read_only_until <= now && !policy.reads.rests() && policy.writes.would_admit(now)
    }

    /// The result of `attempt`, which may take `limit`. While the store asks for fewer requests, retries after pauses,
    /// for `patience` in all: an overloaded store does not fail, and the source would be overloaded next.
    pub(crate) async fn paced<T, F>(
        &self,
        limit: Duration,
        patience: Duration,
        attempt: impl Fn() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ObjectError>>,
    {
        let (until, mut backoff) = (self.now() + patience, self.blocks.backoff());
        loop {
            let failure = match timeout(limit, attempt()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => Failure::Error(error),
                Err(_) => Failure::Silence(limit),
            };
            if !failure.is_throttled() || !self.pauses(&mut backoff, until).await {
                return Err(failure);
            }
        }
    }

    /// Waits before a throttled request is sent again, unless that would be after `until`.
    pub(crate) async fn pauses(&self, backoff: &mut Backoff, until: Duration) -> bool {
        let pause = backoff.next_pause();
        let is_in_time = self.now() + pause <= until;
        if is_in_time {
            sleep(pause).await;
        }
        is_in_time
    }

    /// Notes a good answer to a request.
    pub(crate) fn on_good(&self, kind: RequestKind) {
        let now = self.now();
        let change = match kind {
            RequestKind::Read => self.policy().reads.on_good(now),
            RequestKind::Write => self.policy().writes.on_good(now),
        };
        if change == Change::Works {
            tracing::info!("the shared cache answers {} again", name(kind));
        }
    }

    /// Notes a failed request.
    pub(crate) fn on_failure(&self, kind: RequestKind, failure: &Failure) {
        match failure {
            Failure::Error(error) if kind == RequestKind::Write && *error.kind() == ErrorKind::Forbidden => {
                self.policy().read_only_until = self.now() + READ_ONLY;
                if !self.said_read_only.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        error = error as &dyn Error,
                        "there is no permission to write to the shared cache: it is only read"
                    );
                }
            }
            Failure::Error(error) => self.on_bad(kind, Fault::Error, &error),
            Failure::Silence(limit) => {
                self.on_bad(kind, Fault::Silence, &format!("no answer within {limit:?}"));
            }
        }
    }

    /// Notes a late answer.
    pub(crate) fn on_late(&self, kind: RequestKind, took: Duration) {
        self.on_bad(kind, Fault::Error, &format!("an answer took {took:?}"));
    }

    /// Notes that the store asked for fewer requests during the whole wait.
    pub(crate) fn on_throttled(&self, kind: RequestKind) {
        self.on_bad(kind, Fault::Error, &"it asks for fewer requests");
    }

    fn on_bad(&self, kind: RequestKind, fault: Fault, why: &dyn fmt::Display) {
        let now = self.now();
        let change = match kind {
            RequestKind::Read => self.policy().reads.on_bad(fault, now),
            RequestKind::Write => self.policy().writes.on_bad(fault, now),
        };
        match change {
            Change::Rests(rest) => {
                tracing::warn!(%why, ?rest, "the shared cache fails {}: it is left alone for a while", name(kind));
            }
            Change::RestsOn(rest) => tracing::debug!(%why, ?rest, "the shared cache still fails"),
            Change::None | Change::Works => tracing::debug!(%why, "a request to the shared cache failed"),
        }
    }

    /// A block does not match its checksums.
    pub(crate) fn on_damaged(&self, block: &Block) {
        self.books().notes.update(block, |note| note.is_damaged = true);
        if !self.said_damaged.swap(true, Ordering::Relaxed) {
            let key = self.key(block);
            tracing::warn!(
                key,
                "a block in the shared cache is damaged: it is fetched from the source again"
            );
        }
    }

    pub(crate) fn distrust(&self, object: &ObjectId) {
        let (version, mut books) = (self.version(object), self.books());
        if books.distrusted.len() < MOST_DISTRUSTED {
            books.distrusted.insert(version);
        }
        // The waiting blocks have come from the same place.
        let dropped = books.drop_version(&version);
        self.metrics.puts.at(PutOutcome::Dropped).add(dropped as u64);
    }

    /// Updates the gauges.
    pub(crate) fn refresh(&self) {
        self.metrics.held.set(self.held_bytes());
        self.metrics.resting.set(u64::from(self.policy().reads.rests()));
    }
}

fn name(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "reads",
        RequestKind::Write => "uploads",
    }
}
