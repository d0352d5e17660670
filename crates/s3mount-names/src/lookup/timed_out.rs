//! Look-ups that have just timed out.
//!
//! The kernel sends one look-up of a name at a time, and the next process's when that has its answer. While a store
//! does not answer, each process would wait for its own time-out after those of all before it, and for two if a known
//! name is looked up again. So a look-up within [`MOMENT`] after a time-out gets the same error.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{Mutex, lock};

/// The kernel asks again at once.
const MOMENT: Duration = Duration::from_millis(250);

/// The most names that are remembered.
const MOST: usize = 256;

/// A name, its directory's prefix, and when its look-up has timed out.
type Late = (Arc<str>, Box<str>, Instant);

#[derive(Debug, Default)]
pub(crate) struct TimedOut(Mutex<VecDeque<Late>>);

impl TimedOut {
    /// Notes that the look-up of `name` has just timed out.
    pub(crate) fn note(&self, prefix: &Arc<str>, name: &str) {
        let (mut late, now) = (lock(&self.0), Instant::now());
        late.retain(|(_, _, at)| now.saturating_duration_since(*at) < MOMENT);
        if late.len() == MOST {
            late.pop_front();
        }
        late.push_back((prefix.clone(), name.into(), now));
    }

    /// Whether the look-up of `name` has just timed out.
    pub(crate) fn has(&self, prefix: &str, name: &str) -> bool {
        let (late, now) = (lock(&self.0), Instant::now());
        let is_it = |(of, known, at): &Late| {
            now.saturating_duration_since(*at) < MOMENT && **known == *name && **of == *prefix
        };
        late.iter().any(is_it)
    }
}
