//! The snapshot of one directory: its pages, and the outcome of listing it whole.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::fact::Asked;
use crate::lookup::allowance::LookupAllowance;
use crate::pages::page::Page;

/// How long a directory is not listed whole again after that has failed.
const LISTING_PAUSE: Duration = Duration::from_secs(10);

/// The longest time for which a directory that is too large for the memory is not listed again.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The memory of a directory besides its pages, in bytes: its entry in the table, and its name twice.
const DIRECTORY_BYTES: usize = 160;

/// The snapshot of one directory.
#[derive(Debug, Default)]
pub(super) struct DirectorySnapshot {
    /// The pages, in the order of their keys. No two overlap.
    pub(super) pages: Vec<Page>,
    /// How much memory the pages take, in bytes: a directory to which names are added one by one has many.
    page_bytes: usize,
    pub(super) misses: u32,
    /// While the directory is being listed whole: the look-ups that may ask the store.
    pub(super) being_listed: Option<LookupAllowance>,
    /// The outcome of the last listing of the whole directory, and when it ended.
    pub(super) listed: Option<(Outcome, Instant)>,
    /// How many listings in a row have found the memory too small for the directory.
    pub(super) too_large: u32,
    /// When a read last showed a name to be wrong, or a name came into doubt that is here no more. Pages that were
    /// requested earlier may be wrong.
    pub(super) was_wrong: Option<Instant>,
}

/// The outcome of listing a whole directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Known,
    /// There is not enough memory for all names.
    TooLarge,
    Failed,
}

impl DirectorySnapshot {
    /// The page that covers `key`. It counts as used now.
    pub(super) fn index(&mut self, key: &str, clock: u64) -> Option<usize> {
        let index = self.pages.partition_point(|page| *page.after < *key).checked_sub(1)?;
        let page = self.pages.get_mut(index).filter(|page| page.covers(key))?;
        page.used = clock;
        Some(index)
    }

    /// Notes the outcome of listing the directory whole.
    pub(super) fn on_listed(&mut self, outcome: Outcome, now: Instant) {
        (self.being_listed, self.listed) = (None, Some((outcome, now)));
        self.too_large = if outcome == Outcome::TooLarge { self.too_large + 1 } else { 0 };
    }

    /// How long the directory is not listed whole again. One that does not fit the memory would cost as many requests
    /// again, and hardly fit then.
    pub(super) fn pause(&self, outcome: Outcome, ttl: Duration) -> Duration {
        match outcome {
            Outcome::Known => ttl,
            Outcome::Failed => ttl.min(LISTING_PAUSE),
            Outcome::TooLarge => {
                let doubled = ttl.saturating_mul(1 << (self.too_large.clamp(1, 16) - 1));
                doubled.min(LONGEST_PAUSE.max(ttl))
            }
        }
    }

    /// Whether the snapshot holds anything worth keeping.
    pub(super) fn is_of_use(&self) -> bool {
        let is_too_large = matches!(self.listed, Some((Outcome::TooLarge, _)));
        !self.pages.is_empty() || self.being_listed.is_some() || is_too_large || self.was_wrong.is_some()
    }

    /// Whether nothing is left of it but the moment when a name was wrong.
    pub(super) fn has_reason_alone(&self) -> bool {
        self.was_wrong.is_some()
            && self.pages.is_empty()
            && self.being_listed.is_none()
            && self.listed.is_none()
    }

    /// Replaces the parts of older pages that a page covers, and leaves newer ones as they are: pages come in any
    /// order. Names on which it differs from a page, in an unknown order, are in doubt. Returns the names that are
    /// gone, changed, or in doubt.
    pub(super) fn insert(&mut self, page: Page) -> Vec<Box<str>> {
        let in_doubt = self.in_doubt_by(&page);
        let not_newer = self.not_newer(page).into_iter().chain(in_doubt);
        not_newer.flat_map(|part| self.replace(part)).collect()
    }

    /// A page for each key that comes into doubt by `page`.
    fn in_doubt_by(&self, page: &Page) -> Vec<Page> {
        let mut in_doubt: BTreeMap<&str, Asked> = BTreeMap::new();
        let may_differ = |other: &&Page| other.asked.overlaps(page.asked) && other.meets(page);
        for other in self.pages.iter().filter(may_differ) {
            for key in other.disputed(page) {
                let asked = in_doubt.entry(key).or_insert(page.asked);
                *asked = asked.later(other.asked);
            }
        }
        in_doubt.into_iter().map(|(key, asked)| Page::in_doubt(key, asked)).collect()
    }

