//! fuser's trait on top of the filesystem.

use std::error::Error;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use s3mount_fs::{Attr, DirEntry, DirOffset, FileKind, Filesystem, FsConfig, FsError, KnownName, OpenMode};
use tokio::runtime::Handle;

use crate::kernel::Kernel;
use crate::metrics::{FuseMetrics, Operation};
use crate::readahead::Readahead;
use crate::waiting::{Reply, Slot, Watch};

/// Largest read that the kernel may send, in bytes: its own limit of 256 pages.
const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// Readahead requests that the kernel may have outstanding. 64 gives 16 streams 7.1 GB/s where the
/// default of 12 gives 5.7 (kernel 6.18, 4 cores).
const MAX_BACKGROUND: u16 = 128;

/// How long a reader of a version that is gone waits at most until its name may be dropped: hardly ever, as
/// this is only so long if callers of its folder wait for the store.
const STALE_PATIENCE: Duration = Duration::from_millis(200);

/// There is one generation of every inode: numbers are never used again.
const GENERATION: Generation = Generation(0);

/// Inode number of names that have none yet, as libfuse has it; 0 would hide them from `readdir`.
const UNKNOWN_INO: INodeNo = INodeNo(0xffff_ffff);

/// Names taken out of a listing for one request: more than the 32 KiB that glibc asks for hold.
const NAMES_PER_REQUEST: usize = 1024;

pub(crate) struct Adapter {
    fs: Arc<Filesystem>,
    shared: Arc<Shared>,
    /// Unset where the kernel's readahead cannot be set.
    readahead: Arc<OnceLock<Readahead>>,
    watch: Arc<Watch>,
}

/// What answers need that are given later.
struct Shared {
    runtime: Handle,
    kernel: Arc<Kernel>,
    metrics: Arc<FuseMetrics>,
}

/// A request of the kernel that is to be answered.
struct Asked {
    shared: Arc<Shared>,
    operation: Operation,
    began: Instant,
}

impl Asked {
    /// It is answered.
    fn done(&self) {
        self.shared.metrics.on_answer(self.operation, self.began, None);
    }

    /// The errno with which it fails. Trouble with the store is logged here, where it is handled.
    fn errno(&self, what: impl std::fmt::Debug, error: &FsError) -> Errno {
        self.shared.metrics.on_answer(self.operation, self.began, Some(error));
        if error.is_trouble() {
            let operation = self.operation.name();
            tracing::warn!(?what, error = error as &dyn Error, errno = error.errno(), "{operation} failed");
        }
        Errno::from_i32(error.errno())
    }
}

impl Adapter {
    pub(crate) fn new(
        fs: Arc<Filesystem>,
        runtime: Handle,
        kernel: Arc<Kernel>,
        readahead: Arc<OnceLock<Readahead>>,
    ) -> Self {
        let watch = Arc::new(Watch::new(fs.config().timeout));
        runtime.spawn(Watch::run(Arc::downgrade(&watch)));
        let metrics = Arc::<FuseMetrics>::default();
        fs.registry().add(metrics.clone(), || {});
        Self { fs, shared: Arc::new(Shared { runtime, kernel, metrics }), readahead, watch }
    }

    fn asked(&self, operation: Operation) -> Asked {
        Asked { shared: self.shared.clone(), operation, began: Instant::now() }
    }

    /// Runs `answer` here if it is ready at once, else on the runtime; then `slot` is answered sooner
    /// if the caller is killed. The caller holds the lock of `folder` meanwhile.
    fn answer<R: Reply>(
        &self,
        req: &Request,
        folder: INodeNo,
        slot: &Slot<R>,
        answer: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut answer = Box::pin(answer);
        let _inside = self.shared.runtime.enter();
        if answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            let hold = self.shared.kernel.hold(folder);
            self.shared.runtime.spawn(async move {
                answer.await;
                drop(hold);
            });
            self.watch.add(req.pid(), slot);
        }
    }
}

/// The filesystem's number of an inode.
fn known(ino: INodeNo) -> s3mount_fs::InodeNo {
    s3mount_fs::InodeNo(ino.0)
}

/// The filesystem's number of what is open.
fn opened(fh: FileHandle) -> s3mount_fs::FileHandle {
    s3mount_fs::FileHandle(fh.0)
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Directory => FileType::Directory,
        FileKind::File => FileType::RegularFile,
    }
}

