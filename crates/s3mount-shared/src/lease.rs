//! Leases: by which one mount promises a block to the others, and how long they wait for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3mount_object::{ErrorKind, PutAnswer, PutObject, UserMetadata};
use tokio::time::{sleep, timeout};

use crate::block::Block;
use crate::inner::{Failure, Inner, Kind};
use crate::metrics::LeaseOutcome;

/// The bytes of a lease, for people who look into the bucket.
const TEXT: &[u8] =
    b"A machine fetches this block for all. The lifecycle rule of the bucket removes this object.\n";

/// The first pause between two looks for a block that another mount has promised. It takes a request to the
/// source and one to the tier until the block is there.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Keeps room in the queue of uploads for a block that this mount has promised to the others. Dropping it
/// gives the room back.
pub struct Lease {
    inner: Arc<Inner>,
    bytes: u64,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.inner.books().promised_bytes -= self.bytes;
    }
}

/// Who fetches a block from the source.
#[derive(Debug)]
pub(crate) enum Claim {
    /// This mount, and the others wait for it.
    Held(Lease),
    /// This mount, and nobody waits: there are no leases, or no room to keep the promise.
    Free,
    /// Another mount, which is waited for.
    Taken,
}

impl Inner {
    /// Finds out who fetches a block that is not in the tier.
    pub(crate) async fn claim(self: &Arc<Self>, block: &Block) -> Claim {
        if !self.has_conditions() || !self.is_writable() {
            return Claim::Free;
        }
        let (lease, is_ours) = self.keep_room(block);
        let Some(lease) = lease else {
            // This mount can promise nothing, and another one may have promised the block.
            let is_taken = !is_ours && self.has_lease(block).await;
            return if is_taken { Claim::Taken } else { Claim::Free };
        };
        if is_ours {
            return Claim::Held(lease);
        }
        if !self.admits(Kind::Write) {
            return Claim::Free;
        }
        let outcome = self.put_lease(block).await;
        self.metrics.leases.at(outcome).inc();
        match outcome {
            LeaseOutcome::Held => {
                self.books().notes.update(block, |note| note.is_promised = true);
                Claim::Held(lease)
            }
            LeaseOutcome::Taken => Claim::Taken,
            LeaseOutcome::Failed => Claim::Free,
        }
    }

    /// Keeps room for a block, if there is any. Also returns whether the block needs no lease, because this
    /// mount has it, or has waited for the mount that has it.
    fn keep_room(self: &Arc<Self>, block: &Block) -> (Option<Lease>, bool) {
        let mut books = self.books();
        let is_ours = books.notes.get(block).is_ours();
        if books.has_room(block.len(), self.config.queue_bytes) {
            books.promised_bytes += block.len();
            return (Some(Lease { inner: self.clone(), bytes: block.len() }), is_ours);
        }
        // A promise that can't be kept is none, and nobody here waits for it.
        books.notes.update(block, |note| {
            (note.is_promised, note.is_overdue) = (false, note.is_overdue || note.is_promised);
        });
        (None, is_ours)
    }

    /// Whether some mount has promised the block.
    async fn has_lease(&self, block: &Block) -> bool {
        let limit = self.policy().patience.get_limit(0);
        let key = block.lease_key(&self.config.prefix);
        self.admits(Kind::Read)
            && timeout(limit, self.blocks.head_once(&key)).await.is_ok_and(|head| head.is_ok())
    }

    async fn put_lease(&self, block: &Block) -> LeaseOutcome {
        let request = PutObject {
            key: block.lease_key(&self.config.prefix),
            bytes: Bytes::from_static(TEXT),
            metadata: UserMetadata::new(),
            only_new: true,
        };
        let limit = self.policy().patience.get_limit(0);
        match timeout(limit, self.blocks.put_once(request)).await {
            Ok(Ok(answer)) => {
                self.on_good(Kind::Write);
                match answer {
                    PutAnswer::Written => LeaseOutcome::Held,
                    PutAnswer::Exists => LeaseOutcome::Taken,
                }
            }
            Ok(Err(error)) if *error.kind() == ErrorKind::Unsupported => {
                self.forget_conditions();
                LeaseOutcome::Failed
            }
            Ok(Err(error)) => {
                self.on_failure(Kind::Write, &Failure::Error(error));
                LeaseOutcome::Failed
            }
            Err(_) => {
                self.on_failure(Kind::Write, &Failure::Silence(limit));
                LeaseOutcome::Failed
            }
        }
    }

    /// Waits until a block is there that another mount has promised. Returns whether it came in time.
    pub(crate) async fn wait_for(&self, block: &Block) -> bool {
        let (key, began) = (self.key(block), self.now());
        let limit = self.policy().patience.get_limit(0);
        let mut pause = FIRST_PAUSE;
        let came = loop {
            if !self.policy().patience.waits(began, self.now() + pause) {
                break false;
            }
            sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
            match timeout(limit, self.blocks.head_once(&key)).await {
                Ok(Ok(_)) => break true,
                Ok(Err(error)) if *error.kind() == ErrorKind::NotFound => {}
                Ok(Err(error)) => {
                    self.on_failure(Kind::Read, &Failure::Error(error));
                    break false;
                }
                Err(_) => {
                    self.on_failure(Kind::Read, &Failure::Silence(limit));
                    break false;
                }
            }
        };
        let now = self.now();
        self.metrics.wait_times.note_time(now.saturating_sub(began));
        if came {
            self.policy().patience.note_kept(began, now);
        } else {
            self.policy().patience.note_broken(began, now);
            self.books().notes.update(block, |note| note.is_overdue = true);
        }
        came
    }
}
