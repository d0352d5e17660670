//! Inodes that are renamed. The kernel keeps an inode when it renames it.

use std::sync::Arc;

use s3mount_object::ETag;
use s3mount_write::Moved;

use super::{InodeNo, InodeTable, Node, Tables, Version};
use crate::FsError;
use crate::drafts::DraftFile;
use crate::sync::{Ordering, PoisonError, RwLockWriteGuard};
use s3mount_names::{File, split_key};

/// The file or directory that is renamed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Renamed<'a> {
    Folder,
    Draft(&'a Arc<DraftFile>),
    /// This version. The ETag of its bytes at the new key is another one by now.
    Version(&'a File, &'a ETag),
}

impl Version {
    /// Whether it is this version of its key.
    fn is(&self, etag: &ETag, size: u64) -> bool {
        (self.etag(), self.size) == (etag.as_str(), size)
    }

    /// Gives it a name in its folder, and an ETag.
    fn set_text(&mut self, name: &str, etag: &str) {
        self.text = format!("{name}{etag}").into();
        self.name_len = u16::try_from(name.len()).expect("a name of at most 255 bytes");
    }
}

impl Tables {
    /// Moves the prefixes of all directories below `from` to `to`.
    fn move_prefixes(&mut self, from: &str, to: &str) {
        for directory in self.directories.values_mut() {
            if let Some(rest) = directory.prefix.strip_prefix(from) {
                directory.prefix = Arc::from(format!("{to}{rest}"));
            }
        }
    }

    /// Gives an inode another directory and name. Returns whether it is the inode of `renamed`.
    fn set_place(&mut self, ino: InodeNo, (parent, name): (InodeNo, &str), renamed: Renamed<'_>) -> bool {
        if let Some(version) = self.versions.get_mut(&ino) {
            version.parent = parent;
            let now = match renamed {
                Renamed::Version(file, now) if version.is(file.object.etag(), file.size) => Some(now),
                Renamed::Version(..) | Renamed::Draft(_) | Renamed::Folder => None,
            };
            let etag = now.map_or_else(|| version.etag().to_owned(), |etag| etag.as_str().to_owned());
            version.set_text(name, &etag);
            now.is_some()
        } else if let Some(draft) = self.drafts.get_mut(&ino) {
            (draft.parent, draft.name) = (parent, Arc::from(name));
            matches!(renamed, Renamed::Draft(file) if Arc::ptr_eq(file, &draft.file))
        } else if let Some(directory) = self.directories.get_mut(&ino) {
            (directory.parent, directory.name) = (parent, Arc::from(name));
            matches!(renamed, Renamed::Folder)
        } else {
            false
        }
    }
}

impl InodeTable {
    /// The prefix of the keys in a directory that the kernel knows. It waits for the end of a [`move`](Self::moving).
    ///
    /// # Errors
    /// `NotDirectory`, or `UnknownInode` for an inode that the kernel does not know.
    pub(crate) fn prefix(&self, ino: InodeNo) -> Result<Arc<str>, FsError> {
        let _nothing_moves = self.moving.read().unwrap_or_else(PoisonError::into_inner);
        match self.node(ino) {
            Some(Node::Directory(prefix)) => Ok(prefix),
            Some(Node::File(_) | Node::Draft(_)) => Err(FsError::NotDirectory),
            None => Err(FsError::UnknownInode(ino)),
        }
    }

    /// Locks all prefixes while a directory is renamed, and the known names below it move with it: no call returns the
    /// prefix of a directory until the guard is dropped.
    pub(crate) fn moving(&self) -> RwLockWriteGuard<'_, ()> {
        self.moving.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The count of renames so far. A later look at an inode sees all of these.
    pub(crate) fn renames(&self) -> u64 {
        self.renames.load(Ordering::Relaxed)
    }

    /// Whether a directory has moved from this prefix, even if it has it again: each move makes a new text. Then a
    /// look-up below the prefix may have found what a move left there.
    pub(crate) fn has_moved(&self, ino: InodeNo, prefix: &Arc<str>) -> bool {
        self.prefix(ino).is_ok_and(|now| !Arc::ptr_eq(&now, prefix))
    }

    /// Whether the kernel has another version of this name than `file`: another client has replaced it.
    pub(crate) fn has_other_version(&self, parent: InodeNo, name: &str, file: &File) -> bool {
        let tables = self.lock();
        let known = tables.newest(parent, name).and_then(|ino| tables.versions.get(&ino));
        known.is_some_and(|known| !known.is(file.object.etag(), file.size))
    }

