//! Inodes of files that are being written.

use std::sync::Arc;

use super::{DraftNode, InodeNo, Tables};
use crate::drafts::DraftFile;

impl DraftNode {
    /// The kernel forgets `count` look-ups. Returns whether it does not know the inode any more.
    pub(super) fn forget(&mut self, count: u64) -> bool {
        self.lookups = self.lookups.saturating_sub(count);
        self.lookups == 0
    }
}

impl Tables {
    /// Finds the inode of a draft that has the name `name` in `parent`, or makes one. A program may still have it open
    /// from before the name stood for a version. Its locks and its maps are those of the inode.
    pub(super) fn draft(&mut self, parent: InodeNo, name: &str, file: &Arc<DraftFile>) -> InodeNo {
        if let Some(ino) = file.ino()
            && let Some(known) = self.drafts.get_mut(&ino)
            && (known.parent, &*known.name) == (parent, name)
            && Arc::ptr_eq(&known.file, file)
        {
            known.lookups += 1;
            known.is_outdated = false;
            if self.newest(parent, name) != Some(ino) {
                self.set_newest(ino, parent, name);
            }
            return ino;
        }
        let ino = self.take_number();
        let known =
            DraftNode { parent, name: Arc::from(name), file: file.clone(), lookups: 1, is_outdated: false };
        self.set_newest(ino, parent, name);
        self.drafts.insert(ino, known);
        file.note_ino(ino);
        ino
    }
}
