//! Directory snapshots: the pages of LIST requests by directory, with their ages.
//!
//! A page shows *all* names between two keys. So it answers for present and absent names, until it expires. The pages
//! of a directory don't overlap: a newer page replaces the parts of older ones that it covers.
//!
//! A page packs its names in the order of their keys. A million names take some 90 bytes each.

mod directory;
mod since;
mod told;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::directory::DirectorySnapshot;
pub(crate) use self::directory::Outcome;
use crate::fact::Asked;
use crate::lookup::allowance::LookupAllowance;
use crate::name::{NameKind, Stored};
use crate::pages::page::Page;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// The number of look-ups that no page answered after which a directory is listed whole.
const MISSES_BEFORE_LISTING: u32 = 3;

/// The longest time from a LIST request to its page. The default time-out is as long.
const LONGEST_LIST: Duration = Duration::from_secs(60);

/// The most names whose sizes are added up. This takes half a millisecond.
const MAX_SUMMED: usize = 1 << 15;

/// The known state of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// What the name refers to, and how long that may still be cached.
    Found(Stored, Duration),
    /// Nothing has this name, and how long that may still be cached.
    Absent(Duration),
    /// Answers differ, and their order is unknown.
    InDoubt,
    /// No page covers the name, or the page has expired.
    Unknown,
}

impl Known {
    /// What the name refers to, if it is known and present.
    pub(crate) fn stored(&self) -> Option<&Stored> {
        match self {
            Self::Found(stored, _) => Some(stored),
            Self::Absent(_) | Self::InDoubt | Self::Unknown => None,
        }
    }
}

/// The snapshots by the prefixes of their directories, and their memory.
#[derive(Debug, Default)]
struct SnapshotTable {
    directories: HashMap<Arc<str>, DirectorySnapshot>,
    bytes: usize,
    clock: u64,
    /// Other memory that counts in the same limit, in bytes.
    others: usize,
    /// When a name of some directory that is not here any more was last known to be wrong.
    was_wrong: Option<Instant>,
}

impl SnapshotTable {
    /// When a name of the directory `prefix` was last known to be wrong. Answers that were requested earlier may be wrong.
    fn was_wrong(&self, prefix: &str) -> Option<Instant> {
        self.directories.get(prefix).and_then(|directory| directory.was_wrong).max(self.was_wrong)
    }

    /// The snapshot of the directory `prefix`, which is made if there is none.
    fn make(&mut self, prefix: &Arc<str>) {
        if !self.directories.contains_key(prefix) {
            let directory = DirectorySnapshot::default();
            self.bytes += directory.bytes(prefix);
            self.directories.insert(prefix.clone(), directory);
        }
    }

    /// Applies `change` to the snapshot of a directory, if there is one, and updates the sum of memory.
    fn change(&mut self, prefix: &str, change: impl FnOnce(&mut DirectorySnapshot)) {
        if let Some(directory) = self.directories.get_mut(prefix) {
            let before = directory.bytes(prefix);
            change(directory);
            self.bytes = self.bytes - before + directory.bytes(prefix);
        }
    }
}

/// How long snapshots are kept, and in how much memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long a name from a page is cached as present.
    pub(crate) ttl: Duration,
    /// How long a name that is not on a page is cached as absent.
    pub(crate) negative_ttl: Duration,
    /// Memory for all snapshots, in bytes.
    pub(crate) bytes: usize,
}

/// The snapshots of all directories. The least recently used pages are evicted first.
#[derive(Debug)]
pub(crate) struct Snapshots {
    limits: Limits,
    state: Mutex<SnapshotTable>,
    /// How many pages have shown that names had changed. It changes together with the pages, under their lock.
    changes: AtomicU64,
}

impl Snapshots {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default(), changes: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, SnapshotTable> {
        lock(&self.state)
    }

    /// The known state of `name` in the directory `prefix`.
    pub(crate) fn get(&self, prefix: &str, name: &str, now: Instant) -> Known {
        self.known(&mut self.lock(), prefix, name, now, false)
    }

