//! What is known of one directory: its pages, and what came of listing it.

use tokio::time::Instant;

use crate::namespace::lookup_allowance::LookupAllowance;
use crate::namespace::page::Page;

/// What a directory takes beside its pages, in bytes: its place in the table, and its name twice.
const DIRECTORY_BYTES: usize = 160;

/// What is known of one directory.
#[derive(Debug, Default)]
pub(super) struct DirectorySnapshot {
    /// In the order of their keys, none over another.
    pub(super) pages: Vec<Page>,
    pub(super) misses: u32,
    /// While it is being listed whole: which look-ups may ask by themselves.
    pub(super) being_listed: Option<LookupAllowance>,
    /// What came of it the last time, and when.
    pub(super) listed: Option<(Outcome, Instant)>,
    /// When a read found a name wrong, if that was lately: pages that were asked for before may have it, too.
    pub(super) was_wrong: Option<Instant>,
}

/// What came of listing a directory whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Known,
    /// There is no memory for all of it.
    TooLarge,
    Failed,
}

impl DirectorySnapshot {
    /// The page that covers `key`, which is used now.
    pub(super) fn index(&mut self, key: &str, clock: u64) -> Option<usize> {
        let index = self.pages.partition_point(|page| *page.after < *key).checked_sub(1)?;
        let page = self.pages.get_mut(index).filter(|page| page.covers(key))?;
        page.used = clock;
        Some(index)
    }

    /// Whether anything is known, or it is known that it cannot be.
    pub(super) fn is_of_use(&self) -> bool {
        let is_too_large = matches!(self.listed, Some((Outcome::TooLarge, _)));
        !self.pages.is_empty() || self.being_listed.is_some() || is_too_large || self.was_wrong.is_some()
    }

    /// Puts a page in the place of what it covers. Returns the names that are there no more, or stand
    /// for something else now.
    pub(super) fn insert(&mut self, page: Page) -> Vec<Box<str>> {
        let ends_before = |old: &Page| old.upto.as_deref().is_some_and(|upto| *upto <= *page.after);
        let starts_behind = |old: &Page| page.upto.as_deref().is_some_and(|upto| *upto <= *old.after);
        let first = self.pages.partition_point(ends_before);
        let last = first + self.pages[first..].partition_point(|old| !starts_behind(old));
        let changed = self.pages[first..last].iter().flat_map(|old| old.changed(&page)).collect();
        let mut pieces = Vec::with_capacity(3);
        if let Some(old) = self.pages[first..last].first().filter(|old| *old.after < *page.after) {
            pieces.push(old.part(&old.after, Some(&page.after)));
        }
        let tail = self.pages[first..last].last().and_then(|old| {
            let from = page.upto.as_deref()?;
            let reaches = old.upto.as_deref().is_none_or(|upto| from < upto);
            reaches.then(|| old.part(from, old.upto.as_deref()))
        });
        pieces.push(page);
        pieces.extend(tail);
        self.pages.splice(first..last, pieces);
        changed
    }

    /// What it takes, and its place in the table under this name, in bytes.
    pub(super) fn bytes(&self, name: &str) -> usize {
        DIRECTORY_BYTES + name.len() + self.pages.iter().map(Page::bytes).sum::<usize>()
    }
}
