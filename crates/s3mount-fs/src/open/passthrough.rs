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

    /// Whether the kernel will read this version by itself. Then nothing of it is to be fetched. Nobody may come
    /// to read it if that `is_guess`.
    pub(crate) async fn serves(&self, reader: &ObjectReader, is_guess: bool) -> bool {
        self.0.load(Ordering::Relaxed) && reader.is_whole(is_guess).await
    }
}
