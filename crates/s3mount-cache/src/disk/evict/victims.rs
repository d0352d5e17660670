//! Which of the versions that were looked at are evicted, how many are looked at, and when to look again. Pure.

use std::time::Duration;

/// What a look at the disk found of one version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate<V> {
    pub(crate) version: V,
    /// When it was used last.
    pub(crate) used: Duration,
}

/// A look goes on until it has seen so many shards with something in them, and so many versions. Of a million
/// versions, eight shards hold 2,000.
pub(crate) const MIN_SHARDS: usize = 8;
pub(crate) const MIN_VERSIONS: usize = 256;

/// Of the versions that were seen, this part is evicted at most before the next look. The more, the older are
/// the others that stay.
const KEPT_PART: usize = 8;

/// Nothing is admitted for at least so long after nothing was found that may be evicted.
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

/// Whether nothing is admitted at `now` after a [`wait`] until `closed_until`. A time that is farther away than
/// any wait was set before the clock was set back.
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
