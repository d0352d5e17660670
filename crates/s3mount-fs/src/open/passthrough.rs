//! Passthrough: the kernel reads a file by itself that lies whole on a disk of this machine.

use std::sync::Arc;

use s3mount_prefetch::ObjectReader;

use crate::sync::{AtomicBool, Ordering};

/// Whether passthrough is on. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passthrough(Arc<AtomicBool>);

impl Passthrough {
    /// Sets whether the kernel reads such files by itself.
    pub(crate) fn set(&self, is_on: bool) {
        self.0.store(is_on, Ordering::Relaxed);
    }

    /// Whether the kernel will read this version by itself. Then fetch nothing of it. `is_guess`: the read is only
    /// predicted, so the check does not count as a use.
    pub(crate) async fn serves(&self, reader: &ObjectReader, is_guess: bool) -> bool {
        self.0.load(Ordering::Relaxed) && reader.is_whole(is_guess).await
    }
}
