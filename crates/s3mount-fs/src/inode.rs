//! The inodes that the kernel knows.
//!
//! **Invariant:** an inode number stands for one directory, or for one version of one object, and
//! is never used again. So neither the pages nor the attributes that the kernel keeps for it can
//! become wrong: another version is another inode.

mod oldest;
mod outdated;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use hashbrown::HashTable;
use s3mount_object::{ETag, ObjectId};
use tokio::sync::Notify;

use crate::FsError;
use crate::attr::{Attr, FIXED_ATTR_TTL, FileKind};
use crate::namespace::names::{File, Target};
use crate::numbers::{FIRST_FREE, InodeNo, ROOT};
use crate::open_clock::OpenClock;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::time::{millis, time};

/// What an inode takes, in bytes, about: 294 MiB for a million of them and their names' listings.
pub const INODE_BYTES: usize = 200;

/// An inode that the kernel was given, and its name in its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownName {
    /// The inode.
    pub ino: InodeNo,
    /// Its name.
    pub name: Box<str>,
}

/// What an inode stands for.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Keys below this prefix.
    Directory(Arc<str>),
    File(File),
}

#[derive(Debug)]
struct Directory {
    prefix: Arc<str>,
    parent: InodeNo,
    name: Arc<str>,
    /// How often the kernel was given it, less how often it forgot it.
    lookups: u64,
    /// Whether the name stands for something else by now.
    is_outdated: bool,
}

/// One version of a file, packed: a job may have the kernel know millions of them. The key is the
/// directory's prefix and the name.
#[derive(Debug)]
struct Version {
    parent: InodeNo,
    /// The name, then the ETag.
    text: Box<str>,
    size: u64,
    /// Milliseconds since 1970, or before.
    modified: i64,
    /// As of a directory.
    lookups: u32,
    name_len: u16,
    /// As of a directory.
    is_outdated: bool,
    /// When it was opened last, if it was: then the kernel may hold its pages.
    opened: OpenClock,
}

impl Version {
    fn name(&self) -> &str {
        &self.text[..usize::from(self.name_len)]
    }

    fn etag(&self) -> &str {
        &self.text[usize::from(self.name_len)..]
    }

    fn attr(&self, ino: InodeNo) -> Attr {
        Attr {
            ino,
            kind: FileKind::File,
            size: self.size,
            mtime: time(self.modified),
            mode: None,
            ttl: FIXED_ATTR_TTL,
        }
    }
}

#[derive(Debug)]
struct Tables {
    directories: HashMap<InodeNo, Directory>,
    versions: HashMap<InodeNo, Version>,
    /// The newest inode of each name; the names are in the tables above.
    by_name: HashTable<InodeNo>,
    hasher: RandomState,
    next: InodeNo,
    opens: OpenClock,
    /// Outdated inodes of which the kernel has not been told, by their directories.
    outdated: HashMap<InodeNo, Vec<InodeNo>>,
    /// Files in the order in which they were given first, or were asked for, and some that are forgotten.
    by_age: VecDeque<InodeNo>,
    /// Whether the kernel is to forget files.
    are_too_many: bool,
}

/// The hash of an inode's place.
fn hash_of(
    ino: InodeNo,
    directories: &HashMap<InodeNo, Directory>,
    versions: &HashMap<InodeNo, Version>,
    hasher: &RandomState,
) -> u64 {
    match versions.get(&ino) {
        Some(version) => hasher.hash_one((version.parent, version.name())),
        None => directories.get(&ino).map_or(0, |known| hasher.hash_one((known.parent, &*known.name))),
    }
}

impl Tables {
    /// Where an inode was found.
    fn place(&self, ino: InodeNo) -> Option<(InodeNo, &str)> {
        match self.versions.get(&ino) {
            Some(version) => Some((version.parent, version.name())),
            None => self.directories.get(&ino).map(|directory| (directory.parent, &*directory.name)),
        }
    }

    fn newest(&self, parent: InodeNo, name: &str) -> Option<InodeNo> {
        let hash = self.hasher.hash_one((parent, name));
        self.by_name.find(hash, |ino| self.place(*ino) == Some((parent, name))).copied()
    }

    /// The inode of the directory `prefix`, where the root's is `root`, if the kernel knows it.
    fn directory(&self, root: &str, prefix: &str) -> Option<InodeNo> {
        let names = prefix.strip_prefix(root)?.split_terminator('/');
        names.into_iter().try_fold(ROOT, |parent, name| self.newest(parent, name))
    }

    /// Makes `ino` the newest of its name.
    fn set_newest(&mut self, ino: InodeNo, parent: InodeNo, name: &str) {
        self.remove_newest(parent, name);
        let hash = self.hasher.hash_one((parent, name));
        let Self { directories, versions, by_name, hasher, .. } = self;
        by_name.insert_unique(hash, ino, |ino| hash_of(*ino, directories, versions, hasher));
    }

