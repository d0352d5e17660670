//! Names that were seen, for as long as they are believed.
//!
//! A LIST page tells far more than the one name that was asked for. What it told is kept by
//! directory, so that `stat` and `open` after `ls` cost no request. Only presence is kept: that a
//! name is *absent* is asked anew each time, because somebody may be waiting for it to appear.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::names::{Named, Target};

/// Names kept at most, over all directories: some 300 bytes each.
const MAX_ENTRIES: usize = 1_000_000;

#[derive(Debug)]
struct Seen {
    target: Target,
    at: Instant,
}

#[derive(Debug, Default)]
struct Directories {
    by_prefix: HashMap<Arc<str>, HashMap<Box<str>, Seen>>,
    count: usize,
}

/// Seen names by directory.
#[derive(Debug)]
pub(crate) struct EntryCache {
    ttl: Duration,
    directories: Mutex<Directories>,
}

impl EntryCache {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, directories: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Directories> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `name` in the directory `prefix` was when it was seen, and how long that is still
    /// believed.
    pub(crate) fn get(&self, prefix: &str, name: &str, now: Instant) -> Option<(Target, Duration)> {
        let directories = self.lock();
        let seen = directories.by_prefix.get(prefix)?.get(name)?;
        let left = self.ttl.checked_sub(now.saturating_duration_since(seen.at))?;
        (!left.is_zero()).then(|| (seen.target.clone(), left))
    }

    /// Notes what the directory `prefix` showed.
    pub(crate) fn note(&self, prefix: &Arc<str>, names: &[Named], now: Instant) {
        if self.ttl.is_zero() || names.is_empty() {
            return;
        }
        let mut directories = self.lock();
        if directories.count + names.len() > MAX_ENTRIES {
            directories.drop_old(self.ttl, now);
        }
        let directory = directories.by_prefix.entry(prefix.clone()).or_default();
        let before = directory.len();
        for Named { name, target } in names {
            directory.insert(name.as_str().into(), Seen { target: target.clone(), at: now });
        }
        let added = directory.len() - before;
        directories.count += added;
    }

    /// Forgets `name`: what is known of it has turned out wrong.
    pub(crate) fn forget(&self, prefix: &str, name: &str) {
        let mut directories = self.lock();
        let removed = directories.by_prefix.get_mut(prefix).and_then(|directory| directory.remove(name));
        directories.count -= usize::from(removed.is_some());
    }
}

impl Directories {
    /// Makes room: drops what is not believed any more, and everything if that is not half.
    fn drop_old(&mut self, ttl: Duration, now: Instant) {
        for directory in self.by_prefix.values_mut() {
            directory.retain(|_, seen| now.saturating_duration_since(seen.at) < ttl);
        }
        self.by_prefix.retain(|_, directory| !directory.is_empty());
        self.count = self.by_prefix.values().map(HashMap::len).sum();
        if self.count > MAX_ENTRIES / 2 {
            self.by_prefix.clear();
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::EntryCache;
    use crate::names::{Named, Target};

    #[test]
    fn a_name_is_believed_for_its_time() {
        let cache = EntryCache::new(Duration::from_secs(10));
        let (prefix, start) = (Arc::<str>::from("d/"), Instant::now());
        cache.note(&prefix, &[Named { name: "a".into(), target: Target::Directory }], start);
        let later = start + Duration::from_secs(4);
        assert_eq!(cache.get("d/", "a", later), Some((Target::Directory, Duration::from_secs(6))));
        assert_eq!(cache.get("d/", "a", start + Duration::from_secs(10)), None);
        assert_eq!(cache.get("d/", "b", start), None);
        cache.forget("d/", "a");
        assert_eq!(cache.get("d/", "a", start), None);
    }

    #[test]
    fn minimal_keeps_nothing() {
        let cache = EntryCache::new(Duration::ZERO);
        let (prefix, start) = (Arc::<str>::from(""), Instant::now());
        cache.note(&prefix, &[Named { name: "a".into(), target: Target::Directory }], start);
        assert_eq!(cache.get("", "a", start), None);
    }
}
