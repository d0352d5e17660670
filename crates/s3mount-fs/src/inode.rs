//! The inodes that the kernel knows.
//!
//! **Invariant:** an inode number stands for one directory, or for one version of one object, and
//! is never used again. So neither the pages nor the attributes that the kernel keeps for it can
//! become wrong: another version is another inode.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::control::FIRST_FREE;
use crate::names::{File, Target};

/// Number of an inode.
pub type InodeNo = u64;

/// The root's number, by FUSE's rule.
pub const ROOT: InodeNo = 1;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// What `stat` tells, as far as it differs from inode to inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode.
    pub ino: InodeNo,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// When this version was written; for a directory, when it was mounted.
    pub mtime: SystemTime,
    /// Permission bits, where they are not those of all files or directories.
    pub mode: Option<u16>,
}

/// What is known of an inode.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Keys below this prefix.
    Directory(Arc<str>),
    File(Arc<File>),
}

#[derive(Debug)]
struct Known {
    node: Node,
    parent: InodeNo,
    name: Arc<str>,
    /// How often the kernel was given it, less how often it forgot it.
    lookups: u64,
    /// Whether it was opened: the kernel may hold its pages.
    was_opened: bool,
}

#[derive(Debug)]
struct Tables {
    known: HashMap<InodeNo, Known>,
    /// The newest inode of a name.
    by_name: HashMap<(InodeNo, Arc<str>), InodeNo>,
    next: InodeNo,
}

/// Inodes by number and by name.
#[derive(Debug)]
pub(crate) struct InodeTable {
    tables: Mutex<Tables>,
    mounted_at: SystemTime,
}

impl InodeTable {
    pub(crate) fn new(prefix: &str, mounted_at: SystemTime) -> Self {
        let root = Known {
            node: Node::Directory(Arc::from(prefix)),
            parent: ROOT,
            name: Arc::from(""),
            lookups: 1,
            was_opened: false,
        };
        let tables =
            Tables { known: HashMap::from([(ROOT, root)]), by_name: HashMap::new(), next: FIRST_FREE };
        Self { tables: Mutex::new(tables), mounted_at }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node of an inode that the kernel was given.
    pub(crate) fn node(&self, ino: InodeNo) -> Option<Node> {
        self.lock().known.get(&ino).map(|known| known.node.clone())
    }

    /// Notes that an inode is opened; whether it is for the first time.
    pub(crate) fn is_first_open(&self, ino: InodeNo) -> bool {
        let mut tables = self.lock();
        tables.known.get_mut(&ino).is_some_and(|known| !std::mem::replace(&mut known.was_opened, true))
    }

    /// The directory an inode was found in, and its name there.
    pub(crate) fn place(&self, ino: InodeNo) -> Option<(InodeNo, Arc<str>)> {
        self.lock().known.get(&ino).map(|known| (known.parent, known.name.clone()))
    }

    /// The parent of a directory; the root's is itself.
    pub(crate) fn parent(&self, ino: InodeNo) -> InodeNo {
        self.lock().known.get(&ino).map_or(ROOT, |known| known.parent)
    }

    /// The inode of `name` in `parent`, made if it is not known or is another version; counts as
    /// given to the kernel.
    pub(crate) fn give(&self, parent: InodeNo, prefix: &str, name: &str, target: &Target) -> Attr {
        let mut tables = self.lock();
        let place = (parent, Arc::<str>::from(name));
        if let Some(ino) = tables.by_name.get(&place).copied()
            && let Some(known) = tables.known.get_mut(&ino)
            && is_same(&known.node, target)
        {
            known.lookups += 1;
            return self.attr(ino, &known.node);
        }
        let node = match target {
            Target::Directory => Node::Directory(Arc::from(format!("{prefix}{name}/"))),
            Target::File(file) => Node::File(Arc::new(file.clone())),
        };
        let ino = tables.next;
        tables.next += 1;
        let attr = self.attr(ino, &node);
        tables.by_name.insert(place.clone(), ino);
        tables.known.insert(ino, Known { node, parent, name: place.1, lookups: 1, was_opened: false });
        attr
    }

    /// The kernel gives `count` of an inode's look-ups back.
    pub(crate) fn forget(&self, ino: InodeNo, count: u64) {
        let mut tables = self.lock();
        let Some(known) = tables.known.get_mut(&ino) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 || ino == ROOT {
            return;
        }
        if let Some(known) = tables.known.remove(&ino) {
            let place = (known.parent, known.name);
            if tables.by_name.get(&place) == Some(&ino) {
                tables.by_name.remove(&place);
            }
        }
    }

    pub(crate) fn attr(&self, ino: InodeNo, node: &Node) -> Attr {
        match node {
            Node::Directory(_) => {
                Attr { ino, kind: FileKind::Directory, size: 0, mtime: self.mounted_at, mode: None }
            }
            Node::File(file) => {
                let File { size, mtime, .. } = **file;
                Attr { ino, kind: FileKind::File, size, mtime, mode: None }
            }
        }
    }

    /// When it was mounted.
    pub(crate) fn mounted_at(&self) -> SystemTime {
        self.mounted_at
    }

    /// How many inodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.lock().known.len()
    }
}

fn is_same(node: &Node, target: &Target) -> bool {
    match (node, target) {
        (Node::Directory(_), Target::Directory) => true,
        (Node::File(known), Target::File(file)) => known.object == file.object,
        (Node::Directory(_), Target::File(_)) | (Node::File(_), Target::Directory) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use s3mount_object::{ETag, ObjectId};

    use super::{InodeTable, ROOT};
    use crate::names::{File, Target};

    fn version(etag: &str) -> Target {
        let object = ObjectId::new("a", ETag::new(etag));
        Target::File(File { object, size: 1, mtime: SystemTime::UNIX_EPOCH })
    }

    #[test]
    fn a_version_is_an_inode_until_it_is_forgotten() {
        let table = InodeTable::new("", SystemTime::UNIX_EPOCH);
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
