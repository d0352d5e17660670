//! What the adapter of s3mount-fuse makes of each request (`crates/s3mount-fuse/src/adapter`).

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use s3mount_fs::{
    Attr, AttrChange, Closer, FileHandle, FsError, InodeNo, KnownName, OpenMode, Opened, RequestId, WriteOpen,
};

use super::{Caller, Daemon, Turn};

/// The most bytes of one COPY_FILE_RANGE (`adapter/write.rs`).
const MOST_COPIED: u64 = 2 << 30;

/// The answer to an OPEN.
#[derive(Clone, Debug)]
pub(crate) struct OpenAnswer {
    pub(crate) handle: FileHandle,
    /// `FOPEN_DIRECT_IO`
    pub(crate) is_direct: bool,
    /// `FOPEN_KEEP_CACHE`
    pub(crate) keeps_cache: bool,
    /// `FOPEN_PASSTHROUGH`: what is read comes from this file.
    pub(crate) backing: Option<Arc<File>>,
}

/// What SETATTR sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setattr {
    pub(crate) size: Option<u64>,
    pub(crate) change: AttrChange,
    pub(crate) handle: Option<FileHandle>,
}

/// A WRITE.
#[derive(Clone, Debug)]
pub(crate) struct WriteRequest {
    pub(crate) ino: InodeNo,
    pub(crate) handle: FileHandle,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
    /// The flags of the open file at this moment.
    pub(crate) flags: i32,
    /// `FUSE_WRITE_CACHE`: dirty pages of a map.
    pub(crate) is_write_back: bool,
}

pub(super) fn write_open(flags: i32) -> WriteOpen {
    WriteOpen {
        writes: writes(flags),
        appends: flags & libc::O_APPEND != 0,
        truncates: flags & libc::O_TRUNC != 0,
        is_exclusive: flags & libc::O_EXCL != 0,
    }
}

pub(super) fn writes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// What the adapter answers to an OPEN (`answer_flags`).
pub(super) fn answer(opened: Opened) -> OpenAnswer {
    let is_direct = opened.mode == OpenMode::Direct;
    OpenAnswer { handle: opened.handle, is_direct, keeps_cache: opened.keep_cache, backing: None }
}

/// The process that closes a descriptor.
struct ClosingProcess {
    daemon: Arc<Daemon>,
    pid: u32,
    /// Whether it has another descriptor of the file.
    has_another: bool,
}

impl Closer for ClosingProcess {
    fn is_of(&self, thread: u32) -> bool {
        self.daemon.are_of_one_process(thread, self.pid)
    }

    fn has_another(&self, _: InodeNo) -> Option<bool> {
        Some(self.has_another)
    }
}

/// What the kernel is told of an error.
pub(super) fn told<T>(result: Result<T, FsError>) -> Result<T, i32> {
    result.map_err(|error| error.errno())
}

pub(super) fn nothing<T>(_: &Turn, _: T) {}

