//! Inodes whose names stand for something else by now.
//!
//! The kernel knows the name still, until it was told, and that may have to wait. Meanwhile such an inode is
//! not opened: the kernel looks the name up again when OPEN fails with ESTALE, and takes no lock for that.
//! They are kept by folder until the kernel has been told, each once, so they are no more than the inodes.

use std::sync::Arc;

use super::{InodeNo, InodeTable, KnownName, Tables};

/// Names of one folder that are handed out at a time: the kernel takes about as many milliseconds for
/// thousands of them.
const AT_ONCE: usize = 4096;

impl Tables {
    fn outdated_flag(&mut self, ino: InodeNo) -> Option<&mut bool> {
        match self.versions.get_mut(&ino) {
            Some(version) => Some(&mut version.is_outdated),
            None => self.directories.get_mut(&ino).map(|directory| &mut directory.is_outdated),
        }
    }

    /// Keeps an inode as outdated, if it is not yet.
    fn outdate(&mut self, folder: InodeNo, ino: InodeNo) {
        if let Some(flag) = self.outdated_flag(ino).filter(|flag| !**flag) {
            *flag = true;
            self.outdated.entry(folder).or_default().push(ino);
        }
    }
}

impl InodeTable {
    /// Keeps the inodes of these names in the directory `prefix`, as far as the kernel knows them, where the
    /// root's prefix is `root`: the names stand for something else.
    pub(crate) fn outdate(&self, root: &str, prefix: &str, names: &[Box<str>]) {
        let mut tables = self.lock();
        let Some(folder) = tables.directory(root, prefix) else { return };
        for name in names {
            if let Some(ino) = tables.newest(folder, name) {
                tables.outdate(folder, ino);
            }
        }
        let has_outdated = tables.outdated.contains_key(&folder);
        drop(tables);
        if has_outdated {
            self.has_outdated.notify_one();
        }
    }

    /// Keeps an inode whose version is gone. Returns its directory and its name there.
    pub(crate) fn outdate_version(&self, ino: InodeNo) -> Option<(InodeNo, Arc<str>)> {
        let mut tables = self.lock();
        let (folder, name) = tables.place(ino).map(|(folder, name)| (folder, Arc::from(name)))?;
        tables.outdate(folder, ino);
        drop(tables);
        self.has_outdated.notify_one();
        Some((folder, name))
    }

    /// Whether the name of an inode stands for something else.
    pub(crate) fn is_outdated(&self, ino: InodeNo) -> bool {
        self.lock().outdated_flag(ino).is_some_and(|flag| *flag)
    }

    /// Waits until there may be more outdated inodes than before.
    pub(crate) async fn wait_for_outdated(&self) {
        self.has_outdated.notified().await;
    }

    /// Takes some outdated inodes of a directory for which `is_free` holds, and their names there.
    pub(crate) fn take_outdated(
        &self,
        is_free: impl Fn(InodeNo) -> bool,
    ) -> Option<(InodeNo, Vec<KnownName>)> {
        let mut tables = self.lock();
        let folder = tables.outdated.keys().copied().find(|folder| is_free(*folder))?;
        let of_folder = tables.outdated.get_mut(&folder)?;
        let taken = of_folder.split_off(of_folder.len().saturating_sub(AT_ONCE));
        if of_folder.is_empty() {
            tables.outdated.remove(&folder);
        }
        let mut names = Vec::with_capacity(taken.len());
        for ino in taken {
            // What was forgotten, or looked up anew since, needs no notice.
            let is_outdated = tables.outdated_flag(ino).is_some_and(|flag| *flag);
            if let Some((_, name)) = tables.place(ino).filter(|_| is_outdated) {
                names.push(KnownName { ino, name: name.into() });
            }
        }
        Some((folder, names))
    }

    /// Takes back what [`take_outdated`](Self::take_outdated) gave, where the kernel was not told of it.
    pub(crate) fn put_back(&self, folder: InodeNo, names: &[KnownName]) {
        if !names.is_empty() {
            let mut tables = self.lock();
            tables.outdated.entry(folder).or_default().extend(names.iter().map(|known| known.ino));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use s3mount_object::{ETag, ObjectId};

    use super::super::{InodeTable, ROOT};
    use crate::namespace::names::{File, Target};

    fn version(etag: &str) -> Target {
        let object = ObjectId::new("a", ETag::new(etag));
        Target::File(File { object, size: 1, mtime: SystemTime::UNIX_EPOCH })
    }

    #[test]
    fn an_inode_is_outdated_until_its_version_is_given_again() {
        let table = InodeTable::new("p/", SystemTime::UNIX_EPOCH, 1 << 20);
        let [a, b] = ["a", "b"].map(|name| table.give(ROOT, "p/", name, &version("1")).ino);
        table.outdate("p/", "p/", &["a", "b", "c"].map(Into::into));
        table.outdate("p/", "p/", &["a".into()]);
        table.outdate("p/", "p/unknown/", &["a".into()]);
        assert!(table.is_outdated(a) && table.is_outdated(b));
        assert_eq!(table.take_outdated(|_| false), None, "its lock is held");
        let (folder, names) = table.take_outdated(|_| true).expect("names");
        assert_eq!((folder, names.iter().map(|known| known.ino).collect::<Vec<_>>()), (ROOT, vec![a, b]));
        assert_eq!(table.take_outdated(|_| true), None, "each is given once");
        // Another version is given, and fits no reply: the kernel still has the first.
        let newer = table.give(ROOT, "p/", "a", &version("2")).ino;
        table.forget(newer, 1);
        assert_eq!(table.give(ROOT, "p/", "b", &version("1")).ino, b);
        table.put_back(folder, &names);
        let (_, names) = table.take_outdated(|_| true).expect("names");
        assert_eq!(names.iter().map(|known| &*known.name).collect::<Vec<_>>(), ["a"]);
        assert!(!table.is_outdated(b), "it was looked up since");
    }
}
