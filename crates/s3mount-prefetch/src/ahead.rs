//! GETs ahead of their readers: how many are in flight, and how many may be.
//!
//! Small ones are counted apart from large ones, and these also by their bytes: each count has a limit that
//! follows its need ([`Need`]). Together they stay below what is kept for readers that wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::EDGE_BYTES;
use crate::need::{AtLimit, Need};
use crate::prefetcher::Shared;
use crate::sync::{Mutex, lock};

/// Where the shortest GET takes less than this, the usual number is enough for any link and processor: 64
/// small ones of 3 ms are 20,000 a second.
const NEAR: Duration = Duration::from_millis(3);

/// All GETs ahead.
#[derive(Debug)]
pub(crate) struct AheadGets(Mutex<State>);

#[derive(Debug)]
struct State {
    running: usize,
    /// Those below a stream's least part.
    small: Count,
    /// The others.
    large: Count,
    /// The others' bytes.
    large_bytes: Count,
}

/// What of one kind is in flight, of at most so many of a unit.
#[derive(Debug)]
struct Count {
    need: Need,
    unit: u64,
    used: u64,
}

/// Counts a GET ahead of its reader while it lives.
#[derive(Debug)]
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    bytes: u64,
    sent: Instant,
    at_limit: [Option<AtLimit>; 2],
}

impl Count {
    fn new(most: usize, unit: u64) -> Self {
        Self { need: Need::new(most), unit, used: 0 }
    }

    /// What may be in flight: an eighth is kept for readers that wait.
    fn most(&self) -> u64 {
        let limit = self.need.limit() as u64;
        (limit - limit / 8) * self.unit
    }
}

impl State {
    /// What a GET of so many bytes counts for, and how much there.
    fn counts(&mut self, bytes: u64) -> [Option<(&mut Count, u64)>; 2] {
        if bytes < EDGE_BYTES {
            [Some((&mut self.small, 1)), None]
        } else {
            [Some((&mut self.large, 1)), Some((&mut self.large_bytes, bytes))]
        }
    }
}

impl AheadGets {
    /// At most `most` GETs are in flight, with those that readers wait for. Large ones are mostly of
    /// `part_bytes`.
    pub(crate) fn new(most: usize, part_bytes: u64) -> Self {
        Self(Mutex::new(State {
            running: 0,
            small: Count::new(most, 1),
            large: Count::new(most, 1),
            large_bytes: Count::new(most, part_bytes),
        }))
    }

    /// How many are in flight.
    pub(crate) fn running(&self) -> usize {
        lock(&self.0).running
    }
}

impl Ahead {
    /// A GET of `bytes` that is sent now, if there is room for one more.
    pub(crate) fn try_new(shared: &Arc<Shared>, bytes: u64) -> Option<Self> {
        let all = shared.turns.ahead_limit();
        let mut state = lock(&shared.ahead.0);
        if state.running >= all {
            shared.turns.on_full();
            return None;
        }
        let mut counts = state.counts(bytes);
        if counts.iter().flatten().any(|(count, weight)| count.used + weight > count.most()) {
            return None;
        }
        let at_limit = counts.each_mut().map(|count| {
            let (count, weight) = count.as_mut()?;
            count.used += *weight;
            count.need.on_sent(count.used, count.most())
        });
        state.running += 1;
        drop(state);
        Some(Self { shared: shared.clone(), bytes, sent: Instant::now(), at_limit })
    }

    /// It has brought what it was sent for.
    pub(crate) fn on_answer(&self) {
        if self.at_limit == [None; 2] {
            return;
        }
        let (took, shortest) = (self.sent.elapsed(), self.shared.latencies.shortest(self.bytes));
        if shortest < NEAR {
            return;
        }
        let mut state = lock(&self.shared.ahead.0);
        for (count, at_limit) in state.counts(self.bytes).into_iter().zip(self.at_limit) {
            if let (Some((count, _)), Some(at_limit)) = (count, at_limit) {
                count.need.on_answer(at_limit, took, shortest);
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The model checker unwinds the tasks that are left at its end, and lets none of them lock.
        if cfg!(feature = "shuttle") && std::thread::panicking() {
            return;
        }
        let mut state = lock(&self.shared.ahead.0);
        state.running -= 1;
        for (count, weight) in state.counts(self.bytes).into_iter().flatten() {
            count.used -= weight;
        }
    }
}
