//! Directory snapshots: what LIST pages have told of directories, and how old that is.
//!
//! A page tells of *all* names between two keys. So it answers for the names that are there and for
//! those that are not, as long as it is believed. The pages of a directory don't overlap: a newer
//! one takes the place of what it covers.
//!
//! Names are kept in the order of their keys, packed: a million of them take some 90 bytes each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use s3mount_object::{ETag, ListPage, ObjectId};

use crate::inode::FileKind;
use crate::namespace::names::{File, Hidden, Named, Target, end_before, is_file_name};

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

/// One entry: where its key ends in the page's text, and what the listing told.
#[derive(Clone, Copy, Debug)]
struct Packed {
    size: u64,
    /// Milliseconds since 1970, or before.
    modified: i64,
    /// Where its text ends: the key below the directory, then the ETag.
    end: u32,
    etag_len: u16,
}

/// All names of a directory between two keys. Keys are those below the directory; a sub-directory's
/// ends in `/`.
#[derive(Debug)]
pub(crate) struct Page {
    /// Names behind this key, which is not one of them.
    after: Box<str>,
    /// Names up to this key; all the rest without.
    upto: Option<Box<str>>,
    at: Instant,
    text: Box<str>,
    entries: Box<[Packed]>,
    /// When it was asked or noted last, by the snapshots' clock.
    used: u64,
}

impl Page {
    /// Packs a LIST page of the directory `prefix` that was asked for names behind `after`.
    pub(crate) fn new(prefix: &str, after: &str, listed: &ListPage, at: Instant, hidden: &Hidden) -> Self {
        let last = listed.last_key().and_then(|key| key.strip_prefix(prefix)).unwrap_or(after);
        let upto = listed.next.is_some().then_some(last);
        let first = listed.first_key().and_then(|key| key.strip_prefix(prefix));
        // A store that begins elsewhere than it was asked to tells nothing of what lies before: it may not
        // know StartAfter, or list the folder that holds the key which it was to start after.
        match first.filter(|first| *first <= after && !first.is_empty()) {
            Some(first) => Self::between(prefix, &end_before(first), upto, listed, at, hidden),
            None => Self::between(prefix, after, upto, listed, at, hidden),
        }
    }

    /// Packs all names of the directory `prefix` that lie behind `after`, and not behind `upto`.
    pub(crate) fn between(
        prefix: &str,
        after: &str,
        upto: Option<&str>,
        listed: &ListPage,
        at: Instant,
        hidden: &Hidden,
    ) -> Self {
        let mut names: Vec<(&str, Option<&s3mount_object::ObjectMeta>)> = Vec::new();
        for object in &listed.objects {
            // The marker object of the directory itself has no name.
            if let Some(name) = object.key.strip_prefix(prefix).filter(|name| !name.is_empty()) {
                names.push((name, Some(&object.meta)));
            }
        }
        names.extend(listed.common_prefixes.iter().filter_map(|key| Some((key.strip_prefix(prefix)?, None))));
        names.sort_unstable_by_key(|(name, _)| *name);
        names.dedup_by_key(|(name, _)| *name);
        let shown = names.into_iter().filter(|(name, _)| {
            let is_shown = is_file_name(name.strip_suffix('/').unwrap_or(name));
            if !is_shown {
                hidden.count(&format!("{prefix}{name}"));
            }
            is_shown
        });
        let (mut text, mut entries) = (String::new(), Vec::new());
        for (name, meta) in shown {
            text.push_str(name);
            let etag = meta.map_or("", |meta| meta.etag.as_str());
            text.push_str(etag);
            entries.push(Packed {
                size: meta.map_or(0, |meta| meta.size),
                modified: meta.map_or(0, |meta| millis(meta.last_modified)),
                end: u32::try_from(text.len()).expect("a page of 1,000 keys of 1 KiB"),
                etag_len: u16::try_from(etag.len()).unwrap_or(0),
            });
        }
        Self {
            after: after.into(),
            upto: upto.map(Into::into),
            at,
            text: text.into(),
            entries: entries.into(),
            used: 0,
        }
    }