    /// The known states of names (each a directory, or not) that are newer than the time beside the name, or that they
    /// are in doubt, as is any state that was requested before a read showed that names of the directory were wrong.
    /// `None` for a name without a newer state. An expired state counts as newer, too.
    pub(crate) fn newer<'a>(
        &self,
        prefix: &str,
        names: impl Iterator<Item = (&'a str, NameKind, Instant)>,
        now: Instant,
    ) -> Vec<Option<Known>> {
        let mut state = self.lock();
        let was_wrong = state.was_wrong(prefix);
        let mut last = 0;
        let known = |(name, kind, at): (&str, NameKind, Instant)| {
            let folder = if kind == NameKind::Directory { format!("{name}/") } else { String::new() };
            let key = if folder.is_empty() { name } else { &folder };
            if was_wrong.is_some_and(|wrong| at <= wrong) {
                return Some(Known::InDoubt);
            }
            let pages = &state.directories.get(prefix)?.pages;
            // Names come in order, so most are on the page of the one before.
            if pages.get(last).is_none_or(|page| !page.covers(key)) {
                last = pages.partition_point(|page| *page.after < *key).checked_sub(1)?;
            }
            let is_newer =
                pages.get(last).is_some_and(|page| page.covers(key) && (page.at() > at || page.is_in_doubt));
            is_newer.then(|| self.known(&mut state, prefix, name, now, true))
        };
        names.map(known).collect()
    }

    fn known(
        &self,
        state: &mut SnapshotTable,
        prefix: &str,
        name: &str,
        now: Instant,
        has_expired_too: bool,
    ) -> Known {
        state.clock += 1;
        let clock = state.clock;
        let Some(directory) = state.directories.get_mut(prefix) else {
            return Known::Unknown;
        };
        let folder = format!("{name}/");
        let age = |page: &Page| now.saturating_duration_since(page.at());
        let left = |ttl: Duration, page: &Page| {
            let left = ttl.saturating_sub(age(page));
            (has_expired_too || !left.is_zero()).then_some(left)
        };
        let Limits { ttl, negative_ttl, .. } = self.limits;
        // A folder overrides a key of the same name, and the two may be on different pages.
        let (below, at) = (directory.index(&folder, clock), directory.index(name, clock));
        let is_in_doubt = |index: Option<usize>| {
            let page = index.map(|index| &directory.pages[index]);
            page.is_some_and(|page| page.is_in_doubt || (has_expired_too && page.is_outdated))
        };
        if is_in_doubt(below) || is_in_doubt(at) {
            return Known::InDoubt;
        }
        let page = |index: Option<usize>| {
            let page = &directory.pages[index?];
            (!page.is_outdated).then_some(page)
        };
        let Some(below) = page(below) else { return Known::Unknown };
        if let Some(index) = below.find(&folder) {
            return left(ttl, below)
                .map_or(Known::Unknown, |left| Known::Found(below.stored(prefix, index), left));
        }
        let Some(at) = page(at) else { return Known::Unknown };
        let oldest = if age(at) > age(below) { at } else { below };
        match at.find(name) {
            Some(index) => {
                left(ttl, oldest).map_or(Known::Unknown, |left| Known::Found(at.stored(prefix, index), left))
            }
            None => left(negative_ttl, oldest).map_or(Known::Unknown, Known::Absent),
        }
    }

    /// The keys of up to `count` files, or subdirectories, after the key `after` in the directory `prefix`, in order.
    /// Returns only keys that are known without a gap.
    pub(crate) fn following(
        &self,
        prefix: &str,
        after: &str,
        count: usize,
        kind: NameKind,
        now: Instant,
    ) -> Vec<Box<str>> {
        let state = self.lock();
        let mut names = Vec::new();
        let Some(directory) = state.directories.get(prefix) else { return names };
        let mut at = after;
        let mut index =
            directory.pages.partition_point(|page| page.upto.as_deref().is_some_and(|upto| upto <= at));
        while let Some(page) = directory.pages.get(index).filter(|page| *page.after <= *at) {
            if page.is_in_doubt
                || page.is_outdated
                || now.saturating_duration_since(page.at()) >= self.limits.ttl
            {
                return names;
            }
            names.extend(
                page.keys_behind(at)
                    .filter(|key| key.ends_with('/') == (kind == NameKind::Directory))
                    .take(count - names.len())
                    .map(Into::into),
            );
            let Some(upto) = page.upto.as_deref().filter(|_| names.len() < count) else { return names };
            (at, index) = (upto, index + 1);
        }
        names
    }

    /// The sum of the sizes of all known files in the directory `prefix` with this extension. It stops once
    /// it reaches `most_bytes`.
    pub(crate) fn file_bytes(&self, prefix: &str, extension: &str, most_bytes: u64) -> u64 {
        let state = self.lock();
        let pages = state.directories.get(prefix).map_or(&[][..], |directory| &directory.pages);
        let mut bytes: u64 = 0;
        for (key, size) in pages.iter().flat_map(Page::sizes).take(MAX_SUMMED) {
            if s3mount_object::extension(key) == extension {
                bytes = bytes.saturating_add(size);
            }
            if bytes >= most_bytes {
                break;
            }
        }
        bytes
    }

