//! fuser's trait on top of the filesystem.
//!
//! The trait's block only hands each request on:
//! - [`attr`]: attributes of files, of directories, and of the mount;
//! - [`audited`]: what the audit log is told of a request;
//! - [`change`]: names that are made, removed and renamed, and attributes that are set;
//! - [`dir`]: names, one by one and listed;
//! - [`open`]: opening files, and closing them;
//! - [`read`]: reading files;
//! - [`write`]: writing files, and hints;
//! - [`request`]: one request from when it came to its answer;
//! - [`convert`]: the filesystem's types and fuser's.

mod attr;
mod audited;
mod change;
mod convert;
mod dir;
mod open;
mod read;
mod request;
mod write;

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, PollEvents,
    PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use s3mount_fs::{AttrChange, Filesystem, NewTime};
use tokio::runtime::Handle;

use self::convert::{fs_handle, fs_inode};
use self::request::{AskedFor, PendingRequest, Shared, Wanted};
use crate::config::FuseConfig;
use crate::gate::Gate;
use crate::interrupt::{InterruptMonitor, Reply, SharedReply, Unanswered};
use crate::kernel::Kernel;
use crate::metrics::FuseMetrics;
use crate::passthrough::Passthrough;
use crate::readahead::Readahead;
use crate::takeover::Inherited;

/// Largest READ that the kernel may send, in bytes: its own limit of 256 pages.
pub(crate) const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// What is known of a mount once it is there.
#[derive(Debug, Default)]
pub(crate) struct Mounted {
    /// The numbers of its device, as `0:42`, which are the same wherever it is bound. Unset where another process has
    /// mounted.
    pub(crate) device: OnceLock<String>,
    /// Passed by all that begins a change.
    pub(crate) gate: Gate,
    /// The requests that session threads have passed on to tasks.
    pub(crate) unanswered: Unanswered,
    /// Unset where the kernel's readahead cannot be set.
    pub(crate) readahead: OnceLock<Readahead>,
}

/// Answers the kernel's requests from a filesystem.
pub(crate) struct Adapter {
    fs: Arc<Filesystem>,
    shared: Arc<Shared>,
    mounted: Arc<Mounted>,
    interrupts: Arc<InterruptMonitor>,
    /// The most READs that the kernel sends before it has answers.
    max_reads: u16,
    /// Folders whose files the kernel may read by itself.
    passthrough_dirs: Vec<PathBuf>,
    /// Unset where the kernel reads no files by itself.
    passthrough: Option<Arc<Passthrough>>,
    /// What the kernel has open through the daemon before.
    inherited: Option<Inherited>,
}

