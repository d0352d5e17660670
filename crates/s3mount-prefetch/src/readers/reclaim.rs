//! Reclaim: which reader gives back memory when others wait for it.
//!
//! This module keeps the books. `reader/reclaim.rs` makes the readers give. It does so at once when a GET queues for a
//! buffer, for all GETs in the queue together, and again whenever a GET lands while another waits, because readers may
//! then have more to give. No GET waits for a clock.
//!
//! The books remember what each reader could spare. A reader that has changed since it was last visited is
//! *listed*, once, and only listed readers are visited. So reclaim costs as much as there were changes,
//! however many files are open.
//!
//! Reclaim drops consumed segments first, then bytes ahead of idle streams (`idle.rs`), then cached blocks, then parts
//! ahead of active streams. It drops ready parts before parts in flight, because cancelling a GET costs its connection.
//! The readers that could spare most give first, but when few bytes are wanted, readers with small parts give before
//! readers with large ones. When even that is not enough, waiting reads give up the bytes that they have collected.
//! Then no read holds memory that another one waits for, so the pool can't deadlock.
//!
//! **Lock order:** the reclaim order, then a reader's state, then the list of changed readers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::EDGE_BYTES;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// The buffer of a cancelled GET is back within this time. Meanwhile no reader is asked for the same bytes. Under the
/// model checker time stands still, so they would never be asked for again.
const CANCEL_TIME: Duration = Duration::from_millis(if cfg!(feature = "shuttle") { 0 } else { 20 });

/// Parts of one kind, ready or in flight, that a reader could spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpareParts {
    /// Sum of their lengths.
    pub(crate) bytes: u64,
    /// The length of the smallest part that may be dropped first.
    pub(crate) least_bytes: u64,
}

/// The bytes fetched ahead that a reader could spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) ready: SpareParts,
    pub(crate) in_flight: SpareParts,
    /// Whether any waiting read holds buffers.
    pub(crate) has_holders: bool,
}

/// The number of a reader in these books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReaderId(u64);

/// Which readers could give memory, and which have changed. `R` is a reader.
#[derive(Debug)]
pub(crate) struct ReclaimBooks<R> {
    ids: AtomicU64,
    /// Readers that have changed since they were last visited. The reference to a dropped reader is dead.
    listed: Mutex<BTreeMap<ReaderId, Weak<R>>>,
    order: Mutex<ReclaimOrder<R>>,
    /// How often a reader was visited or had to give memory.
    pub(crate) visits: AtomicU64,
    /// Bytes that were dropped although a read might have needed them.
    pub(crate) dropped_bytes: AtomicU64,
}

impl<R> Default for ReclaimBooks<R> {
    fn default() -> Self {
        Self {
            ids: AtomicU64::new(0),
            listed: Mutex::default(),
            order: Mutex::default(),
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

    /// Lists a reader that has changed, or was dropped.
    pub(crate) fn list(&self, id: ReaderId, reader: Weak<R>) {
        lock(&self.listed).insert(id, reader);
    }

    /// Takes a reader off the list that was never visited.
    pub(crate) fn unlist(&self, id: ReaderId) {
        lock(&self.listed).remove(&id);
    }

    /// How many readers are listed.
    pub(crate) fn listed(&self) -> usize {
        lock(&self.listed).len()
    }

    /// Takes the next changed reader off the list.
    pub(crate) fn next_listed(&self) -> Option<(ReaderId, Weak<R>)> {
        lock(&self.listed).pop_first()
    }

    pub(crate) fn order(&self) -> MutexGuard<'_, ReclaimOrder<R>> {
        lock(&self.order)
    }
}

/// Readers by what they could spare when they were last visited.
#[derive(Debug)]
pub(crate) struct ReclaimOrder<R> {
    known: HashMap<ReaderId, (Weak<R>, Spare)>,
    ready: BySpareBytes,
    in_flight: BySpareBytes,
    holders: BTreeSet<ReaderId>,
    /// The bytes of GETs that were cancelled a moment ago, and the time of the last cancellation. Their buffers are
    /// about to come back.
    cancelled: Option<(u64, Instant)>,
}

impl<R> Default for ReclaimOrder<R> {
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

impl<R> ReclaimOrder<R> {
    /// Notes what a reader could spare when it was visited.
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

    /// The reader that gives a part next for the `missing` bytes: a ready part, or one in flight.
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

    /// Takes the readers whose waiting reads hold buffers, because these reads are about to give the buffers up.
    pub(crate) fn take_holders(&mut self) -> Vec<Arc<R>> {
        let mut holders = Vec::new();
        for id in std::mem::take(&mut self.holders) {
            let Some((known, spare)) = self.known.get_mut(&id) else { continue };
            spare.has_holders = false;
            holders.extend(known.upgrade());
        }
        holders
    }

    /// Notes that a GET with a buffer of `bytes` was cancelled.
    pub(crate) fn on_cancel(&mut self, bytes: u64) {
        let before = self.cancelled.map_or(0, |(bytes, _)| bytes);
        self.cancelled = Some((before + bytes, Instant::now()));
    }

    /// The bytes of cancelled GETs that are about to come back.
    pub(crate) fn cancelled_bytes(&mut self) -> u64 {
        self.cancelled.take_if(|(_, since)| since.elapsed() >= CANCEL_TIME);
        self.cancelled.map_or(0, |(bytes, _)| bytes)
    }
}

/// Readers by the bytes of one kind that they could spare: readers with small parts, and the others.
#[derive(Debug, Default)]
struct BySpareBytes {
    small: BTreeSet<(u64, ReaderId)>,
    large: BTreeSet<(u64, ReaderId)>,
}

impl BySpareBytes {
    fn of(&mut self, parts: SpareParts) -> &mut BTreeSet<(u64, ReaderId)> {
        if parts.least_bytes <= EDGE_BYTES { &mut self.small } else { &mut self.large }
    }

    /// The reader that could spare most. But no reader gives a large part for a few `missing` bytes while
    /// others have small parts.
    fn next(&self, missing: u64) -> Option<ReaderId> {
        let (small, large) = (self.small.last(), self.large.last());
        let next = if missing <= EDGE_BYTES { small.or(large) } else { small.max(large) };
        next.map(|(_, id)| *id)
    }
}
