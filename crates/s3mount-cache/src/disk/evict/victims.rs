//! Which versions of a look are evicted, how many a look covers, and when to look again. Pure.

use std::time::Duration;

/// One version, as a look at the disk found it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate<V> {
    pub(crate) version: V,
    /// When it was used last.
    pub(crate) used: Duration,
}

/// A look goes on until it has seen this many shards that are not empty, and this many versions. Of a million versions,
/// eight shards hold 2,000.
pub(crate) const MIN_SHARDS: usize = 8;
pub(crate) const MIN_VERSIONS: usize = 256;

/// At most one of this many versions of a look is evicted before the next look. The larger the number, the older the
/// evicted versions are.
const KEPT_PART: usize = 8;

/// After a look found nothing to evict, the cache admits nothing for at least this time.
pub(crate) const MIN_WAIT: Duration = Duration::from_secs(1);

/// The next look is taken after this time at the latest. It costs the attributes of some thousand files.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The versions to evict before the next look, with the oldest use last. Versions that were used at
/// `oldest_kept` or later stay.
pub(crate) fn evictable<V>(mut seen: Vec<Candidate<V>>, oldest_kept: Duration) -> Vec<Candidate<V>> {
    let most = seen.len().div_ceil(KEPT_PART);
    seen.retain(|candidate| candidate.used < oldest_kept);
    seen.sort_by_key(|candidate| candidate.used);
    seen.truncate(most);
    seen.reverse();
    seen
}

/// How long to admit nothing when none of these may be evicted: until the oldest of them may.
pub(crate) fn wait<V>(seen: &[Candidate<V>], oldest_kept: Duration) -> Duration {
    let oldest = seen.iter().map(|candidate| candidate.used).min();
    oldest.map_or(MAX_WAIT, |used| used.saturating_sub(oldest_kept)).clamp(MIN_WAIT, MAX_WAIT)
}

/// Whether the cache admits nothing at `now`, after a [`wait`] until `closed_until`. A `closed_until` that is farther
/// away than any wait dates from before the clock was set back.
pub(crate) fn is_closed(closed_until: Duration, now: Duration) -> bool {
    closed_until.checked_sub(now).is_some_and(|left| !left.is_zero() && left <= MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Candidate, MAX_WAIT, MIN_WAIT, evictable, is_closed, wait};

    fn seen(times: &[u64]) -> Vec<Candidate<u64>> {
        let candidate = |used| Candidate { version: used, used: Duration::from_secs(used) };
        times.iter().copied().map(candidate).collect()
    }

    #[test]
    fn the_oldest_use_leaves_first() {
        let order = |oldest_kept| {
            let times: Vec<_> = (0..20).map(|number| number * 7 % 20).collect();
            let order = evictable(seen(&times), Duration::from_secs(oldest_kept));
            order.into_iter().map(|candidate| candidate.version).collect::<Vec<_>>()
        };
        assert_eq!(order(2), [1, 0], "popped from the end");
        assert_eq!(order(30), [2, 1, 0], "an eighth");
        assert!(order(0).is_empty());
    }

    #[test]
    fn the_next_look_is_when_something_may_leave() {
        let wait = |times: &[u64]| wait(&seen(times), Duration::from_secs(100));
        assert_eq!(wait(&[120, 107, 300]), Duration::from_secs(7));
        assert_eq!((wait(&[100]), wait(&[400]), wait(&[])), (MIN_WAIT, MAX_WAIT, MAX_WAIT));
    }

    #[test]
    fn a_clock_that_is_set_back_opens_what_was_closed() {
        let is_closed = |until, now| is_closed(Duration::from_secs(until), Duration::from_secs(now));
        assert!(is_closed(1030, 1000) && is_closed(1030, 1029));
        assert!(!is_closed(1030, 1030) && !is_closed(1030, 90_000) && !is_closed(1030, 999));
    }
}
