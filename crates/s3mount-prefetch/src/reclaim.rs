//! Reclaim: which reader gives memory back, for readers that wait for it.
//!
//! These are the books of it: `reader/reclaim.rs` has the readers give. Memory is given at once when a read
//! queues for a buffer, for all that queue together, and again whenever a GET lands while any wait: then
//! there may be something new to give. Nobody waits for a clock.
//!
//! What each reader could spare is remembered. A reader that has changed since it was looked at is
//! *listed*, once, and only listed readers are looked at. So reclaim costs as much as there were changes,
//! however many files are open.
//!
//! First goes what was consumed, then cached blocks, then what was fetched ahead: parts that are here before
//! parts in flight, because a GET that is given up costs its connection; of the readers that could spare
//! most first, and where little is wanted of those that have small parts. When even that is not enough,
//! reads that wait give up what they have collected: none holds what another waits for, so the pool
//! can't deadlock.
//!
//! **Lock order:** the givers, then a reader's state, then the list.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::EDGE_BYTES;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// The buffer of a cancelled GET is back within this time, and nobody is asked to give these bytes meanwhile.
/// Under the model checker time stands still, so they would never be asked for again.
const CANCEL_TIME: Duration = Duration::from_millis(if cfg!(feature = "shuttle") { 0 } else { 20 });

/// Parts of one kind that a reader could spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpareParts {
    /// Sum of their lengths.
    pub(crate) bytes: u64,
    /// The smallest of those that would go first.
    pub(crate) least_bytes: u64,
}

/// What a reader could spare of what was fetched ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) ready: SpareParts,
    pub(crate) in_flight: SpareParts,
    /// Whether reads wait that hold buffers meanwhile.
    pub(crate) has_holders: bool,
}

/// The number of a reader in these books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReaderId(u64);

/// Which readers could give, and which may have become able to. `R` is a reader.
#[derive(Debug)]
pub(crate) struct ReclaimBooks<R> {
    ids: AtomicU64,
    /// Readers that have changed since they were looked at. A reader that is gone can't be upgraded.
    listed: Mutex<BTreeMap<ReaderId, Weak<R>>>,
    givers: Mutex<Givers<R>>,
    /// How often a reader was looked at or had to give.
    pub(crate) visits: AtomicU64,
    /// What was dropped although somebody might have read it.
    pub(crate) dropped_bytes: AtomicU64,
}

impl<R> Default for ReclaimBooks<R> {
    fn default() -> Self {
        Self {
            ids: AtomicU64::new(0),
            listed: Mutex::default(),
            givers: Mutex::default(),
            visits: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
        }
    }
}

impl<R> ReclaimBooks<R> {
    /// The id of a new reader.
    pub(crate) fn new_id(&self) -> ReaderId {
        ReaderId(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Lists a reader that has changed, or that is gone.
    pub(crate) fn list(&self, id: ReaderId, reader: Weak<R>) {
        lock(&self.listed).insert(id, reader);
    }

    /// Takes a reader off the list that was never looked at.
    pub(crate) fn unlist(&self, id: ReaderId) {
        lock(&self.listed).remove(&id);
    }

    /// Takes the next reader off the list.
    pub(crate) fn next_listed(&self) -> Option<(ReaderId, Weak<R>)> {
        lock(&self.listed).pop_first()
    }

    pub(crate) fn givers(&self) -> MutexGuard<'_, Givers<R>> {
        lock(&self.givers)
    }
}

/// Readers by what they could spare, as it was when they were last looked at.
#[derive(Debug)]
pub(crate) struct Givers<R> {
    known: HashMap<ReaderId, (Weak<R>, Spare)>,
    ready: BySpareBytes,
    in_flight: BySpareBytes,
    holders: BTreeSet<ReaderId>,
    /// What GETs that were cancelled a moment ago held, and since when: it is on its way back.
    cancelled: Option<(u64, Instant)>,
}

impl<R> Default for Givers<R> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            ready: BySpareBytes::default(),
            in_flight: BySpareBytes::default(),
            holders: BTreeSet::new(),
            cancelled: None,
        }
    }
}

impl<R> Givers<R> {
    /// Notes what a reader could spare when it was looked at.
    pub(crate) fn note(&mut self, id: ReaderId, reader: Weak<R>, spare: Spare) {
        self.forget(id);
        for (readers, parts) in [(&mut self.ready, spare.ready), (&mut self.in_flight, spare.in_flight)] {
            if parts.bytes > 0 {
                readers.of(parts).insert((parts.bytes, id));
            }
        }
        if spare.has_holders {
            self.holders.insert(id);
        }
        if spare != Spare::default() {
            self.known.insert(id, (reader, spare));
        }
    }

    /// Forgets a reader.
    pub(crate) fn forget(&mut self, id: ReaderId) {
        let Some((_, spare)) = self.known.remove(&id) else { return };
        for (readers, parts) in [(&mut self.ready, spare.ready), (&mut self.in_flight, spare.in_flight)] {
            readers.of(parts).remove(&(parts.bytes, id));
        }
        self.holders.remove(&id);
    }

    /// The reader that gives next for the `missing` bytes, of parts that are ready or of those in flight.
    pub(crate) fn next(&mut self, is_ready: bool, missing: u64) -> Option<(ReaderId, Arc<R>)> {
        loop {
            let readers = if is_ready { &self.ready } else { &self.in_flight };
            let id = readers.next(missing)?;
            match self.known.get(&id).and_then(|(known, _)| known.upgrade()) {
                Some(reader) => return Some((id, reader)),
                None => self.forget(id),
            }
        }
    }

    /// Takes the readers whose reads wait and hold buffers meanwhile: they are about to give these up.
    pub(crate) fn take_holders(&mut self) -> Vec<Arc<R>> {
        let mut holders = Vec::new();
        for id in std::mem::take(&mut self.holders) {
            let Some((known, spare)) = self.known.get_mut(&id) else { continue };
            spare.has_holders = false;
            holders.extend(known.upgrade());
        }
        holders
    }

    /// Notes that a GET was cancelled that held so many bytes.
    pub(crate) fn on_cancel(&mut self, bytes: u64) {
        let before = self.cancelled.map_or(0, |(bytes, _)| bytes);
        self.cancelled = Some((before + bytes, Instant::now()));
    }

    /// What is on its way back from cancelled GETs.
    pub(crate) fn cancelled_bytes(&mut self) -> u64 {
        self.cancelled.take_if(|(_, since)| since.elapsed() >= CANCEL_TIME);
        self.cancelled.map_or(0, |(bytes, _)| bytes)
    }
}

/// Readers by the bytes that they could spare of one kind: those that have small parts, and the others.
#[derive(Debug, Default)]
struct BySpareBytes {
    small: BTreeSet<(u64, ReaderId)>,
    large: BTreeSet<(u64, ReaderId)>,
}

impl BySpareBytes {
    fn of(&mut self, parts: SpareParts) -> &mut BTreeSet<(u64, ReaderId)> {
        if parts.least_bytes <= EDGE_BYTES { &mut self.small } else { &mut self.large }
    }

    /// The reader that has most. But none has to give a large part for a few `missing` bytes while others
    /// have small ones.
    fn next(&self, missing: u64) -> Option<ReaderId> {
        let (small, large) = (self.small.last(), self.large.last());
        let next = if missing <= EDGE_BYTES { small.or(large) } else { small.max(large) };
        next.map(|(_, id)| *id)
    }
}
