//! Passthrough: the kernel reads a file by itself that lies on a disk of this machine as a whole.

use std::sync::Arc;

use s3mount_prefetch::ObjectReader;

use crate::sync::{AtomicBool, Ordering};

/// Whether the kernel does so. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passthrough(Arc<AtomicBool>);

impl Passthrough {
    /// Notes whether the kernel reads such files by itself.
    pub(crate) fn set(&self, is_on: bool) {
        self.0.store(is_on, Ordering::Relaxed);
    }

    /// Whether the kernel will read this version by itself. Then nothing of it is to be fetched.
    pub(crate) async fn serves(&self, reader: &ObjectReader) -> bool {
        self.0.load(Ordering::Relaxed) && reader.whole_file().await.is_some()
    }
}