    fn texts(&self, index: usize) -> (&str, &str) {
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].end as usize);
        let Packed { end, etag_len, .. } = self.entries[index];
        let end = end as usize;
        (&self.text[start..end - etag_len as usize], &self.text[end - etag_len as usize..end])
    }

    fn key(&self, index: usize) -> &str {
        self.texts(index).0
    }

    /// Its keys in their order; those of folders end in `/`.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        (0..self.entries.len()).map(|index| self.key(index))
    }

    /// Its names in the order of their keys.
    pub(crate) fn named(&self, prefix: &str) -> impl Iterator<Item = Named> {
        (0..self.entries.len()).map(move |index| {
            let key = self.key(index);
            let name = key.strip_suffix('/').unwrap_or(key).to_owned();
            Named { name, target: self.target(prefix, index) }
        })
    }

    /// How many names it has.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// When it was asked for.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// The last key that it covers, if more come behind it.
    pub(crate) fn upto(&self) -> Option<&str> {
        self.upto.as_deref()
    }

    fn covers(&self, key: &str) -> bool {
        *self.after < *key && self.upto.as_deref().is_none_or(|upto| key <= upto)
    }

    /// The first entry whose key is not before `key`.
    fn seek(&self, key: &str) -> usize {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn find(&self, key: &str) -> Option<usize> {
        let index = self.seek(key);
        (index < self.entries.len() && self.key(index) == key).then_some(index)
    }

    fn target(&self, prefix: &str, index: usize) -> Target {
        let (key, etag) = self.texts(index);
        if key.ends_with('/') {
            return Target::Directory;
        }
        let Packed { size, modified, .. } = self.entries[index];
        let object = ObjectId::new(&format!("{prefix}{key}"), ETag::new(etag));
        Target::File(File { object, size, mtime: time(modified) })
    }

    /// What this page alone says of `name`. `None` where it does not reach.
    pub(crate) fn answer(&self, prefix: &str, name: &str) -> Option<Option<Target>> {
        let folder = format!("{name}/");
        if let Some(index) = self.find(&folder) {
            return Some(Some(self.target(prefix, index)));
        }
        // Where a key and a folder have one name, the folder is shown: its place must be known.
        if !self.covers(name) || !self.covers(&folder) {
            return None;
        }
        Some(self.find(name).map(|index| self.target(prefix, index)))
    }

    /// The part of it behind `after` and up to `upto`.
    fn part(&self, after: &str, upto: Option<&str>) -> Self {
        let behind = |key: &str| {
            let index = self.seek(key);
            index + usize::from(index < self.entries.len() && self.key(index) == key)
        };
        let first = behind(after);
        let last = upto.map_or(self.entries.len(), behind);
        let start = first.checked_sub(1).map_or(0, |before| self.entries[before].end);
        let moved = |entry: &Packed| Packed { end: entry.end - start, ..*entry };
        let entries: Box<[Packed]> = self.entries[first..last.max(first)].iter().map(moved).collect();
        let len = entries.last().map_or(0, |entry| entry.end as usize);
        let start = start as usize;
        let text = self.text[start..start + len].into();
        Self { after: after.into(), upto: upto.map(Into::into), at: self.at, text, entries, used: self.used }
    }

    /// The names of this page that `newer` covers, and knows nothing or something else of.
    fn changed(&self, newer: &Self) -> Vec<Box<str>> {
        let mut changed = Vec::new();
        let mut other = newer.seek(self.entries.first().map_or("", |_| self.key(0)));
        for index in 0..self.entries.len() {
            let texts = self.texts(index);
            while other < newer.entries.len() && newer.key(other) < texts.0 {
                other += 1;
            }
            let is_same = other < newer.entries.len() && newer.texts(other) == texts;
            if !is_same && newer.covers(texts.0) {
                changed.push(texts.0.strip_suffix('/').unwrap_or(texts.0).into());
            }
        }
        changed
    }

    /// What the page takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let ends = self.after.len() + self.upto.as_deref().map_or(0, str::len);
        size_of::<Self>() + ends + self.text.len() + size_of_val(&*self.entries)
    }
}

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

