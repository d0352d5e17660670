//! One open directory, and its listing as far as it was read.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::assembler::Assembler;
use super::list_ahead::Walks;
use crate::FsError;
use crate::handover::record::OpenFolderRecord;
use crate::names::Namespace;
use crate::names::{Fact, Named};
use crate::numbers::InodeNo;
use s3mount_names::ListingReader;

/// How many names an open directory keeps after they were read. The kernel requests fewer at once, so a reader can also
/// seek back a little.
const NAMES_KEPT: usize = 4096;

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(super) ino: InodeNo,
    /// Its prefix at the last check: the directory may be renamed while it is open.
    prefix: std::sync::Mutex<Arc<str>>,
    /// A name that the directory does not show.
    hidden_name: Option<&'static str>,
    pub(super) listing: Mutex<Listing>,
}

impl OpenDirectory {
    /// Opens the directory `prefix`, without reading it. It does not show `hidden_name`.
    pub(super) fn new(ino: InodeNo, prefix: Arc<str>, hidden_name: Option<&'static str>) -> Self {
        Self { ino, prefix: std::sync::Mutex::new(prefix), hidden_name, listing: Mutex::default() }
    }

    /// As it was left by a daemon before.
    pub(super) fn with(self, listing: Listing) -> Self {
        Self { listing: Mutex::new(listing), ..self }
    }

    fn lock_prefix(&self) -> MutexGuard<'_, Arc<str>> {
        self.prefix.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The prefix below which it is listed.
    pub(super) fn prefix(&self) -> Arc<str> {
        self.lock_prefix().clone()
    }

    /// Notes the directory's present prefix. Returns whether it was renamed since the last call, also if it has its
    /// former name again: each rename makes a new text.
    pub(super) fn has_moved(&self, prefix: &Arc<str>) -> bool {
        !Arc::ptr_eq(&std::mem::replace(&mut *self.lock_prefix(), prefix.clone()), prefix)
    }
}

/// A name of a directory.
#[derive(Debug)]
struct Listed {
    named: Named,
    /// Whether the name is gone.
    is_gone: bool,
    /// Whether the kernel may still cache the name.
    is_believed: bool,
}

/// The names of a directory, in order.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// How many names were dropped from the front of `names`.
    dropped: usize,
    names: VecDeque<Listed>,
    /// The greatest key of the names that were dropped.
    dropped_upto: String,
    /// The key after which the listing was begun anew: names up to it were shown before.
    behind: String,
    /// Names up to that key that were not shown yet: they are held back, because a folder of their name may follow.
    owed: HashSet<String>,
    /// From which number on its reader has asked for names.
    asked: usize,
    /// Keys of names that the daemon before has shown last. Its reader goes on behind any of them.
    given: Vec<String>,
    /// The ends of the names' pages (unset: the end of the directory), and when the pages were requested.
    pages: VecDeque<(Option<Box<str>>, Instant)>,
    /// Whether a newer answer shows that one of the names is gone. Its file may have another name now.
    has_gone: bool,
    /// Whether unknown names may have replaced those that are gone.
    is_in_doubt: bool,
    assembler: Assembler,
    reader: Option<ListingReader>,
    /// The count of known name changes at the last update of the names.
    changes: u64,
}

impl Listing {
    /// Begins the listing anew.
    pub(super) fn restart(&mut self) {
        *self = Self { asked: self.asked, ..Self::default() };
    }

    /// Notes from which number on its reader asks for names.
    pub(super) fn note_asked(&mut self, first: usize) {
        self.asked = first;
    }

    /// Begins the listing anew after the names with smaller numbers than `first`, which its reader has got: a renamed
    /// directory has the same names, except for those that were added and removed meanwhile.
    pub(super) fn go_on_anew(&mut self, first: usize) {
        let Some((behind, owed)) = self.kept_upto(first) else { return self.restart() };
        let owed = owed.into_iter().collect();
        let asked = self.asked;
        *self = Self { dropped: first, dropped_upto: behind.clone(), behind, owed, asked, ..Self::default() };
    }

    /// The greatest key of the names with smaller numbers than `first`, and the names up to that key that have greater
    /// numbers. `None` if some of these are not kept any more.
    pub(super) fn kept_upto(&self, first: usize) -> Option<(String, Vec<String>)> {
        let read = first.checked_sub(self.dropped)?.min(self.names.len());
        let keys = self.names.range(..read).map(|listed| listed.named.key());
        let behind = keys.max().unwrap_or_default().max(Cow::Borrowed(&*self.dropped_upto)).into_owned();
        let mut owed = self.owed.clone();
        for listed in self.names.range(..read) {
            owed.remove(&listed.named.name);
        }
        let left = self.names.range(read..).map(|listed| &listed.named).chain(self.assembler.held_back());
        owed.extend(left.filter(|named| *named.key() <= *behind).map(|named| named.name.clone()));
        Some((behind, owed.into_iter().collect()))
    }

