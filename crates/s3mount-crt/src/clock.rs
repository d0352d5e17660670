//! How far the store's clock is from the machine's. S3 refuses requests whose time differs by 15 minutes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

/// No answer had a time.
const UNKNOWN: i64 = i64::MIN;

/// The difference that the last answer has shown, in seconds; positive if the store's clock is ahead.
#[derive(Debug)]
pub(crate) struct ClockSkew(AtomicI64);

impl ClockSkew {
    pub(crate) fn new() -> Self {
        Self(AtomicI64::new(UNKNOWN))
    }

    /// Notes the header `Date` of an answer that has come now.
    pub(crate) fn note(&self, date: Option<&str>) {
        if let Some(at) = date.and_then(|date| httpdate::parse_http_date(date).ok()) {
            self.0.store(seconds_between(SystemTime::now(), at), Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|skew_s| *skew_s != UNKNOWN)
    }
}

/// The whole seconds from `here` to `there`, rounded down to nearer 0.
fn seconds_between(here: SystemTime, there: SystemTime) -> i64 {
    let whole = |duration: std::time::Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match there.duration_since(here) {
        Ok(ahead) => whole(ahead),
        Err(behind) => -whole(behind.duration()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{ClockSkew, seconds_between};

    #[test]
    fn the_difference_has_a_direction() {
        let now = SystemTime::now();
        assert_eq!(seconds_between(now, now + Duration::from_secs(90)), 90);
        assert_eq!(seconds_between(now, now - Duration::from_millis(2500)), -2);
        let skew = ClockSkew::new();
        skew.note(Some("banana"));
        skew.note(None);
        assert_eq!(skew.get(), None);
        skew.note(Some("Thu, 01 Jan 1970 00:00:00 GMT"));
        assert!(skew.get().is_some_and(|skew_s| skew_s < -1_000_000_000));
    }
}
