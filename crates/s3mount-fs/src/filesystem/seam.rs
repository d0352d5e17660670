//! The seam between two large files that are read one after another: the beginning of the second is
//! fetched while the first is read to its end.

use std::sync::{Arc, Weak};

use s3mount_object::folder_and_name;
use s3mount_prefetch::ObjectReader;

use super::Filesystem;
use crate::ahead::successors::Names;
use crate::inode::{FileKind, InodeNo, Opens};

/// The names of one folder.
struct Folder<'a> {
    fs: &'a Filesystem,
    parent: InodeNo,
    prefix: &'a str,
}

impl Names for Folder<'_> {
    fn following(&self, after: &str, count: usize) -> Vec<Box<str>> {
        self.fs.metadata.following(self.prefix, after, count, FileKind::File)
    }

    fn is_opened(&self, name: &str, since: Opens) -> bool {
        self.fs.inodes.opened(self.parent, name).since(since) > 0
    }
}

impl Filesystem {
    /// Notes that a file was opened, and which one is expected behind it. Small ones are fetched whole, and
    /// ahead by themselves.
    pub(super) fn expect_successor(&self, ino: InodeNo, reader: &ObjectReader) {
        let Some((parent, _)) = self.inodes.place(ino).filter(|_| !reader.is_small()) else { return };
        let (prefix, name) = folder_and_name(reader.object().key());
        let names = Folder { fs: self, parent, prefix };
        let before = self.inodes.opens().earlier(1);
        // What was held goes outside the lock.
        drop(self.successors.on_open(&Arc::from(prefix), name, before, &names));
    }

    /// Notes that a file was closed.
    pub(super) fn on_close_large(&self, reader: &ObjectReader) {
        let (prefix, name) = folder_and_name(reader.object().key());
        if !reader.is_small() {
            self.successors.on_close(prefix, name);
        }
    }
}

/// Finds the file that follows the one of `reader`, and joins the two: it is read nearly to its end, as `ino`,
/// or follows such a one. What hints name next comes before the order of names.
pub(super) async fn fetch_successor(fs: Weak<Filesystem>, ino: InodeNo, reader: Arc<ObjectReader>) {
    let Some(fs) = fs.upgrade() else { return };
    if let Some(hinted) = fs.hints.take_successor(&reader) {
        return reader.go_on_with(&hinted);
    }
    let Some((parent, _)) = fs.inodes.place(ino) else { return };
    let (prefix, name) = folder_and_name(reader.object().key());
    let names = Folder { fs: &fs, parent, prefix };
    let Some(next) = fs.successors.after(prefix, name, &names) else { return };
    match fs.find(&Arc::from(prefix), &next).await {
        Ok(file) => {
            let joined = fs.prefetcher.open(&file.object, file.size);
            if !joined.is_small() && fs.successors.hold(prefix, &next, joined.clone()) {
                reader.go_on_with(&joined);
            }
        }
        Err(error) => tracing::debug!(name = &*next, %error, "a successor leads nowhere"),
    }
}