    /// Keeps a page of the directory `prefix`. Returns the names that have changed according to the page.
    pub(crate) fn note(&self, prefix: &Arc<str>, page: Page) -> Vec<Box<str>> {
        self.add(prefix, page, |_, page| Some(page))
    }

    /// As [`note`](Self::note), but only if nothing is known of the directory.
    pub(crate) fn note_first(&self, prefix: &Arc<str>, page: Page) -> Vec<Box<str>> {
        self.add(prefix, page, |directory, page| directory.pages.is_empty().then_some(page))
    }

    /// When the page was requested that shows no directory `name` in the directory `prefix`.
    pub(crate) fn has_no_folder_as_of(&self, prefix: &str, name: &str) -> Option<Asked> {
        let mut state = self.lock();
        let clock = state.clock;
        let (folder, directory) = (format!("{name}/"), state.directories.get_mut(prefix)?);
        let page = directory.index(&folder, clock).map(|index| &directory.pages[index])?;
        (!page.is_in_doubt && !page.is_outdated && page.find(&folder).is_none()).then_some(page.asked)
    }

    /// As [`note`](Self::note), with a page that may be older than others: keeps the part of it around `key`
    /// that no newer page covers.
    pub(crate) fn fill(&self, prefix: &Arc<str>, key: &str, page: Page) -> Vec<Box<str>> {
        self.add(prefix, page, |directory, page| directory.gap(key, &page))
    }

    fn add(
        &self,
        prefix: &Arc<str>,
        mut page: Page,
        part: impl FnOnce(&DirectorySnapshot, Page) -> Option<Page>,
    ) -> Vec<Box<str>> {
        if self.keeps_nothing() || page.upto.as_deref() == Some(&*page.after) {
            return Vec::new();
        }
        let mut state = self.lock();
        state.clock += 1;
        page.used = state.clock;
        if state.was_wrong(prefix).is_some_and(|at| page.at() <= at) {
            return Vec::new();
        }
        state.make(prefix);
        let mut changed = Vec::new();
        state.change(prefix, |directory| {
            changed = part(directory, page).map(|page| directory.insert(page)).unwrap_or_default();
        });
        self.count_change(&changed);
        self.shrink(&mut state);
        changed
    }

