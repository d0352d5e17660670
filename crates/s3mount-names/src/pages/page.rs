//! One LIST page of a directory, packed.
//!
//! A page shows *all* names between two keys. So it answers for present and for absent names. It packs its names in the
//! order of their keys. A million names take some 90 bytes each.

mod bytes;

use std::collections::BTreeMap;

use tokio::time::Instant;

#[cfg(test)]
use s3mount_object::ListedObject;
use s3mount_object::{ETag, ListPage, ObjectId, ObjectMeta};

use crate::fact::Asked;
use crate::name::{File, Hidden, Named, Stored, end_before, is_file_name};
use crate::time::{millis, time};

/// One name: the end of its text in the page's text, and the attributes of its object.
#[derive(Clone, Copy, Debug)]
struct Packed {
    size: u64,
    /// When the object was written, in milliseconds since 1970. Negative before 1970.
    modified: i64,
    /// The end of its text. The text is the key below the directory, then the ETag.
    end: u32,
    etag_len: u16,
}

/// All names of a directory between two keys. Keys begin below the directory. The key of a subdirectory ends
/// in `/`.
#[derive(Clone, Debug)]
pub struct Page {
    /// All names of the page lie after this key.
    pub(crate) after: Box<str>,
    /// The last key that the page covers. Unset if the page covers the rest of the directory.
    pub(super) upto: Option<Box<str>>,
    /// When the page was requested.
    pub(super) asked: Asked,
    /// Whether answers differ on the covered key, and their order is unknown: then the page has no names.
    pub(super) is_in_doubt: bool,
    /// Whether a read has shown a name of the page wrong. The page answers for no name any more, but later pages are
    /// compared with it.
    pub(super) is_outdated: bool,
    text: Box<str>,
    entries: Box<[Packed]>,
    /// When the page was last used, by the snapshots' clock.
    pub(super) used: u64,
}

impl Page {
    /// Packs the answer to a LIST of the directory `prefix` that was to begin after `after`.
    pub fn new(prefix: &str, after: &str, listed: &ListPage, asked: Asked, hidden: &Hidden) -> Self {
        let last = listed.last_key().and_then(|key| key.strip_prefix(prefix)).unwrap_or(after);
        let upto = listed.next.is_some().then_some(last);
        let first = listed.first_key().and_then(|key| key.strip_prefix(prefix));
        // Some stores begin elsewhere. They may not know StartAfter, or they list the folder that holds this key. Their
        // page does not cover the names before its first key.
        match first.filter(|first| *first <= after && !first.is_empty()) {
            Some(first) => Self::between(prefix, &end_before(first), upto, listed, asked, hidden),
            None => Self::between(prefix, after, upto, listed, asked, hidden),
        }
    }

    /// All of the directory `d/`: these files of a byte each, and these folders.
    #[cfg(test)]
    pub(crate) fn of_names(files: &[&str], folders: &[&str], etag: &str, at: Instant) -> Self {
        let (etag, last_modified) = (ETag::new(etag), std::time::SystemTime::UNIX_EPOCH);
        let meta = ObjectMeta { etag, size: 1, last_modified, storage_class: None };
        let object = |name: &&str| ListedObject { key: format!("d/{name}"), meta: meta.clone() };
        let objects = files.iter().map(object).collect();
        let common_prefixes = folders.iter().map(|folder| format!("d/{folder}/")).collect();
        let listed = ListPage { objects, common_prefixes, next: None };
        Self::between("d/", "", None, &listed, Asked::at(at), &Hidden::default())
    }

    /// Packs all names of the directory `prefix` after `after` and up to `upto`.
    pub(crate) fn between(
        prefix: &str,
        after: &str,
        upto: Option<&str>,
        listed: &ListPage,
        asked: Asked,
        hidden: &Hidden,
    ) -> Self {
        let mut names: Vec<(&str, Option<&ObjectMeta>)> = Vec::new();
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
        let known = shown.map(|(name, meta)| match meta {
            Some(meta) => (name, meta.etag.as_str(), meta.size, millis(meta.last_modified)),
            None => (name, "", 0, 0),
        });
        Self::pack(after, upto, asked, known)
    }