    fn remove_newest(&mut self, parent: InodeNo, name: &str) {
        let Some(ino) = self.newest(parent, name) else { return };
        let hash = self.hasher.hash_one((parent, name));
        if let Ok(entry) = self.by_name.find_entry(hash, |known| *known == ino) {
            entry.remove();
        }
    }

    fn directory_attr(ino: InodeNo, mounted_at: SystemTime) -> Attr {
        Attr { ino, kind: FileKind::Directory, size: 0, mtime: mounted_at, mode: None, ttl: FIXED_ATTR_TTL }
    }
}

/// Inodes by number and by name.
#[derive(Debug)]
pub(crate) struct InodeTable {
    tables: Mutex<Tables>,
    mounted_at: SystemTime,
    has_outdated: Notify,
    /// Files that the kernel may know before it is asked to forget some.
    limit: usize,
    has_too_many: Notify,
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
            by_name: HashTable::new(),
            #[expect(
                clippy::disallowed_methods,
                reason = "keys that are chosen to collide must not; no order shows"
            )]
            hasher: RandomState::new(),
            next: FIRST_FREE,
            opens: OpenClock::default(),
            outdated: HashMap::new(),
            by_age: VecDeque::new(),
            are_too_many: false,
        };
        Self {
            tables: Mutex::new(tables),
            mounted_at,
            has_outdated: Notify::new(),
            limit,
            has_too_many: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    /// The node of an inode that the kernel was given.
    pub(crate) fn node(&self, ino: InodeNo) -> Option<Node> {
        let tables = self.lock();
        if let Some(directory) = tables.directories.get(&ino) {
            return Some(Node::Directory(directory.prefix.clone()));
        }
        let version = tables.versions.get(&ino)?;
        let prefix = &tables.directories.get(&version.parent)?.prefix;
        let object = ObjectId::new(&format!("{prefix}{}", version.name()), ETag::new(version.etag()));
        Some(Node::File(File { object, size: version.size, mtime: time(version.modified) }))
    }

    /// The prefix of a directory that the kernel was given.
    ///
    /// # Errors
    /// `NotDirectory`, or `UnknownInode` for an inode that the kernel was not given.
    pub(crate) fn prefix(&self, ino: InodeNo) -> Result<Arc<str>, FsError> {
        match self.node(ino) {
            Some(Node::Directory(prefix)) => Ok(prefix),
            Some(Node::File(_)) => Err(FsError::NotDirectory),
            None => Err(FsError::UnknownInode(ino)),
        }
    }

    /// The attributes of an inode that the kernel was given.
    pub(crate) fn attr(&self, ino: InodeNo) -> Option<Attr> {
        let tables = self.lock();
        match tables.versions.get(&ino) {
            Some(version) => Some(version.attr(ino)),
            None => {
                tables.directories.contains_key(&ino).then(|| Tables::directory_attr(ino, self.mounted_at))
            }
        }
    }

    /// Notes that a file is opened; whether it was opened before.
    pub(crate) fn open(&self, ino: InodeNo) -> bool {
        let mut tables = self.lock();
        tables.opens = tables.opens.next();
        let now = tables.opens;
        let known = tables.versions.get_mut(&ino);
        known.is_some_and(|known| std::mem::replace(&mut known.opened, now).was_ever())
    }

    /// The moment of the newest open of all.
    pub(crate) fn opens(&self) -> OpenClock {
        self.lock().opens
    }

    /// When the newest version of `name` in `parent` was opened last.
    pub(crate) fn opened(&self, parent: InodeNo, name: &str) -> OpenClock {
        let tables = self.lock();
        let newest = tables.newest(parent, name);
        newest.and_then(|ino| tables.versions.get(&ino)).map_or(OpenClock::NEVER, |known| known.opened)
    }

    /// The directory an inode was found in, and its name there.
    pub(crate) fn place(&self, ino: InodeNo) -> Option<(InodeNo, Arc<str>)> {
        self.lock().place(ino).map(|(parent, name)| (parent, Arc::from(name)))
    }

    /// The inode of the directory `prefix`, where the root's is `root`, if the kernel knows it.
    pub(crate) fn directory(&self, root: &str, prefix: &str) -> Option<InodeNo> {
        self.lock().directory(root, prefix)
    }

    /// The parent of a directory; the root's is itself.
    pub(crate) fn parent(&self, ino: InodeNo) -> InodeNo {
        self.lock().directories.get(&ino).map_or(ROOT, |known| known.parent)
    }

    /// The inode of `name` in `parent`, made if it is not known or is another version; counts as
    /// given to the kernel.
    pub(crate) fn give(&self, parent: InodeNo, prefix: &str, name: &str, target: &Target) -> Attr {
        let mut tables = self.lock();
        let newest = tables.newest(parent, name);
        match target {
            Target::Directory => {
                if let Some(ino) = newest
                    && let Some(known) = tables.directories.get_mut(&ino)
                {
                    known.lookups += 1;
                    known.is_outdated = false;
                    return Tables::directory_attr(ino, self.mounted_at);
                }
                let ino = tables.take_number();
                let prefix = Arc::from(format!("{prefix}{name}/"));
                let known =
                    Directory { prefix, parent, name: Arc::from(name), lookups: 1, is_outdated: false };
                tables.set_newest(ino, parent, name);
                tables.directories.insert(ino, known);
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
                    return known.attr(ino);
                }
                let ino = tables.take_number();
                let known = Version {
                    parent,
                    text: format!("{name}{etag}").into(),
                    size: *size,
                    modified: millis(*mtime),
                    lookups: 1,
                    name_len: u16::try_from(name.len()).expect("a name of at most 255 bytes"),
                    is_outdated: false,
                    opened: OpenClock::NEVER,
                };
                let attr = known.attr(ino);
                tables.set_newest(ino, parent, name);
                tables.versions.insert(ino, known);
                if tables.note_new(ino, self.limit) {
                    self.has_too_many.notify_one();
                }
                attr
            }
        }
    }

    /// The kernel gives `count` of an inode's look-ups back.
    pub(crate) fn forget(&self, ino: InodeNo, count: u64) {
        let mut tables = self.lock();
        let is_gone = match tables.versions.get_mut(&ino) {
            Some(known) => {
                known.lookups = known.lookups.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
                known.lookups == 0
            }
            None => tables.directories.get_mut(&ino).is_some_and(|known| {
                known.lookups = known.lookups.saturating_sub(count);
                known.lookups == 0 && ino != ROOT
            }),
        };
        if !is_gone {
            return;
        }
        let place = tables.place(ino).map(|(parent, name)| (parent, name.to_owned()));
        if let Some((parent, name)) = place
            && tables.newest(parent, &name) == Some(ino)
        {
            tables.remove_newest(parent, &name);
        }
        tables.versions.remove(&ino);
        tables.directories.remove(&ino);
        tables.note_forgotten(self.limit);
        tables.give_back();
    }

    /// When it was mounted.
    pub(crate) fn mounted_at(&self) -> SystemTime {
        self.mounted_at
    }

    /// How many inodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        let tables = self.lock();
        tables.directories.len() + tables.versions.len()
    }
}

