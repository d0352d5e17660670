//! The budget counts how much of the bound is taken.

use crate::sync::{Arc, AtomicU64, Ordering};

/// The hard bound on payload memory: a limit, how much of it is taken, and the peak. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Counters { limit_bytes, used_bytes: AtomicU64::new(0), peak_bytes: AtomicU64::new(0) }))
    }

    /// The bound, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// How many bytes are reserved now.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever reserved at once.
    pub fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Relaxed)
    }

    /// Reserves `bytes` if at least `keep_free_bytes` stay free afterwards.
    pub fn try_reserve(&self, bytes: u64, keep_free_bytes: u64) -> Option<Reservation> {
        let limit = self.0.limit_bytes.checked_sub(keep_free_bytes)?;
        let used = self.0.used_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= limit)
        });
        let used = used.ok()? + bytes;
        self.0.peak_bytes.fetch_max(used, Ordering::Relaxed);
        Some(Reservation { budget: self.clone(), bytes })
    }
}

/// A share of a [`MemoryBudget`], given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
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
}