/// What is known of one directory.
#[derive(Debug, Default)]
struct Directory {
    /// In the order of their keys, none over another.
    pages: Vec<Page>,
    misses: u32,
    /// Whether it is being listed whole.
    is_being_listed: bool,
    /// What came of it the last time, and when.
    listed: Option<(Outcome, Instant)>,
    /// When a read found a name wrong, if that was lately: pages that were asked for before may have it, too.
    was_wrong: Option<Instant>,
}

/// What came of listing a directory whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Known,
    /// There is no memory for all of it.
    TooLarge,
    Failed,
}

impl Directory {
    /// The page that covers `key`, which is used now.
    fn index(&mut self, key: &str, clock: u64) -> Option<usize> {
        let index = self.pages.partition_point(|page| *page.after < *key).checked_sub(1)?;
        let page = self.pages.get_mut(index).filter(|page| page.covers(key))?;
        page.used = clock;
        Some(index)
    }

    /// Whether anything is known, or it is known that it cannot be.
    fn is_of_use(&self) -> bool {
        let is_too_large = matches!(self.listed, Some((Outcome::TooLarge, _)));
        !self.pages.is_empty() || self.is_being_listed || is_too_large || self.was_wrong.is_some()
    }

    /// Puts a page in the place of what it covers. Returns the names that are there no more, or stand
    /// for something else now.
    fn insert(&mut self, page: Page) -> Vec<Box<str>> {
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
    fn bytes(&self, name: &str) -> usize {
        DIRECTORY_BYTES + name.len() + self.pages.iter().map(Page::bytes).sum::<usize>()
    }
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<Arc<str>, Directory>,
    bytes: usize,
    clock: u64,
}

/// What a directory takes beside its pages, in bytes: its place in the table, and its name twice.
const DIRECTORY_BYTES: usize = 160;

impl State {
    /// Has `change` change what is known of a directory, if anything is, and keeps the sum.
    fn change(&mut self, prefix: &str, change: impl FnOnce(&mut Directory)) {
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            let first = page.seek(at);
            let behind = (first..page.entries.len()).map(|index| page.key(index)).filter(|key| *key > at);
            names.extend(
                behind
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
        let keys = pages.iter().flat_map(|page| (0..page.entries.len()).map(move |index| (page, index)));
        let mut bytes: u64 = 0;
        for (page, index) in keys.take(MAX_SUMMED) {
            if s3mount_object::extension(page.key(index)) == extension {
                bytes = bytes.saturating_add(page.entries[index].size);
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
                let directory = Directory::default();
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
        let is_due = !directory.is_being_listed
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
        (directory.misses, directory.is_being_listed) = (0, true);
        true
    }

    /// Whether the directory `prefix` is being listed whole, as [`on_miss`](Self::on_miss) has asked for.
    pub(crate) fn is_being_listed(&self, prefix: &str) -> bool {
        self.lock().directories.get(prefix).is_some_and(|directory| directory.is_being_listed)
    }

    /// Notes what came of listing a directory whole.
    pub(crate) fn listed(&self, prefix: &str, outcome: Outcome, now: Instant) {
        if let Some(directory) = self.lock().directories.get_mut(prefix) {
            (directory.is_being_listed, directory.listed) = (false, Some((outcome, now)));
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

    /// Half of what may be taken, in bytes: a directory is listed whole up to there.
    pub(crate) fn most_of_one(&self) -> usize {
        self.limits.bytes / 2
    }
}

#[cfg(test)]
mod tests;
