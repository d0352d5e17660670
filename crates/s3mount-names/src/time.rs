//! Times, packed as the tables keep them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The milliseconds from 1970 to `time`, negative before 1970.
pub fn millis(time: SystemTime) -> i64 {
    let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => millis(after),
        Err(before) => -millis(before.duration()),
    }
}

/// The time `millis` milliseconds after 1970, or before 1970 if negative.
pub fn time(millis: i64) -> SystemTime {
    let span = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span }
}
