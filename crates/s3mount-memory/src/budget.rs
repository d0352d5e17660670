//! The budget counts how much of the bound is taken.

use crate::sync::{Arc, AtomicU64, Ordering};

/// Where the limit may change, what is never given back at will may take this share of the least limit.
const KEPT_SHARE: u64 = 8;

/// The hard bound on payload memory: a limit, how much of it is taken, and the peak. Cheap to clone.
///
/// The limit may change between two bounds ([`between`](Self::between)). The pool changes it
/// ([`BufferPool::set_limit`](crate::BufferPool::set_limit)). What was taken before the limit fell stays taken, so for a
/// while more may be used than the limit allows.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    limit_bytes: AtomicU64,
    least_bytes: u64,
    most_bytes: u64,
    used_bytes: AtomicU64,
    /// The part of it that is given back only when its holder likes.
    kept_bytes: AtomicU64,
    /// The peak since it was taken last.
    peak_bytes: AtomicU64,
    /// The peak before.
    earlier_peak_bytes: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `limit_bytes`, for ever.
    pub fn new(limit_bytes: u64) -> Self {
        Self::between(limit_bytes, limit_bytes)
    }

    /// A budget whose limit is `least_bytes` at first, and may rise to `most_bytes`.
    ///
    /// # Panics
    /// When `least_bytes` is above `most_bytes`.
    pub fn between(least_bytes: u64, most_bytes: u64) -> Self {
        assert!(least_bytes <= most_bytes, "a limit from {least_bytes} to {most_bytes} bytes asked for");
        Self(Arc::new(Counters {
            limit_bytes: AtomicU64::new(least_bytes),
            least_bytes,
            most_bytes,
            used_bytes: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            earlier_peak_bytes: AtomicU64::new(0),
        }))
    }

    /// The bound as it is now, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes.load(Ordering::Relaxed)
    }

    /// The least bound that there can be, in bytes. Whoever holds memory that is not given back at will counts with it.
    pub fn least_bytes(&self) -> u64 {
        self.0.least_bytes
    }

    /// The highest bound that there can be, in bytes.
    pub fn most_bytes(&self) -> u64 {
        self.0.most_bytes
    }

    /// Whether the bound may change.
    pub fn is_adjustable(&self) -> bool {
        self.0.least_bytes < self.0.most_bytes
    }

    /// Changes the bound. What is reserved stays.
    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.0.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// How many bytes are reserved now.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever reserved at once.
    pub fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Relaxed).max(self.0.earlier_peak_bytes.load(Ordering::Relaxed))
    }

    /// The most bytes that were reserved at once since the last call.
    pub fn take_peak(&self) -> u64 {
        let peak = self.0.peak_bytes.swap(self.used_bytes(), Ordering::Relaxed);
        self.0.earlier_peak_bytes.fetch_max(peak, Ordering::Relaxed);
        peak
    }

    /// Reserves `bytes` if at least `keep_free_bytes` stay free afterwards. The caller gives them back when the limit
    /// falls and others need them.
    pub fn try_reserve(&self, bytes: u64, keep_free_bytes: u64) -> Option<Reservation> {
        let limit = self.limit_bytes().checked_sub(keep_free_bytes)?;
        let used = self.0.used_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= limit)
        });
        let used = used.ok()? + bytes;
        self.0.peak_bytes.fetch_max(used, Ordering::Relaxed);
        Some(Reservation { budget: self.clone(), bytes, is_kept: false })
    }

    /// Reserves `bytes` that the caller gives back when it likes. Where the limit may change, all of these together
    /// take an eighth of the least limit, so that the rest is always there for who gives back.
    pub fn try_keep(&self, bytes: u64) -> Option<Reservation> {
        if !self.is_adjustable() {
            return self.try_reserve(bytes, 0);
        }
        let most = self.0.least_bytes / KEPT_SHARE;
        let kept = self.0.kept_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, |kept| {
            kept.checked_add(bytes).filter(|sum| *sum <= most)
        });
        kept.ok()?;
        let mut reservation = self.try_reserve(bytes, 0);
        match &mut reservation {
            Some(reservation) => reservation.is_kept = true,
            None => {
                self.0.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        reservation
    }
}

/// A share of a [`MemoryBudget`], given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
    is_kept: bool,
}

impl Reservation {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.is_kept {
            self.budget.0.kept_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryBudget;

    #[test]
    fn never_exceeds_the_limit() {
        let budget = MemoryBudget::new(100);
        let first = budget.try_reserve(60, 0).expect("60 of 100 are free");
        assert!(budget.try_reserve(41, 0).is_none());
        assert!(budget.try_reserve(40, 1).is_none(), "one byte has to stay free");
        let second = budget.try_reserve(40, 0).expect("40 of 100 are free");
        assert!(budget.try_reserve(u64::MAX, 0).is_none());
        drop(first);
        drop(second);
        assert_eq!((budget.used_bytes(), budget.peak_bytes()), (0, 100));
    }

    #[test]
    fn the_peak_is_that_since_the_last_look_and_that_of_ever() {
        let budget = MemoryBudget::new(100);
        drop(budget.try_reserve(80, 0));
        let held = budget.try_reserve(10, 0);
        assert_eq!((budget.take_peak(), budget.take_peak(), budget.peak_bytes()), (80, 10, 80));
        drop((held, budget.try_reserve(90, 0)));
        assert_eq!((budget.peak_bytes(), budget.take_peak(), budget.take_peak()), (100, 100, 0));
    }

    #[test]
    fn what_is_kept_has_a_part_of_the_least_limit() {
        let budget = MemoryBudget::between(80, 1000);
        budget.set_limit(1000);
        let kept = budget.try_keep(10).expect("an eighth of 80");
        assert!(budget.try_keep(1).is_none());
        assert!(budget.try_reserve(990, 0).is_some(), "all that is given back at will");
        drop(kept);
        assert!(budget.try_keep(10).is_some());
        assert!(MemoryBudget::new(80).try_keep(80).is_some(), "a limit that stays needs no such part");
    }
}
