//! DirectorySnapshot snapshots: what LIST pages have told of directories, and how old that is.
//!
//! A page tells of *all* names between two keys. So it answers for the names that are there and for
//! those that are not, as long as it is believed. The pages of a directory don't overlap: a newer
//! one takes the place of what it covers.
//!
//! Names are kept in the order of their keys, packed: a million of them take some 90 bytes each.

mod directory;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::directory::DirectorySnapshot;
pub(crate) use self::directory::Outcome;
use super::lookup_allowance::LookupAllowance;
use super::names::Target;
use super::page::Page;
use crate::attr::FileKind;
use crate::sync::{Mutex, MutexGuard, lock};

/// Look-ups in one directory that no page answered, after which the directory is listed whole.
const MISSES_BEFORE_LISTING: u32 = 3;

/// How long a directory whose listing failed is not listed again for misses.
const LISTING_PAUSE: Duration = Duration::from_secs(10);

/// How long a LIST may have been under way when its page comes. The default time-out is as long.
const LONGEST_LIST: Duration = Duration::from_secs(60);

/// Names whose sizes are summed up, at most: it takes half a millisecond.
const MAX_SUMMED: usize = 1 << 15;

/// What is known of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// What it stands for, and how long that is still believed.
    Found(Target, Duration),
    /// Nothing has this name.
    Absent,
    /// No page that is believed covers it.
    Unknown,
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<Arc<str>, DirectorySnapshot>,
    bytes: usize,
    clock: u64,
}

impl State {
    /// Has `change` change what is known of a directory, if anything is, and keeps the sum.
    fn change(&mut self, prefix: &str, change: impl FnOnce(&mut DirectorySnapshot)) {
        if let Some(directory) = self.directories.get_mut(prefix) {
            let before = directory.bytes(prefix);
            change(directory);
            self.bytes = self.bytes - before + directory.bytes(prefix);
        }
    }
}

/// How long, and how much, snapshots are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long a name that was seen is believed.
    pub(crate) ttl: Duration,
    /// How long it is believed that a name stands for nothing.
    pub(crate) negative_ttl: Duration,
    /// Memory for all snapshots, in bytes.
    pub(crate) bytes: usize,
}

/// Snapshots by directory. The pages that were not used for longest leave first.
#[derive(Debug)]
pub(crate) struct Snapshots {
    limits: Limits,
    state: Mutex<State>,
}