impl Adapter {
    /// An adapter that answers later requests on `runtime`, and tells the kernel of changes through `kernel`.
    /// `is_passed` says that another process has mounted.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(crate) fn new(
        fs: Arc<Filesystem>,
        runtime: Handle,
        kernel: Arc<Kernel>,
        mounted: Arc<Mounted>,
        config: &FuseConfig,
        is_passed: bool,
    ) -> io::Result<Self> {
        let interrupts = InterruptMonitor::start(fs.config().timeout, is_passed)?;
        let monitor = Arc::downgrade(&interrupts);
        fs.set_callers(move || monitor.upgrade().map(|monitor| monitor.callers()).unwrap_or_default());
        let metrics = Arc::<FuseMetrics>::default();
        fs.registry().add(metrics.clone(), || {});
        let recorder = fs.recorder().clone();
        let (gate, audit) = (mounted.gate.clone(), config.audit.clone());
        let shared = Arc::new(Shared { runtime, kernel, metrics, recorder, gate, audit });
        let (max_reads, passthrough_dirs) = (config.max_reads, config.passthrough_dirs.clone());
        Ok(Self {
            fs,
            shared,
            mounted,
            interrupts,
            max_reads,
            passthrough_dirs,
            passthrough: None,
            inherited: None,
        })
    }

    /// The same adapter, where another daemon has opened files before.
    pub(crate) fn inheriting(self, inherited: Option<Inherited>) -> Self {
        Self { inherited, ..self }
    }

    /// The errno for what objects can't be: links, devices, pipes.
    fn refusal(&self) -> Errno {
        if self.fs.allows_writes() { Errno::EPERM } else { Errno::EROFS }
    }

    fn pending(&self, asked: impl Into<AskedFor>) -> PendingRequest {
        PendingRequest::new(&self.shared, asked)
    }

    /// The reply to a request that may be answered later.
    fn share<R: Reply>(&self, reply: R) -> SharedReply<R> {
        SharedReply::new(reply, &self.mounted.unanswered)
    }

    /// Runs `answer` in this thread if it is ready at once, else on the runtime. While it runs there, a killed
    /// caller gets EINTR through `reply`, and the caller counts as the holder of the lock of `folder`, if it
    /// holds one.
    fn answer<R: Reply>(
        &self,
        req: &Request,
        folder: Option<INodeNo>,
        reply: &SharedReply<R>,
        answer: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut answer = Box::pin(answer);
        let _inside = self.shared.runtime.enter();
        if answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            let hold = folder.map(|folder| self.shared.kernel.hold(folder));
            self.shared.runtime.spawn(async move {
                answer.await;
                drop(hold);
            });
            self.interrupts.add(req, reply);
        }
    }

    /// Runs `answer` as [`answer`](Self::answer) does, for a request that changes something. Its caller must not
    /// take it for undone: only a killed caller is answered early. The request has no deadline of its own.
    fn reply_uninterruptible<R: Reply>(
        &self,
        req: &Request,
        folder: Option<INodeNo>,
        reply: &SharedReply<R>,
        answer: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut answer = Box::pin(answer);
        let _inside = self.shared.runtime.enter();
        if answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            let hold = folder.map(|folder| self.shared.kernel.hold(folder));
            self.shared.runtime.spawn(async move {
                answer.await;
                drop(hold);
            });
            self.interrupts.add_change(req, reply);
        }
    }

    /// Asks the kernel for what it can do.
    fn on_init(&mut self, config: &mut KernelConfig) {
        for capability in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            // A kernel that has not got it is slower, and nothing else.
            let _ = config.add_capabilities(capability);
        }
        if self.fs.allows_writes() {
            // Without it, the kernel would set the size of a file before it opens the file.
            let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        }
        if self.fs.keeps_attributes() {
            // The target of a link is fetched once.
            let _ = config.add_capabilities(InitFlags::FUSE_CACHE_SYMLINKS);
        }
        if config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_err() {
            self.fs.keep_page_cache();
        }
        let _ = config.set_max_write(MAX_REQUEST_BYTES);
        // Beyond these two, READs queue in the kernel, and it does not read ahead.
        let _ = config.set_max_background(self.max_reads);
        let _ = config.set_congestion_threshold(self.max_reads);
        if !self.passthrough_dirs.is_empty() {
            let (dirs, metrics) = (&self.passthrough_dirs, &self.shared.metrics);
            let inherited = self.inherited.take();
            self.passthrough =
                Passthrough::negotiate(config, dirs, &self.fs, metrics, inherited).map(Arc::new);
        }
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.on_init(config);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.on_lookup(req, parent, name, reply);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.fs.forget(fs_inode(ino), nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.on_getattr(req, ino, reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.on_open(req, ino, flags, reply);
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
        self.on_read(req, Wanted { ino, fh, offset, len: size }, flags, lock_owner, reply);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mtime = mtime.map(|time| match time {
            TimeOrNow::Now => NewTime::Now,
            TimeOrNow::SpecificTime(time) => NewTime::At(time),
        });
        self.on_setattr(req, ino, size, AttrChange { mode, uid, gid, mtime }, fh, reply);
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.on_write(req, fh, offset, data, (flags, write_flags), reply);
    }

    fn flush(&self, req: &Request, _ino: INodeNo, fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        self.on_flush(req, fh, reply);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.on_release(ino, fh, reply);
    }

    fn fsync(&self, req: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.on_fsync(req, fh, reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.on_opendir(ino, reply);
    }

    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.on_readdir(req, ino, fh, offset, reply);
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.on_readdirplus(req, ino, fh, offset, reply);
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.releasedir(fs_handle(fh));
        reply.ok();
    }

    fn fsyncdir(&self, req: &Request, _ino: INodeNo, _fh: FileHandle, _data: bool, reply: ReplyEmpty) {
        self.on_fsyncdir(req, reply);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.on_statfs(reply);
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
        // Python asks of each file that it opens whether the file is a terminal.
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
        // After this answer the kernel takes every file as one piece of data, without holes.
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        // After this answer the kernel says of every file what it says of regular files: they are always ready.
        reply.error(Errno::ENOSYS);
    }

    // Requests that write to the bucket. With --read-only the kernel refuses them by itself.

    fn mknod(&self, _req: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refusal());
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        self.on_mkdir(req, parent, name, mode, reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.on_unlink(req, parent, name, reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.on_rmdir(req, parent, name, reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.on_symlink(req, parent, name, target, reply);
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.on_readlink(req, ino, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.on_rename(req, (parent, name), (newparent, newname), flags, reply);
    }

    fn link(&self, _req: &Request, _: INodeNo, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.fs.allows_writes() {
            self.fs.on_hard_link(&name.to_string_lossy());
        }
        reply.error(self.refusal());
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.on_create(req, parent, name, mode, flags, reply);
    }

    fn setxattr(&self, _req: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(if self.fs.allows_writes() { Errno::EOPNOTSUPP } else { Errno::EROFS });
    }

    fn removexattr(&self, _req: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(if self.fs.allows_writes() { Errno::EOPNOTSUPP } else { Errno::EROFS });
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.on_fallocate(req, fh, offset.saturating_add(length), mode, reply);
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.on_copy_file_range(req, (fh_in, offset_in), (fh_out, offset_out), len, reply);
    }
}
