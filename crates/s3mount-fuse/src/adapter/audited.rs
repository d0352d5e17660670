//! What the audit log is told of a request.

use fuser::{INodeNo, OpenAccMode, OpenFlags, Request};
use s3mount_fs::Filesystem;

use super::Adapter;
use super::convert::fs_inode;
use super::request::{AskedFor, is_repeated};
use crate::audit::{AuditedCall, process_of, program_of};
use crate::metrics::Operation;

/// What a file is opened for.
fn access(flags: i32) -> &'static str {
    match OpenFlags(flags).acc_mode() {
        OpenAccMode::O_RDONLY => "read",
        OpenAccMode::O_WRONLY => "write",
        OpenAccMode::O_RDWR => "read-write",
    }
}

/// What the audit log calls an operation.
fn call_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Flush => "close",
        operation => operation.name(),
    }
}

impl Adapter {
    /// What a request asks for, and what the audit log is to be told of it, if there is a log. `keys` returns the key that
    /// it is about, and the one that a rename gives; none for the daemon's own files.
    pub(super) fn audited(
        &self,
        req: &Request,
        operation: Operation,
        keys: impl FnOnce(&Filesystem) -> Option<(String, Option<String>)>,
    ) -> AskedFor {
        let keys = self.shared.audit.as_ref().and_then(|_| keys(&self.fs));
        AskedFor::audited(
            operation,
            keys.map(|(key, to)| {
                let thread = self.interrupts.thread_of(req);
                let is_close = operation == Operation::Flush;
                let (pid, program) = (process_of(thread), (!is_close).then(|| program_of(thread)).flatten());
                let (call, access, errno) = (call_of(operation), None, 0);
                let (uid, gid, is_repeated) = (req.uid(), req.gid(), is_repeated(req));
                Box::new(AuditedCall { call, uid, gid, pid, program, key, to, access, is_repeated, errno })
            }),
        )
    }

    /// As [`audited`](Self::audited), for a change of a name.
    pub(super) fn audited_name(
        &self,
        req: &Request,
        operation: Operation,
        (parent, name): (INodeNo, &str),
    ) -> AskedFor {
        self.audited(req, operation, |fs| Some((fs.key_at(fs_inode(parent), name)?, None)))
    }

    /// As [`audited`](Self::audited), for a file that is made.
    pub(super) fn audited_create(&self, req: &Request, name: (INodeNo, &str), flags: i32) -> AskedFor {
        self.audited_name(req, Operation::Create, name).with_access(access(flags))
    }

    /// As [`audited`](Self::audited), for an open.
    pub(super) fn audited_open(&self, req: &Request, ino: INodeNo, flags: i32) -> AskedFor {
        let asked = self.audited(req, Operation::Open, |fs| Some((fs.key(fs_inode(ino))?, None)));
        asked.with_access(access(flags))
    }
}
