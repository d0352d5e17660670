//! The inodes that the kernel knows.
//!
//! **Invariant:** an inode number refers to one directory, or to one file that only this mount changes, and is never
//! used again. While a program of this mount writes the file, its inode refers to a draft, and then to the version that
//! the draft has become. The kernel sees each such change, so neither the pages nor the attributes that it caches for
//! an inode can become wrong. A version that another client has written is another inode.

mod attributes;
pub(crate) mod draft;
mod lost;
mod newest;
mod oldest;
mod outdated;
mod recent;
mod recorded;
pub(crate) mod renamed;
mod settling;
mod untold;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use hashbrown::HashTable;
use s3mount_object::{ETag, ObjectId};
use tokio::sync::Notify;

use self::lost::LostDraft;
use self::recent::Recent;
use self::settling::Settling;
use self::untold::Untold;
use crate::attr::{Attr, FIXED_ATTR_TTL, FileKind};
use crate::attributes::known::{CachedAttr, KnownAttrs};
use crate::drafts::DraftFile;
use crate::handover::Handover;
use crate::names::Target;
use crate::numbers::{FIRST_FREE, InodeNo, ROOT};
use crate::open::open_clock::OpenClock;
use crate::sync::{AtomicU64, Mutex, MutexGuard, RwLock, lock};
use s3mount_names::File;
use s3mount_names::time::{millis, time};

/// About how many bytes an inode takes. A million inodes take 294 MiB together with the listings of their
/// names.
pub const INODE_BYTES: usize = 200;

/// A name that the kernel knows, and its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownName {
    /// The inode. Unset if only a daemon before may have given the kernel the name.
    pub ino: Option<InodeNo>,
    /// The name in its directory.
    pub name: Box<str>,
}

/// What an inode refers to.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A directory: all keys below this prefix.
    Directory(Arc<str>),
    File(File),
    /// A file that this mount is writing.
    Draft(Arc<DraftFile>),
}

#[derive(Debug)]
struct Directory {
    prefix: Arc<str>,
    parent: InodeNo,
    name: Arc<str>,
    /// How many look-ups gave the inode to the kernel, minus those that it has forgotten.
    lookups: u64,
    /// Whether the name has another inode now, or is gone.
    is_outdated: bool,
}

/// A file that is being written, and its name in its directory.
#[derive(Debug)]
struct DraftNode {
    parent: InodeNo,
    name: Arc<str>,
    file: Arc<DraftFile>,
    /// As for a directory.
    lookups: u64,
    /// As for a directory.
    is_outdated: bool,
    /// Whether it was a version before, and has a place in `by_age`.
    has_age: bool,
    /// The length of the version that the store has of it, if any, and when that was written, in milliseconds since 1970.
    stored: Option<(u64, i64)>,
    /// Whether a program has got a handle of it. Nobody misses a new file that was never open: who was about to make it
    /// asks again.
    was_open: bool,
}

/// One version of a file, packed, because the kernel of a training job may know millions of them. The
/// object's key is the directory's prefix and the name.
#[derive(Debug)]
struct Version {
    parent: InodeNo,
    /// The name, then the ETag.
    text: Box<str>,
    size: u64,
    /// Milliseconds since 1970, or before.
    modified: i64,
    /// As for a directory.
    lookups: u32,
    name_len: u16,
    /// As for a directory.
    is_outdated: bool,
    /// Whether this mount has written it around the kernel's page cache, and it was not opened since. A map may have
    /// brought pages in meanwhile.
    may_have_old_pages: bool,
    /// When it was opened last. The kernel may hold pages of a file that was opened.
    opened: OpenClock,
    /// The attributes that are kept beside the object, if the mount shows them.
    found: Option<Box<CachedAttr>>,
}

impl Version {
    fn name(&self) -> &str {
        &self.text[..usize::from(self.name_len)]
    }

    fn etag(&self) -> &str {
        &self.text[usize::from(self.name_len)..]
    }

    fn attr(&self, ino: InodeNo) -> Attr {
        let attr = Attr::new(ino, FileKind::File, (self.size, time(self.modified)), FIXED_ATTR_TTL);
        self.found.as_deref().map_or(attr, |found| found.attr.shown_in(attr))
    }
}

