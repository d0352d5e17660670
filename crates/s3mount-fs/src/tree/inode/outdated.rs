//! Outdated inodes: their names have another inode now, or are gone.
//!
//! The kernel still uses the old inode until it is told to drop the name, and this may have to wait.
//! Meanwhile an OPEN of the inode fails with ESTALE. Then the kernel looks the name up again, and takes no
//! lock for that. Outdated inodes are kept by folder until the kernel has been told. Each is kept once, so
//! there are never more of them than inodes.

use std::sync::Arc;

use super::{InodeNo, InodeTable, KnownName, Tables};

/// How many names of one folder are taken at a time. The kernel drops a thousand names in about a millisecond.
const AT_ONCE: usize = 4096;

impl Tables {
    pub(super) fn outdated_flag(&mut self, ino: InodeNo) -> Option<&mut bool> {
        match self.versions.get_mut(&ino) {
            Some(version) => Some(&mut version.is_outdated),
            None => match self.drafts.get_mut(&ino) {
                Some(draft) => Some(&mut draft.is_outdated),
                None => match self.directories.get_mut(&ino) {
                    Some(directory) => Some(&mut directory.is_outdated),
                    None => self.lost.get_mut(&ino).map(|lost| &mut lost.is_outdated),
                },
            },
        }
    }

    /// Marks an inode as outdated, unless it is marked already.
    pub(super) fn outdate(&mut self, folder: InodeNo, ino: InodeNo) {
        if let Some(flag) = self.outdated_flag(ino).filter(|flag| !**flag) {
            *flag = true;
            self.outdated.inodes.entry(folder).or_default().push(ino);
        }
    }

    fn take_outdated(&mut self, is_free: impl Fn(InodeNo) -> bool) -> Option<(InodeNo, Vec<KnownName>)> {
        if let Some(folder) = self.outdated.names.keys().copied().find(|folder| is_free(*folder)) {
            let names = self.outdated.names.remove(&folder).unwrap_or_default();
            return Some((folder, names.into_iter().map(|name| KnownName { ino: None, name }).collect()));
        }
        let folder = self.outdated.inodes.keys().copied().find(|folder| is_free(*folder))?;
        let of_folder = self.outdated.inodes.get_mut(&folder)?;
        let taken = of_folder.split_off(of_folder.len().saturating_sub(AT_ONCE));
        if of_folder.is_empty() {
            self.outdated.inodes.remove(&folder);
        }
        let mut names = Vec::with_capacity(taken.len());
        for ino in taken {
            // The kernel needs no notice of an inode that it has forgotten or looked up again meanwhile.
            let is_outdated = self.outdated_flag(ino).is_some_and(|flag| *flag);
            if let Some((_, name)) = self.parent_and_name(ino).filter(|_| is_outdated) {
                names.push(KnownName { ino: Some(ino), name: name.into() });
            }
        }
        Some((folder, names))
    }
}

impl InodeTable {
    /// The store tells of changes from now on.
    pub(crate) fn tell_by_name(&self) {
        self.lock().outdated.is_by_name = true;
    }

    /// Marks the inodes of these names in the directory `prefix` as outdated, if the kernel knows them. The
    /// root's prefix is `root`.
    pub(crate) fn outdate(&self, root: &str, prefix: &str, names: &[Box<str>]) {
        let mut tables = self.lock();
        let Some(folder) = tables.directory(root, prefix) else { return };
        for name in names {
            let newest = tables.newest(folder, name);
            // The version of a draft's own publication does not outdate the draft, nor does the copy of a version onto
            // itself outdate the file.
            if let Some(ino) = newest
                && !tables.drafts.contains_key(&ino)
                && !tables.replaced.contains(&ino)
            {
                tables.outdate(folder, ino);
            }
            if tables.outdated.is_by_name || (newest.is_none() && tables.handover.is_some()) {
                tables.outdated.names.entry(folder).or_default().push(name.clone());
            }
        }
        let has_outdated =
            tables.outdated.inodes.contains_key(&folder) || tables.outdated.names.contains_key(&folder);
        drop(tables);
        if has_outdated {
            self.has_outdated.notify_one();
        }
    }

