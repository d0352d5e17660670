//! The answers about a directory since a moment.

use tokio::time::Instant;

use super::Snapshots;
use crate::name::Named;
use crate::pages::page::Page;

impl Snapshots {
    /// The names after the key `after` and up to the key `upto` (unset: the end of the directory `prefix`) of pages
    /// that were requested after `at`, in the order of their keys. They may have expired. Also returns whether some of
    /// these pages have no names because they are in doubt.
    pub(crate) fn shown_since<D>(
        &self,
        prefix: &str,
        after: &str,
        upto: Option<&str>,
        at: Instant,
    ) -> (Vec<Named<D>>, bool) {
        let state = self.lock();
        let pages = state.directories.get(prefix).map_or(&[][..], |directory| &directory.pages);
        let is_meant = |page: &&Page| {
            let begins_in = upto.is_none_or(|upto| *page.after < *upto);
            begins_in && page.upto().is_none_or(|end| after < end) && (page.at() > at || page.is_in_doubt)
        };
        let (mut names, mut is_in_doubt) = (Vec::new(), false);
        for page in pages.iter().filter(is_meant) {
            is_in_doubt |= page.is_in_doubt || page.is_outdated;
            if !page.is_outdated {
                names.extend(page.slice(after, upto).named(prefix));
            }
        }
        (names, is_in_doubt)
    }

    /// Whether an answer about the directory `prefix` was requested after `at`.
    pub(crate) fn knows_since(&self, prefix: &str, at: Instant) -> bool {
        let state = self.lock();
        let mut pages = state.directories.get(prefix).into_iter().flat_map(|directory| &directory.pages);
        state.was_wrong(prefix).is_some_and(|wrong| at <= wrong) || pages.any(|page| page.at() > at)
    }
}
