//! Writing files, and hints.

use std::ffi::OsStr;

use fuser::{
    Errno, FileHandle, INodeNo, OpenAccMode, OpenFlags, ReplyCreate, ReplyEmpty, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};
use s3mount_fs::{Entry, FsError, Opened, Opener, StoredAttr, WriteOpen};

use super::Adapter;
use super::change::text;
use super::convert::{GENERATION, file_attr, fs_handle, fs_inode};
use super::open::answer_flags;
use super::request::{is_repeated, request_id};
use crate::closing::ClosingProcess;
use crate::metrics::Operation;

/// The most bytes of one answer to COPY_FILE_RANGE, whose length has 32 bits. Programs go on after a short one.
const MOST_COPIED: u64 = 2 << 30;

/// The flag of fallocate(2) by which the size stays as it is.
const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;

fn write_open(flags: i32) -> WriteOpen {
    WriteOpen {
        writes: OpenFlags(flags).acc_mode() != OpenAccMode::O_RDONLY,
        appends: flags & libc::O_APPEND != 0,
        truncates: flags & libc::O_TRUNC != 0,
        is_exclusive: flags & libc::O_EXCL != 0,
    }
}

impl Adapter {
    pub(super) fn on_create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = match text(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let asked = self.audited_create(req, (parent, &name), flags);
        let (fs, shown, passthrough) = (self.fs.clone(), self.fs.clone(), self.passthrough.clone());
        let reply = self.share(reply);
        let opener = Opener::new(req.pid(), reply.is_waiting()).by(request_id(req));
        let attr = StoredAttr::new_file(mode, req.uid(), req.gid());
        let work = self.shared.gate.gated(async move {
            let how = write_open(flags);
            let (entry, opened) = fs.create_by(fs_inode(parent), &name, how, attr, opener).await?;
            // What was open has been counted when it was opened again.
            let passthrough = passthrough.filter(|_| !opened.was_open);
            if passthrough.is_some_and(|passthrough| !passthrough.enter(INodeNo(entry.attr.ino.0))) {
                fs.release(opened.handle);
                fs.forget(entry.attr.ino, 1);
                return Err(FsError::Outdated);
            }
            fs.note_mode(entry.attr.ino, mode);
            Ok((entry, opened))
        });
        let done = move |reply: ReplyCreate, (entry, opened): (Entry, Opened)| {
            let attr = file_attr(entry.attr, &shown);
            let handle = FileHandle(opened.handle.0);
            reply.created(&entry.attr.ttl, &attr, GENERATION, handle, answer_flags(&opened));
        };
        let (close, fs) = (self.closer(), self.fs.clone());
        let undo = move |(entry, opened): (Entry, Opened)| {
            let ino = entry.attr.ino;
            close(INodeNo(ino.0), opened.handle);
            fs.forget(ino, 1);
        };
        self.change_or_undo(req, Some(parent), asked, &reply, work, (done, undo));
    }

    /// Opens a file for writing, or to empty it.
    pub(super) fn on_open_to_write(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let asked = self.audited_open(req, ino, flags.0);
        let reply = self.share(reply);
        let opener = Opener::new(req.pid(), reply.is_waiting()).by(request_id(req));
        let (fs, passthrough) = (self.fs.clone(), self.passthrough.clone());
        let work = self.shared.gate.gated(async move {
            if passthrough.as_ref().is_some_and(|passthrough| !passthrough.enter(ino)) {
                fs.detach(fs_inode(ino), opener.thread);
                return Err(FsError::Outdated);
            }
            let opened = fs.open_to_write_by(fs_inode(ino), write_open(flags.0), opener).await;
            // What was open has been counted when it was opened again.
            let is_counted = opened.as_ref().is_ok_and(|opened| !opened.was_open);
            if let Some(passthrough) = passthrough.filter(|_| !is_counted) {
                passthrough.release(ino);
            }
            opened
        });
        let done = |reply: ReplyOpen, opened: Opened| {
            reply.opened(FileHandle(opened.handle.0), answer_flags(&opened));
        };
        let close = self.closer();
        let undo = move |opened: Opened| close(ino, opened.handle);
        self.change_or_undo(req, None, asked, &reply, work, (done, undo));
    }