impl Tables {
    fn take_number(&mut self) -> InodeNo {
        let number = self.next;
        self.next.0 += 1;
        number
    }

    /// Gives memory back when most of the files are forgotten.
    fn give_back(&mut self) {
        let len = self.versions.len();
        if self.versions.capacity() > 4096 && len < self.versions.capacity() / 4 {
            self.versions.shrink_to(len * 2);
            let Self { directories, versions, by_name, hasher, .. } = self;
            by_name.shrink_to(len * 2, |ino| hash_of(*ino, directories, versions, hasher));
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
    use crate::namespace::names::{File, Target};

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
                        let ino = table.give(ROOT, "p/", &name.to_string(), &target).ino;
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
                prop_assert_eq!(table.place(ino), Some((ROOT, Arc::from(name.to_string()))));
                match table.node(ino) {
                    Some(Node::Directory(prefix)) => prop_assert_eq!(&*prefix, format!("p/{name}/")),
                    Some(Node::File(file)) => {
                        prop_assert_eq!(file.object.key(), format!("p/{name}"));
                        prop_assert_eq!(file.object.etag().as_str(), number.to_string());
                    }
                    None => prop_assert!(false, "{ino} is known"),
                }
            }
        }
    }

    #[test]
    fn many_are_known_and_forgotten() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        let give = |index: u32| table.give(ROOT, "", &index.to_string(), &version("e")).ino;
        let inodes: Vec<_> = (0..20_000).map(give).collect();
        assert_eq!((0..20_000).map(give).collect::<Vec<_>>(), inodes);
        inodes.iter().skip(10).for_each(|ino| table.forget(*ino, 2));
        assert_eq!((0..10).map(give).collect::<Vec<_>>(), inodes[..10]);
        assert_eq!(table.len(), 11);
    }

    #[test]
    fn a_version_is_an_inode_until_it_is_forgotten() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH, 1 << 20);
        let first = table.give(ROOT, "", "a", &version("1")).ino;
        assert_eq!(table.give(ROOT, "", "a", &version("1")).ino, first);
        let second = table.give(ROOT, "", "a", &version("2")).ino;
        assert_ne!(first, second);
        table.forget(first, 1);
        assert!(table.node(first).is_some(), "it was given twice");
        table.forget(first, 1);
        assert!(table.node(first).is_none());
        assert_eq!(table.give(ROOT, "", "a", &version("2")).ino, second);
        table.forget(second, 2);
        table.forget(ROOT, 100);
        assert_eq!(table.len(), 1, "only the root is left");
    }
}
