//! Changes of which the store tells by itself.

use std::sync::Arc;

use tokio::time::Instant;

use super::{SnapshotTable, Snapshots};
use crate::pages::page::Page;
use crate::sync::Ordering;

impl SnapshotTable {
    /// Drops directories of which nothing is left but the moment when a name was wrong. The latest of these moments holds
    /// for all directories from now on.
    pub(super) fn leave_reasons(&mut self) {
        let was_wrong = &mut self.was_wrong;
        self.directories.retain(|_, directory| {
            let has_reason_alone = directory.has_reason_alone();
            if has_reason_alone {
                *was_wrong = (*was_wrong).max(directory.was_wrong);
            }
            !has_reason_alone
        });
        self.bytes = self.directories.iter().map(|(name, directory)| directory.bytes(name)).sum();
    }
}

impl Snapshots {
    /// Puts `key` of the directory `prefix` in doubt as of `now`, also if nothing is known of the directory: a LIST that is
    /// under way may be older than the change. The key is in doubt until a later answer comes. Other keys are not.
    pub(crate) fn doubt(&self, prefix: &Arc<str>, key: &str, now: Instant) {
        if self.keeps_nothing() {
            return;
        }
        let mut state = self.lock();
        state.make(prefix);
        state.change(prefix, |directory| drop(directory.doubt(key, now)));
        // A look-up may be about to give the kernel the name, whether or not a page shows it.
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.shrink(&mut state);
    }

    /// When the newest page was requested that covers `name` in the directory `prefix`, or the folder of that name.
    pub(crate) fn newest(&self, prefix: &str, name: &str) -> Option<Instant> {
        let state = self.lock();
        let pages = &state.directories.get(prefix)?.pages;
        let covering = |key: &str| {
            let at = pages.partition_point(|page| *page.after < *key).checked_sub(1)?;
            Some(&pages[at]).filter(|page| page.covers(key) && !page.is_in_doubt).map(Page::at)
        };
        covering(name).max(covering(&format!("{name}/")))
    }

    /// Whether pages of the directory `prefix` show a name at `now`.
    pub(crate) fn shows_names(&self, prefix: &str, now: Instant) -> bool {
        let is_of_use = |page: &Page| {
            !page.is_outdated && page.len() > 0 && now.saturating_duration_since(page.at()) < self.limits.ttl
        };
        let state = self.lock();
        state.directories.get(prefix).is_some_and(|directory| directory.pages.iter().any(is_of_use))
    }
}
