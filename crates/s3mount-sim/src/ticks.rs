//! The order of all that happens, and the trace of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Counts what happens, so that of two things it is known which came first.
#[derive(Debug)]
pub struct Ticks {
    now: AtomicU64,
    /// When each moment was, in order.
    times: Mutex<Vec<Instant>>,
    started: Instant,
    trace: Option<Mutex<Vec<String>>>,
}

impl Ticks {
    /// Begins at 0. With `is_traced`, notes are kept.
    pub fn new(is_traced: bool) -> Self {
        Self {
            now: AtomicU64::new(0),
            times: Mutex::default(),
            started: Instant::now(),
            trace: is_traced.then(Mutex::default),
        }
    }

    /// The moment of something that happens now.
    pub fn next(&self) -> u64 {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        self.now.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The last moment that is longer ago than this.
    pub fn before(&self, age: Duration) -> u64 {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.partition_point(|at| at.elapsed() > age) as u64
    }

    /// The moment of what happened last.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let line =
                format!("{:>9.4} [{:>4}] {}", self.started.elapsed().as_secs_f64(), self.now(), line());
            trace.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    /// The trace so far.
    pub fn trace(&self) -> Vec<String> {
        let copied =
            |trace: &Mutex<Vec<String>>| trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.trace.as_ref().map(copied).unwrap_or_default()
    }
}