impl Snapshots {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// What is known of `name` in the directory `prefix`.
    pub(crate) fn get(&self, prefix: &str, name: &str, now: Instant) -> Known {
        let mut state = self.lock();
        state.clock += 1;
        let clock = state.clock;
        let Some(directory) = state.directories.get_mut(prefix) else {
            return Known::Unknown;
        };
        let folder = format!("{name}/");
        let age = |page: &Page| now.saturating_duration_since(page.at);
        let left = |page: &Page| self.limits.ttl.checked_sub(age(page)).filter(|left| !left.is_zero());
        // The folder wins, and its place may be on another page than the key's.
        let (below, at) = (directory.index(&folder, clock), directory.index(name, clock));
        let Some(below) = below.map(|index| &directory.pages[index]) else { return Known::Unknown };
        if let Some(index) = below.find(&folder) {
            return left(below)
                .map_or(Known::Unknown, |left| Known::Found(below.target(prefix, index), left));
        }
        let Some(at) = at.map(|index| &directory.pages[index]) else { return Known::Unknown };
        let oldest = if age(at) > age(below) { at } else { below };
        match at.find(name) {
            Some(index) => {
                left(oldest).map_or(Known::Unknown, |left| Known::Found(at.target(prefix, index), left))
            }
            None if age(oldest) < self.limits.negative_ttl => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// The keys of up to `count` files, or sub-directories, of the directory `prefix` behind the key
    /// `after`, in their order, as far as they are known without a gap.
    pub(crate) fn following(
        &self,
        prefix: &str,
        after: &str,
        count: usize,
        kind: FileKind,
        now: Instant,
    ) -> Vec<Box<str>> {
        let state = self.lock();
        let mut names = Vec::new();
        let Some(directory) = state.directories.get(prefix) else { return names };
        let mut at = after;
        let mut index =
            directory.pages.partition_point(|page| page.upto.as_deref().is_some_and(|upto| upto <= at));
        while let Some(page) = directory.pages.get(index).filter(|page| *page.after <= *at) {
            if now.saturating_duration_since(page.at) >= self.limits.ttl {
                return names;
            }
            names.extend(
                page.keys_behind(at)
                    .filter(|key| key.ends_with('/') == (kind == FileKind::Directory))
                    .take(count - names.len())
                    .map(Into::into),
            );
            let Some(upto) = page.upto.as_deref().filter(|_| names.len() < count) else { return names };
            (at, index) = (upto, index + 1);
        }
        names
    }

    /// Bytes of the files in the directory `prefix` with this extension, as far as they are known. Counts no
    /// further than `most_bytes`.
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

    /// Keeps a page of the directory `prefix`. Returns the names of which it tells something else than
    /// was known.
    pub(crate) fn note(&self, prefix: &Arc<str>, mut page: Page) -> Vec<Box<str>> {
        if self.keeps_nothing() || page.upto.as_deref() == Some(&*page.after) {
            return Vec::new();
        }
        let mut state = self.lock();
        state.clock += 1;
        page.used = state.clock;
        match state.directories.get(prefix) {
            Some(directory) if directory.was_wrong.is_some_and(|at| page.at <= at) => return Vec::new(),
            Some(_) => {}
            None => {
                let directory = DirectorySnapshot::default();
                state.bytes += directory.bytes(prefix);
                state.directories.insert(prefix.clone(), directory);
            }
        }
        let mut changed = Vec::new();
        state.change(prefix, |directory| {
            changed = directory.insert(page);
        });
        self.shrink(&mut state);
        changed
    }

    /// Has the pages leave that were not used for longest, once there is no room for all.
    fn shrink(&self, state: &mut State) {
        if state.bytes <= self.limits.bytes {
            return;
        }
        let pages = state.directories.values().flat_map(|directory| &directory.pages);
        let mut by_use: Vec<_> = pages.map(|page| (page.used, page.bytes())).collect();
        by_use.sort_unstable();
        // More than is needed, so that the next page does not have to sort them again.
        let mut excess = state.bytes - (self.limits.bytes - self.limits.bytes / 8);
        let leave = by_use.iter().take_while(|(_, bytes)| {
            let is_needed = excess > 0;
            excess = excess.saturating_sub(*bytes);
            is_needed
        });
        let last = leave.last().map_or(0, |(used, _)| *used);
        self.retain(state, |page| page.used > last);
    }

    /// Keeps these pages, and the directories of which anything is left.
    fn retain(&self, state: &mut State, is_kept: impl Fn(&Page) -> bool) {
        for directory in state.directories.values_mut() {
            let before = directory.pages.len();
            directory.pages.retain(&is_kept);
            if directory.pages.len() < before {
                directory.pages.shrink_to_fit();
            }
        }
        state.directories.retain(|_, directory| directory.is_of_use());
        if state.directories.is_empty() {
            state.directories.shrink_to_fit();
        }
        state.bytes = state.directories.iter().map(|(name, directory)| directory.bytes(name)).sum();
    }

    /// Forgets what is known of `name` and its neighbours: a read has found it wrong just `now`. Pages of the
    /// directory that were asked for until then are not kept when they come.
    pub(crate) fn forget(&self, prefix: &str, name: &str, now: Instant) {
        self.lock().change(prefix, |directory| {
            directory.pages.retain(|page| !page.covers(name));
            directory.was_wrong = Some(now);
        });
    }

    /// Counts a look-up in `prefix` that no page answered. Whether the caller shall list the
    /// directory whole now: one of the callers, once so many have missed.
    pub(crate) fn on_miss(&self, prefix: &str, now: Instant) -> bool {
        if self.limits.ttl.is_zero() {
            return false;
        }
        let mut state = self.lock();
        let Some(directory) = state.directories.get_mut(prefix) else { return false };
        directory.misses += 1;
        let is_due = directory.being_listed.is_none()
            && directory.listed.is_none_or(|(outcome, at)| {
                let pause = match outcome {
                    Outcome::Known | Outcome::TooLarge => self.limits.ttl,
                    Outcome::Failed => self.limits.ttl.min(LISTING_PAUSE),
                };
                now.saturating_duration_since(at) >= pause
            });
        if directory.misses < MISSES_BEFORE_LISTING || !is_due {
            return false;
        }
        (directory.misses, directory.being_listed) = (0, Some(LookupAllowance::default()));
        true
    }

    /// Whether a look-up that no page of the directory `prefix` answers may send a LIST of its own. While the
    /// directory is being listed whole, few may.
    pub(crate) fn may_ask(&self, prefix: &str, now: tokio::time::Instant) -> bool {
        let mut state = self.lock();
        let allowance =
            state.directories.get_mut(prefix).and_then(|directory| directory.being_listed.as_mut());
        allowance.is_none_or(|allowance| allowance.take(now))
    }

    /// A page of the directory `prefix`, which is being listed whole, has come.
    pub(crate) fn on_listed_page(&self, prefix: &str, now: tokio::time::Instant) {
        let mut state = self.lock();
        let directory = state.directories.get_mut(prefix);
        if let Some(allowance) = directory.and_then(|directory| directory.being_listed.as_mut()) {
            allowance.on_page(now);
        }
    }

    /// Notes what came of listing a directory whole.
    pub(crate) fn listed(&self, prefix: &str, outcome: Outcome, now: Instant) {
        if let Some(directory) = self.lock().directories.get_mut(prefix) {
            (directory.being_listed, directory.listed) = (None, Some((outcome, now)));
        }
    }

    /// Lets go of what is not believed any more.
    pub(crate) fn expire(&self, now: Instant) {
        let most = self.limits.ttl.max(self.limits.negative_ttl);
        let mut state = self.lock();
        for directory in state.directories.values_mut() {
            let age = |at: Instant| now.saturating_duration_since(at);
            directory.listed = directory.listed.filter(|(_, at)| age(*at) < self.limits.ttl);
            directory.was_wrong = directory.was_wrong.filter(|at| age(*at) < LONGEST_LIST);
        }
        self.retain(&mut state, |page| now.saturating_duration_since(page.at) < most);
    }

    /// Memory that is taken, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Whether nothing is kept at all.
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
