//! What the adapter of s3mount-fuse makes of each request (`crates/s3mount-fuse/src/adapter`).

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use s3mount_fs::{
    Attr, AttrChange, Closer, DirEntry, DirOffset, Entry, FileHandle, FsError, InodeNo, KnownName, OpenMode,
    Opened, Place, StoredAttr, WriteOpen,
};

use super::{Caller, Daemon};

/// Names taken out of a listing for one READDIR, and for one READDIRPLUS that asks for attributes (`adapter/dir.rs`).
const NAMES_PER_REQUEST: usize = 1024;
const NAMES_WITH_ATTRIBUTES: usize = 192;

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

fn writes(flags: i32) -> bool {
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

fn nothing<T>(_: &Daemon, _: T) {}

impl Daemon {
    pub(crate) async fn lookup(
        self: &Arc<Self>,
        caller: &Caller,
        parent: InodeNo,
        name: &str,
    ) -> Result<Entry, i32> {
        let number = self.record.sent(caller.pid, "LOOKUP", parent.0, || name.to_owned());
        let (fs, name) = (self.fs.clone(), name.to_owned());
        let work = async move { told(fs.lookup(parent, &name).await) };
        let forget = |daemon: &Daemon, entry: Entry| daemon.fs.forget(entry.attr.ino, 1);
        self.request(caller, number, Some(parent), work, forget).await
    }

    pub(crate) fn forget(self: &Arc<Self>, ino: InodeNo, count: u64) {
        self.in_background(move |daemon| daemon.fs.forget(ino, count));
    }

    pub(crate) async fn getattr(self: &Arc<Self>, caller: &Caller, ino: InodeNo) -> Result<Attr, i32> {
        let number = self.record.sent(caller.pid, "GETATTR", ino.0, String::new);
        let fs = self.fs.clone();
        let work = async move { told(fs.getattr(ino)) };
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
        let is_own = self.fs.is_writable(ino);
        if !is_own && !self.fs.allows_writes() {
            return Err(libc::EROFS);
        }
        let (fs, pid) = (self.fs.clone(), caller.pid);
        let work = async move {
            if let Some(size) = set.size.filter(|_| !is_own) {
                told(fs.clone().set_size(ino, set.handle, size, pid).await)?;
            }
            told(fs.set_attributes(ino, set.change).await)
        };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn open(
        self: &Arc<Self>,
        caller: &Caller,
        ino: InodeNo,
        flags: i32,
    ) -> Result<OpenAnswer, i32> {
        let number = self.record.sent(caller.pid, "OPEN", ino.0, || flags_text(flags));
        let (opener, fs, pid) = (self.clone(), self.fs.clone(), caller.pid);
        let work = async move {
            let changes = (writes(flags) || flags & libc::O_TRUNC != 0) && !fs.is_writable(ino);
            if changes && !fs.allows_writes() {
                return Err(libc::EROFS);
            }
            if changes {
                return opener.open_to_write(ino, flags, pid).await;
            }
            let opening = told(fs.begin_open(ino, pid))?;
            if opener.has_passthrough && opening.is_object() {
                return opener.open_object(ino, opening, flags).await;
            }
            told(opening.finish(false).map(answer))
        };
        let daemon = self.clone();
        let work =
            async move { work.await.inspect(|opened: &OpenAnswer| daemon.opened(false, opened.handle)) };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        parent: InodeNo,
        name: &str,
        flags: i32,
        mode: u32,
    ) -> Result<(Entry, OpenAnswer), i32> {
        let number =
            self.record.sent(caller.pid, "CREATE", parent.0, || format!("{name} {}", flags_text(flags)));
        let (daemon, name, opener) = (self.clone(), name.to_owned(), caller.pid);
        let work = async move {
            let attr = StoredAttr::new_file(mode, 0, 0);
            let created = daemon.fs.create_by(parent, &name, write_open(flags), attr, opener).await;
            let (entry, opened) = told(created)?;
            if daemon.has_passthrough && !daemon.modes.enter(entry.attr.ino) {
                daemon.fs.release(opened.handle);
                daemon.fs.forget(entry.attr.ino, 1);
                return told(Err(FsError::Outdated));
            }
            daemon.fs.note_mode(entry.attr.ino, mode);
            daemon.opened(false, opened.handle);
            Ok((entry, answer(opened)))
        };
        self.request(caller, number, Some(parent), work, nothing).await
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
        let daemon = self.clone();
        let work = async move {
            let (answer, answered) = tokio::sync::oneshot::channel();
            let reply = move |result: Result<&[u8], FsError>| {
                // Nobody listens where the daemon has died.
                drop(answer.send(result.map(<[u8]>::to_vec)));
            };
            if is_direct {
                daemon.fs.read(handle, offset, len, reply);
            } else {
                daemon.fs.fill(handle, offset, len, reply);
            }
            // The reply is dropped where a task has panicked.
            let error = match answered.await {
                Ok(Ok(bytes)) => return Ok(bytes),
                Ok(Err(error)) => error,
                Err(_) => return Err(libc::EIO),
            };
            let errno = error.errno();
            if let FsError::Stale { parent_and_name: Some((folder, name)), .. } = error {
                daemon.drop_name(folder, KnownName { ino, name: (&*name).into() }).await;
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
        let (fs, pid) = (self.fs.clone(), caller.pid);
        let work = async move {
            // The flags are those of this moment, and pages of maps go where they are in the file.
            let deferred = if is_write_back {
                fs.write_back(handle, offset, &data, pid)
            } else if flags & libc::O_APPEND != 0 {
                fs.append(handle, &data, pid)
            } else {
                fs.write(handle, offset, &data, pid)
            };
            if let Some(deferred) = told(deferred)? {
                told(fs.finish_write(deferred).await)?;
            }
            Ok(data.len())
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
        let (daemon, closer) = (self.clone(), caller.pid);
        let work = async move {
            if !daemon.fs.allows_writes() {
                daemon.no_flush.store(true, Ordering::Relaxed);
                return Ok(());
            }
            let closer = ClosingProcess { daemon: daemon.clone(), pid: closer, has_another };
            told(daemon.fs.clone().flush(handle, closer).await)
        };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) fn release(self: &Arc<Self>, ino: InodeNo, handle: FileHandle) {
        self.in_background(move |daemon| {
            daemon.record.sent(0, "RELEASE", ino.0, String::new);
            daemon.modes.release(ino);
            daemon.fs.release(handle);
            daemon.released(false, handle);
        });
    }

    pub(crate) async fn fsync(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
    ) -> Result<(), i32> {
        let number = self.record.sent(caller.pid, "FSYNC", ino.0, String::new);
        let fs = self.fs.clone();
        let work = async move { told(fs.fsync(handle).await) };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) async fn mkdir(
        self: &Arc<Self>,
        caller: &Caller,
        parent: InodeNo,
        name: &str,
    ) -> Result<Entry, i32> {
        let number = self.record.sent(caller.pid, "MKDIR", parent.0, || name.to_owned());
        let (fs, name) = (self.fs.clone(), name.to_owned());
        let work = async move {
            let attr = StoredAttr::new_folder(0o755, 0, 0);
            told(fs.mkdir(parent, &name, attr).await)
        };
        self.request(caller, number, Some(parent), work, nothing).await
    }

    pub(crate) async fn remove(
        self: &Arc<Self>,
        caller: &Caller,
        (parent, name): (InodeNo, &str),
        is_dir: bool,
    ) -> Result<(), i32> {
        let call = if is_dir { "RMDIR" } else { "UNLINK" };
        let number = self.record.sent(caller.pid, call, parent.0, || name.to_owned());
        let (fs, name) = (self.fs.clone(), name.to_owned());
        let work = async move {
            let removed = if is_dir { fs.rmdir(parent, &name).await } else { fs.unlink(parent, &name).await };
            told(removed)
        };
        self.request(caller, number, Some(parent), work, nothing).await
    }

    pub(crate) async fn rename(
        self: &Arc<Self>,
        caller: &Caller,
        from: (InodeNo, &str),
        to: (InodeNo, &str),
        keeps_target: bool,
    ) -> Result<(), i32> {
        let call = if keeps_target { "RENAME2" } else { "RENAME" };
        let number =
            self.record.sent(caller.pid, call, from.0.0, || format!("{} to {} {}", from.1, to.0, to.1));
        let (daemon, old, new, folders) = (self.clone(), from.1.to_owned(), to.1.to_owned(), (from.0, to.0));
        let work = async move {
            let hold = daemon.hold(folders.1);
            let from = Place { parent: folders.0, name: &old };
            let to = Place { parent: folders.1, name: &new };
            let renamed = daemon.fs.rename(from, to, keeps_target).await;
            drop(hold);
            told(renamed)
        };
        self.request(caller, number, Some(from.0), work, nothing).await
    }

    pub(crate) async fn opendir(self: &Arc<Self>, caller: &Caller, ino: InodeNo) -> Result<FileHandle, i32> {
        let number = self.record.sent(caller.pid, "OPENDIR", ino.0, String::new);
        let daemon = self.clone();
        let work = async move {
            let handle = told(daemon.fs.opendir(ino))?;
            daemon.opened(true, handle);
            Ok(handle)
        };
        self.request(caller, number, None, work, nothing).await
    }

    pub(crate) fn releasedir(self: &Arc<Self>, ino: InodeNo, handle: FileHandle) {
        self.in_background(move |daemon| {
            daemon.record.sent(0, "RELEASEDIR", ino.0, String::new);
            daemon.fs.releasedir(handle);
            daemon.released(true, handle);
        });
    }

    /// Names for a READDIR. The kernel's buffer cuts them.
    pub(crate) async fn readdir(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
        offset: DirOffset,
    ) -> Result<Vec<DirEntry>, i32> {
        let number = self.record.sent(caller.pid, "READDIR", ino.0, || offset.0.to_string());
        let fs = self.fs.clone();
        let work = async move { told(fs.readdir(handle, offset, NAMES_PER_REQUEST).await) };
        self.request(caller, number, Some(ino), work, nothing).await
    }

    /// Names with their attributes for a READDIRPLUS, as many as have `room` for their names.
    pub(crate) async fn readdirplus(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
        offset: DirOffset,
        room: impl FnMut(&str) -> bool + Send + 'static,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, i32> {
        let number = self.record.sent(caller.pid, "READDIRPLUS", ino.0, || offset.0.to_string());
        let fs = self.fs.clone();
        let mut room = room;
        let work = async move {
            let most = if fs.keeps_attributes() { NAMES_WITH_ATTRIBUTES } else { NAMES_PER_REQUEST };
            let (mut entries, mut offset) = (Vec::new(), offset);
            loop {
                let page = told(fs.readdir_with_attributes(handle, offset, most).await)?;
                let last = page.last().map(|last| last.next);
                for name in page {
                    let entry = match name.ino {
                        Some(_) => None,
                        None => match fs.entry_before(handle, name.next).await {
                            Err(FsError::NotFound) => continue,
                            entry => Some(told(entry)?),
                        },
                    };
                    if !room(&name.name) {
                        if let Some(entry) = entry {
                            fs.forget(entry.attr.ino, 1);
                        }
                        return Ok(entries);
                    }
                    entries.push((name, entry));
                }
                match last {
                    Some(last) if entries.is_empty() => offset = last,
                    _ => return Ok(entries),
                }
            }
        };
        self.request(caller, number, Some(ino), work, nothing).await
    }

    pub(crate) async fn fallocate(
        self: &Arc<Self>,
        caller: &Caller,
        (ino, handle): (InodeNo, FileHandle),
        end: u64,
    ) -> Result<(), i32> {
        let number = self.record.sent(caller.pid, "FALLOCATE", ino.0, || end.to_string());
        if !self.fs.allows_writes() {
            return Err(libc::EROFS);
        }
        let (fs, pid) = (self.fs.clone(), caller.pid);
        let work = async move { told(fs.grow(handle, end, pid).await) };
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
        if !self.fs.allows_writes() {
            return Err(libc::EROFS);
        }
        let (fs, pid) = (self.fs.clone(), caller.pid);
        let work = async move { told(fs.copy_range(from, (to.1, to.2), len.min(MOST_COPIED), pid).await) };
        self.request(caller, number, None, work, nothing).await
    }
}

/// The flags of an open file that the filesystem looks at.
fn flags_text(flags: i32) -> String {
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
