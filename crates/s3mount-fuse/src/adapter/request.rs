//! One request of the kernel, from when a session thread has it to its answer.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use fuser::{Errno, FileHandle, INodeNo};
use s3mount_fs::FsError;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::kernel::Kernel;
use crate::metrics::{FuseMetrics, Operation};

/// What the tasks need that answer requests later.
pub(super) struct Shared {
    pub(super) runtime: Handle,
    pub(super) kernel: Arc<Kernel>,
    pub(super) metrics: Arc<FuseMetrics>,
}

/// The bytes that a READ asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) ino: INodeNo,
    pub(super) fh: FileHandle,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// A request of the kernel that has no answer yet.
pub(super) struct PendingRequest {
    pub(super) shared: Arc<Shared>,
    operation: Operation,
    began: Instant,
}

impl PendingRequest {
    /// A request that a session thread has just taken.
    pub(super) fn new(shared: &Arc<Shared>, operation: Operation) -> Self {
        Self { shared: shared.clone(), operation, began: Instant::now() }
    }

    /// Counts the request as answered.
    pub(super) fn done(&self) {
        self.shared.metrics.on_answer(self.operation, self.began, None);
    }

    /// Counts the request as failed, and returns its errno. Trouble with the store is logged here, where it is
    /// handled.
    pub(super) fn errno(&self, subject: impl Debug, error: &FsError) -> Errno {
        self.shared.metrics.on_answer(self.operation, self.began, Some(error));
        if error.is_trouble() {
            let operation = self.operation.name();
            tracing::warn!(
                ?subject,
                error = error as &dyn Error,
                errno = error.errno(),
                "{operation} failed"
            );
        }
        Errno::from_i32(error.errno())
    }
}