    pub(super) fn on_write(
        &self,
        req: &Request,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        (flags, write_flags): (OpenFlags, WriteFlags),
        reply: ReplyWrite,
    ) {
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let fs = self.fs.clone();
        // Pages of maps go where they are in the file, and the kernel takes any handle of the file for them. Else it sends
        // the flags that the open file has by now: a program may have changed `O_APPEND` by fcntl(2).
        let deferred = if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            self.fs.write_back(fs_handle(fh), offset, data, req.pid())
        } else if flags.0 & libc::O_APPEND != 0 {
            self.fs.append_once(fs_handle(fh), data, req.pid(), (request_id(req), is_repeated(req)))
        } else {
            self.fs.write(fs_handle(fh), offset, data, req.pid())
        };
        let work = async move {
            match deferred? {
                Some(deferred) => fs.finish_write(deferred).await,
                None => Ok(()),
            }
        };
        self.change(req, None, Operation::Write, reply, work, move |reply, ()| reply.written(written));
    }

    pub(super) fn on_flush(&self, req: &Request, fh: FileHandle, reply: ReplyEmpty) {
        if !self.fs.allows_writes() {
            // There is nothing to flush. After this answer the kernel sends no FLUSH any more.
            return reply.error(Errno::ENOSYS);
        }
        let asked = self.audited(req, Operation::Flush, |fs| Some((fs.key_written_by(fs_handle(fh))?, None)));
        let closer = ClosingProcess::new(self.interrupts.thread_of(req), self.mounted.device.get().cloned());
        let work = self.fs.clone().flush(fs_handle(fh), closer);
        self.change(req, None, asked, reply, work, |reply, ()| reply.ok());
    }

    pub(super) fn on_fsync(&self, req: &Request, fh: FileHandle, reply: ReplyEmpty) {
        let work = self.fs.clone().fsync(fs_handle(fh));
        self.change(req, None, Operation::Fsync, reply, work, |reply, ()| reply.ok());
    }

    /// Makes the names of files safe that wait to be uploaded. All others are safe already.
    pub(super) fn on_fsyncdir(&self, req: &Request, reply: ReplyEmpty) {
        if !self.fs.has_outbox() {
            return reply.ok();
        }
        let fs = self.fs.clone();
        let work = async move { fs.sync_names().await };
        self.change(req, None, Operation::Fsync, reply, work, |reply, ()| reply.ok());
    }

    /// Makes a file as long as asked for. Room needs no reservation.
    pub(super) fn on_fallocate(&self, req: &Request, fh: FileHandle, end: u64, mode: i32, reply: ReplyEmpty) {
        if !self.fs.allows_writes() {
            return reply.error(Errno::EROFS);
        }
        if mode & !KEEP_SIZE != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (fs, thread) = (self.fs.clone(), req.pid());
        let work =
            async move { if mode == KEEP_SIZE { Ok(()) } else { fs.grow(fs_handle(fh), end, thread).await } };
        self.change(req, None, Operation::Setattr, reply, work, |reply, ()| reply.ok());
    }

    /// Copies between open files. After ENOSYS the kernel would never ask again; after EOPNOTSUPP it reads and
    /// writes the bytes by itself.
    pub(super) fn on_copy_file_range(
        &self,
        req: &Request,
        from: (FileHandle, u64),
        to: (FileHandle, u64),
        len: u64,
        reply: ReplyWrite,
    ) {
        if !self.fs.allows_writes() {
            return reply.error(Errno::EROFS);
        }
        let (from, to) = ((fs_handle(from.0), from.1), (fs_handle(to.0), to.1));
        let work = self.fs.clone().copy_range(from, to, len.min(MOST_COPIED), req.pid());
        self.change(req, None, Operation::Copy, reply, work, |reply, copied| {
            reply.written(u32::try_from(copied).unwrap_or(u32::MAX));
        });
    }
}
