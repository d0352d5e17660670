//! Leases: a mount's promise to bring a block, and how long other mounts wait for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::{ByteRange, ErrorKind, PutAnswer, PutObject};
use tokio::time::{sleep, timeout};

use crate::block::Block;
use crate::holders::Holder;
use crate::metrics::LeaseOutcome;
use crate::patience::LIMIT_MOST;
use crate::tier_state::{Failure, RequestKind, TierState};

/// The bytes of a lease, for people who look into the bucket.
const TEXT: &[u8] =
    b"A machine fetches this block for all. The lifecycle rule of the bucket removes this object.\n";

/// The first pause between two looks for a block that another mount has promised. The block comes after a request to
/// the source and one to the tier.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The most mounts that promise a block in turn, each after the one before did not keep its promise. After that, no
/// mount waits.
const TURNS: u32 = 3;

/// Keeps room in the queue of uploads for a block that this mount has promised to the others. Dropping it
/// gives the room back.
pub struct Lease {
    tier: Arc<TierState>,
    bytes: u64,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.tier.books().promised_bytes -= self.bytes;
    }
}

/// A promise of another mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// 1 for the block's first lease. The next one is for a mount that has waited for this one in vain.
    turn: u32,
    /// The mount that made it, if known.
    holder: Option<Holder>,
}

/// Why the wait for a promised block has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The block is there.
    Kept,
    /// The time for the promise has run out.
    Broken,
    /// The tier failed. That tells nothing about the promising mount.
    Failed,
}

/// The mount that fetches a block from the source.
#[derive(Debug)]
pub(crate) enum Claim {
    /// This mount, and the others wait for it.
    Held(Lease),
    /// This mount, and no other waits: there are no leases, or no room to keep the promise.
    Free,
    /// Another mount, which is waited for.
    Taken(Promise),
}

impl TierState {
    /// Finds the mount that fetches a block that is not in the tier. `broken` is an earlier promise of it that was not
    /// kept.
    pub(crate) async fn claim(self: &Arc<Self>, block: &Block, broken: Option<Promise>) -> Claim {
        if !self.has_conditions() || !self.is_writable() {
            return Claim::Free;
        }
        for turn in broken.map_or(1, |broken| broken.turn + 1)..=TURNS {
            match self.claim_turn(block, turn).await {
                Claim::Taken(promise) if self.is_given_up(promise) => {}
                claim => return claim,
            }
        }
        self.books().notes.update(block, |note| note.is_overdue = true);
        Claim::Free
    }

    async fn claim_turn(self: &Arc<Self>, block: &Block, turn: u32) -> Claim {
        let (lease, is_ours) = self.keep_room(block);
        let Some(lease) = lease else {
            // This mount can promise nothing, and another one may have promised the block.
            let promise = if is_ours { None } else { self.promise(block, turn).await };
            return promise.map_or(Claim::Free, Claim::Taken);
        };
        if is_ours {
            return Claim::Held(lease);
        }
        let now = self.now();
        let looks_first = self.policy().holders.looks_first(now);
        if looks_first && let Some(promise) = self.promise(block, turn).await {
            return Claim::Taken(promise);
        }
        if !self.admits(RequestKind::Write) {
            return Claim::Free;
        }
        let outcome = self.put_lease(block, turn).await;
        self.metrics.leases.at(outcome).inc();
        self.policy().holders.note_lease(outcome == LeaseOutcome::Taken);
        match outcome {
            LeaseOutcome::Held => {
                self.books().notes.update(block, |note| note.is_promised = true);
                Claim::Held(lease)
            }
            LeaseOutcome::Taken => Claim::Taken(Promise { turn, holder: None }),
            LeaseOutcome::Failed => Claim::Free,
        }
    }

    /// Whether the promising mount is given up.
    fn is_given_up(&self, promise: Promise) -> bool {
        let now = self.now();
        promise.holder.is_some_and(|holder| self.policy().holders.is_given_up(holder, now))
    }

