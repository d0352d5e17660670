//! The seam between two large files that are read one after another. The beginning of the second file is
//! fetched while the first is read to its end.

use std::sync::{Arc, Weak};

use s3mount_object::folder_and_name;
use s3mount_prefetch::ObjectReader;

use super::context::Context;
use super::successors::{FolderNames, Successors};
use crate::numbers::InodeNo;
use crate::open::open_clock::OpenClock;
use crate::sync::spawn;
use s3mount_names::NameKind;

/// Joins large files that are read one after another.
#[derive(Debug)]
pub(crate) struct Seams {
    context: Context,
    successors: Successors<Arc<ObjectReader>>,
}

/// The names of one folder.
struct Folder<'a> {
    seams: &'a Seams,
    parent: InodeNo,
    prefix: &'a str,
}

impl FolderNames for Folder<'_> {
    fn following(&self, after: &str, count: usize) -> Vec<Box<str>> {
        self.seams.context.namespace.following(self.prefix, after, count, NameKind::File)
    }

    fn is_opened(&self, name: &str, since: OpenClock) -> bool {
        self.seams.context.inodes.opened(self.parent, name).since(since) > 0
    }
}

impl Seams {
    /// Joins the files that `hints` name. Without a hint, the next file is the next in the order of names.
    pub(crate) fn new(context: Context) -> Self {
        Self { context, successors: Successors::default() }
    }

    /// Notes that a large file was opened, and which file is expected next. Small files are prefetched whole, in
    /// another way.
    pub(crate) fn on_open(&self, ino: InodeNo, reader: &ObjectReader) {
        if reader.is_small() {
            return;
        }
        let Some((parent, _)) = self.context.inodes.parent_and_name(ino) else { return };
        let (prefix, name) = folder_and_name(reader.object().key());
        let names = Folder { seams: self, parent, prefix };
        let before = self.context.inodes.open_clock().earlier(1);
        // Held readers are dropped without the lock.
        drop(self.successors.on_open(&Arc::from(prefix), name, before, &names));
    }

    /// Notes that a file was closed.
    pub(crate) fn on_close(&self, reader: &ObjectReader) {
        let (prefix, name) = folder_and_name(reader.object().key());
        if !reader.is_small() {
            self.successors.on_close(prefix, name);
        }
    }

    /// Notes that the file `ino` is read nearly to its end, and that `reader` is its reader or the last one
    /// joined to it. Finds the next file, and joins it to `reader`.
    pub(crate) fn on_near_end(self: &Arc<Self>, ino: InodeNo, reader: Arc<ObjectReader>) {
        spawn(self.context.namespace.requests().runtime(), join_successor(Arc::downgrade(self), ino, reader));
    }
}

/// Finds the next file after that of `reader`, and joins the two. A hint overrides the order of names.
async fn join_successor(seams: Weak<Seams>, ino: InodeNo, reader: Arc<ObjectReader>) {
    let Some(seams) = seams.upgrade() else { return };
    if let Some(hinted) = seams.context.hints.take_successor(&reader) {
        return reader.go_on_with(&hinted);
    }
    let Some((parent, _)) = seams.context.inodes.parent_and_name(ino) else { return };
    let (prefix, name) = folder_and_name(reader.object().key());
    let names = Folder { seams: &seams, parent, prefix };
    let Some(next) = seams.successors.after(prefix, name, &names) else { return };
    match seams.context.namespace.find_file(&Arc::from(prefix), &next).await {
        Ok(file) => {
            let joined = seams.context.prefetcher.open(&file.object, file.size);
            if !joined.is_small()
                && !seams.context.passthrough.serves(&joined, true).await
                && seams.successors.hold(prefix, &next, joined.clone())
            {
                reader.go_on_with(&joined);
            }
        }
        Err(error) => tracing::debug!(name = &*next, %error, "a successor leads nowhere"),
    }
}
