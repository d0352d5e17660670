//! Opening files, and closing them.

use std::fs::File;
use std::sync::Arc;

use fuser::{Errno, FileHandle, FopenFlags, INodeNo, OpenAccMode, OpenFlags, ReplyEmpty, ReplyOpen, Request};
use s3mount_fs::{Filesystem, OpenMode, Opened, Opening};

use super::convert::{fs_handle, fs_inode};
use super::request::PendingRequest;
use super::{Adapter, Mounted};
use crate::modes::Grant;
use crate::passthrough::{Backing, Passthrough};

/// An OPEN of the kernel, without its reply.
struct Open {
    flags: OpenFlags,
    request: PendingRequest,
    mounted: Arc<Mounted>,
    fs: Arc<Filesystem>,
}

impl Adapter {
    pub(super) fn on_open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let changes = flags.acc_mode() != OpenAccMode::O_RDONLY || flags.0 & libc::O_TRUNC != 0;
        if changes && !self.fs.is_writable(fs_inode(ino)) {
            if !self.fs.allows_writes() {
                return reply.error(Errno::EROFS);
            }
            return self.on_open_to_write(req, ino, flags, reply);
        }
        let asked = self.audited_open(req, ino, flags.0);
        let mut request = self.pending(asked).called_by(req.pid(), ino, 0, 0);
        let opening = match self.fs.begin_open(fs_inode(ino), req.pid()) {
            Ok(opening) => opening,
            Err(error) => {
                request.audit(error.errno());
                return reply.error(request.errno(ino, &error));
            }
        };
        let open = Open { flags, request, mounted: self.mounted.clone(), fs: self.fs.clone() };
        let Some(passthrough) = self.passthrough.clone().filter(|_| opening.is_object()) else {
            open.finish(ino, opening, Grant::Daemon, reply);
            return;
        };
        let is_on = passthrough.is_on();
        let reply = self.share(reply);
        let answer = reply.clone();
        let go_on = move |opening: Opening, whole: Option<Arc<File>>| {
            // Nothing is open yet for a caller that was killed meanwhile.
            if let Some(reply) = answer.take() {
                let grant = passthrough.open(ino, whole.as_deref(), &reply);
                if !open.finish(ino, opening, grant, reply) {
                    passthrough.release(ino);
                }
            }
        };
        if is_on {
            opening.with_whole_file(go_on);
        } else {
            go_on(opening, None);
        }
        self.interrupts.add(req, &reply);
    }

    pub(super) fn on_release(&self, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        close(&self.fs, self.passthrough.as_deref(), ino, fs_handle(fh));
        reply.ok();
    }

    /// Closes a handle that the kernel does not know of, because its caller was killed while the file was opened.
    pub(super) fn closer(&self) -> impl Fn(INodeNo, s3mount_fs::FileHandle) + use<> {
        let (fs, passthrough) = (self.fs.clone(), self.passthrough.clone());
        move |ino, handle| close(&fs, passthrough.as_deref(), ino, handle)
    }
}

fn close(
    fs: &Arc<Filesystem>,
    passthrough: Option<&Passthrough>,
    ino: INodeNo,
    handle: s3mount_fs::FileHandle,
) {
    // The kernel sends a RELEASE again that the daemon before has not answered, and may have done. The note for the next
    // daemon goes before the kernel's file.
    let was_open = fs.has_open(handle);
    fs.release(handle);
    if let Some(passthrough) = passthrough.filter(|_| was_open) {
        passthrough.release(ino);
    }
}

impl Open {
    /// Opens the file, and answers. Returns whether it is open.
    fn finish(self, ino: INodeNo, opening: Opening, grant: Grant<Backing>, reply: ReplyOpen) -> bool {
        let Self { flags, mut request, mounted, fs } = self;
        let opened = match opening.finish(matches!(grant, Grant::Passthrough(_))) {
            Ok(opened) => opened,
            Err(error) => {
                request.audit(error.errno());
                reply.error(request.errno(ino, &error));
                return false;
            }
        };
        match grant {
            Grant::Daemon => {
                // A program may map a file that is opened directly, too.
                if let Some(readahead) = mounted.readahead.get() {
                    readahead.before_open(opened.is_random_map);
                }
                reply.opened(FileHandle(opened.handle.0), answer_flags(&opened));
            }
            Grant::Passthrough(backing) => {
                // With this flag, the daemon serves what is read, and the disk's file what is mapped. Without
                // it, a read by O_DIRECT would have to be aligned as the disk wants it.
                let is_direct = opened.mode == OpenMode::Direct || flags.0 & libc::O_DIRECT != 0;
                let mut answer = FopenFlags::empty();
                answer.set(FopenFlags::FOPEN_DIRECT_IO, is_direct);
                fs.note_backing(opened.handle, fs_inode(ino), backing.id());
                backing.answer(reply, FileHandle(opened.handle.0), answer);
            }
        }
        request.audit(0);
        request.done();
        true
    }
}

/// The answer to an OPEN that the daemon serves.
pub(super) fn answer_flags(opened: &Opened) -> FopenFlags {
    let mut answer = FopenFlags::empty();
    // The pages that the kernel holds for this inode are of this very version.
    answer.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    answer.set(FopenFlags::FOPEN_DIRECT_IO, opened.mode == OpenMode::Direct);
    answer
}