fn file_attr(attr: Attr, config: &FsConfig) -> FileAttr {
    let (mode, nlink) = match attr.kind {
        FileKind::Directory => (config.dir_mode, 2),
        FileKind::File => (config.file_mode, 1),
    };
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: attr.mtime,
        mtime: attr.mtime,
        ctime: attr.mtime,
        crtime: attr.mtime,
        kind: file_type(attr.kind),
        perm: attr.mode.unwrap_or(mode),
        nlink,
        uid: config.uid,
        gid: config.gid,
        rdev: 0,
        // What programs take as their buffer size. Larger ones make a random reader that goes
        // through a buffer fetch far more than it wants.
        blksize: 4096,
        flags: 0,
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            // An older kernel works without it, only slower.
            let _ = config.add_capabilities(capability);
        }
        if config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_err() {
            self.fs.keep_page_cache();
        }
        let _ = config.set_max_write(MAX_REQUEST_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        // Keys are UTF-8, so a name that is not stands for nothing.
        let Some(name) = name.to_str().map(str::to_owned) else {
            return reply.error(Errno::ENOENT);
        };
        let (fs, asked) = (self.fs.clone(), self.asked(Operation::Lookup));
        let slot = Slot::new(reply);
        self.answer(req, parent, &slot.clone(), async move {
            let found = fs.lookup(known(parent), &name).await;
            match (found, slot.take()) {
                (Ok(entry), Some(reply)) => {
                    let attr = file_attr(entry.attr, fs.config());
                    reply.entry_with_ttls(&entry.attr.ttl, &entry.name_ttl, &attr, GENERATION);
                    asked.done();
                }
                (Err(error), Some(reply)) => reply.error(asked.errno(&name, &error)),
                // The kernel was not given it.
                (Ok(entry), None) => fs.forget(entry.attr.ino, 1),
                (Err(_), None) => {}
            }
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.fs.forget(known(ino), nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let asked = self.asked(Operation::Getattr);
        match self.fs.getattr(known(ino)) {
            Ok(attr) => {
                reply.attr(&attr.ttl, &file_attr(attr, self.fs.config()));
                asked.done();
            }
            Err(error) => reply.error(asked.errno(ino, &error)),
        }
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY && !self.fs.is_writable(known(ino)) {
            return reply.error(Errno::EROFS);
        }
        let asked = self.asked(Operation::Open);
        match self.fs.open_by(known(ino), req.pid()) {
            Ok(opened) => {
                // Files that are opened directly may be mapped.
                if let Some(readahead) = self.readahead.get() {
                    readahead.before_open(opened.is_random_map);
                }
                let mut flags = FopenFlags::empty();
                // The pages that the kernel holds for this inode are of this very version.
                flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
                flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.mode == OpenMode::Direct);
                reply.opened(FileHandle(opened.handle.0), flags);
                asked.done();
            }
            Err(error) => reply.error(asked.errno(ino, &error)),
        }
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        tracing::trace!(ino = ino.0, pid = req.pid(), offset, size, ?lock_owner, "read");
        let asked = self.asked(Operation::Read);
        let slot = Slot::new(reply);
        let answered = slot.clone();
        let answer = move |result: Result<&[u8], FsError>| {
            let Some(reply) = answered.take() else { return };
            let error = match result {
                Ok(bytes) => {
                    reply.data(bytes);
                    return asked.done();
                }
                Err(error) => error,
            };
            let errno = asked.errno((fh, offset, size), &error);
            let Shared { runtime, kernel, .. } = &*asked.shared;
            let kernel = kernel.clone();
            if let FsError::Stale { place: Some((folder, name)), .. } = error {
                let names = vec![KnownName { ino: known(ino), name: (&*name).into() }];
                // Who opens it again at once finds what is there now.
                runtime.spawn(async move {
                    // If that cannot be now, OPEN has the kernel look the name up again.
                    drop(kernel.drop_names(INodeNo(folder.0), names, STALE_PATIENCE).await);
                    reply.error(errno);
                });
                return;
            }
            if error.is_corrupt() {
                runtime.spawn_blocking(move || kernel.drop_pages(ino, 0, 0));
            }
            reply.error(errno);
        };
        // A READ with a lock's owner goes straight to its caller, who would see a refusal.
        let is_direct = lock_owner.is_some() || flags.0 & libc::O_DIRECT != 0;
        if is_direct {
            self.fs.read(opened(fh), offset, size as usize, answer);
        } else {
            self.fs.fill(opened(fh), offset, size as usize, answer);
        }
        self.watch.add(req.pid(), &slot);
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.fs.getattr(known(ino)) {
            // The shell's `>` cuts what it opens.
            Ok(attr) if self.fs.is_writable(known(ino)) => {
                reply.attr(&attr.ttl, &file_attr(attr, self.fs.config()));
            }
            _ => reply.error(Errno::EROFS),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let asked = self.asked(Operation::Write);
        match self.fs.write(opened(fh), data) {
            Ok(()) => {
                reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
                asked.done();
            }
            Err(error) => reply.error(asked.errno(fh, &error)),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // There is nothing to flush, and this answer saves one request at every later close.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.release(opened(fh));
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let asked = self.asked(Operation::Opendir);
        match self.fs.opendir(known(ino)) {
            Ok(handle) => {
                reply.opened(FileHandle(handle.0), FopenFlags::empty());
                asked.done();
            }
            Err(error) => reply.error(asked.errno(ino, &error)),
        }
    }

    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        let (fs, asked) = (self.fs.clone(), self.asked(Operation::Readdir));
        let slot = Slot::new(reply);
        self.answer(req, ino, &slot.clone(), async move {
            let page = fs.readdir(opened(fh), DirOffset(offset), NAMES_PER_REQUEST).await;
            let Some(mut reply) = slot.take() else { return };
            let page = match page {
                Ok(page) => page,
                Err(error) => return reply.error(asked.errno(ino, &error)),
            };
            for DirEntry { name, kind, ino, next } in page {
                let ino = ino.map_or(UNKNOWN_INO, |ino| INodeNo(ino.0));
                if reply.add(ino, next.0, file_type(kind), &name) {
                    break;
                }
            }
            reply.ok();
            asked.done();
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (fs, asked) = (self.fs.clone(), self.asked(Operation::Readdir));
        let slot = Slot::new(reply);
        self.answer(req, ino, &slot.clone(), async move {
            let page = fs.readdir(opened(fh), DirOffset(offset), NAMES_PER_REQUEST).await;
            let Some(mut reply) = slot.take() else { return };
            let filled = match page {
                Ok(page) => fill(&fs, opened(fh), page, &mut reply).await,
                Err(error) => Err(error),
            };
            match filled {
                Ok(()) => {
                    reply.ok();
                    asked.done();
                }
                Err(error) => reply.error(asked.errno(ino, &error)),
            }
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.releasedir(opened(fh));
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _data: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        // A bucket has no size. Programs that look for room see a petabyte, all of it used.
        let blocks = (1 << 50) / 4096;
        reply.statfs(blocks, 0, 0, u64::from(u32::MAX), 0, 4096, 255, 4096);
    }

    fn getxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: fuser::IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: fuser::ReplyIoctl,
    ) {
        // Python asks of each file that it opens whether it is a terminal.
        reply.error(Errno::ENOTTY);
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        // The kernel then takes every file as one piece of data, which it is.
        reply.error(Errno::ENOSYS);
    }

    // What writes to the bucket, which is never done. With --read-only the kernel refuses these by
    // itself.

    fn mknod(&self, _req: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _req: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _req: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _req: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(&self, _req: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _req: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _req: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn create(&self, _req: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(&self, _req: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _req: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }
}

/// Names with their attributes, as many as fit. Each one that fits counts as known to the kernel.
async fn fill(
    fs: &Filesystem,
    handle: s3mount_fs::FileHandle,
    page: Vec<DirEntry>,
    reply: &mut ReplyDirectoryPlus,
) -> Result<(), FsError> {
    for DirEntry { name, ino, next, .. } in page {
        // `.` and `..` have their inodes, and the kernel does not count these two as looked up.
        let (attr, ttl) = match ino {
            Some(ino) => (fs.getattr(ino)?, Duration::ZERO),
            None => {
                let entry = fs.entry_before(handle, next).await?;
                (entry.attr, entry.name_ttl)
            }
        };
        let shown = file_attr(attr, fs.config());
        let is_full = reply.add(INodeNo(attr.ino.0), next.0, &name, &ttl, &shown, GENERATION);
        if is_full {
            if ino.is_none() {
                fs.forget(attr.ino, 1);
            }
            break;
        }
    }
    Ok(())
}
