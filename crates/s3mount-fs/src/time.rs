//! Times as they are packed into tables.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, or before.
pub(crate) fn millis(time: SystemTime) -> i64 {
    let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => millis(after),
        Err(before) => -millis(before.duration()),
    }
}

/// The time of so many milliseconds since 1970, or before.
pub(crate) fn time(millis: i64) -> SystemTime {
    let span = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span }
}
