//! How slow the server is.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::random::Sequence;

/// The server's latency and bandwidth. By default, the server is as fast as it can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// The time from a request to the first byte of its answer. Listings have a latency of their own.
    pub first_byte: FirstByte,
    /// The time from a LIST to its answer, in milliseconds.
    pub list_latency_ms: f64,
    /// How many bytes a second each connection carries, in either direction. 0 means no limit.
    pub bytes_per_second: u64,
    /// How long a copy inside the store takes beside its bytes, in milliseconds.
    pub copy_latency_ms: f64,
    /// How many bytes a second each copy inside the store copies. 0 means no limit.
    pub copy_bytes_per_second: u64,
    /// How many copies inside the store go on at the same time. The others wait. 0 means no limit.
    pub copies_at_once: u32,
    /// The share of all requests but listings that wait longer, and by how many milliseconds they wait
    /// longer.
    pub tail: (f64, f64),
    /// How many requests a second the server takes, beyond a burst of as many as come in a tenth of a second.
    /// It refuses the others with 503 SlowDown, at once. 0 means no limit.
    pub requests_per_second: f64,
}

/// The time to the first byte of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum FirstByte {
    /// The first byte comes at once.
    #[default]
    AtOnce,
    /// The first byte always takes this many milliseconds.
    Fixed(f64),
    /// The time has a log-normal distribution.
    LogNormal {
        /// Median in milliseconds.
        median_ms: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl Shape {
    /// A server that is as fast as loopback.
    pub fn fast() -> Self {
        Self::default()
    }

    /// A server that is as slow as S3 seen from EC2. The first byte takes 25 ms (log-normal, sigma 0.5), a
    /// connection carries 90 MB/s, and a listing takes 60 ms. A copy takes 0.2 s, and goes on at 180 MB/s; there
    /// are sixteen of them at a time.
    pub fn aws() -> Self {
        Self {
            first_byte: FirstByte::LogNormal { median_ms: 25.0, sigma: 0.5 },
            list_latency_ms: 60.0,
            bytes_per_second: 90_000_000,
            copy_latency_ms: 200.0,
            copy_bytes_per_second: 180_000_000,
            copies_at_once: 16,
            ..Self::default()
        }
    }

    /// The same with a bad tail: one GET in a hundred takes a second longer.
    pub fn aws_with_tail() -> Self {
        Self { tail: (0.01, 1000.0), ..Self::aws() }
    }

    pub(crate) fn first_byte_latency(&self) -> Duration {
        let ms = match self.first_byte {
            FirstByte::AtOnce => 0.0,
            FirstByte::Fixed(ms) => ms,
            FirstByte::LogNormal { median_ms, sigma } => median_ms * (sigma * SEQUENCE.normal()).exp(),
        };
        let (share, tail_ms) = self.tail;
        let held_up = if share > 0.0 && SEQUENCE.uniform() < share { tail_ms } else { 0.0 };
        Duration::from_secs_f64((ms + held_up).max(0.0) / 1000.0)
    }

    /// How long a copy of so many bytes takes.
    pub(crate) fn copy_time(&self, bytes: u64) -> Duration {
        let copied = match self.copy_bytes_per_second {
            0 => 0.0,
            rate => bytes as f64 / rate as f64,
        };
        Duration::from_secs_f64((self.copy_latency_ms / 1000.0 + copied).max(0.0))
    }

    pub(crate) fn list_latency(&self) -> Duration {
        Duration::from_secs_f64(self.list_latency_ms.max(0.0) / 1000.0)
    }
}

/// Counts requests against [`Shape::requests_per_second`].
#[derive(Debug, Default)]
pub(crate) struct Limiter(Mutex<Option<(f64, Instant)>>);

impl Limiter {
    /// Whether a request may be taken now.
    pub(crate) fn takes(&self, rate: f64) -> bool {
        if rate <= 0.0 {
            return true;
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, burst) = (Instant::now(), (rate / 10.0).max(1.0));
        let saved = state.map_or(burst, |(saved, at)| (saved + (now - at).as_secs_f64() * rate).min(burst));
        let is_taken = saved >= 1.0;
        *state = Some((saved - f64::from(u8::from(is_taken)), now));
        is_taken
    }
}

/// Counts copies against [`Shape::copies_at_once`].
#[derive(Debug, Default)]
pub(crate) struct Copies {
    under_way: Mutex<u32>,
    ended: Notify,
}

/// A copy that is under way.
pub(crate) struct Copying<'a>(&'a Copies);

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        *self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_waiters();
    }
}

impl Copies {
    /// Waits until fewer than `most` copies are under way.
    pub(crate) async fn begin(&self, most: u32) -> Copying<'_> {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            {
                let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
                if most == 0 || *under_way < most {
                    *under_way += 1;
                    return Copying(self);
                }
            }
            ended.await;
        }
    }
}

/// The random numbers for all shapes of this process.
static SEQUENCE: Sequence = Sequence::new();

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::{Copies, Shape};

    /// Seconds until an object is copied in parts, all of which are asked for at once.
    async fn seconds(bytes: u64, part: u64) -> f64 {
        let (shape, copies, start) = (Shape::aws(), &Copies::default(), Instant::now());
        let parts = (0..bytes).step_by(part as usize).map(|at| part.min(bytes - at));
        futures::future::join_all(parts.map(|len| async move {
            let _turn = copies.begin(shape.copies_at_once).await;
            sleep(shape.copy_time(len)).await;
        }))
        .await;
        start.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn sixteen_copies_go_on_at_a_time() {
        const MIB: u64 = 1 << 20;
        assert_eq!(Shape::aws().copy_time(180_000_000), Duration::from_millis(1200));
        let mut taken = Vec::new();
        for part in [8 * MIB, 64 * MIB, 256 * MIB] {
            taken.push((seconds(10_000_000_000, part).await * 10.0).round() / 10.0);
        }
        // 75, 10 and 3 rounds of sixteen.
        assert_eq!(taken, [18.5, 5.7, 5.1]);
        assert_eq!(seconds(0, MIB).await, 0.0);
    }
}
