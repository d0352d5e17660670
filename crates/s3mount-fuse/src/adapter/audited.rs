//! What the audit log is told of a request.

use fuser::{INodeNo, OpenAccMode, OpenFlags, Request};
use s3mount_fs::Filesystem;

use super::Adapter;
use super::convert::fs_inode;
use super::request::is_repeated;
use crate::audit::{AuditedCall, process_of};

/// What a file is opened for.
fn access(flags: i32) -> &'static str {
    match OpenFlags(flags).acc_mode() {
        OpenAccMode::O_RDONLY => "read",
        OpenAccMode::O_WRONLY => "write",
        OpenAccMode::O_RDWR => "read-write",
    }
}

impl Adapter {
    /// What the audit log is to be told of a request, if there is a log. `keys` returns the key that it is about, and the
    /// one that a rename gives; none for the daemon's own files.
    pub(super) fn audited(
        &self,
        req: &Request,
        call: &'static str,
        keys: impl FnOnce(&Filesystem) -> Option<(String, Option<String>)>,
    ) -> Option<Box<AuditedCall>> {
        self.shared.audit.as_ref()?;
        let (key, to) = keys(&self.fs)?;
        let (pid, program) = process_of(self.interrupts.thread_of(req));
        let (uid, gid, is_repeated) = (req.uid(), req.gid(), is_repeated(req));
        let (access, errno) = (None, 0);
        Some(Box::new(AuditedCall { call, uid, gid, pid, program, key, to, access, is_repeated, errno }))
    }

    /// As [`audited`](Self::audited), for a change of a name.
    pub(super) fn audited_name(
        &self,
        req: &Request,
        call: &'static str,
        (parent, name): (INodeNo, &str),
    ) -> Option<Box<AuditedCall>> {
        self.audited(req, call, |fs| Some((fs.key_at(fs_inode(parent), name)?, None)))
    }

    /// As [`audited`](Self::audited), for a file that is made.
    pub(super) fn audited_create(
        &self,
        req: &Request,
        name: (INodeNo, &str),
        flags: i32,
    ) -> Option<Box<AuditedCall>> {
        let call = self.audited_name(req, "create", name)?;
        Some(Box::new(AuditedCall { access: Some(access(flags)), ..*call }))
    }

    /// As [`audited`](Self::audited), for an open.
    pub(super) fn audited_open(&self, req: &Request, ino: INodeNo, flags: i32) -> Option<Box<AuditedCall>> {
        let call = self.audited(req, "open", |fs| Some((fs.key(fs_inode(ino))?, None)))?;
        Some(Box::new(AuditedCall { access: Some(access(flags)), ..*call }))
    }
}
