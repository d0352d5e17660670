//! How many requests a store answers in a second.

use tokio::time::Instant;

/// How many requests of one kind are answered now (`left`). The number grows by `per_second` each second.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: f64,
    left: f64,
    at: Instant,
    pub(super) refused: usize,
}

impl Rate {
    pub(super) fn new(per_second: f64) -> Self {
        Self { per_second, left: per_second, at: Instant::now(), refused: 0 }
    }

    pub(super) fn is_empty(&mut self) -> bool {
        let passed = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        self.left = (self.left + passed * self.per_second).min(self.per_second);
        let is_empty = self.left < 1.0;
        if is_empty {
            self.refused += 1;
        } else {
            self.left -= 1.0;
        }
        is_empty
    }
}
