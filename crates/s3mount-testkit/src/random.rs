//! Numbers that look random, and are the same in each run.

use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64, a well-known function that makes random numbers of a counter. It is good enough to tell blocks
/// apart.
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A row of random numbers. Each is [`mix`] of a counter.
#[derive(Debug, Default)]
pub struct Sequence(AtomicU64);

impl Sequence {
    /// A row that starts with its first number.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The next number, between 0 and 1.
    pub fn uniform(&self) -> f64 {
        let bits = mix(self.0.fetch_add(1, Ordering::Relaxed)) >> 11;
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// The next number with a standard normal distribution, by the method of Box and Muller.
    pub fn normal(&self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// The ETag number `number` of a store whose ETags say nothing of the bytes, without its quotes.
pub(crate) fn opaque_tag(number: u64) -> String {
    format!("{:016x}{:016x}", mix(number), mix(!number))
}
