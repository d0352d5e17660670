//! GETs ahead of their readers: how many are in flight, and how many may be.
//!
//! Small GETs are counted apart from large ones. Large GETs are also counted by their bytes. Each count has a limit
//! that follows its need ([`Need`]). All GETs ahead together leave a reserve for readers that wait.

use std::sync::Arc;
use std::time::Duration;

use s3mount_memory::{MemoryBudget, Reservation};
use tokio::time::Instant;

use crate::EDGE_BYTES;
use crate::limits::congestion::Congestion;
use crate::limits::latency::Latencies;
use crate::limits::need::{AtLimit, Need};
use crate::limits::request_permits::RequestPermits;
use crate::sync::{Mutex, lock};

/// Where the shortest GET takes less than this, the usual number of GETs is enough for any link and
/// processor: 64 small GETs of 3 ms each are 20,000 a second.
const NEAR: Duration = Duration::from_millis(3);

/// GETs ahead whose connections cost nothing of the memory limit. With this many, and with the GETs that readers wait
/// for, each on a connection of its own, the daemon's peak stays within 64 MiB above the limit. Connections of further
/// GETs are charged to the limit.
const FREE_CONNECTIONS: usize = 192;

/// How much of the daemon's memory a connection takes: 0.11 MiB under TLS, 0.04 without (resident size less
/// payload, with 60 and with 220 connections under TLS, and with 60 and 420 without).
const CONNECTION_BYTES: u64 = 128 << 10;

/// The connections that one reservation covers.
const PAID_AT_ONCE: usize = 16;

/// Connections that were not needed for this many ticks of the housekeeper are no longer charged. The CRT keeps idle
/// connections for as long.
const UNUSED_TICKS: u32 = 60;

/// Decides whether one more GET may be sent ahead of its reader.
#[derive(Debug)]
pub(crate) struct AheadLimiter {
    request_permits: Arc<RequestPermits>,
    budget: MemoryBudget,
    /// Bounds the bytes of GETs ahead when the link has become too slow for them.
    pub(crate) congestion: Congestion,
    state: Mutex<AheadCounts>,
}

#[derive(Debug)]
struct AheadCounts {
    running: usize,
    /// The bytes of all GETs ahead.
    bytes: u64,
    /// The recent peak of GETs in flight at once.
    peak: usize,
    ticks: u32,
    /// Each reservation covers [`PAID_AT_ONCE`] connections.
    paid: Vec<Reservation>,
    /// GETs that are smaller than a stream's smallest part.
    small: Count,
    /// All other GETs.
    large: Count,
    /// The bytes of all other GETs.
    large_bytes: Count,
}

/// How much of one kind is in flight. Its limit is a number of units.
#[derive(Debug)]
struct Count {
    need: Need,
    unit: u64,
    used: u64,
}

/// The permission to have one GET in flight ahead of its reader. The GET is counted while this lives.
#[derive(Debug)]
pub(crate) struct AheadPermit {
    limiter: Arc<AheadLimiter>,
    bytes: u64,
    sent: Instant,
    at_limit: [Option<AtLimit>; 2],
}

impl Count {
    fn new(most: usize, unit: u64) -> Self {
        Self { need: Need::new(most), unit, used: 0 }
    }

    /// The most that may be in flight: an eighth of the limit is kept for readers that wait.
    fn most(&self) -> u64 {
        let limit = self.need.limit() as u64;
        (limit - limit / 8) * self.unit
    }
}

impl AheadCounts {
    /// The counts that a GET of `bytes` belongs to, and what it adds to each.
    fn counts(&mut self, bytes: u64) -> [Option<(&mut Count, u64)>; 2] {
        if bytes < EDGE_BYTES {
            [Some((&mut self.small, 1)), None]
        } else {
            [Some((&mut self.large, 1)), Some((&mut self.large_bytes, bytes))]
        }
    }
}

/// How many reservations for connections may be made of a limit: for half of it.
fn most_paid(limit_bytes: u64) -> usize {
    let most = limit_bytes / 2 / (PAID_AT_ONCE as u64 * CONNECTION_BYTES);
    usize::try_from(most).unwrap_or(usize::MAX)
}

impl AheadCounts {
    /// The GETs whose connection is free or charged.
    fn covered(&self) -> usize {
        FREE_CONNECTIONS + self.paid.len() * PAID_AT_ONCE
    }

