//! Names: looking one up, and listing a directory.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileHandle, FopenFlags, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, ReplyOpen,
    Request,
};
use s3mount_fs::{Attr, DirEntry, DirOffset, Entry, FileKind, Filesystem, FsError};

use super::Adapter;
use super::convert::{GENERATION, file_attr, file_type, fs_handle, fs_inode};
use crate::interrupt::SharedReply;
use crate::metrics::Operation;

/// Inode number of a name that has no inode yet. libfuse uses this one, too. 0 would hide the name from
/// `readdir`.
const UNKNOWN_INO: INodeNo = INodeNo(0xffff_ffff);

/// The inode number in place of an inode that the kernel is not given: it shows the name, and remembers nothing of it.
const NO_NODE: INodeNo = INodeNo(0);

/// Names taken out of a listing for one request. glibc asks for 32 KiB, which hold fewer.
const NAMES_PER_REQUEST: usize = 1024;

/// As many where each name costs a HEAD. About so many fit in 32 KiB.
const NAMES_WITH_ATTRIBUTES: usize = 192;

impl Adapter {
    pub(super) fn on_lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        // Keys are UTF-8, so no object has a name that is not.
        let Some(name) = name.to_str().map(str::to_owned) else {
            return reply.error(Errno::ENOENT);
        };
        let request = self.pending(Operation::Lookup).called_by(req.pid(), parent, 0, 0);
        let fs = self.fs.clone();
        let reply = self.share(reply);
        self.answer(req, Some(parent), &reply.clone(), async move {
            let found = fs.lookup(fs_inode(parent), &name).await;
            match (found, reply.take()) {
                (Ok(entry), Some(reply)) => {
                    let attr = file_attr(entry.attr, &fs);
                    reply.entry_with_ttls(&entry.attr.ttl, &entry.name_ttl, &attr, GENERATION);
                    request.done();
                }
                (Err(error), Some(reply)) => reply.error(request.errno(&name, &error)),
                // The caller was killed, so the kernel has not counted this look-up.
                (Ok(entry), None) => fs.forget(entry.attr.ino, 1),
                (Err(_), None) => {}
            }
        });
    }

    pub(super) fn on_opendir(&self, ino: INodeNo, reply: ReplyOpen) {
        let request = self.pending(Operation::Opendir);
        match self.fs.opendir(fs_inode(ino)) {
            Ok(handle) => {
                reply.opened(FileHandle(handle.0), FopenFlags::empty());
                request.done();
            }
            Err(error) => reply.error(request.errno(ino, &error)),
        }
    }

    pub(super) fn on_readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let request = self.pending(Operation::Readdir).called_by(req.pid(), ino, offset, 0);
        let fs = self.fs.clone();
        let reply = self.share(reply);
        self.answer(req, Some(ino), &reply.clone(), async move {
            let page = fs.readdir(fs_handle(fh), DirOffset(offset), NAMES_PER_REQUEST).await;
            let Some(mut reply) = reply.take() else { return };
            let page = match page {
                Ok(page) => page,
                Err(error) => return reply.error(request.errno(ino, &error)),
            };
            let mut last = None;
            for DirEntry { name, kind, ino, next } in page {
                let ino = ino.map_or(UNKNOWN_INO, |ino| INodeNo(ino.0));
                if reply.add(ino, next.0, file_type(kind), &name) {
                    break;
                }
                last = Some(next);
            }
            note_listed(&fs, fs_handle(fh), last);
            reply.ok();
            request.done();
        });
    }

    pub(super) fn on_readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let request = self.pending(Operation::Readdir).called_by(req.pid(), ino, offset, 0);
        let fs = self.fs.clone();
        let reply = self.share(reply);
        self.answer(req, Some(ino), &reply.clone(), async move {
            let most = if fs.keeps_attributes() { NAMES_WITH_ATTRIBUTES } else { NAMES_PER_REQUEST };
            let (handle, mut last, mut counted) = (fs_handle(fh), None, Vec::new());
            let added = match fs.readdir_with_attributes(handle, DirOffset(offset), most).await {
                Ok(page) => add_entries(&fs, handle, page, &reply, (&mut last, &mut counted)).await,
                Err(error) => Err(error),
            };
            note_listed(&fs, handle, last);
            match (added, reply.take()) {
                // Who asks for more gets the error.
                (Err(error), Some(reply)) if last.is_none() => reply.error(request.errno(ino, &error)),
                (_, Some(reply)) => {
                    reply.ok();
                    request.done();
                }
                // The caller was killed, so the kernel has counted none of these look-ups.
                (_, None) => counted.into_iter().for_each(|ino| fs.forget(ino, 1)),
            }
        });
    }
}

/// The attributes of a name of which no more is known than what it stands for.
fn unknown(kind: FileKind) -> Attr {
    let (ino, mtime) = (s3mount_fs::InodeNo(UNKNOWN_INO.0), SystemTime::UNIX_EPOCH);
    Attr::new(ino, kind, (0, mtime), Duration::ZERO)
}

/// Notes for the next daemon how far a directory was read.
fn note_listed(fs: &Filesystem, handle: s3mount_fs::FileHandle, last: Option<DirOffset>) {
    if let Some(last) = last {
        fs.note_listed(handle, last);
    }
}

/// Adds names with their attributes to a reply until it is full, or its caller was killed. `last` is the place after
/// the last one that it has, and `counted` which of their inodes the kernel counts as looked up once it has the reply.
async fn add_entries(
    fs: &Filesystem,
    handle: s3mount_fs::FileHandle,
    page: Vec<DirEntry>,
    reply: &SharedReply<ReplyDirectoryPlus>,
    (last, counted): (&mut Option<DirOffset>, &mut Vec<s3mount_fs::InodeNo>),
) -> Result<(), FsError> {
    for DirEntry { name, kind, ino, next } in page {
        let (node, attr, ttl) = match ino {
            // `.` and `..` have their inodes. The kernel does not count these two as looked up.
            Some(ino) => (INodeNo(ino.0), fs.getattr(ino)?, Duration::ZERO),
            None => match fs.entry_before(handle, next).await {
                // It has gone just now, and what has come in its place was not there when the names were read. So it is
                // shown, as a READDIR shows it, and the kernel learns nothing of it.
                Err(FsError::NotFound) => (NO_NODE, unknown(kind), Duration::ZERO),
                Err(error) => return Err(error),
                Ok(Entry { attr, name_ttl }) => (INodeNo(attr.ino.0), attr, name_ttl),
            },
        };
        let is_counted = ino.is_none() && node != NO_NODE;
        let told = file_attr(attr, fs);
        let is_full = reply.add(|reply| reply.add(node, next.0, &name, &ttl, &told, GENERATION));
        if is_full != Some(false) {
            if is_counted {
                fs.forget(attr.ino, 1);
            }
            break;
        }
        *last = Some(next);
        if is_counted {
            counted.push(attr.ino);
        }
    }
    Ok(())
}
