//! Which processors the measured processes run on.

use anyhow::Context;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The processors of what is measured, and those of the server and the readers.
#[derive(Clone, Copy)]
pub(crate) struct Cores {
    pub(crate) measured: CpuSet,
    pub(crate) others: CpuSet,
}

impl Cores {
    /// All that this process may use, for everyone.
    pub(crate) fn all() -> anyhow::Result<Self> {
        let all = sched_getaffinity(Pid::from_raw(0)).context("asking for this process's processors")?;
        Ok(Self { measured: all, others: all })
    }

    /// The first `count` of them for what is measured. The others get those that are left, and everyone gets all if
    /// `count` is all.
    pub(crate) fn first(self, count: usize) -> anyhow::Result<Self> {
        let cores = numbers(&self.measured);
        let (measured, rest) = cores.split_at(count.min(cores.len()));
        let others = if rest.is_empty() { measured } else { rest };
        Ok(Self { measured: set(measured)?, others: set(others)? })
    }

    /// 1, 2, 4 and so on, and all.
    pub(crate) fn steps(&self) -> Vec<usize> {
        let all = numbers(&self.measured).len();
        std::iter::successors(Some(1), |count| Some(count * 2))
            .take_while(|count| *count < all)
            .chain([all])
            .collect()
    }
}

fn numbers(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect()
}

fn set(cores: &[usize]) -> anyhow::Result<CpuSet> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|core| set.set(*core))?;
    Ok(set)
}

/// Starts something on these processors: a process has those of the thread that starts it.
pub(crate) fn on<T>(cores: &CpuSet, start: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this)?;
    sched_setaffinity(this, cores).context("choosing processors")?;
    let started = start();
    sched_setaffinity(this, &before)?;
    started
}
