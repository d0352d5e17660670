//! Inodes that get another name. The kernel keeps an inode when it renames it.

use std::sync::Arc;

use s3mount_object::ETag;
use s3mount_write::Moved;

use super::{InodeNo, InodeTable, Tables};
use crate::drafts::DraftFile;
use crate::namespace::names::split_key;

impl Tables {
    /// Moves what is below the directory `from` to `to`: the prefixes of all directories there.
    fn move_prefixes(&mut self, from: &str, to: &str) {
        for directory in self.directories.values_mut() {
            if let Some(rest) = directory.prefix.strip_prefix(from) {
                directory.prefix = Arc::from(format!("{to}{rest}"));
            }
        }
    }
}

impl InodeTable {
    /// Gives the newest inode of `from` (a directory and a name) the name `to`. The ETag of the object there is
    /// `etag` by now: the bytes of the version are the same, so the kernel may keep its pages.
    pub(crate) fn rename(&self, from: (InodeNo, &str), to: (InodeNo, &str), etag: Option<&ETag>) {
        let mut tables = self.lock();
        // What had the new name stands for nothing any more.
        tables.remove_newest(to.0, to.1);
        let Some(ino) = tables.newest(from.0, from.1) else { return };
        tables.remove_newest(from.0, from.1);
        let (parent, name) = to;
        let mut moved = None;
        if let Some(version) = tables.versions.get_mut(&ino) {
            let etag = etag.map_or_else(|| version.etag().to_owned(), |etag| etag.as_str().to_owned());
            version.text = format!("{name}{etag}").into();
            version.name_len = u16::try_from(name.len()).expect("a name of at most 255 bytes");
            version.parent = parent;
        } else if let Some(draft) = tables.drafts.get_mut(&ino) {
            (draft.parent, draft.name) = (parent, Arc::from(name));
        } else if let Some(directory) = tables.directories.get_mut(&ino) {
            (directory.parent, directory.name) = (parent, Arc::from(name));
            moved = Some(directory.prefix.clone());
        }
        if let Some(old) = moved
            && let Some(prefix) =
                tables.directories.get(&parent).map(|known| format!("{}{name}/", known.prefix))
        {
            tables.move_prefixes(&old, &prefix);
        }
        tables.set_newest(ino, parent, name);
    }

    /// Objects have `moved`, and with them the versions that inodes stand for: their ETags are other ones now. The
    /// root's prefix is `root`.
    pub(crate) fn set_etags(&self, root: &str, moved: &[Moved]) {
        let mut tables = self.lock();
        for Moved { from, to, .. } in moved.iter().filter(|copy| copy.from.etag() != copy.to.etag()) {
            let (prefix, name) = split_key(to.key());
            let folder = tables.directory(root, prefix);
            if let Some(ino) = folder.and_then(|folder| tables.newest(folder, name))
                && let Some(version) = tables.versions.get_mut(&ino)
                && version.etag() == from.etag().as_str()
            {
                version.text = format!("{name}{}", to.etag().as_str()).into();
            }
        }
    }

    /// All drafts that the kernel knows, also those that have ended.
    pub(crate) fn drafts(&self) -> Vec<Arc<DraftFile>> {
        self.lock().drafts.values().map(|known| known.file.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use s3mount_object::{ETag, ObjectId};

    use super::super::{InodeTable, Node, ROOT};
    use crate::namespace::names::{File, Target};

    #[test]
    fn an_inode_keeps_its_number_and_gets_another_key() {
        let table = InodeTable::new("p/", SystemTime::UNIX_EPOCH, 1 << 20);
        let object = ObjectId::new("ignored", ETag::new("1"));
        let file = Target::File(File { object, size: 1, mtime: SystemTime::UNIX_EPOCH });
        let folder = table.lookup_or_insert(ROOT, "p/", "a", &Target::Directory).ino;
        let inner = table.lookup_or_insert(folder, "p/a/", "b", &Target::Directory).ino;
        let deep = table.lookup_or_insert(inner, "p/a/b/", "f", &file).ino;
        table.rename((ROOT, "a"), (ROOT, "z"), None);
        let key = |ino| match table.node(ino) {
            Some(Node::File(file)) => (file.object.key().to_owned(), file.object.etag().as_str().to_owned()),
            other => panic!("{other:?}"),
        };
        assert_eq!(key(deep), ("p/z/b/f".to_owned(), "1".to_owned()));
        table.rename((inner, "f"), (ROOT, "g"), Some(&ETag::new("2")));
        assert_eq!(key(deep), ("p/g".to_owned(), "2".to_owned()));
        let again = Target::File(File {
            object: ObjectId::new("ignored", ETag::new("2")),
            size: 1,
            mtime: SystemTime::UNIX_EPOCH,
        });
        assert_eq!(table.lookup_or_insert(ROOT, "p/", "g", &again).ino, deep);
        assert_ne!(table.lookup_or_insert(inner, "p/z/b/", "f", &file).ino, deep);
    }
}
