//! When keys are looked for. Pure: times in, a plan out.

use std::time::{Duration, SystemTime};

/// Keys are renewed so long before their end, or in the second half of their life if that is shorter.
const AHEAD: Duration = Duration::from_secs(300);

/// After a search that failed, the next one begins so much later at the earliest. Those who ask meanwhile hear
/// why the last one failed.
pub(crate) const PAUSE: Duration = Duration::from_secs(2);

/// What to do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Sign with the keys that are there.
    Use,
    /// Sign with the keys that are there, and look for the next ones.
    UseAndRenew,
    /// Look for keys, and wait for them.
    Wait,
    /// Fail as the last search did.
    Fail,
}

/// When the keys that are there were found, and when they end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) found: SystemTime,
    pub(crate) end: Option<SystemTime>,
}

/// What to do at `now`, with the keys that have this `life`. `failed` is the time since the last search, if it
/// failed.
pub(crate) fn plan(life: Option<Life>, failed: Option<Duration>, now: SystemTime) -> Plan {
    let may_search = failed.is_none_or(|since| since >= PAUSE);
    let left = life.map(|life| {
        let Some(end) = life.end else { return (Duration::MAX, Duration::ZERO) };
        let whole = end.duration_since(life.found).unwrap_or_default();
        (end.duration_since(now).unwrap_or_default(), AHEAD.min(whole / 2))
    });
    match left {
        Some((left, ahead)) if left > ahead => Plan::Use,
        Some((left, _)) if !left.is_zero() => {
            if may_search {
                Plan::UseAndRenew
            } else {
                Plan::Use
            }
        }
        _ if may_search => Plan::Wait,
        _ => Plan::Fail,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{Life, Plan, plan};

    #[test]
    fn keys_are_renewed_before_they_end() {
        let at = |s: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        let hour = Some(Life { found: at(0), end: Some(at(3600)) });
        let minute = Some(Life { found: at(0), end: Some(at(60)) });
        let forever = Some(Life { found: at(0), end: None });
        let (just, before) = (Some(Duration::from_secs(1)), Some(Duration::from_secs(2)));
        for (life, failed, now, expected) in [
            (None, None, 0, Plan::Wait),
            (None, just, 0, Plan::Fail),
            (None, before, 0, Plan::Wait),
            (forever, None, 1 << 40, Plan::Use),
            (hour, None, 3299, Plan::Use),
            (hour, None, 3300, Plan::UseAndRenew),
            (hour, just, 3300, Plan::Use),
            (hour, just, 3600, Plan::Fail),
            (hour, None, 3600, Plan::Wait),
            (hour, before, 4000, Plan::Wait),
            (minute, None, 29, Plan::Use),
            (minute, None, 30, Plan::UseAndRenew),
        ] {
            assert_eq!(plan(life, failed, at(now)), expected, "{life:?} {failed:?} {now}");
        }
    }
}