    /// What the next daemon has to know to go on behind any of the names up to the number `next` for which the reader has
    /// asked last. `None` if some of these are not kept any more.
    pub(super) fn record(&self, ino: InodeNo, next: usize) -> Option<OpenFolderRecord> {
        let first = self.asked.min(next);
        let ((behind, owed), (_, owed_next)) = (self.kept_upto(first)?, self.kept_upto(next)?);
        let owed: HashSet<String> = owed.into_iter().chain(owed_next).collect();
        let upto = (next - self.dropped).min(self.names.len());
        let given = self.names.range((first - self.dropped).min(upto)..upto);
        let given = given.map(|listed| listed.named.key().into_owned()).collect();
        let (read, owed) = (first as u64, owed.into_iter().collect());
        Some(OpenFolderRecord { ino, read, behind: behind.into(), owed, given })
    }

    /// A listing whose first names were read from a daemon before.
    pub(super) fn behind(record: &OpenFolderRecord) -> Self {
        let behind = String::from(&*record.behind);
        let dropped = usize::try_from(record.read).unwrap_or(usize::MAX);
        let owed = record.owed.iter().cloned().collect();
        let given = record.given.clone();
        Self { dropped, dropped_upto: behind.clone(), behind, owed, given, ..Self::default() }
    }

    /// The reader of a daemon before goes on from the number `first` on: it has got the names before that, and none of
    /// the others.
    fn skip_given(&mut self, first: usize) {
        let given = std::mem::take(&mut self.given);
        let (got, left) = given.split_at(first.saturating_sub(self.dropped).min(given.len()));
        let name = |key: &String| key.trim_end_matches('/').to_owned();
        for key in got {
            self.owed.remove(&name(key));
            if *key > self.behind {
                self.behind.clone_from(key);
            }
        }
        self.owed.extend(left.iter().filter(|key| **key <= self.behind).map(name));
        self.dropped += got.len();
        self.dropped_upto.clone_from(&self.behind);
    }

    /// Lists the directory `open` up to the name with the number `first`, if there is one. If that name was dropped
    /// already, lists the directory again from its beginning.
    pub(super) async fn list_upto(
        &mut self,
        first: usize,
        namespace: &Namespace,
        walks: &Walks,
        open: &OpenDirectory,
    ) -> Result<(), FsError> {
        self.skip_given(first);
        if first < self.dropped {
            self.restart();
        }
        while self.dropped + self.names.len() <= first && !self.is_complete() {
            // All names that are kept were read.
            self.drop_first(self.names.len().saturating_sub(NAMES_KEPT));
            namespace.in_time(self.more(namespace, walks, open)).await?;
        }
        Ok(())
    }

    /// Up to `count` names from the number `first` on, without those that are gone, each with its number.
    pub(super) fn from(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, &Named)> {
        let names = (first..).zip(self.names.iter().skip(first - self.dropped)).take(count);
        names.filter_map(|(index, listed)| (!listed.is_gone).then_some((index, &listed.named)))
    }

    /// Forgets this many names at the front.
    fn drop_first(&mut self, count: usize) {
        for listed in self.names.drain(..count) {
            let key = listed.named.key();
            if *key > *self.dropped_upto {
                self.dropped_upto = key.into_owned();
            }
        }
        self.dropped += count;
        let upto = &*self.dropped_upto;
        while self.pages.len() > 1 && self.pages[0].0.as_deref().is_some_and(|end| end <= upto) {
            self.pages.pop_front();
        }
    }

    /// Updates up to `count` names from the number `first` on. Returns how many there are: none if the directory has
    /// fewer names now.
    ///
    /// A newer answer that shows that a name is gone may also show the name that has replaced it. Both are updated, or
    /// a renamed file would be listed under neither.
    pub(super) fn renew(
        &mut self,
        first: usize,
        count: usize,
        namespace: &Namespace,
        open: &OpenDirectory,
    ) -> usize {
        let first = (first - self.dropped).min(self.names.len());
        let prefix = open.prefix();
        loop {
            self.changes = namespace.changes();
            let shown = first..first.saturating_add(count).min(self.names.len());
            self.compare(&shown, namespace, &prefix);
            if !self.has_gone {
                return shown.len();
            }
            // Both updates must be of the same moment.
            let is_longer = self.add_newcomers(&shown, namespace, &prefix, open.hidden_name);
            if !is_longer && self.changes == namespace.changes() {
                return shown.len();
            }
        }
    }