#[derive(Debug)]
struct Tables {
    directories: HashMap<InodeNo, Directory>,
    versions: HashMap<InodeNo, Version>,
    drafts: HashMap<InodeNo, DraftNode>,
    /// The newest inode of each name. The names themselves are in the tables above.
    by_name: HashTable<InodeNo>,
    hasher: RandomState,
    next: InodeNo,
    /// How many drafts have got a number of their own.
    drafts_made: u64,
    opens: OpenClock,
    /// What the kernel does not know yet to be outdated.
    outdated: Untold,
    /// Files whose version this mount replaces just now by a copy onto itself.
    replaced: Vec<InodeNo>,
    /// Files in the order in which the kernel was first given them, or was last asked to forget them. Some of
    /// them are forgotten already.
    by_age: VecDeque<InodeNo>,
    /// Whether the kernel knows too many files.
    are_too_many: bool,
    /// Takes notes for the next daemon, if there is to be one.
    handover: Option<Arc<Handover>>,
    /// Drafts of the daemon before, which the kernel still knows.
    lost: HashMap<InodeNo, LostDraft>,
    /// Inodes that the kernel may know in spite of its count.
    settling: Settling,
    /// Files that the kernel was given last, if there is to be a next daemon.
    recent: Recent,
}

/// The hash of an inode's parent and name.
fn hash_of(
    ino: InodeNo,
    directories: &HashMap<InodeNo, Directory>,
    versions: &HashMap<InodeNo, Version>,
    drafts: &HashMap<InodeNo, DraftNode>,
    hasher: &RandomState,
) -> u64 {
    let place = versions.get(&ino).map(|version| (version.parent, version.name()));
    let place = place.or_else(|| directories.get(&ino).map(|known| (known.parent, &*known.name)));
    let place = place.or_else(|| drafts.get(&ino).map(|draft| (draft.parent, &*draft.name)));
    place.map_or(0, |place| hasher.hash_one(place))
}

impl Tables {
    /// The directory that an inode was found in, and its name there.
    fn parent_and_name(&self, ino: InodeNo) -> Option<(InodeNo, &str)> {
        match self.versions.get(&ino) {
            Some(version) => Some((version.parent, version.name())),
            None => {
                let directory = self.directories.get(&ino).map(|known| (known.parent, &*known.name));
                let draft = || self.drafts.get(&ino).map(|draft| (draft.parent, &*draft.name));
                let lost = || self.lost.get(&ino).map(|lost| (lost.parent, &*lost.name));
                directory.or_else(draft).or_else(lost)
            }
        }
    }

    fn newest(&self, parent: InodeNo, name: &str) -> Option<InodeNo> {
        let hash = self.hasher.hash_one((parent, name));
        self.by_name.find(hash, |ino| self.parent_and_name(*ino) == Some((parent, name))).copied()
    }

    /// The inode of the directory `prefix`, if the kernel knows it. The root's prefix is `root`.
    fn directory(&self, root: &str, prefix: &str) -> Option<InodeNo> {
        let names = prefix.strip_prefix(root)?.split_terminator('/');
        names.into_iter().try_fold(ROOT, |parent, name| self.newest(parent, name))
    }

    fn directory_attr(ino: InodeNo, mounted_at: SystemTime) -> Attr {
        Attr::new(ino, FileKind::Directory, (0, mounted_at), FIXED_ATTR_TTL)
    }
}

/// The inodes that the kernel knows, by number and by name.
#[derive(Debug)]
pub(crate) struct InodeTable {
    tables: Mutex<Tables>,
    /// Held while a directory is renamed, and the known names below it move with it.
    moving: RwLock<()>,
    /// The count of renames.
    renames: AtomicU64,
    mounted_at: SystemTime,
    has_outdated: Notify,
    /// How many files the kernel may know. Above this number it is asked to forget some.
    limit: usize,
    has_too_many: Notify,
    /// Set once, if attributes are shown.
    attrs: OnceLock<Arc<KnownAttrs>>,
}