    /// Renames `from` (a directory and a name) to `to`. The kernel keeps the inode that it has for `from`. If that is
    /// the inode of `renamed`, the bytes are the same, so the kernel may keep its pages. Else another client has
    /// replaced the file, and this mount has found out before the kernel: then the inode is outdated, and the new name
    /// gets another one.
    pub(crate) fn rename(&self, from: (InodeNo, &str), to: (InodeNo, &str), renamed: Renamed<'_>) {
        let mut tables = self.lock();
        self.renames.fetch_add(1, Ordering::Relaxed);
        if matches!(renamed, Renamed::Folder) && tables.newest(from.0, from.1).is_none() {
            // The daemon before has moved it already, and this rename comes again.
            return;
        }
        // The former inode of the new name has no name any more.
        tables.remove_newest(to.0, to.1);
        let Some(ino) = tables.newest(from.0, from.1) else { return };
        tables.remove_newest(from.0, from.1);
        if !tables.set_place(ino, to, renamed) {
            if from.0 != to.0
                && let Some(is_outdated) = tables.outdated_flag(ino)
            {
                // The kernel would not find the name in its former directory.
                *is_outdated = false;
            }
            tables.outdate(to.0, ino);
            tables.record(ino);
            drop(tables);
            self.has_outdated.notify_one();
            return;
        }
        let (parent, name) = to;
        if let Some(old) = tables.directories.get(&ino).map(|known| known.prefix.clone())
            && let Some(prefix) =
                tables.directories.get(&parent).map(|known| format!("{}{name}/", known.prefix))
        {
            tables.move_prefixes(&old, &prefix);
        }
        tables.set_newest(ino, parent, name);
        tables.record(ino);
        if tables.outdated.is_by_name {
            // The kernel believes the new name for as long as it did the former one.
            tables.outdated.names.entry(parent).or_default().push(name.into());
            drop(tables);
            self.has_outdated.notify_one();
        }
    }

    /// Gives the inodes of `moved` objects their new ETags. The inode of another version of such an object is outdated.
    /// The root's prefix is `root`.
    pub(crate) fn set_etags(&self, root: &str, moved: &[Moved]) {
        let mut tables = self.lock();
        let mut has_outdated = false;
        for Moved { from, to, size, was_gone, .. } in moved {
            let (prefix, name) = split_key(to.key());
            let Some(folder) = tables.directory(root, prefix) else { continue };
            let Some(ino) = tables.newest(folder, name) else { continue };
            let Some(version) = tables.versions.get_mut(&ino) else { continue };
            let is_known = version.is(from.etag(), *size) || version.is(to.etag(), *size);
            if is_known || (*was_gone && version.size == *size) {
                version.set_text(name, to.etag().as_str());
                tables.record(ino);
            } else {
                tables.remove_newest(folder, name);
                tables.outdate(folder, ino);
                has_outdated = true;
            }
        }
        drop(tables);
        if has_outdated {
            self.has_outdated.notify_one();
        }
    }

