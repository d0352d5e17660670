//! The budget of second GETs, which are sent because the first are slow.

use crate::sync::{AtomicU64, Ordering};

/// Each GET earns a part of a second one.
#[derive(Debug, Default)]
pub(crate) struct HedgeBudget(AtomicU64);

impl HedgeBudget {
    /// Parts of a second GET that a budget is counted in.
    const ONE: u64 = 1 << 20;

    /// What is saved up at most: a store that was good for an hour may not be asked for everything
    /// twice when it gets slow.
    const MOST: u64 = 8 * Self::ONE;

    /// A GET is sent, which earns `share` of a second one.
    pub(crate) fn earn(&self, share: f64) {
        let part = (share * Self::ONE as f64) as u64;
        let earn = |saved: u64| Some((saved + part).min(Self::MOST));
        // It never refuses.
        let _ = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, earn);
    }

    /// Takes one out of the budget, if there is one.
    pub(crate) fn spend(&self) -> bool {
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(Self::ONE)).is_ok()
    }
}
