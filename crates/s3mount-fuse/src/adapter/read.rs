//! Reading files.

use std::time::Duration;

use fuser::{INodeNo, LockOwner, OpenFlags, ReplyData, Request};
use s3mount_fs::{FsError, KnownName};

use super::Adapter;
use super::convert::{fs_handle, fs_inode};
use super::request::{PendingRequest, Wanted};
use crate::interrupt::SharedReply;
use crate::metrics::Operation;

/// How long a reader of a version that is gone waits at most until the kernel has dropped its name. It waits
/// only while another request of the folder waits for the store, or the kernel for the folder's lock.
const STALE_PATIENCE: Duration = Duration::from_millis(200);

impl Adapter {
    pub(super) fn on_read(
        &self,
        req: &Request,
        wanted: Wanted,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Wanted { ino, fh, offset, len } = wanted;
        tracing::trace!(ino = ino.0, pid = req.pid(), offset, size = len, ?lock_owner, "read");
        let request = self.pending(Operation::Read).called_by(req.pid(), ino, offset, len.into());
        let reply = self.share(reply);
        let shared = reply.clone();
        let answer = move |result: Result<&[u8], FsError>| match result {
            Ok(bytes) => {
                let Some(reply) = shared.take() else { return };
                reply.data(bytes);
                request.done();
            }
            Err(error) if shared.is_waiting()() => fail_read(&request, wanted, &error, shared),
            Err(_) => {}
        };
        // A READ with the owner of a lock goes straight to its caller, who would see a refusal.
        let is_direct = lock_owner.is_some() || flags.0 & libc::O_DIRECT != 0;
        if is_direct {
            self.fs.read(fs_handle(fh), offset, len as usize, answer);
        } else {
            self.fs.fill(fs_handle(fh), offset, len as usize, answer);
        }
        self.interrupts.add_read(req, &reply);
    }
}

/// Answers a READ with an errno. Before the answer for a version that is gone, the kernel drops the name: a
/// program that opens the file again at once finds the version that is there now.
fn fail_read(request: &PendingRequest, wanted: Wanted, error: &FsError, reply: SharedReply<ReplyData>) {
    let Wanted { ino, fh, offset, len } = wanted;
    let errno = request.errno((fh, offset, len), error);
    let (runtime, kernel) = (&request.shared.runtime, request.shared.kernel.clone());
    let fail = move || {
        if let Some(reply) = reply.take() {
            reply.error(errno);
        }
    };
    if let FsError::Stale { parent_and_name: Some((folder, name)), .. } = error {
        let folder = INodeNo(folder.0);
        let names = vec![KnownName { ino: Some(fs_inode(ino)), name: (&**name).into() }];
        runtime.spawn(async move {
            // If the name cannot be dropped in time, OPEN has the kernel look it up again.
            let dropped = kernel.drop_names(folder, names, STALE_PATIENCE);
            drop(tokio::time::timeout(STALE_PATIENCE, dropped).await);
            fail();
        });
        return;
    }
    if error.is_corrupt() {
        // Nobody waits for that.
        drop(kernel.drop_pages(ino, 0, 0));
    }
    fail();
}