    /// Whether one more GET gets a connection. Charges the connection here if it is not free. All connections together
    /// take up to half of the memory, and leave an eighth of it free, as everything ahead of readers does.
    fn pay(&mut self, budget: &MemoryBudget) -> bool {
        if self.running >= self.covered() {
            let (bytes, limit) = (PAID_AT_ONCE as u64 * CONNECTION_BYTES, budget.limit_bytes());
            let is_within = self.paid.len() < most_paid(limit);
            self.paid.extend(is_within.then(|| budget.try_reserve(bytes, limit / 8)).flatten());
        }
        self.running < self.covered()
    }

    /// Pays no longer for connections beyond what they may take of the limit of now. Until the GETs on them have ended,
    /// which is soon, they are not paid for.
    fn fit(&mut self, limit_bytes: u64) {
        self.paid.truncate(most_paid(limit_bytes));
    }

    fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks >= UNUSED_TICKS {
            self.paid.truncate(self.peak.saturating_sub(FREE_CONNECTIONS).div_ceil(PAID_AT_ONCE));
            self.ticks = 0;
            self.peak = self.running;
        }
    }
}

impl AheadLimiter {
    /// At most `most` GETs are in flight, including those that readers wait for. Most large GETs have `part_bytes`.
    /// Connections beyond the free ones are charged to `budget`.
    pub(crate) fn new(
        most: usize,
        part_bytes: u64,
        request_permits: Arc<RequestPermits>,
        budget: MemoryBudget,
    ) -> Arc<Self> {
        let state = AheadCounts {
            running: 0,
            bytes: 0,
            peak: 0,
            ticks: 0,
            paid: Vec::new(),
            small: Count::new(most, 1),
            large: Count::new(most, 1),
            large_bytes: Count::new(most, part_bytes),
        };
        Arc::new(Self {
            request_permits,
            budget,
            congestion: Congestion::default(),
            state: Mutex::new(state),
        })
    }