impl Daemon {
    /// The number of a request. The kernel's are even, and 0 is none.
    pub(super) fn request_id(&self) -> RequestId {
        RequestId(2 + 2 * self.numbered.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) async fn getattr(self: &Arc<Self>, caller: &Caller, ino: InodeNo) -> Result<Attr, i32> {
        let number = self.record.sent(caller.pid, "GETATTR", ino.0, String::new);
        let work = move |turn: Turn| async move { told(turn.fs().getattr(ino)) };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn setattr(
        self: &Arc<Self>,
        caller: &Caller,
        ino: InodeNo,
        set: Setattr,
    ) -> Result<Attr, i32> {
        let what = || format!("{:?}{}", set.size, if set.handle.is_some() { " of a handle" } else { "" });
        let number = self.record.sent(caller.pid, "SETATTR", ino.0, what);
        let pid = caller.pid;
        let work = move |turn: Turn| async move {
            let fs = turn.fs();
            let is_own = fs.is_writable(ino);
            if !is_own && !fs.allows_writes() {
                return Err(libc::EROFS);
            }
            if let Some(size) = set.size.filter(|_| !is_own) {
                told(fs.clone().set_size(ino, set.handle, size, pid).await)?;
            }
            told(fs.set_attributes(ino, set.change).await)
        };
        self.request(caller, number, None, work, nothing).await
    }

    /// A READ. One that `is_direct` goes straight to its caller.
    pub(crate) async fn read(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
        (offset, len): (u64, usize),
        is_direct: bool,
    ) -> Result<Vec<u8>, i32> {
        let number = self.record.sent(caller.pid, "READ", ino.0, || format!("{offset}+{len}"));
        let work = move |turn: Turn| async move {
            let (answer, answered) = tokio::sync::oneshot::channel();
            let reply = move |result: Result<&[u8], FsError>| {
                // Nobody listens where the daemon has died.
                drop(answer.send(result.map(<[u8]>::to_vec)));
            };
            if is_direct {
                turn.fs().read(handle, offset, len, reply);
            } else {
                turn.fs().fill(handle, offset, len, reply);
            }
            // The reply is dropped where a task has panicked.
            let error = match answered.await {
                Ok(Ok(bytes)) => return Ok(bytes),
                Ok(Err(error)) => error,
                Err(_) => return Err(libc::EIO),
            };
            let errno = error.errno();
            if let FsError::Stale { parent_and_name: Some((folder, name)), .. } = error {
                turn.daemon.drop_name(folder, KnownName { ino: Some(ino), name: (&*name).into() }).await;
            }
            Err(errno)
        };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn write(
        self: &Arc<Self>,
        caller: &Caller,
        request: WriteRequest,
    ) -> Result<usize, i32> {
        let WriteRequest { ino, handle, offset, data, flags, is_write_back } = request;
        let number = self.record.sent(caller.pid, "WRITE", ino.0, || {
            let how = if is_write_back { " of a map" } else { "" };
            format!("{offset}+{} {}{how}", data.len(), flags_text(flags))
        });
        let (data, pid) = (Arc::new(data), caller.pid);
        let id = self.request_id();
        let work = move |turn: Turn| {
            let data = data.clone();
            async move {
                let fs = turn.fs();
                // The flags are those of this moment, and pages of maps go where they are in the file.
                let deferred = if is_write_back {
                    fs.write_back(handle, offset, &data, pid)
                } else if flags & libc::O_APPEND != 0 {
                    fs.append_once(handle, &data, pid, (id, turn.is_resent))
                } else {
                    fs.write(handle, offset, &data, pid)
                };
                if let Some(deferred) = told(deferred)? {
                    told(fs.finish_write(deferred).await)?;
                }
                Ok(data.len())
            }
        };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn flush(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
        has_another: bool,
    ) -> Result<(), i32> {
        if !self.sends_flush() {
            return Ok(());
        }
        let number = self.record.sent(caller.pid, "FLUSH", ino.0, String::new);
        let pid = caller.pid;
        let work = move |turn: Turn| async move {
            if !turn.fs().allows_writes() {
                turn.daemon.no_flush.store(true, Ordering::Relaxed);
                return Ok(());
            }
            let closer = ClosingProcess { daemon: turn.daemon.clone(), pid, has_another };
            told(turn.fs().flush(handle, closer).await)
        };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn fsync(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
    ) -> Result<(), i32> {
        let number = self.record.sent(caller.pid, "FSYNC", ino.0, String::new);
        let work = move |turn: Turn| async move { told(turn.fs().fsync(handle).await) };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn fallocate(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
        end: u64,
    ) -> Result<(), i32> {
        let number = self.record.sent(caller.pid, "FALLOCATE", ino.0, || end.to_string());
        let pid = caller.pid;
        let work = move |turn: Turn| async move {
            if !turn.fs().allows_writes() {
                return Err(libc::EROFS);
            }
            told(turn.fs().grow(handle, end, pid).await)
        };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn copy_file_range(
        self: &Arc<Self>,
        caller: &Caller,
        from: (FileHandle, u64),
        to: (InodeNo, FileHandle, u64),
        len: u64,
    ) -> Result<u64, i32> {
        let number = self
            .record
            .sent(caller.pid, "COPY_FILE_RANGE", to.0.0, || format!("{}+{len} to {}", from.1, to.2));
        let pid = caller.pid;
        let work = move |turn: Turn| async move {
            if !turn.fs().allows_writes() {
                return Err(libc::EROFS);
            }
            told(turn.fs().copy_range(from, (to.1, to.2), len.min(MOST_COPIED), pid).await)
        };
        self.request(caller, number, None, work, nothing).await
    }
}

/// The flags of an open file that the filesystem looks at.
pub(super) fn flags_text(flags: i32) -> String {
    let mut text = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => "r",
        libc::O_WRONLY => "w",
        _ => "rw",
    }
    .to_owned();
    for (flag, name) in [
        (libc::O_APPEND, "append"),
        (libc::O_TRUNC, "trunc"),
        (libc::O_CREAT, "creat"),
        (libc::O_EXCL, "excl"),
        (libc::O_DIRECT, "direct"),
    ] {
        if flags & flag != 0 {
            text = format!("{text},{name}");
        }
    }
    text
}