    /// Marks an inode as outdated because its version is gone. Returns its directory and its name there.
    pub(crate) fn outdate_version(&self, ino: InodeNo) -> Option<(InodeNo, Arc<str>)> {
        let mut tables = self.lock();
        let (folder, name) = tables.parent_and_name(ino).map(|(folder, name)| (folder, Arc::from(name)))?;
        tables.outdate(folder, ino);
        drop(tables);
        self.has_outdated.notify_one();
        Some((folder, name))
    }

    /// Whether an inode is outdated.
    pub(crate) fn is_outdated(&self, ino: InodeNo) -> bool {
        self.lock().outdated_flag(ino).is_some_and(|flag| *flag)
    }

    /// Waits until there may be more outdated inodes than before.
    pub(crate) async fn wait_for_outdated(&self) {
        self.has_outdated.notified().await;
    }

    /// Whether there is a name that the kernel has to drop and was not told of.
    pub(crate) fn has_outdated(&self) -> bool {
        let tables = self.lock();
        tables.outdated.is_telling || !(tables.outdated.inodes.is_empty() && tables.outdated.names.is_empty())
    }

    /// Takes some outdated inodes of a directory for which `is_free` holds, and their names there. Those that were taken
    /// before are told by now, or put back.
    pub(crate) fn take_outdated(
        &self,
        is_free: impl Fn(InodeNo) -> bool,
    ) -> Option<(InodeNo, Vec<KnownName>)> {
        let mut tables = self.lock();
        let taken = tables.take_outdated(is_free);
        tables.outdated.is_telling = taken.is_some();
        taken
    }
    /// Takes back names from [`take_outdated`](Self::take_outdated) of which the kernel was not told.
    pub(crate) fn put_back(&self, folder: InodeNo, names: &[KnownName]) {
        let mut tables = self.lock();
        for known in names {
            match known.ino {
                Some(ino) => tables.outdated.inodes.entry(folder).or_default().push(ino),
                None => tables.outdated.names.entry(folder).or_default().push(known.name.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use s3mount_object::{ETag, ObjectId};

    use super::super::{InodeTable, ROOT};
    use crate::names::Target;
    use s3mount_names::File;

    fn version(etag: &str) -> Target {
        let object = ObjectId::new("a", ETag::new(etag));
        Target::File(File { object, size: 1, mtime: SystemTime::UNIX_EPOCH })
    }

    #[test]
    fn an_inode_is_outdated_until_its_version_is_given_again() {
        let table = InodeTable::new("p/", SystemTime::UNIX_EPOCH, 1 << 20);
        let [a, b] = ["a", "b"].map(|name| table.lookup_or_insert(ROOT, "p/", name, &version("1")).ino);
        table.outdate("p/", "p/", &["a", "b", "c"].map(Into::into));
        table.outdate("p/", "p/", &["a".into()]);
        table.outdate("p/", "p/unknown/", &["a".into()]);
        assert!(table.is_outdated(a) && table.is_outdated(b));
        assert_eq!(table.take_outdated(|_| false), None, "its lock is held");
        let (folder, names) = table.take_outdated(|_| true).expect("names");
        assert_eq!(
            (folder, names.iter().filter_map(|known| known.ino).collect::<Vec<_>>()),
            (ROOT, vec![a, b])
        );
        assert_eq!(table.take_outdated(|_| true), None, "each is given once");
        // A look-up returns another version, and its reply is lost: the kernel still has the first.
        let newer = table.lookup_or_insert(ROOT, "p/", "a", &version("2")).ino;
        table.forget(newer, 1);
        assert_eq!(table.lookup_or_insert(ROOT, "p/", "b", &version("1")).ino, b);
        table.put_back(folder, &names);
        let (_, names) = table.take_outdated(|_| true).expect("names");
        assert_eq!(names.iter().map(|known| &*known.name).collect::<Vec<_>>(), ["a"]);
        assert!(!table.is_outdated(b), "it was looked up since");
    }
}