    fn count_change(&self, changed: &[Box<str>]) {
        if !changed.is_empty() {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many pages have shown so far that names had changed.
    pub(crate) fn changes(&self) -> u64 {
        // It is read after the kernel gets a name: the order must be kept.
        self.changes.fetch_add(0, Ordering::SeqCst)
    }

    /// Drops the least recently used pages when the limit is exceeded.
    fn shrink(&self, state: &mut SnapshotTable) {
        // Other memory may take most of the limit for a while, but not all of it.
        let limit = self.limits.bytes - state.others.min(self.limits.bytes / 2);
        if state.bytes <= limit {
            return;
        }
        let pages = state.directories.values().flat_map(|directory| &directory.pages);
        let mut by_use: Vec<_> = pages.map(|page| (page.used, page.bytes())).collect();
        by_use.sort_unstable();
        // This drops more than needed, so that the next page need not sort them again.
        let mut excess = state.bytes - (limit - limit / 8);
        let leave = by_use.iter().take_while(|(_, bytes)| {
            let is_needed = excess > 0;
            excess = excess.saturating_sub(*bytes);
            is_needed
        });
        let last = leave.last().map_or(0, |(used, _)| *used);
        self.retain(state, |page| page.used > last);
        if state.bytes > limit {
            state.leave_reasons();
        }
    }

    /// Drops all pages for which `is_kept` does not hold, and the directories without pages.
    fn retain(&self, state: &mut SnapshotTable, is_kept: impl Fn(&Page) -> bool) {
        for directory in state.directories.values_mut() {
            directory.retain(&is_kept);
        }
        state.directories.retain(|_, directory| directory.is_of_use());
        if state.directories.is_empty() {
            state.directories.shrink_to_fit();
        }
        state.bytes = state.directories.iter().map(|(name, directory)| directory.bytes(name)).sum();
    }

    /// Marks the page that covers `name` as outdated, because a read has shown it wrong just `now`. The name is in
    /// doubt until a later answer comes. Pages of the directory that were requested earlier are dropped when they come.
    ///
    /// Later pages are still compared with the page's names: else a change of another of its names would not be
    /// noticed, and an answer from before the page would count as the newest.
    ///
    /// Returns the name if it was known: the kernel's version of it may be newer than the version of that read.
    pub(crate) fn forget(&self, prefix: &str, name: &str, now: Instant) -> Vec<Box<str>> {
        let mut changed = Vec::new();
        self.lock().change(prefix, |directory| {
            for page in directory.pages.iter_mut().filter(|page| page.covers(name)) {
                page.is_outdated = true;
            }
            changed = directory.doubt(name, now);
            directory.was_wrong = Some(now);
            self.count_change(&changed);
        });
        changed
    }

    /// Forgets all pages of the directories below `prefix`. Those that were requested before `now` are dropped when
    /// they come.
    pub(crate) fn forget_below(&self, prefix: &str, now: Instant) {
        let mut state = self.lock();
        for (name, directory) in &mut state.directories {
            if name.starts_with(prefix) {
                directory.retain(|_| false);
                (directory.was_wrong, directory.listed) = (Some(now), None);
            }
        }
        self.retain(&mut state, |_| true);
    }

    /// Counts a look-up in `prefix` that no page answered. Returns whether the caller has to list the whole
    /// directory now. After enough such look-ups, this is one of the callers.
    pub(crate) fn on_miss(&self, prefix: &str, now: Instant) -> bool {
        if self.limits.ttl.is_zero() {
            return false;
        }
        let mut state = self.lock();
        let Some(directory) = state.directories.get_mut(prefix) else { return false };
        directory.misses += 1;
        let is_due = directory.being_listed.is_none()
            && directory.listed.is_none_or(|(outcome, at)| {
                now.saturating_duration_since(at) >= directory.pause(outcome, self.limits.ttl)
            });
        if directory.misses < MISSES_BEFORE_LISTING || !is_due {
            return false;
        }
        (directory.misses, directory.being_listed) = (0, Some(LookupAllowance::default()));
        true
    }

    /// Whether a look-up that no page of the directory `prefix` answers may send a LIST. While the directory is being
    /// listed whole, few may.
    pub(crate) fn may_ask(&self, prefix: &str, now: tokio::time::Instant) -> bool {
        let mut state = self.lock();
        let allowance =
            state.directories.get_mut(prefix).and_then(|directory| directory.being_listed.as_mut());
        allowance.is_none_or(|allowance| allowance.take(now))
    }

    /// Notes a page of the directory `prefix`, which is being listed whole.
    pub(crate) fn on_listed_page(&self, prefix: &str, now: tokio::time::Instant) {
        let mut state = self.lock();
        let directory = state.directories.get_mut(prefix);
        if let Some(allowance) = directory.and_then(|directory| directory.being_listed.as_mut()) {
            allowance.on_page(now);
        }
    }

    /// Notes the outcome of listing a directory whole.
    pub(crate) fn listed(&self, prefix: &str, outcome: Outcome, now: Instant) {
        if let Some(directory) = self.lock().directories.get_mut(prefix) {
            directory.on_listed(outcome, now);
        }
    }

    /// Drops pages that have expired.
    pub(crate) fn expire(&self, now: Instant) {
        let most = self.limits.ttl.max(self.limits.negative_ttl);
        let mut state = self.lock();
        for directory in state.directories.values_mut() {
            let age = |at: Instant| now.saturating_duration_since(at);
            // After two pauses without a look-up, the directory is forgotten.
            let kept = |outcome: Outcome| directory.pause(outcome, self.limits.ttl).saturating_mul(2);
            directory.listed = directory.listed.filter(|(outcome, at)| age(*at) < kept(*outcome));
            directory.was_wrong = directory.was_wrong.filter(|at| age(*at) < LONGEST_LIST);
        }
        state.was_wrong = state.was_wrong.filter(|at| now.saturating_duration_since(*at) < LONGEST_LIST);
        self.retain(&mut state, |page| now.saturating_duration_since(page.at()) < most);
    }

    /// How much memory all snapshots take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Sets the other memory that counts in the same limit.
    pub(crate) fn leave_room(&self, bytes: usize) {
        let mut state = self.lock();
        state.others = bytes;
        self.shrink(&mut state);
    }

    /// The other memory in the same limit, in bytes.
    pub(crate) fn room_left(&self) -> usize {
        self.lock().others
    }

    /// Memory for all names, in bytes.
    pub(crate) fn most_bytes(&self) -> usize {
        self.limits.bytes
    }

    /// Whether the settings keep no pages at all.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.limits.ttl.is_zero()
    }

    /// Memory for the names of one directory, in bytes: a directory that takes more is not listed whole. The
    /// last quarter of the limit is for all other directories. With the default limit of 128 MiB, a directory
    /// of a million names fits: they take 70 to 100 bytes each.
    pub(crate) fn most_of_one(&self) -> usize {
        self.limits.bytes / 4 * 3
    }
}

#[cfg(test)]
mod tests;
