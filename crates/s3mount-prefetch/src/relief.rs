//! Relief: memory for readers that wait for it, from readers that can spare some.
//!
//! It is given at once when a read queues for a buffer, for all that queue together, and again whenever a
//! GET lands while any wait: then there may be something new to give. Nobody waits for a clock.
//!
//! What each reader could spare is remembered. A reader that has changed since it was looked at is
//! *listed*, once, and only listed readers are looked at. So relief costs as much as there were changes,
//! however many files are open.
//!
//! First goes what was consumed, then cached runs, then what was fetched ahead: parts that are here before
//! parts in flight, because a GET that is given up costs its connection; of the readers that could spare
//! most first, and where little is wanted of those that have small parts. When even that is not enough,
//! reads that wait give up what they have collected: none holds what another waits for, so the pool
//! can't deadlock.
//!
//! **Lock order:** the givers, then a reader's state, then the list.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Weak;
use std::time::Duration;

use tokio::time::Instant;

use crate::prefetcher::Shared;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::{EDGE_BYTES, ObjectReader};

/// What a cancelled GET held is back within this time, and not asked for again meanwhile.
const CANCEL_TIME: Duration = Duration::from_millis(20);

/// Parts of one kind that a reader could spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Sum of their lengths.
    pub(crate) bytes: u64,
    /// The smallest of those that would go first.
    pub(crate) least_bytes: u64,
}

/// What a reader could spare of what was fetched ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) ready: Parts,
    pub(crate) in_flight: Parts,
    /// Whether reads wait that hold buffers meanwhile.
    pub(crate) has_holders: bool,
}

/// The number of a reader in these books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Number(u64);

/// Who could give, and who may have become able to.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    numbers: AtomicU64,
    /// Readers that have changed since they were looked at. One that is gone has nobody here.
    listed: Mutex<BTreeMap<Number, Weak<ObjectReader>>>,
    givers: Mutex<Givers>,
    /// How often a reader was looked at or had to give.
    pub(crate) visits: AtomicU64,
    /// What was dropped although somebody might have read it.
    pub(crate) dropped_bytes: AtomicU64,
}

