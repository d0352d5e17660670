//! The readers of files that are written or renamed while they are open.

use std::sync::Arc;

use s3mount_names::File;
use s3mount_prefetch::{ObjectReader, Prefetcher};

use crate::sync::{Mutex, lock};

/// The reader of a handle whose file was written or renamed since it was opened. It reads one version at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReaderSlot(Arc<Mutex<Option<Arc<ObjectReader>>>>);

impl ReaderSlot {
    /// Forgets the reader, because its version was gone, and may be there again.
    pub(crate) fn forget(&self) {
        let before = lock(&self.0).take();
        drop(before);
    }

    /// A reader of `version`.
    pub(crate) fn of(&self, version: &File, prefetcher: &Prefetcher) -> Arc<ObjectReader> {
        let mut slot = lock(&self.0);
        match &*slot {
            Some(reader) if *reader.object() == version.object => reader.clone(),
            _ => {
                let reader = prefetcher.open(&version.object, version.size);
                reader.read_without_handle();
                let before = slot.replace(reader.clone());
                drop(slot);
                // This may cancel GETs: hold no lock here.
                drop(before);
                reader
            }
        }
    }
}