    /// Puts `key` in doubt, as of `now`. Returns it if it was known.
    pub(super) fn doubt(&mut self, key: &str, now: Instant) -> Vec<Box<str>> {
        self.replace(Page::in_doubt(key, Asked::at(now)))
    }

    /// The parts of a page that no newer page covers.
    fn not_newer(&self, page: Page) -> Vec<Page> {
        let mut newer = self.pages.iter().filter(|other| other.at() > page.at() && other.meets(&page));
        let Some(first) = newer.next() else { return vec![page] };
        let (mut parts, mut after) = (Vec::new(), &*page.after);
        for other in std::iter::once(first).chain(newer) {
            if *after < *other.after {
                parts.push(page.slice(after, Some(&other.after)));
            }
            let Some(upto) = other.upto.as_deref() else { return parts };
            after = upto;
        }
        if page.upto.as_deref().is_none_or(|upto| after < upto) {
            parts.push(page.slice(after, page.upto.as_deref()));
        }
        parts
    }

    /// Replaces the parts that a page covers. Returns the changed names.
    fn replace(&mut self, page: Page) -> Vec<Box<str>> {
        let ends_before = |old: &Page| old.upto.as_deref().is_some_and(|upto| *upto <= *page.after);
        let starts_behind = |old: &Page| page.upto.as_deref().is_some_and(|upto| *upto <= *old.after);
        let first = self.pages.partition_point(ends_before);
        let last = first + self.pages[first..].partition_point(|old| !starts_behind(old));
        let changed = self.pages[first..last].iter().flat_map(|old| old.changed(&page)).collect();
        let mut pieces = Vec::with_capacity(3);
        if let Some(old) = self.pages[first..last].first().filter(|old| *old.after < *page.after) {
            pieces.push(old.slice(&old.after, Some(&page.after)));
        }
        let tail = self.pages[first..last].last().and_then(|old| {
            let from = page.upto.as_deref()?;
            let reaches = old.upto.as_deref().is_none_or(|upto| from < upto);
            reaches.then(|| old.slice(from, old.upto.as_deref()))
        });
        pieces.push(page);
        pieces.extend(tail);
        let bytes = |pages: &[Page]| pages.iter().map(Page::bytes).sum::<usize>();
        self.page_bytes = self.page_bytes - bytes(&self.pages[first..last]) + bytes(&pieces);
        self.pages.splice(first..last, pieces);
        changed
    }

    /// Drops the pages for which `is_kept` does not hold.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Page) -> bool) {
        let before = self.pages.len();
        let was_wrong = &mut self.was_wrong;
        self.pages.retain(|page| {
            let stays = is_kept(page);
            if !stays && page.is_in_doubt {
                *was_wrong = (*was_wrong).max(Some(page.at()));
            }
            stays
        });
        if self.pages.len() < before {
            self.pages.shrink_to_fit();
        }
        self.page_bytes = self.pages.iter().map(Page::bytes).sum();
    }

    /// The part of `page` around `key` that no page of the same age or newer covers. `None` if such a page covers
    /// `key`.
    pub(super) fn gap(&self, key: &str, page: &Page) -> Option<Page> {
        let newer = || self.pages.iter().filter(|other| other.at() >= page.at());
        if !page.covers(key) || newer().any(|other| other.covers(key)) {
            return None;
        }
        let before = newer().filter_map(|other| other.upto.as_deref()).rfind(|upto| *upto < key);
        let behind = newer().map(|other| &*other.after).find(|after| key <= *after);
        let after = before.map_or(&*page.after, |before| before.max(&page.after));
        let upto = match (page.upto.as_deref(), behind) {
            (Some(upto), Some(behind)) => Some(upto.min(behind)),
            (upto, behind) => upto.or(behind),
        };
        Some(page.slice(after, upto))
    }

    /// How much memory the directory takes under this name, in bytes.
    pub(super) fn bytes(&self, name: &str) -> usize {
        DIRECTORY_BYTES + name.len() + self.page_bytes
    }
}
