//! One request of the kernel, from when a session thread has it to its answer.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use fuser::{Errno, FileHandle, INodeNo, Request};
use s3mount_fs::{FsError, RequestId};
use s3mount_metrics::{CallEvent, Event, Recorder};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::audit::{AuditSink, AuditedCall};
use crate::gate::Gate;
use crate::kernel::Kernel;
use crate::metrics::{FuseMetrics, Operation};

/// The bit of a request's number by which the kernel says that it has sent the request before (`FUSE_UNIQUE_RESEND`).
const IS_REPEATED: u64 = 1 << 63;

/// The number of a request, whether it comes again or not.
pub(super) fn request_id(req: &Request) -> RequestId {
    RequestId(req.unique().0 & !IS_REPEATED)
}

/// Whether the daemon before has read the request, and may have done what it asks for.
pub(super) fn is_repeated(req: &Request) -> bool {
    req.unique().0 & IS_REPEATED != 0
}

/// What the tasks need that answer requests later.
pub(super) struct Shared {
    pub(super) runtime: Handle,
    pub(super) kernel: Arc<Kernel>,
    pub(super) metrics: Arc<FuseMetrics>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) gate: Gate,
    pub(super) audit: Option<Arc<dyn AuditSink>>,
}

/// What a request asks for, and what the audit log is to be told of it.
pub(super) struct AskedFor {
    operation: Operation,
    audited: Option<Box<AuditedCall>>,
}

impl From<Operation> for AskedFor {
    fn from(operation: Operation) -> Self {
        Self { operation, audited: None }
    }
}

impl AskedFor {
    pub(super) fn audited(operation: Operation, audited: Option<Box<AuditedCall>>) -> Self {
        Self { operation, audited }
    }

    /// Says what a file is opened for.
    pub(super) fn with_access(mut self, access: &'static str) -> Self {
        self.audited.iter_mut().for_each(|call| call.access = Some(access));
        self
    }
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
    /// Set while somebody listens to the events of the mount.
    call: Option<Box<Call>>,
    /// Unset once the audit log has been told.
    audited: Option<Box<AuditedCall>>,
}

/// Who has sent a request, and what it asks for.
struct Call {
    pid: u32,
    inode: u64,
    start: u64,
    len: u64,
}

impl PendingRequest {
    /// A request that a session thread has just taken.
    pub(super) fn new(shared: &Arc<Shared>, asked: impl Into<AskedFor>) -> Self {
        let AskedFor { operation, audited } = asked.into();
        Self { shared: shared.clone(), operation, began: Instant::now(), call: None, audited }
    }

    /// Tells the audit log how the request has ended. The program may have another answer, where it was killed.
    pub(super) fn audit(&mut self, errno: i32) {
        if let (Some(audit), Some(call)) = (&self.shared.audit, self.audited.take()) {
            audit.note(AuditedCall { errno, ..*call });
        }
    }

    /// Notes that the thread `pid` asks for `len` bytes of `ino` from `start` on, if somebody listens.
    pub(super) fn called_by(mut self, pid: u32, ino: INodeNo, start: u64, len: u64) -> Self {
        if self.shared.recorder.is_on() {
            self.call = Some(Box::new(Call { pid, inode: ino.0, start, len }));
        }
        self
    }

    /// Tells those who listen that the request was answered.
    fn tell(&self, failed: bool) {
        if let Some(call) = &self.call {
            let Call { pid, inode, start, len } = **call;
            self.shared.recorder.note(&Event::Call(CallEvent {
                operation: self.operation.name(),
                pid,
                inode,
                start,
                len,
                began: self.began.into_std(),
                took: self.began.elapsed(),
                failed,
            }));
        }
    }

    /// Counts the request as answered.
    pub(super) fn done(&self) {
        self.shared.metrics.on_answer(self.operation, self.began, None);
        self.tell(false);
    }

    /// Counts the request as failed, and returns its errno. Trouble with the store is logged here, where it is
    /// handled.
    pub(super) fn errno(&self, subject: impl Debug, error: &FsError) -> Errno {
        self.shared.metrics.on_answer(self.operation, self.began, Some(error));
        self.tell(true);
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