    /// Packs names, in the order of their keys: key, `ETag`, size, and time in milliseconds.
    pub(super) fn pack<'a>(
        after: &str,
        upto: Option<&str>,
        asked: Asked,
        known: impl Iterator<Item = (&'a str, &'a str, u64, i64)>,
    ) -> Self {
        let (mut text, mut entries) = (String::new(), Vec::new());
        for (name, etag, size, modified) in known {
            text.push_str(name);
            text.push_str(etag);
            entries.push(Packed {
                size,
                modified,
                end: u32::try_from(text.len()).expect("a page of 1,000 keys of 1 KiB"),
                etag_len: u16::try_from(etag.len()).unwrap_or(0),
            });
        }
        Self {
            after: after.into(),
            upto: upto.map(Into::into),
            asked,
            is_in_doubt: false,
            is_outdated: false,
            text: text.into(),
            entries: entries.into(),
            used: 0,
        }
    }

    /// A page of a whole directory without names.
    pub(crate) fn empty(asked: Asked) -> Self {
        Self::pack("", None, asked, std::iter::empty())
    }

    /// A page of one key alone: a file, or nothing.
    pub(crate) fn of_one(key: &str, file: Option<&File>, asked: Asked) -> Self {
        let known = file.map(|file| (key, file.object.etag().as_str(), file.size, millis(file.mtime)));
        Self::pack(&end_before(key), Some(key), asked, known.into_iter())
    }

    /// A page of the folder `name` alone: present or absent.
    pub(crate) fn of_folder(name: &str, is_there: bool, asked: Asked) -> Self {
        let key = format!("{name}/");
        let known = is_there.then_some((key.as_str(), "", 0, 0));
        Self::pack(&end_before(&key), Some(&key), asked, known.into_iter())
    }

    /// A page of one key alone, on which answers differ.
    pub(crate) fn in_doubt(key: &str, asked: Asked) -> Self {
        Self { is_in_doubt: true, ..Self::of_one(key, None, asked) }
    }

    /// The page after changes of some of its names: to a file, or to nothing.
    pub(crate) fn changed_by(&self, changes: &BTreeMap<Box<str>, Option<File>>) -> Self {
        let mut known = BTreeMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let (key, etag) = self.texts(index);
            known.insert(key, (etag, entry.size, entry.modified));
        }
        let folders: Vec<String> = changes.keys().map(|name| format!("{name}/")).collect();
        for ((name, file), folder) in changes.iter().zip(&folders) {
            match file {
                Some(file) => {
                    known.insert(name, (file.object.etag().as_str(), file.size, millis(file.mtime)));
                }
                None => {
                    known.remove(&**name);
                    known.remove(folder.as_str());
                }
            }
        }
        let known = known.into_iter().map(|(key, (etag, size, modified))| (key, etag, size, modified));
        Self::pack(&self.after, self.upto.as_deref(), self.asked, known)
    }

    fn texts(&self, index: usize) -> (&str, &str) {
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].end as usize);
        let Packed { end, etag_len, .. } = self.entries[index];
        let end = end as usize;
        (&self.text[start..end - etag_len as usize], &self.text[end - etag_len as usize..end])
    }

    /// The key with the number `index`.
    pub(super) fn key(&self, index: usize) -> &str {
        self.texts(index).0
    }

    /// The name with the number `index`, as [`pack`](Self::pack) takes it.
    pub(super) fn packed(&self, index: usize) -> (&str, &str, u64, i64) {
        let ((key, etag), Packed { size, modified, .. }) = (self.texts(index), self.entries[index]);
        (key, etag, size, modified)
    }

    /// Its keys, in order. The keys of folders end in `/`.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        (0..self.entries.len()).map(|index| self.key(index))
    }

    /// Its keys after `key`, in order.
    pub(super) fn keys_behind(&self, key: &str) -> impl Iterator<Item = &str> {
        let first = self.seek(key);
        (first..self.entries.len()).map(|index| self.key(index)).filter(move |found| *found > key)
    }

    /// Its keys, with the sizes of their objects in bytes. A folder has 0.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (&str, u64)> {
        self.entries.iter().enumerate().map(|(index, entry)| (self.key(index), entry.size))
    }

    /// Its names in the order of their keys.
    pub fn named<D>(&self, prefix: &str) -> impl Iterator<Item = Named<D>> {
        (0..self.entries.len()).map(move |index| {
            let key = self.key(index);
            let name = key.strip_suffix('/').unwrap_or(key).to_owned();
            Named { name, target: self.stored(prefix, index).into(), at: self.at() }
        })
    }

    /// How many names it has.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// When the page was requested.
    pub fn at(&self) -> Instant {
        self.asked.sent
    }

    /// When the page came.
    pub(crate) fn came(&self) -> Instant {
        self.asked.came
    }

    /// The last key that the page covers. `None` if it covers the rest of the directory.
    pub fn upto(&self) -> Option<&str> {
        self.upto.as_deref()
    }

    /// Whether the page covers this key.
    pub(crate) fn covers(&self, key: &str) -> bool {
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

    /// The first entry whose key is after `key`.
    fn first_behind(&self, key: &str) -> usize {
        let index = self.seek(key);
        index + usize::from(index < self.entries.len() && self.key(index) == key)
    }

    /// Whether there may be keys that both pages cover.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let begins_in = |page: &Self, other: &Self| other.upto().is_none_or(|upto| *page.after < *upto);
        begins_in(self, other) && begins_in(other, self)
    }

    /// The number of a key, if the page shows it.
    pub(crate) fn find(&self, key: &str) -> Option<usize> {
        let index = self.seek(key);
        (index < self.entries.len() && self.key(index) == key).then_some(index)
    }

    /// What the name with the number `index` refers to.
    pub(super) fn stored(&self, prefix: &str, index: usize) -> Stored {
        let (key, etag) = self.texts(index);
        if key.ends_with('/') {
            return Stored::Directory;
        }
        let Packed { size, modified, .. } = self.entries[index];
        let object = ObjectId::new(&format!("{prefix}{key}"), ETag::new(etag));
        Stored::File(File { object, size, mtime: time(modified) })
    }

    /// The answer of this page alone for `name`. `None` if the page does not cover it.
    pub fn answer(&self, prefix: &str, name: &str) -> Option<Option<Stored>> {
        let folder = format!("{name}/");
        if let Some(index) = self.find(&folder) {
            return Some(Some(self.stored(prefix, index)));
        }
        // If a key and a folder have the same name, the folder is shown. So the page must cover both.
        if !self.covers(name) || !self.covers(&folder) {
            return None;
        }
        Some(self.find(name).map(|index| self.stored(prefix, index)))
    }

    /// The part of the page after `after` and up to `upto`.
    pub(super) fn slice(&self, after: &str, upto: Option<&str>) -> Self {
        let first = self.first_behind(after);
        let last = upto.map_or(self.entries.len(), |upto| self.first_behind(upto));
        let start = first.checked_sub(1).map_or(0, |before| self.entries[before].end);
        let moved = |entry: &Packed| Packed { end: entry.end - start, ..*entry };
        let entries: Box<[Packed]> = self.entries[first..last.max(first)].iter().map(moved).collect();
        let len = entries.last().map_or(0, |entry| entry.end as usize);
        let start = start as usize;
        let text = self.text[start..start + len].into();
        let Self { asked, is_in_doubt, is_outdated, used, .. } = *self;
        let (after, upto) = (after.into(), upto.map(Into::into));
        Self { after, upto, asked, is_in_doubt, is_outdated, text, entries, used }
    }

    /// The names of this page that `newer` covers, and that are absent or different there.
    pub(super) fn changed(&self, newer: &Self) -> Vec<Box<str>> {
        let name = |key: &str| key.strip_suffix('/').unwrap_or(key).into();
        self.keys_unlike(newer).map(name).collect()
    }

    /// The keys of this page that `other` covers, and that are absent or different there.
    pub(super) fn keys_unlike<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let first = self.first_behind(&other.after);
        let mut at = other.first_behind(&self.after);
        let covered = (first..self.entries.len()).map(move |index| self.texts(index));
        covered.take_while(move |texts| other.covers(texts.0)).filter_map(move |texts| {
            while at < other.entries.len() && other.key(at) < texts.0 {
                at += 1;
            }
            let is_same = at < other.entries.len() && other.texts(at) == texts;
            (!is_same).then_some(texts.0)
        })
    }

    /// The keys that both pages cover, and on which they differ.
    pub(super) fn disputed<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        // A page in doubt has one key, and an answer that was under way when the key came into doubt does not settle
        // it.
        let of = |page: &'a Self, by: &Self| page.upto().filter(|key| page.is_in_doubt && by.covers(key));
        let in_doubt = [of(self, other), of(other, self)].into_iter().flatten();
        in_doubt.chain(self.keys_unlike(other)).chain(other.keys_unlike(self))
    }

    /// The memory of the page, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let ends = self.after.len() + self.upto.as_deref().map_or(0, str::len);
        size_of::<Self>() + ends + self.text.len() + size_of_val(&*self.entries)
    }
}