    /// All drafts that the kernel knows, including ended ones, in the order of their inodes.
    pub(crate) fn drafts(&self) -> Vec<Arc<DraftFile>> {
        let tables = self.lock();
        let mut drafts: Vec<_> =
            tables.drafts.iter().map(|(ino, known)| (*ino, known.file.clone())).collect();
        drop(tables);
        drafts.sort_unstable_by_key(|(ino, _)| *ino);
        drafts.into_iter().map(|(_, file)| file).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use s3mount_object::{ETag, ObjectId};
    use s3mount_write::Moved;

    use super::super::{InodeNo, InodeTable, Node, ROOT};
    use super::Renamed;
    use crate::names::Target;
    use s3mount_names::File;

    fn version(etag: &str, size: u64) -> File {
        let object = ObjectId::new("ignored", ETag::new(etag));
        File { object, size, mtime: SystemTime::UNIX_EPOCH }
    }

    fn table() -> InodeTable {
        InodeTable::new("p/", SystemTime::UNIX_EPOCH, 1 << 20)
    }

    /// The key and the ETag of an inode.
    fn key(table: &InodeTable, ino: InodeNo) -> (String, String) {
        match table.node(ino) {
            Some(Node::File(file)) => (file.object.key().to_owned(), file.object.etag().as_str().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_folder_that_has_its_new_name_already_keeps_it() {
        let table = table();
        let folder = table.lookup_or_insert(ROOT, "p/", "a", &Target::Directory).ino;
        let inner = table.lookup_or_insert(folder, "p/a/", "b", &Target::Directory).ino;
        table.rename((ROOT, "a"), (ROOT, "z"), Renamed::Folder);
        // It comes again, as after the end of a daemon that has not answered.
        table.rename((ROOT, "a"), (ROOT, "z"), Renamed::Folder);
        table.rename((ROOT, "z"), (ROOT, "y"), Renamed::Folder);
        assert_eq!(&*table.prefix(inner).expect("a folder"), "p/y/b/");
        assert_eq!(table.lookup_or_insert(ROOT, "p/", "y", &Target::Directory).ino, folder);
    }

    #[test]
    fn an_inode_keeps_its_number_and_gets_another_key() {
        let table = table();
        let file = Target::File(version("1", 1));
        let folder = table.lookup_or_insert(ROOT, "p/", "a", &Target::Directory).ino;
        let inner = table.lookup_or_insert(folder, "p/a/", "b", &Target::Directory).ino;
        let deep = table.lookup_or_insert(inner, "p/a/b/", "f", &file).ino;
        table.rename((ROOT, "a"), (ROOT, "z"), Renamed::Folder);
        assert_eq!(key(&table, deep), ("p/z/b/f".to_owned(), "1".to_owned()));
        table.rename((inner, "f"), (ROOT, "g"), Renamed::Version(&version("1", 1), &ETag::new("2")));
        assert_eq!(key(&table, deep), ("p/g".to_owned(), "2".to_owned()));
        let again = Target::File(version("2", 1));
        assert_eq!(table.lookup_or_insert(ROOT, "p/", "g", &again).ino, deep);
        assert_ne!(table.lookup_or_insert(inner, "p/z/b/", "f", &file).ino, deep);
        assert!(!table.is_outdated(deep));
    }

    #[test]
    fn the_inode_of_another_version_than_was_renamed_is_outdated() {
        for other in [version("new", 1), version("old", 2)] {
            let table = table();
            let old = table.lookup_or_insert(ROOT, "p/", "f", &Target::File(version("old", 1))).ino;
            table.rename((ROOT, "f"), (ROOT, "g"), Renamed::Version(&other, &ETag::new("moved")));
            assert!(table.is_outdated(old));
            assert_eq!(
                key(&table, old),
                ("p/g".to_owned(), "old".to_owned()),
                "its pages are those of the old"
            );
            let (folder, names) = table.take_outdated(|_| true).expect("the kernel is told");
            assert_eq!((folder, &*names[0].name, names[0].ino), (ROOT, "g", Some(old)));
            let moved = Target::File(version("moved", other.size));
            assert_ne!(table.lookup_or_insert(ROOT, "p/", "g", &moved).ino, old);
        }
    }

    #[test]
    fn the_inode_of_another_version_in_a_renamed_folder_is_outdated() {
        let table = table();
        let folder = table.lookup_or_insert(ROOT, "p/", "a", &Target::Directory).ino;
        let [same, other, gone_before] =
            [("same", "1"), ("other", "old"), ("gone", "old")].map(|(name, etag)| {
                table.lookup_or_insert(folder, "p/a/", name, &Target::File(version(etag, 1))).ino
            });
        table.rename((ROOT, "a"), (ROOT, "z"), Renamed::Folder);
        let moved = |name: &str, etag: &str| Moved {
            from: ObjectId::new(&format!("p/a/{name}"), ETag::new(etag)),
            to: ObjectId::new(&format!("p/z/{name}"), ETag::new("2")),
            size: 1,
            modified: SystemTime::UNIX_EPOCH,
            was_gone: false,
        };
        // What a daemon before has deleted has the ETag of its copy.
        let gone = Moved { was_gone: true, ..moved("gone", "2") };
        table.set_etags("p/", &[moved("same", "1"), moved("other", "new"), gone]);
        assert_eq!(key(&table, gone_before), ("p/z/gone".to_owned(), "2".to_owned()));
        assert!(!table.is_outdated(gone_before));
        assert_eq!(key(&table, same), ("p/z/same".to_owned(), "2".to_owned()));
        assert!(!table.is_outdated(same));
        assert!(table.is_outdated(other));
        let now = Target::File(version("2", 1));
        assert_eq!(table.lookup_or_insert(folder, "p/z/", "same", &now).ino, same);
        assert_ne!(table.lookup_or_insert(folder, "p/z/", "other", &now).ino, other);
    }
}
