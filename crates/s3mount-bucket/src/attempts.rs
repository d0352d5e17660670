//! How long each attempt at one request may take, and the pauses between attempts.

use std::time::Duration;

/// First pause before a request is tried again; it doubles up to [`MAX_PAUSE`]. S3 asks for
/// exponential back-off from a fraction of a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The first attempt at a request is given up after this time, unless its peers take longer. Each further
/// attempt has twice the time of the attempt before it. The CRT itself needs 31 s to see a stall.
const STALLED: Duration = Duration::from_secs(5);

/// An attempt may take this many times as long as a slow answer.
const SLOW: u32 = 4;

/// The pauses before a request is made again.
#[derive(Debug)]
pub struct Backoff {
    pause: Duration,
    seed: u64,
}

impl Backoff {
    /// `seed` differs between requests that may fail together, so that their retries are spread over the pause.
    pub(crate) fn new(seed: u64) -> Self {
        Self { pause: FIRST_PAUSE, seed }
    }

    /// The next pause: between half of the back-off and all of it. The back-off begins with 50 ms, and doubles up to
    /// 5 s.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(MAX_PAUSE);
        self.seed = self.seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let spread = u32::try_from(self.seed >> 54).unwrap_or(0);
        pause / 2 + pause * spread / 2048
    }
}

/// The attempts at one request.
#[derive(Debug)]
pub(crate) struct Attempts {
    backoff: Backoff,
    stalled: Duration,
}

impl Attempts {
    /// The first attempt. An answer to this request is slow after `slow`.
    pub(crate) fn new(slow: Duration, backoff: Backoff) -> Self {
        Self { backoff, stalled: STALLED.max(slow * SLOW) }
    }

    /// How long this attempt may take.
    pub(crate) fn limit(&self) -> Duration {
        self.stalled
    }

    /// Sets the time after which an answer is slow. Returns whether this attempt may take longer now.
    pub(crate) fn extend(&mut self, slow: Duration) -> bool {
        let is_longer = slow * SLOW > self.stalled;
        self.stalled = self.stalled.max(slow * SLOW);
        is_longer
    }

    /// The pause before the next attempt.
    pub(crate) fn next_pause(&mut self) -> Duration {
        self.stalled *= 2;
        self.backoff.next_pause()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Attempts, Backoff};

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread() {
        let mut pauses = Backoff::new(7);
        let mut backoff = Duration::from_millis(50);
        for _ in 0..12 {
            let pause = pauses.next_pause();
            assert!(pause >= backoff / 2 && pause <= backoff, "{pause:?} of {backoff:?}");
            backoff = (backoff * 2).min(Duration::from_secs(5));
        }
        let first = |seed| Backoff::new(seed).next_pause();
        let mut pauses: Vec<_> = (0..100).map(first).collect();
        pauses.sort_unstable();
        pauses.dedup();
        assert!(pauses.len() > 80, "{} of a hundred differ", pauses.len());
    }

    #[test]
    fn attempts_get_more_time_each() {
        let mut attempts = Attempts::new(Duration::from_secs(3), Backoff::new(0));
        assert_eq!(attempts.limit(), Duration::from_secs(12));
        attempts.next_pause();
        assert_eq!(attempts.limit(), Duration::from_secs(24));
        assert_eq!(Attempts::new(Duration::from_millis(50), Backoff::new(0)).limit(), Duration::from_secs(5));
    }
}
