//! The payload memory as whoever divides a machine's memory sees it.

use s3mount_memory::MemoryBudget;

use crate::sync::{Mutex, lock};

/// For how many ticks of the housekeeper, which are seconds, the most that was used is remembered: a training step and
/// its pause.
const TICKS: usize = 10;

/// The payload memory of a mount, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// The least limit.
    pub least_bytes: u64,
    /// The limit as it is now.
    pub limit_bytes: u64,
    /// The highest limit.
    pub most_bytes: u64,
    /// How much is used: for a while after the limit has fallen, more than that.
    pub used_bytes: u64,
    /// How much of the highest limit is given back to the kernel, and stays so until the limit rises.
    pub away_bytes: u64,
    /// What reads wait for.
    pub waiting_bytes: u64,
    /// The most that was used at once in the last ten seconds.
    pub peak_bytes: u64,
}

/// The most that was used in each of the last ticks, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Peaks(Mutex<[u64; TICKS]>);

impl Peaks {
    /// Called once a second.
    pub(crate) fn tick(&self, budget: &MemoryBudget) {
        let peaks = &mut *lock(&self.0);
        peaks.rotate_right(1);
        peaks[0] = budget.take_peak();
    }

    /// The most that was used at once since the tick before all these.
    pub(crate) fn most(&self, budget: &MemoryBudget) -> u64 {
        let peaks = &mut *lock(&self.0);
        peaks[0] = peaks[0].max(budget.take_peak());
        peaks.iter().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use s3mount_memory::MemoryBudget;

    use super::{Peaks, TICKS};

    #[test]
    fn the_most_of_the_last_seconds_is_forgotten_after_them() {
        let (budget, peaks) = (MemoryBudget::new(100), Peaks::default());
        drop(budget.try_reserve(90, 0));
        let _held = budget.try_reserve(10, 0);
        assert_eq!([(); 2].map(|()| peaks.most(&budget)), [90, 90], "who looks takes nothing away");
        for _ in 0..TICKS - 1 {
            peaks.tick(&budget);
        }
        assert_eq!(peaks.most(&budget), 90);
        peaks.tick(&budget);
        assert_eq!(peaks.most(&budget), 10);
    }
}
