//! Making, removing and renaming names, and setting attributes.

use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use fuser::{Errno, FileHandle, INodeNo, RenameFlags, ReplyAttr, ReplyEmpty, ReplyEntry, Request};
use s3mount_fs::{AttrChange, Entry, FsError, Place, StoredAttr};

use super::Adapter;
use super::convert::{GENERATION, file_attr, fs_handle, fs_inode};
use super::request::{AskedFor, is_repeated};
use crate::interrupt::{Reply, SharedReply};
use crate::metrics::Operation;

/// A name as text. Keys are UTF-8, so no object can have another name.
pub(super) fn text(name: &OsStr) -> Result<String, Errno> {
    name.to_str().map(str::to_owned).ok_or(Errno::EILSEQ)
}

impl Adapter {
    /// Answers a request that changes something, once `work` is done. A caller that is killed does not wait for
    /// that, and any other caller does.
    pub(super) fn change<R: Reply, T: 'static>(
        &self,
        req: &Request,
        folder: Option<INodeNo>,
        asked: impl Into<AskedFor>,
        reply: R,
        work: impl Future<Output = Result<T, FsError>> + Send + 'static,
        done: impl FnOnce(R, T) + Send + 'static,
    ) {
        self.change_or_undo(req, folder, asked, &self.share(reply), work, (done, drop));
    }

    /// As [`change`](Self::change), for work whose result the kernel gives back later: a handle, or an inode that it
    /// counts. A caller that was killed meanwhile has got another answer, so the kernel does not know of the result,
    /// and `undo` gives it back.
    pub(super) fn change_or_undo<R: Reply, T: 'static>(
        &self,
        req: &Request,
        folder: Option<INodeNo>,
        asked: impl Into<AskedFor>,
        reply: &SharedReply<R>,
        work: impl Future<Output = Result<T, FsError>> + Send + 'static,
        (done, undo): (impl FnOnce(R, T) + Send + 'static, impl FnOnce(T) + Send + 'static),
    ) {
        let (mut request, answer, pid) = (self.pending(asked), reply.clone(), req.pid());
        self.reply_uninterruptible(req, folder, reply, async move {
            let result = work.await;
            request.audit(result.as_ref().err().map_or(0, FsError::errno));
            match (result, answer.take()) {
                (Ok(value), Some(reply)) => {
                    done(reply, value);
                    request.done();
                }
                (Err(error), Some(reply)) => reply.fail(request.errno(pid, &error)),
                (Ok(value), None) => undo(value),
                (Err(_), None) => {}
            }
        });
    }

    pub(super) fn on_mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        reply: ReplyEntry,
    ) {
        let name = match text(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let asked = self.audited_name(req, Operation::Mkdir, (parent, &name));
        let fs = self.fs.clone();
        let attr = StoredAttr::new_folder(mode, req.uid(), req.gid());
        let (parent_ino, is_repeated) = (fs_inode(parent), is_repeated(req));
        let work = self.shared.gate.gated(async move {
            match is_repeated {
                false => fs.mkdir(parent_ino, &name, attr).await,
                true => fs.mkdir_again(parent_ino, &name, attr).await,
            }
        });
        self.change_or_undo(req, Some(parent), asked, &self.share(reply), work, self.entry_answers());
    }

    pub(super) fn on_rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = match text(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let asked = self.audited_name(req, Operation::Rmdir, (parent, &name));
        let fs = self.fs.clone();
        let is_repeated = is_repeated(req);
        let work = self.shared.gate.gated(async move {
            match is_repeated {
                false => fs.rmdir(fs_inode(parent), &name).await,
                true => fs.rmdir_again(fs_inode(parent), &name).await,
            }
        });
        self.change(req, Some(parent), asked, reply, work, |reply, ()| reply.ok());
    }

    pub(super) fn on_unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = match text(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let asked = self.audited_name(req, Operation::Unlink, (parent, &name));
        let fs = self.fs.clone();
        let is_repeated = is_repeated(req);
        let work = self.shared.gate.gated(async move {
            match is_repeated {
                false => fs.unlink(fs_inode(parent), &name).await,
                true => fs.unlink_again(fs_inode(parent), &name).await,
            }
        });
        self.change(req, Some(parent), asked, reply, work, |reply, ()| reply.ok());
    }

    pub(super) fn on_symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let name = match text(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let asked = self.audited_name(req, Operation::Symlink, (parent, &name));
        let fs = self.fs.clone();
        let (target, attr) =
            (target.as_os_str().as_bytes().to_vec(), StoredAttr::new_link(req.uid(), req.gid()));
        let is_repeated = is_repeated(req);
        let work = self.shared.gate.gated(async move {
            match is_repeated {
                false => fs.symlink(fs_inode(parent), &name, &target, attr).await,
                true => fs.symlink_again(fs_inode(parent), &name, &target, attr).await,
            }
        });
        self.change_or_undo(req, Some(parent), asked, &self.share(reply), work, self.entry_answers());
    }

    /// Tells the kernel of a name that was made, whose inode it counts from then on.
    fn entry_answers(
        &self,
    ) -> (impl FnOnce(ReplyEntry, Entry) + Send + 'static, impl FnOnce(Entry) + Send + 'static) {
        let (shown, uncounted) = (self.fs.clone(), self.fs.clone());
        let tell = move |reply: ReplyEntry, entry: Entry| {
            let attr = file_attr(entry.attr, &shown);
            reply.entry_with_ttls(&entry.attr.ttl, &entry.name_ttl, &attr, GENERATION);
        };
        (tell, move |entry: Entry| uncounted.forget(entry.attr.ino, 1))
    }

    pub(super) fn on_rename(
        &self,
        req: &Request,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        // Objects can't change places, and there are no whiteouts.
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (old, new) = match (text(from.1), text(to.1)) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(errno), _) | (_, Err(errno)) => return reply.error(errno),
        };
        let (fs, parents) = (self.fs.clone(), (from.0, to.0));
        let asked = self.audited(req, Operation::Rename, |fs| {
            let (from, to) = (fs.key_at(fs_inode(parents.0), &old)?, fs.key_at(fs_inode(parents.1), &new)?);
            Some((from, Some(to)))
        });
        let keeps_target = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let (hold, is_repeated) = (self.shared.kernel.hold(parents.1), is_repeated(req));
        let work = self.shared.gate.gated(async move {
            let from = Place { parent: fs_inode(parents.0), name: &old };
            let to = Place { parent: fs_inode(parents.1), name: &new };
            let renamed = match is_repeated {
                false => fs.rename(from, to, keeps_target).await,
                true => fs.rename_again(from, to, keeps_target).await,
            };
            drop(hold);
            renamed
        });
        self.change(req, Some(from.0), asked, reply, work, |reply, ()| reply.ok());
    }

    /// Sets the size of a file, and attributes.
    pub(super) fn on_setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        size: Option<u64>,
        change: AttrChange,
        fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let is_own = self.fs.is_writable(fs_inode(ino));
        let size = size.filter(|_| !is_own);
        if !is_own && !self.fs.allows_writes() {
            return reply.error(Errno::EROFS);
        }
        let asked = self.audited(req, Operation::Setattr, |fs| Some((fs.key(fs_inode(ino))?, None)));
        let (fs, shown, thread) = (self.fs.clone(), self.fs.clone(), req.pid());
        // Who has the file open has to go on, or would never close it.
        let gate = fh.is_none().then(|| self.shared.gate.clone());
        let set = async move {
            let cutting = size.and_then(|size| fs.cutting(fs_inode(ino), size));
            if let Some(size) = size {
                fs.clone().set_size(fs_inode(ino), fh.map(fs_handle), size, thread).await?;
            }
            let attr = fs.clone().set_attributes(fs_inode(ino), change).await?;
            if let Some(mode) = change.mode {
                fs.note_mode(attr.ino, mode);
            }
            Ok((attr, cutting))
        };
        let work = async move {
            match gate {
                Some(gate) => gate.gated(set).await,
                None => set.await,
            }
        };
        self.change(req, None, asked, reply, work, move |reply, (attr, cutting)| {
            reply.attr(&attr.ttl, &file_attr(attr, &shown));
            drop(cutting);
        });
    }
}
