//! What all requests to one bucket share: permits, the budget of retries, and numbers that differ.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::late::LateWrites;
use crate::own::Uploads;
use crate::rates::Lines;
use crate::{Limits, RetryBudget};

/// What all requests to one bucket share.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) budget: Arc<RetryBudget>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) lines: Lines,
    pub(crate) uploads: Uploads,
    pub(crate) late: LateWrites,
    /// Whether the store has said that it knows no condition for a deletion.
    pub(crate) deletes_unseen: AtomicBool,
    seed: u64,
    drawn: AtomicU64,
    /// What the marks of all writes of this mount begin with, whatever daemon makes them: see [`Bucket::join_family`].
    ///
    /// [`Bucket::join_family`]: crate::Bucket::join_family
    pub(crate) family: OnceLock<u32>,
}

impl Door {
    pub(crate) fn new(limits: Arc<Limits>, seed: u64) -> Self {
        let (budget, uploads, late) = (Arc::default(), Uploads::default(), LateWrites::default());
        let (drawn, family, lines) = (AtomicU64::new(0), OnceLock::new(), Lines::default());
        Self { budget, limits, lines, uploads, late, deletes_unseen: false.into(), seed, drawn, family }
    }

    /// The number of the mark of the next write.
    pub(crate) fn next_mark(&self) -> u64 {
        let random = self.random();
        self.family.get().map_or(random, |family| u64::from(*family) << 32 | random & u64::from(u32::MAX))
    }

    /// The next number of a sequence that differs between doors (SplitMix64).
    pub(crate) fn random(&self) -> u64 {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed) + 1;
        let mixed = self.seed.wrapping_add(drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