impl InodeTable {
    pub(crate) fn new(prefix: &str, mounted_at: SystemTime, limit: usize) -> Self {
        let root = Directory {
            prefix: Arc::from(prefix),
            parent: ROOT,
            name: Arc::from(""),
            lookups: 1,
            is_outdated: false,
        };
        let tables = Tables {
            directories: HashMap::from([(ROOT, root)]),
            versions: HashMap::new(),
            drafts: HashMap::new(),
            by_name: HashTable::new(),
            #[expect(
                clippy::disallowed_methods,
                reason = "keys that are chosen to collide must not; no order shows"
            )]
            hasher: RandomState::new(),
            next: FIRST_FREE,
            drafts_made: 0,
            opens: OpenClock::default(),
            outdated: Untold::default(),
            replaced: Vec::new(),
            by_age: VecDeque::new(),
            are_too_many: false,
            handover: None,
            lost: HashMap::new(),
            settling: Settling::default(),
            recent: Recent::default(),
        };
        Self {
            tables: Mutex::new(tables),
            moving: RwLock::default(),
            renames: AtomicU64::new(0),
            mounted_at,
            has_outdated: Notify::new(),
            limit,
            has_too_many: Notify::new(),
            attrs: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    /// What an inode refers to, if the kernel knows the inode.
    pub(crate) fn node(&self, ino: InodeNo) -> Option<Node> {
        let tables = self.lock();
        if let Some(directory) = tables.directories.get(&ino) {
            return Some(Node::Directory(directory.prefix.clone()));
        }
        if let Some(draft) = tables.drafts.get(&ino) {
            return Some(Node::Draft(draft.file.clone()));
        }
        let version = tables.versions.get(&ino)?;
        let prefix = &tables.directories.get(&version.parent)?.prefix;
        let object = ObjectId::new(&format!("{prefix}{}", version.name()), ETag::new(version.etag()));
        Some(Node::File(File { object, size: version.size, mtime: time(version.modified) }))
    }

    /// Notes that a file is opened. Returns whether it was opened before.
    pub(crate) fn open(&self, ino: InodeNo) -> bool {
        let mut tables = self.lock();
        tables.opens = tables.opens.next();
        let now = tables.opens;
        let known = tables.versions.get_mut(&ino);
        known.is_some_and(|known| std::mem::replace(&mut known.opened, now).was_ever())
    }

    /// The time of the newest open, by the clock of opens.
    pub(crate) fn open_clock(&self) -> OpenClock {
        self.lock().opens
    }

    /// When the newest version of `name` in `parent` was last opened.
    pub(crate) fn opened(&self, parent: InodeNo, name: &str) -> OpenClock {
        let tables = self.lock();
        let newest = tables.newest(parent, name);
        newest.and_then(|ino| tables.versions.get(&ino)).map_or(OpenClock::NEVER, |known| known.opened)
    }

    /// The directory that an inode was found in, and its name there.
    pub(crate) fn parent_and_name(&self, ino: InodeNo) -> Option<(InodeNo, Arc<str>)> {
        self.lock().parent_and_name(ino).map(|(parent, name)| (parent, Arc::from(name)))
    }

    /// The inode of the directory `prefix`, if the kernel knows it. The root's prefix is `root`.
    pub(crate) fn directory(&self, root: &str, prefix: &str) -> Option<InodeNo> {
        self.lock().directory(root, prefix)
    }

    /// The parent of a directory. The root is its own parent.
    pub(crate) fn parent(&self, ino: InodeNo) -> InodeNo {
        self.lock().directories.get(&ino).map_or(ROOT, |known| known.parent)
    }

    /// As [`lookup_or_insert`](Self::lookup_or_insert), but returns `None` if a draft of this name has begun or ended
    /// since the target was found: then look the name up again.
    pub(crate) fn look_up(&self, parent: InodeNo, prefix: &str, name: &str, target: &Target) -> Option<Attr> {
        self.give(parent, prefix, name, target, true)
    }

    /// Finds the inode of `name` in `parent`, or makes one if there is none for this version. The kernel
    /// knows the inode from now on.
    pub(crate) fn lookup_or_insert(
        &self,
        parent: InodeNo,
        prefix: &str,
        name: &str,
        target: &Target,
    ) -> Attr {
        self.give(parent, prefix, name, target, false).expect("nothing is checked")
    }

    fn give(
        &self,
        parent: InodeNo,
        prefix: &str,
        name: &str,
        target: &Target,
        is_checked: bool,
    ) -> Option<Attr> {
        let found = match (target, self.attrs.get()) {
            (Target::File(file), Some(attrs)) => attrs.get(file).map(Box::new),
            _ => None,
        };
        let mut tables = self.lock();
        let newest = tables.newest(parent, name);
        if is_checked && tables.is_overtaken(newest, target) {
            return None;
        }
        Some(match target {
            Target::Draft(file) => {
                let ino = tables.draft(parent, name, file);
                drop(tables);
                file.attr(ino)
            }
            Target::Directory => {
                if let Some(ino) = newest.filter(|ino| tables.is_below(*ino, parent))
                    && let Some(known) = tables.directories.get_mut(&ino)
                {
                    known.lookups += 1;
                    known.is_outdated = false;
                    return Some(Tables::directory_attr(ino, self.mounted_at));
                }
                let ino = tables.take_number(parent, name, None);
                let prefix = Arc::from(format!("{prefix}{name}/"));
                let known =
                    Directory { prefix, parent, name: Arc::from(name), lookups: 1, is_outdated: false };
                tables.set_newest(ino, parent, name);
                tables.directories.insert(ino, known);
                tables.record(ino);
                Tables::directory_attr(ino, self.mounted_at)
            }
            Target::File(File { object, size, mtime }) => {
                let etag = object.etag().as_str();
                if let Some(ino) = newest
                    && let Some(known) = tables.versions.get_mut(&ino)
                    && known.etag() == etag
                {
                    known.lookups += 1;
                    known.is_outdated = false;
                    known.update(millis(*mtime), found);
                    return Some(known.attr(ino));
                }
                let ino = tables.take_number(parent, name, Some(etag));
                let known = Version {
                    parent,
                    text: format!("{name}{etag}").into(),
                    size: *size,
                    modified: millis(*mtime),
                    lookups: 1,
                    name_len: u16::try_from(name.len()).expect("a name of at most 255 bytes"),
                    is_outdated: false,
                    may_have_old_pages: false,
                    opened: OpenClock::NEVER,
                    found,
                };
                let attr = known.attr(ino);
                tables.set_newest(ino, parent, name);
                tables.versions.insert(ino, known);
                tables.record(ino);
                if tables.note_new(ino, self.limit) {
                    self.has_too_many.notify_one();
                }
                attr
            }
        })
    }

    /// Drops `count` of the look-ups that gave an inode to the kernel.
    pub(crate) fn forget(&self, ino: InodeNo, count: u64) {
        let mut tables = self.lock();
        if tables.lost.remove(&ino).is_some() {
            tables.record(ino);
        }
        let is_unsure = tables.lookups(ino).is_some_and(|known| known < count);
        let is_gone = match tables.versions.get_mut(&ino) {
            Some(known) => {
                known.lookups = known.lookups.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
                known.lookups == 0
            }
            None => match tables.drafts.get_mut(&ino) {
                Some(known) => known.forget(count),
                None => tables.directories.get_mut(&ino).is_some_and(|known| {
                    known.lookups = known.lookups.saturating_sub(count);
                    known.lookups == 0 && ino != ROOT
                }),
            },
        };
        if !is_gone {
            return;
        }
        let (needs_record, is_unsaved) = (tables.needs_record(ino), tables.is_unsaved(ino));
        if tables.settling.keeps(ino, needs_record, is_unsure || is_unsaved) {
            return;
        }
        let draft = tables.remove(ino, self.limit);
        drop(tables);
        // This may drop the last reference to a file, which gives its memory back: hold no lock here.
        drop(draft);
    }

    /// Notes that a name was removed. While the inode of a removed directory is in use, the kernel lets no program make
    /// a file in it: so the name gets another inode next.
    pub(crate) fn note_removed(&self, parent: InodeNo, name: &str) {
        self.lock().remove_newest(parent, name);
    }

    /// When the bucket was mounted.
    pub(crate) fn mounted_at(&self) -> SystemTime {
        self.mounted_at
    }

    /// How many inodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        let tables = self.lock();
        tables.directories.len() + tables.versions.len() + tables.drafts.len()
    }
}

