//! What chance decides: a row of numbers that a seed begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use s3mount_testkit::mix;

/// A row of numbers that look random. The same seed gives the same row.
#[derive(Debug)]
pub struct Draw(AtomicU64);

impl Draw {
    /// The row that begins with `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(mix(seed)))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        mix(self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed))
    }

    /// A number below `end`, which is not 0.
    pub fn below(&self, end: u64) -> u64 {
        self.next() % end
    }

    /// Whether something happens that happens `of_thousand` times of a thousand.
    pub fn happens(&self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// One of the things.
    pub fn one<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Lets other tasks run: at once, after some turns of the runtime, or after some time.
    pub async fn pause(&self) {
        match self.below(8) {
            0..=2 => {}
            3..=5 => {
                for _ in 0..=self.below(3) {
                    tokio::task::yield_now().await;
                }
            }
            6 => tokio::time::sleep(Duration::from_micros(1 + self.below(2_000))).await,
            _ => tokio::time::sleep(Duration::from_millis(1 + self.below(30))).await,
        }
    }
}
