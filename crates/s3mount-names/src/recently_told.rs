//! The names of which the store has told something lately.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{Mutex, lock};

/// The most names of which it is remembered that something was told of them. They take 3 MiB.
const MOST_TOLD: usize = 1 << 16;

/// The names of which something was told lately, by the hashes of their keys.
#[derive(Debug, Default)]
pub(crate) struct RecentlyTold(Mutex<RecentNames>);

#[derive(Debug, Default)]
struct RecentNames {
    told: BTreeMap<u64, Instant>,
    /// When something was told of a name that is not remembered.
    of_others: Option<Instant>,
}

impl RecentlyTold {
    fn hash(prefix: &str, key: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (prefix, key).hash(&mut hasher);
        hasher.finish()
    }

    /// Notes that something is told of `key` in the directory `prefix`.
    pub(crate) fn note(&self, prefix: &str, key: &str, now: Instant) {
        let recent = &mut *lock(&self.0);
        let hash = Self::hash(prefix, key);
        if recent.told.len() < MOST_TOLD || recent.told.contains_key(&hash) {
            recent.told.insert(hash, now);
        } else {
            recent.of_others = Some(now);
        }
    }

    /// Whether something was told of `key` lately, or may have been.
    pub(crate) fn has(&self, prefix: &str, key: &str) -> bool {
        let recent = lock(&self.0);
        recent.of_others.is_some() || recent.told.contains_key(&Self::hash(prefix, key))
    }

    /// Forgets what was told longer ago than `longest`, the longest time that a change of this mount takes.
    pub(crate) fn expire(&self, now: Instant, longest: Duration) {
        let recent = &mut *lock(&self.0);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < longest;
        recent.told.retain(|_, at| is_recent(at));
        recent.of_others = recent.of_others.filter(is_recent);
    }
}