impl Tables {
    /// Removes an inode that the kernel has forgotten. Returns its draft.
    fn remove(&mut self, ino: InodeNo, limit: usize) -> Option<DraftNode> {
        let parent_and_name = self.parent_and_name(ino).map(|(parent, name)| (parent, name.to_owned()));
        if let Some((parent, name)) = parent_and_name
            && self.newest(parent, &name) == Some(ino)
        {
            self.remove_newest(parent, &name);
        }
        self.versions.remove(&ino);
        self.directories.remove(&ino);
        let draft = self.drafts.remove(&ino);
        self.recent.forget(ino);
        self.record(ino);
        self.note_forgotten(limit);
        self.give_back();
        draft
    }

    /// Shrinks the tables when most of the files are forgotten.
    fn give_back(&mut self) {
        let len = self.versions.len();
        if self.versions.capacity() > 4096 && len < self.versions.capacity() / 4 {
            self.versions.shrink_to(len * 2);
            let Self { directories, versions, drafts, by_name, hasher, .. } = self;
            by_name.shrink_to(len * 2, |ino| hash_of(*ino, directories, versions, drafts, hasher));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::SystemTime;

    use proptest::prelude::*;
    use s3mount_object::{ETag, ObjectId};

    use super::{InodeNo, InodeTable, Node, ROOT};
    use crate::names::Target;
    use s3mount_names::File;

    fn version(etag: &str) -> Target {
        let object = ObjectId::new("a", ETag::new(etag));
        Target::File(File { object, size: 1, mtime: SystemTime::UNIX_EPOCH })
    }

    /// Look-ups and forgets of a few names in any order, against a plain table.
    #[derive(Clone, Debug)]
    enum Step {
        Give(u8, u8),
        Forget(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let give = (0u8..20, 0u8..4).prop_map(|(name, version)| Step::Give(name, version));
        proptest::collection::vec(prop_oneof![give, (0u8..60).prop_map(Step::Forget)], 1..300)
    }

    proptest! {
        #[test]
        fn is_as_a_plain_table(steps in steps()) {
            let table = InodeTable::new("p/", SystemTime::UNIX_EPOCH, 1 << 20);
            // By inode: name, version, look-ups. And the newest inode of a name.
            let mut known: BTreeMap<InodeNo, (u8, u8, u64)> = BTreeMap::new();
            let mut newest: BTreeMap<u8, InodeNo> = BTreeMap::new();
            for step in steps {
                match step {
                    // Version 0 is a directory.
                    Step::Give(name, number) => {
                        let target = if number == 0 { Target::Directory } else { version(&number.to_string()) };
                        let ino = table.lookup_or_insert(ROOT, "p/", &name.to_string(), &target).ino;
                        let before = newest.get(&name).filter(|ino| known[ino].1 == number);
                        prop_assert!(before.is_none_or(|before| *before == ino));
                        prop_assert!(before.is_some() || !known.contains_key(&ino), "a number is used again");
                        known.entry(ino).or_insert((name, number, 0)).2 += 1;
                        newest.insert(name, ino);
                    }
                    Step::Forget(which) => {
                        let Some(ino) = known.keys().nth(which.into()).copied() else { continue };
                        table.forget(ino, 1);
                        let (name, _, lookups) = known[&ino];
                        if lookups > 1 {
                            known.entry(ino).and_modify(|known| known.2 -= 1);
                        } else {
                            known.remove(&ino);
                            if newest.get(&name) == Some(&ino) {
                                newest.remove(&name);
                            }
                        }
                    }
                }
                prop_assert_eq!(table.len(), known.len() + 1);
            }
            for (ino, (name, number, _)) in known {
                prop_assert_eq!(table.parent_and_name(ino), Some((ROOT, Arc::from(name.to_string()))));
                match table.node(ino) {
                    Some(Node::Directory(prefix)) => prop_assert_eq!(&*prefix, format!("p/{name}/")),
                    Some(Node::File(file)) => {
                        prop_assert_eq!(file.object.key(), format!("p/{name}"));
                        prop_assert_eq!(file.object.etag().as_str(), number.to_string());
                    }
                    Some(Node::Draft(_)) | None => prop_assert!(false, "{ino} is known"),
                }
            }
        }
    }

    #[test]
    fn many_are_known_and_forgotten() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        let give = |index: u32| table.lookup_or_insert(ROOT, "", &index.to_string(), &version("e")).ino;
        let inodes: Vec<_> = (0..20_000).map(give).collect();
        assert_eq!((0..20_000).map(give).collect::<Vec<_>>(), inodes);
        inodes.iter().skip(10).for_each(|ino| table.forget(*ino, 2));
        assert_eq!((0..10).map(give).collect::<Vec<_>>(), inodes[..10]);
        assert_eq!(table.len(), 11);
    }

    #[test]
    fn a_directory_that_is_made_again_is_another_inode() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        let give = || table.lookup_or_insert(ROOT, "", "d", &Target::Directory).ino;
        let removed = give();
        table.note_removed(ROOT, "d");
        let made = give();
        assert_ne!(made, removed);
        table.forget(removed, 1);
        assert_eq!(give(), made);
    }

    #[test]
    fn a_version_is_an_inode_until_it_is_forgotten() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        let first = table.lookup_or_insert(ROOT, "", "a", &version("1")).ino;
        assert_eq!(table.lookup_or_insert(ROOT, "", "a", &version("1")).ino, first);
        let second = table.lookup_or_insert(ROOT, "", "a", &version("2")).ino;
        assert_ne!(first, second);
        table.forget(first, 1);
        assert!(table.node(first).is_some(), "it was given twice");
        table.forget(first, 1);
        assert!(table.node(first).is_none());
        assert_eq!(table.lookup_or_insert(ROOT, "", "a", &version("2")).ino, second);
        table.forget(second, 2);
        table.forget(ROOT, 100);
        assert_eq!(table.len(), 1, "only the root is left");
    }
}
