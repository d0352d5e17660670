//! Limits the LISTs that look-ups send while their directory is listed whole.
//!
//! The whole listing soon answers every look-up in the directory, so a LIST for a single name requests its page twice.
//! But a look-up must not wait for all pages of a huge directory either. So a few look-ups ask at once, and the others
//! ask in proportion to the pages that have come.
//!
//! This is policy: its input is pages and times, its output is answers.

use std::time::Duration;

use tokio::time::Instant;

/// How many look-ups ask at once. A caller that looks up a few names of a huge directory, one after another, waits one
/// round trip for each.
const FIRST: u32 = 8;

/// How many pages of the listing allow one further LIST. At S3's latency, 16 LISTs in parallel bring 267 pages a
/// second, so a caller that asks for one name after another waits 120 ms for each, and the directory costs 3 % more
/// LISTs. With one LIST at a time, whenever none was in flight, a directory of 1,000 pages cost 9 % more.
const PAGES_PER_LIST: u32 = 32;

/// After this time without a page, a look-up asks anyway: the listing is slow or stuck.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// The look-ups during one listing.
#[derive(Debug, Default)]
pub(crate) struct LookupAllowance {
    pages: u32,
    taken: u32,
    /// When the last page came, or the last look-up was allowed to ask.
    last: Option<Instant>,
}

impl LookupAllowance {
    /// Notes a page of the listing.
    pub(crate) fn on_page(&mut self, now: Instant) {
        self.pages += 1;
        self.last = Some(now);
    }

    /// Whether one more look-up may send a LIST. If so, counts it as sent.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let is_within = self.taken < FIRST + self.pages / PAGES_PER_LIST;
        let is_stuck = self.last.is_some_and(|last| now.saturating_duration_since(last) >= PATIENCE);
        if is_within || is_stuck {
            self.taken += 1;
            self.last = Some(now);
        }
        is_within || is_stuck
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{FIRST, LookupAllowance, PAGES_PER_LIST, PATIENCE};

    /// How many look-ups may ask at this time.
    fn take_all(allowance: &mut LookupAllowance, now: Instant) -> u32 {
        (0..1000).map(|_| u32::from(allowance.take(now))).sum()
    }

    #[test]
    fn a_few_lookups_ask_at_once_and_then_one_for_some_pages() {
        let now = Instant::now();
        let mut allowance = LookupAllowance::default();
        assert_eq!(take_all(&mut allowance, now), FIRST);
        (0..PAGES_PER_LIST - 1).for_each(|_| allowance.on_page(now));
        assert_eq!(take_all(&mut allowance, now), 0);
        allowance.on_page(now);
        assert_eq!(take_all(&mut allowance, now), 1);
    }

    #[test]
    fn one_lookup_asks_whenever_the_listing_is_stuck() {
        let now = Instant::now();
        let mut allowance = LookupAllowance::default();
        take_all(&mut allowance, now);
        let early = now + PATIENCE - Duration::from_millis(1);
        assert_eq!(take_all(&mut allowance, early), 0);
        assert_eq!(take_all(&mut allowance, now + PATIENCE), 1);
        allowance.on_page(early + PATIENCE);
        assert_eq!(take_all(&mut allowance, now + PATIENCE * 2), 0, "a page has come meanwhile");
    }
}