    /// A permit for a GET of `bytes` that is sent now, if there is room for one more. A slow link carries
    /// `link_bytes` at once, if known, or one GET.
    pub(crate) fn try_permit(self: &Arc<Self>, bytes: u64, link_bytes: Option<u64>) -> Option<AheadPermit> {
        let all = self.request_permits.ahead_limit();
        let mut state = lock(&self.state);
        if state.running >= all {
            self.request_permits.on_full();
            return None;
        }
        let is_beyond = |bound| state.bytes + bytes > bound;
        if self.congestion.bound().is_some_and(is_beyond)
            || state.bytes > 0 && link_bytes.is_some_and(is_beyond)
            || !state.pay(&self.budget)
        {
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
        state.bytes += bytes;
        state.peak = state.peak.max(state.running);
        drop(state);
        Some(AheadPermit { limiter: self.clone(), bytes, sent: Instant::now(), at_limit })
    }

    /// Called by the housekeeper once a second, at the time `now`. Connections that were not needed for a minute are no longer
    /// paid for.
    pub(crate) fn tick(&self, now: Duration) {
        self.congestion.tick(now);
        lock(&self.state).tick();
    }

    /// Called when the limit on memory has changed.
    pub(crate) fn fit(&self) {
        lock(&self.state).fit(self.budget.limit_bytes());
    }

    /// Measures the shortest GET anew, with the usual number of GETs in flight.
    pub(crate) fn restart(&self) {
        let AheadCounts { small, large, large_bytes, .. } = &mut *lock(&self.state);
        for count in [small, large, large_bytes] {
            count.need.restart();
        }
    }

    /// The number of GETs ahead in flight.
    pub(crate) fn running(&self) -> usize {
        lock(&self.state).running
    }
}

impl AheadPermit {
    /// Notes that the GET has brought its bytes. The time it took beyond the shortest GET in `latencies` tells whether
    /// more GETs at once would help.
    pub(crate) fn on_answer(&self, latencies: &Latencies) {
        if self.at_limit == [None; 2] {
            return;
        }
        let (took, shortest) = (self.sent.elapsed(), latencies.least_long(self.bytes));
        if shortest < NEAR {
            return;
        }
        let mut state = lock(&self.limiter.state);
        for (count, at_limit) in state.counts(self.bytes).into_iter().zip(self.at_limit) {
            if let (Some((count, _)), Some(at_limit)) = (count, at_limit) {
                count.need.on_answer(at_limit, took, shortest);
            }
        }
    }
}

impl Drop for AheadPermit {
    fn drop(&mut self) {
        // At its end the model checker unwinds the tasks that are left, and none of them may take a lock.
        if cfg!(feature = "shuttle") && std::thread::panicking() {
            return;
        }
        let mut state = lock(&self.limiter.state);
        state.running -= 1;
        state.bytes -= self.bytes;
        for (count, weight) in state.counts(self.bytes).into_iter().flatten() {
            count.used -= weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use s3mount_memory::MemoryBudget;

    use super::{AheadLimiter, CONNECTION_BYTES, FREE_CONNECTIONS, PAID_AT_ONCE, UNUSED_TICKS};
    use crate::limits::latency::Latencies;
    use crate::limits::request_permits::RequestPermits;
    use crate::sync::lock;

    /// Runs rounds in which as many small GETs as are allowed take 25 ms each. Returns the number of GETs of the last
    /// round.
    async fn run(limiter: &Arc<AheadLimiter>, latencies: &Latencies) -> usize {
        let (mut sent, took) = (0, Duration::from_millis(25));
        for _ in 0..200 {
            let permits: Vec<_> = std::iter::from_fn(|| limiter.try_permit(1, None)).collect();
            sent = permits.len();
            tokio::time::sleep(took).await;
            for permit in permits {
                latencies.note(1, took);
                permit.on_answer(latencies);
            }
        }
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_came_too_soon_bounds_the_need_for_some_minutes_only() {
        let limiter = AheadLimiter::new(512, 8 << 20, RequestPermits::new(512), MemoryBudget::new(1 << 30));
        let latencies = Latencies::default();
        latencies.note(1, Duration::from_millis(4));
        assert_eq!(run(&limiter, &latencies).await, 56);
        for _ in 0..2 {
            while !latencies.age(Duration::ZERO) {}
            limiter.restart();
            run(&limiter, &latencies).await;
        }
        assert_eq!(run(&limiter, &latencies).await, 448);
        limiter.restart();
        let permits: Vec<_> = std::iter::from_fn(|| limiter.try_permit(1, None)).collect();
        assert_eq!(permits.len(), 56, "the shortest GET is measured with few in flight");
    }

    #[test]
    fn connections_are_paid_for_while_payload_fills_most_of_the_memory() {
        let budget = MemoryBudget::new(512 << 20);
        let limiter = AheadLimiter::new(512, 8 << 20, RequestPermits::new(512), budget.clone());
        let _read = budget.try_reserve(400 << 20, 0).expect("room");
        let mut state = lock(&limiter.state);
        while state.running < 448 && state.pay(&budget) {
            state.running += 1;
        }
        assert_eq!(state.running, 448);
    }

    #[test]
    fn many_connections_are_paid_for_out_of_the_memory_limit() {
        let budget = MemoryBudget::new(64 << 20);
        let limiter = AheadLimiter::new(512, 8 << 20, RequestPermits::new(512), budget.clone());
        let mut state = lock(&limiter.state);
        let running = |state: &mut super::AheadCounts| {
            while state.pay(&budget) {
                state.running += 1;
                state.peak = state.peak.max(state.running);
            }
            state.running
        };
        let in_half = usize::try_from((32 << 20) / CONNECTION_BYTES).expect("few");
        assert_eq!(running(&mut state), FREE_CONNECTIONS + in_half);
        assert_eq!(budget.used_bytes(), 32 << 20);
        // The rest of the memory is kept for what is read.
        state.running = FREE_CONNECTIONS + 1;
        for _ in 0..UNUSED_TICKS {
            state.tick();
        }
        assert_eq!(budget.used_bytes(), 32 << 20, "they were all in use within this minute");
        for _ in 0..UNUSED_TICKS {
            state.tick();
        }
        assert_eq!(budget.used_bytes(), PAID_AT_ONCE as u64 * CONNECTION_BYTES);
        let held = budget.used_bytes();
        state.fit(2 * held);
        assert_eq!(budget.used_bytes(), held, "they may take half of it");
        state.fit(held);
        assert_eq!(budget.used_bytes(), 0, "half of it is too little for the first of them");
        state.running = 0;
        running(&mut state);
        state.running = FREE_CONNECTIONS + 1;
        state.paid.truncate(1);
        let _read = budget.try_reserve(54 << 20, 0).expect("room");
        assert_eq!(running(&mut state), FREE_CONNECTIONS + PAID_AT_ONCE, "an eighth stays free");
    }
}