    /// Compares these names with newer answers.
    fn compare(&mut self, shown: &Range<usize>, namespace: &Namespace, prefix: &str) {
        let newer = namespace.newer(prefix, self.names.range(shown.clone()).map(|listed| &listed.named));
        for (listed, newer) in self.names.range_mut(shown.clone()).zip(newer) {
            let Some(Fact { target, at, left }) = newer else { continue };
            (listed.is_gone, listed.is_believed) = (target.is_none(), !left.is_zero());
            self.has_gone |= listed.is_gone;
            if let Some(target) = target {
                (listed.named.target, listed.named.at) = (target, at);
            }
        }
    }

    /// Adds the names that newer pages show between these names. Returns whether it added any.
    fn add_newcomers(
        &mut self,
        shown: &Range<usize>,
        namespace: &Namespace,
        prefix: &str,
        hidden_name: Option<&str>,
    ) -> bool {
        let keys = |names: Range<usize>| self.names.range(names).map(|listed| listed.named.key());
        let before = keys(0..shown.start).max().unwrap_or_default();
        let mut after = Ord::max(&*before, &*self.dropped_upto).to_owned();
        let is_rest = shown.end == self.names.len() && self.is_complete();
        let last = if is_rest { None } else { keys(shown.clone()).max().map(Cow::into_owned) };
        if last.is_none() && !is_rest {
            return false;
        }
        let mut found = Vec::new();
        for (end, at) in &self.pages {
            let upto = match (end.as_deref(), last.as_deref()) {
                (Some(end), Some(last)) => Some(end.min(last)),
                (end, last) => end.or(last),
            };
            if upto.is_none_or(|upto| *after < *upto) {
                let (names, is_in_doubt) = namespace.shown_since(prefix, (&after, upto), *at);
                found.extend(names);
                self.is_in_doubt |= is_in_doubt;
                upto.unwrap_or_default().clone_into(&mut after);
            }
        }
        let known = self.names.iter().map(|listed| &listed.named).chain(self.assembler.held_back());
        let known: HashSet<&str> = known.map(|named| &*named.name).collect();
        found.retain(|named| !known.contains(&*named.name) && Some(&*named.name) != hidden_name);
        // If a key and a folder have the same name, the folder is shown.
        found.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| b.key().cmp(&a.key())));
        found.dedup_by(|a, b| a.name == b.name);
        let has_any = !found.is_empty();
        for named in found {
            let behind = |listed: &Listed| *listed.named.key() > *named.key();
            let at = self.names.range(shown.start..).position(behind);
            let at = at.map_or(self.names.len(), |at| shown.start + at);
            self.names.insert(at, Listed { named, is_gone: false, is_believed: true });
        }
        has_any
    }

    /// Whether the listing may lack names: some are gone, and others may have been added.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    fn is_complete(&self) -> bool {
        self.reader.as_ref().is_some_and(ListingReader::is_complete)
    }

    /// The count of known name changes at the last update of the names.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the kernel may still cache the name with the number `index`.
    pub(super) fn is_believed(&self, index: usize) -> bool {
        let listed = index.checked_sub(self.dropped).and_then(|index| self.names.get(index));
        listed.is_some_and(|listed| listed.is_believed)
    }

    /// The name with the number `index`, if it is kept and not gone.
    pub(super) fn get(&self, index: usize) -> Option<&Named> {
        let listed = self.names.get(index.checked_sub(self.dropped)?)?;
        (!listed.is_gone).then_some(&listed.named)
    }

    /// Adds one more page of the listing.
    async fn more(
        &mut self,
        namespace: &Namespace,
        walks: &Walks,
        open: &OpenDirectory,
    ) -> Result<(), FsError> {
        let prefix = open.prefix();
        let reader = match &mut self.reader {
            Some(reader) => reader,
            unset => {
                let first = walks.take(&prefix).await;
                unset.insert(namespace.list(&prefix, first).await)
            }
        };
        if let Some(taken) = namespace.next_page(&prefix, reader).await? {
            self.pages.push_back((taken.page().upto().map(Into::into), taken.page().at()));
            let assembler = &mut self.assembler;
            let names = namespace.names_now(&prefix, taken.page(), |page| assembler.push(&prefix, page));
            let is_left = |named: &Named| *named.key() > *self.behind || self.owed.contains(&named.name);
            let is_shown = |named: &Named| Some(named.name.as_str()) != open.hidden_name && is_left(named);
            let shown = names.into_iter().filter(is_shown);
            self.names.extend(shown.map(|named| Listed { named, is_gone: false, is_believed: true }));
            namespace.keep_taken(&prefix, taken);
        }
        Ok(())
    }
}
