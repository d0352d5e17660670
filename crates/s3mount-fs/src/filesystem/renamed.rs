//! Reads of files that were renamed while they are open: the object that was opened is gone, and its copy is there.

use std::sync::Arc;

use s3mount_prefetch::{ObjectReader, ReadError};

use super::Filesystem;
use super::open_file::{OpenFile, OpenObject, ReadAt};
use crate::FsError;
use crate::inode::Node;
use crate::sync::spawn;

impl Filesystem {
    /// Answers a READ that found its version gone. If this mount has renamed the file since it was opened, the
    /// bytes come from where it is now.
    pub(super) fn after_stale<R>(self: &Arc<Self>, read: ReadAt, source: ReadError, reply: R)
    where
        R: FnOnce(Result<&[u8], FsError>) + Send + 'static,
    {
        let Some(OpenFile::Object(open)) = self.files.get(read.handle) else {
            return reply(Err(FsError::Stale { parent_and_name: None, source }));
        };
        let ino = open.ino;
        if matches!(self.inodes.node(ino), Some(Node::Draft(_))) {
            // A program of this mount has begun to write it, and may have published it.
            return self.read_followed((ino, None), &open.slot, read, reply);
        }
        let Some(reader) = self.renamed_reader(&open) else {
            return reply(Err(FsError::Stale { parent_and_name: self.forget_name(ino), source }));
        };
        let fs = self.clone();
        spawn(self.namespace.requests().runtime(), async move {
            reader.read(read.offset, read.len, move |result| match result {
                Ok(bytes) => reply(Ok(bytes)),
                Err(source) if source.is_stale() => {
                    reply(Err(FsError::Stale { parent_and_name: fs.forget_name(ino), source }));
                }
                Err(error) => reply(Err(error.into())),
            });
        });
    }

    /// A reader of the object that the inode stands for, if that is another one than was opened.
    fn renamed_reader(&self, open: &OpenObject) -> Option<Arc<ObjectReader>> {
        let Some(Node::File(file)) = self.inodes.node(open.ino) else { return None };
        let last = open.renamed().unwrap_or_else(|| open.reader.clone());
        if file.object == *last.object() {
            return None;
        }
        let reader = self.prefetcher.open(&file.object, file.size);
        open.set_renamed(reader.clone());
        Some(reader)
    }
}