impl Relief {
    /// The number of a new reader.
    pub(crate) fn number(&self) -> Number {
        Number(self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Lists a reader that has changed, or that is gone.
    pub(crate) fn list(&self, number: Number, reader: Weak<ObjectReader>) {
        lock(&self.listed).insert(number, reader);
    }

    /// Takes a reader off the list that was never looked at.
    pub(crate) fn unlist(&self, number: Number) {
        lock(&self.listed).remove(&number);
    }

    fn next_listed(&self) -> Option<(Number, Weak<ObjectReader>)> {
        lock(&self.listed).pop_first()
    }
}

/// Readers by what they could spare, as it was when they were last looked at.
#[derive(Debug, Default)]
struct Givers {
    known: HashMap<Number, (Weak<ObjectReader>, Spare)>,
    ready: Order,
    in_flight: Order,
    holders: BTreeSet<Number>,
    /// What GETs that were cancelled a moment ago held, and since when: it is on its way back.
    cancelled: Option<(u64, Instant)>,
}

/// Readers by the bytes that they could spare of one kind: those that have small parts, and the others.
#[derive(Debug, Default)]
struct Order {
    small: BTreeSet<(u64, Number)>,
    large: BTreeSet<(u64, Number)>,
}

impl Order {
    fn of(&mut self, parts: Parts) -> &mut BTreeSet<(u64, Number)> {
        if parts.least_bytes <= EDGE_BYTES { &mut self.small } else { &mut self.large }
    }

    /// Who gives next for the `missing` bytes: who has most, but nobody has to give a large part for a
    /// few bytes while others have small ones.
    fn next(&self, missing: u64) -> Option<Number> {
        let (small, large) = (self.small.last(), self.large.last());
        let next = if missing <= EDGE_BYTES { small.or(large) } else { small.max(large) };
        next.map(|(_, number)| *number)
    }
}

impl Givers {
    fn note(&mut self, number: Number, reader: Weak<ObjectReader>, spare: Spare) {
        self.forget(number);
        for (order, parts) in [(&mut self.ready, spare.ready), (&mut self.in_flight, spare.in_flight)] {
            if parts.bytes > 0 {
                order.of(parts).insert((parts.bytes, number));
            }
        }
        if spare.has_holders {
            self.holders.insert(number);
        }
        if spare != Spare::default() {
            self.known.insert(number, (reader, spare));
        }
    }

    fn forget(&mut self, number: Number) {
        let Some((_, spare)) = self.known.remove(&number) else { return };
        for (order, parts) in [(&mut self.ready, spare.ready), (&mut self.in_flight, spare.in_flight)] {
            order.of(parts).remove(&(parts.bytes, number));
        }
        self.holders.remove(&number);
    }

    /// What is on its way back from cancelled GETs.
    fn cancelled_bytes(&mut self) -> u64 {
        self.cancelled.take_if(|(_, since)| since.elapsed() >= CANCEL_TIME);
        self.cancelled.map_or(0, |(bytes, _)| bytes)
    }
}

impl Shared {
    /// Has readers give back what all who queue for memory want together, as far as anything can be
    /// spared.
    pub(crate) fn relieve(&self) {
        let givers = &mut *lock(&self.relief.givers);
        let wanted = self.pool.wanted_bytes();
        let mut missing = if wanted > 0 { wanted.saturating_sub(givers.cancelled_bytes()) } else { 0 };
        while missing > 0
            && let Some((number, listed)) = self.relief.next_listed()
        {
            let Some(reader) = listed.upgrade() else {
                givers.forget(number);
                continue;
            };
            self.relief.visits.fetch_add(1, Ordering::Relaxed);
            let (swept, spare) = reader.visit();
            givers.note(number, listed, spare);
            missing = missing.saturating_sub(swept);
        }
        if missing > 0 {
            missing = missing.saturating_sub(self.cache.shed(missing));
        }
        while missing > 0
            && let Some(number) = givers.ready.next(missing)
        {
            missing = missing.saturating_sub(self.take(givers, number, true, missing));
        }
        while missing > 0
            && let Some(number) = givers.in_flight.next(missing)
        {
            let cancelled = self.take(givers, number, false, missing);
            let before = givers.cancelled.map_or(0, |(bytes, _)| bytes);
            givers.cancelled = Some((before + cancelled, Instant::now()));
            missing = missing.saturating_sub(cancelled);
        }
        if missing > 0 {
            self.detach(givers);
        }
    }

    /// Has a reader drop one part for the `missing` bytes; returns its length.
    fn take(&self, givers: &mut Givers, number: Number, is_ready: bool, missing: u64) -> u64 {
        let known = givers.known.get(&number).map(|(known, _)| known.clone());
        let Some((reader, known)) = known.and_then(|known| Some((known.upgrade()?, known))) else {
            givers.forget(number);
            return 0;
        };
        self.relief.visits.fetch_add(1, Ordering::Relaxed);
        let (dropped, spare) = reader.drop_far_end(is_ready, missing);
        self.relief.dropped_bytes.fetch_add(dropped, Ordering::Relaxed);
        givers.note(number, known, spare);
        dropped
    }

    /// Has reads that wait give up what they have collected.
    fn detach(&self, givers: &mut Givers) {
        let mut detached = 0;
        for number in std::mem::take(&mut givers.holders) {
            let Some((known, spare)) = givers.known.get_mut(&number) else { continue };
            spare.has_holders = false;
            detached += known.upgrade().map_or(0, |reader| reader.detach_holders());
        }
        if detached > 0 {
            tracing::debug!(detached, "memory is short: reads go their own way");
        }
    }
}