    /// Keeps room for a block, if there is any. Also returns whether the block needs no lease, because this
    /// mount has it, or has waited for the mount that has it.
    fn keep_room(self: &Arc<Self>, block: &Block) -> (Option<Lease>, bool) {
        let mut books = self.books();
        let is_ours = books.notes.get(block).is_ours();
        if books.has_room(block.len(), self.config.queue_bytes) {
            books.promised_bytes += block.len();
            return (Some(Lease { tier: self.clone(), bytes: block.len() }), is_ours);
        }
        // A promise that can't be kept counts as none, and no read here waits for it.
        books.notes.update(block, |note| {
            (note.is_promised, note.is_overdue) = (false, note.is_overdue || note.is_promised);
        });
        (None, is_ours)
    }

    /// The promise of the block, if some mount has made it.
    async fn promise(&self, block: &Block, turn: u32) -> Option<Promise> {
        if !self.admits(RequestKind::Read) {
            return None;
        }
        let limit = self.policy().patience.get_limit(0);
        let key = block.lease_key(&self.config.prefix, turn);
        // Its metadata comes with any byte of it.
        let get = || self.blocks.get_latest_once(&key, ByteRange::new(0, 1), Box::new([0]));
        let lease = self.paced(limit, LIMIT_MOST, get).await.ok()?;
        Some(Promise { turn, holder: Holder::from_metadata(&lease.metadata) })
    }

    async fn put_lease(&self, block: &Block, turn: u32) -> LeaseOutcome {
        let request = PutObject {
            key: block.lease_key(&self.config.prefix, turn),
            bytes: Bytes::from_static(TEXT),
            metadata: self.holder.to_metadata(),
            only_new: true,
        };
        let limit = self.policy().patience.get_limit(0);
        match self.paced(limit, LIMIT_MOST, || self.blocks.put_once(request.clone())).await {
            Ok(answer) => {
                self.on_good(RequestKind::Write);
                match answer {
                    PutAnswer::Written => LeaseOutcome::Held,
                    PutAnswer::Exists => LeaseOutcome::Taken,
                }
            }
            Err(Failure::Error(error)) if *error.kind() == ErrorKind::Unsupported => {
                self.forget_conditions();
                LeaseOutcome::Failed
            }
            Err(failure) => {
                self.on_failure(RequestKind::Write, &failure);
                LeaseOutcome::Failed
            }
        }
    }

    /// Waits until a block that another mount has promised is there. Gives up a mount that does not keep its promise.
    pub(crate) async fn wait_for(&self, block: &Block, promise: Promise) -> Ended {
        let (key, began) = (self.key(block), self.now());
        let ended = self.wait_until_there(&key, began).await;
        let now = self.now();
        self.metrics.wait_times.note_time(now.saturating_sub(began));
        match ended {
            Ended::Kept => self.policy().patience.note_kept(began, now),
            Ended::Broken => {
                self.policy().patience.note_broken(began, now);
                self.give_up(block, promise).await;
            }
            Ended::Failed => {}
        }
        ended
    }

    async fn wait_until_there(&self, key: &str, began: Duration) -> Ended {
        let limit = self.policy().patience.get_limit(0);
        let mut pause = FIRST_PAUSE;
        loop {
            if !self.policy().patience.waits(began, self.now() + pause) {
                return Ended::Broken;
            }
            sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
            let failure = match timeout(limit, self.blocks.head_once(key)).await {
                Ok(Ok(_)) => return Ended::Kept,
                Ok(Err(error)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Throttled) => {
                    continue;
                }
                Ok(Err(error)) => Failure::Error(error),
                Err(_) => Failure::Silence(limit),
            };
            self.on_failure(RequestKind::Read, &failure);
            return Ended::Failed;
        }
    }

    async fn give_up(&self, block: &Block, promise: Promise) {
        let holder = match promise.holder {
            Some(holder) => Some(holder),
            None => self.promise(block, promise.turn).await.and_then(|promise| promise.holder),
        };
        if let Some(holder) = holder {
            let now = self.now();
            self.policy().holders.give_up(holder, now);
        }
    }
}
