//! The budget for second GETs, which are sent because the first are slow.

use crate::sync::{AtomicU64, Ordering};

/// Each GET earns a fraction of a second GET.
#[derive(Debug, Default)]
pub(crate) struct HedgeBudget(AtomicU64);

impl HedgeBudget {
    /// One second GET, in the budget's units.
    const ONE: u64 = 1 << 20;

    /// The most that can be saved up. When a store slows down after a good hour, not every GET may be sent twice.
    const MOST: u64 = 8 * Self::ONE;

    /// Notes that a GET is sent, which earns `share` of a second one.
    pub(crate) fn earn(&self, share: f64) {
        let part = (share * Self::ONE as f64) as u64;
        let earn = |saved: u64| Some((saved + part).min(Self::MOST));
        // `earn` always returns a value, so this can't fail.
        let _ = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, earn);
    }

    /// Takes one second GET out of the budget, if there is one.
    pub(crate) fn spend(&self) -> bool {
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(Self::ONE)).is_ok()
    }
}
