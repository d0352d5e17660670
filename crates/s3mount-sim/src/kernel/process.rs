//! Processes: their descriptors, and the system calls of their threads.
//!
//! - [`maps`]: maps of files.

mod maps;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use s3mount_fs::{AttrChange, FileKind};
use tokio::sync::{RwLock, RwLockReadGuard};

use super::common::{MOST_BYTES, lock};
use super::core::Kernel;
use super::daemon::Caller;
use super::directory::Listing;
use super::inode::stale;
use super::locks::Owner;
use super::map::Map;
use super::open_file::OpenFile;
use crate::watched::Watched;

/// A descriptor of a process, or a map.
pub type Fd = u32;

/// What `stat` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The number of the inode.
    pub ino: u64,
    /// The size in bytes.
    pub size: u64,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// When it was changed.
    pub mtime: SystemTime,
    /// Permission bits, if they differ from those of all other files.
    pub mode: Option<u16>,
}

/// From where `lseek` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The beginning.
    Set,
    /// Where the descriptor stands.
    Current,
    /// The end.
    End,
}

/// A process. Its clones are its threads.
#[derive(Clone, Debug)]
pub struct Process(Arc<ProcessState>);

#[derive(Debug)]
struct ProcessState {
    kernel: Arc<Kernel>,
    pid: u32,
    killed: Arc<Watched<bool>>,
    /// Held by each call under way.
    calls: RwLock<()>,
    files: Mutex<BTreeMap<Fd, Arc<OpenFile>>>,
    maps: Mutex<BTreeMap<Fd, Arc<Map>>>,
}

impl Drop for ProcessState {
    fn drop(&mut self) {
        self.kernel.daemon.note_process(self.pid, false);
    }
}

/// Puts a thing under the lowest number that is free.
fn insert_lowest<T>(table: &mut BTreeMap<Fd, T>, thing: T) -> Fd {
    let mut fd = 3;
    while table.contains_key(&fd) {
        fd += 1;
    }
    table.insert(fd, thing);
    fd
}

impl Process {
    /// A process with nothing open.
    pub fn new(kernel: &Arc<Kernel>, pid: u32) -> Self {
        kernel.daemon.note_process(pid, true);
        Self(Arc::new(ProcessState {
            kernel: kernel.clone(),
            pid,
            killed: Arc::default(),
            calls: RwLock::default(),
            files: Mutex::default(),
            maps: Mutex::default(),
        }))
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// Begins a call. A process that was killed makes none.
    async fn begin(&self) -> Result<(RwLockReadGuard<'_, ()>, Caller), i32> {
        let call = self.0.calls.read().await;
        if self.0.killed.get() { Err(libc::EINTR) } else { Ok((call, self.caller())) }
    }

    fn caller(&self) -> Caller {
        Caller::new(self.0.pid, self.0.killed.clone())
    }

    fn file(&self, fd: Fd) -> Result<Arc<OpenFile>, i32> {
        lock(&self.0.files).get(&fd).cloned().ok_or(libc::EBADF)
    }

    /// `open`, with flags as libc has them. New files get the mode 0644.
    ///
    /// # Errors
    /// The errno, as of all calls.
    pub async fn open(&self, path: &str, flags: i32) -> Result<Fd, i32> {
        let (_call, caller) = self.begin().await?;
        let file = self.0.kernel.open(&caller, path, flags).await?;
        Ok(insert_lowest(&mut lock(&self.0.files), file))
    }

    /// `pread`
    ///
    /// # Errors
    /// The errno.
    pub async fn pread(&self, fd: Fd, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        let (_call, caller) = self.begin().await?;
        self.file(fd)?.read_at(&caller, offset, len).await
    }

    /// `read`
    ///
    /// # Errors
    /// The errno.
    pub async fn read(&self, fd: Fd, len: usize) -> Result<Vec<u8>, i32> {
        let (_call, caller) = self.begin().await?;
        let file = self.file(fd)?;
        let mut position = file.position.lock().await;
        let bytes = file.read_at(&caller, *position, len).await?;
        *position += bytes.len() as u64;
        Ok(bytes)
    }

    /// `pwrite`. With `O_APPEND`, Linux writes at the end.
    ///
    /// # Errors
    /// The errno.
    pub async fn pwrite(&self, fd: Fd, offset: u64, data: &[u8]) -> Result<usize, i32> {
        let (_call, caller) = self.begin().await?;
        Ok(self.file(fd)?.write_at(&caller, offset, data).await?.1)
    }

    /// `write`
    ///
    /// # Errors
    /// The errno.
    pub async fn write(&self, fd: Fd, data: &[u8]) -> Result<usize, i32> {
        let (_call, caller) = self.begin().await?;
        let file = self.file(fd)?;
        let mut position = file.position.lock().await;
        let (end, written) = file.write_at(&caller, *position, data).await?;
        *position = end;
        Ok(written)
    }

    /// `lseek` (`fuse_file_llseek`)
    ///
    /// # Errors
    /// The errno.
    pub async fn lseek(&self, fd: Fd, offset: i64, whence: Whence) -> Result<u64, i32> {
        let (_call, caller) = self.begin().await?;
        let file = self.file(fd)?;
        let mut position = file.position.lock().await;
        let from = match whence {
            Whence::Set => 0,
            Whence::Current => *position,
            Whence::End => {
                let _alone = file.inode.rwsem.write().await;
                file.inode.update_attr(&caller, stale::SIZE).await?;
                file.inode.size()
            }
        };
        *position = from.checked_add_signed(offset).ok_or(libc::EINVAL)?;
        Ok(*position)
    }

    /// `fcntl(F_GETFL)`
    ///
    /// # Errors
    /// The errno.
    pub fn flags(&self, fd: Fd) -> Result<i32, i32> {
        Ok(self.file(fd)?.flags())
    }

    /// `fcntl(F_SETFL)` of `O_APPEND`
    ///
    /// # Errors
    /// The errno.
    pub fn set_append(&self, fd: Fd, appends: bool) -> Result<(), i32> {
        let file = self.file(fd)?;
        let rest = file.flags() & !libc::O_APPEND;
        file.set_flags(if appends { rest | libc::O_APPEND } else { rest });
        Ok(())
    }

    /// `fsync`
    ///
    /// # Errors
    /// The errno.
    pub async fn fsync(&self, fd: Fd) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.file(fd)?.sync(&caller).await
    }

    /// `ftruncate`
    ///
    /// # Errors
    /// The errno.
    pub async fn ftruncate(&self, fd: Fd, size: u64) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        let file = self.file(fd)?;
        if !file.may_write() {
            return Err(libc::EINVAL);
        }
        file.inode.set_size(&caller, Some(&file), size).await
    }

    /// `truncate`
    ///
    /// # Errors
    /// The errno.
    pub async fn truncate(&self, path: &str, size: u64) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.0.kernel.truncate(&caller, path, size).await
    }

    /// `chmod`, `utimensat`: sets mode or time.
    ///
    /// # Errors
    /// The errno.
    pub async fn set_attr(&self, path: &str, change: AttrChange) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.0.kernel.set_attr(&caller, path, change).await
    }

    /// `posix_fallocate`
    ///
    /// # Errors
    /// The errno.
    pub async fn fallocate(&self, fd: Fd, offset: u64, len: u64) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.file(fd)?.allocate(&caller, offset + len).await
    }

    /// `copy_file_range`. Where the filesystem does not copy, the kernel reads and writes (`splice_copy_file_range`).
    ///
    /// # Errors
    /// The errno.
    pub async fn copy_file_range(
        &self,
        from: Fd,
        offset: u64,
        to: Fd,
        offset_there: u64,
        len: usize,
    ) -> Result<usize, i32> {
        let (_call, caller) = self.begin().await?;
        let (source, target) = (self.file(from)?, self.file(to)?);
        match source.copy_to(&caller, offset, (&target, offset_there), len as u64).await {
            Err(libc::EOPNOTSUPP | libc::EXDEV) => {}
            copied => return copied.map(|copied| copied as usize),
        }
        let len = len.min(MOST_BYTES);
        let bytes = source.read_at(&caller, offset, len).await?;
        Ok(target.write_at(&caller, offset_there, &bytes).await?.1)
    }

    /// `close`. Its errno tells of what was written; the descriptor is closed all the same.
    ///
    /// # Errors
    /// The errno.
    pub async fn close(&self, fd: Fd) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        let file = lock(&self.0.files).remove(&fd).ok_or(libc::EBADF)?;
        self.close_file(&caller, &file).await
    }

    /// `filp_close`
    async fn close_file(&self, caller: &Caller, file: &OpenFile) -> Result<(), i32> {
        let has_another = lock(&self.0.files).values().any(|open| open.inode.number == file.inode.number);
        let flushed = file.flush(caller, has_another).await;
        file.inode.locks.release(Owner::Process(self.0.pid));
        flushed
    }

    /// `dup`
    ///
    /// # Errors
    /// The errno.
    pub fn dup(&self, fd: Fd) -> Result<Fd, i32> {
        let file = self.file(fd)?;
        Ok(insert_lowest(&mut lock(&self.0.files), file))
    }

    /// `fork`: the child shares what is open.
    pub fn fork(&self, pid: u32) -> Self {
        let child = Self::new(&self.0.kernel, pid);
        *lock(&child.0.files) = lock(&self.0.files).clone();
        *lock(&child.0.maps) =
            lock(&self.0.maps).iter().map(|(fd, map)| (*fd, Arc::new(map.fork()))).collect();
        child
    }

    /// `rename`
    ///
    /// # Errors
    /// The errno.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.0.kernel.rename(&caller, from, to, false).await
    }

    /// `renameat2` with `RENAME_NOREPLACE`
    ///
    /// # Errors
    /// The errno.
    pub async fn rename_noreplace(&self, from: &str, to: &str) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.0.kernel.rename(&caller, from, to, true).await
    }

    /// `unlink`
    ///
    /// # Errors
    /// The errno.
    pub async fn unlink(&self, path: &str) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.0.kernel.remove(&caller, path, false).await
    }

    /// `rmdir`
    ///
    /// # Errors
    /// The errno.
    pub async fn rmdir(&self, path: &str) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.0.kernel.remove(&caller, path, true).await
    }

    /// `mkdir`
    ///
    /// # Errors
    /// The errno.
    pub async fn mkdir(&self, path: &str) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        self.0.kernel.mkdir(&caller, path).await
    }

    /// The names of a folder, without the dots. An empty path is the root.
    ///
    /// # Errors
    /// The errno.
    pub async fn readdir(&self, path: &str, how: Listing) -> Result<Vec<String>, i32> {
        let (_call, caller) = self.begin().await?;
        self.0.kernel.list(&caller, path, how).await
    }

    /// `stat`, repeated once after `ESTALE` (`vfs_statx`).
    ///
    /// # Errors
    /// The errno.
    pub async fn stat(&self, path: &str) -> Result<Stat, i32> {
        let (_call, caller) = self.begin().await?;
        let kernel = &self.0.kernel;
        for is_anew in [false, true] {
            let inode = kernel.walk(&caller, path, is_anew).await;
            let attr = match inode {
                Ok(inode) => inode.update_attr(&caller, stale::ALL).await,
                Err(errno) => Err(errno),
            };
            match attr {
                Err(libc::ESTALE) if !is_anew => {}
                attr => return attr.map(Stat::from),
            }
        }
        Err(libc::ESTALE)
    }

    /// `fstat`
    ///
    /// # Errors
    /// The errno.
    pub async fn fstat(&self, fd: Fd) -> Result<Stat, i32> {
        let (_call, caller) = self.begin().await?;
        self.file(fd)?.inode.update_attr(&caller, stale::ALL).await.map(Stat::from)
    }

    /// `flock`, or `fcntl(F_SETLKW)` of the whole file: waits for the lock, which is for this descriptor's file alone, or
    /// for all who read.
    ///
    /// # Errors
    /// The errno.
    pub async fn lock(&self, fd: Fd, is_flock: bool, is_alone: bool) -> Result<(), i32> {
        let (_call, caller) = self.begin().await?;
        let file = self.file(fd)?;
        tokio::select! {
            biased;
            () = file.inode.locks.take(self.owner(&file, is_flock), is_alone) => Ok(()),
            () = caller.is_killed() => Err(libc::EINTR),
        }
    }

    /// `flock` with `LOCK_NB`, or `fcntl(F_SETLK)`.
    ///
    /// # Errors
    /// `EAGAIN`, or the errno.
    pub fn try_lock(&self, fd: Fd, is_flock: bool, is_alone: bool) -> Result<(), i32> {
        let file = self.file(fd)?;
        let is_taken = file.inode.locks.try_take(self.owner(&file, is_flock), is_alone);
        if is_taken { Ok(()) } else { Err(libc::EAGAIN) }
    }

    /// Gives a lock back.
    ///
    /// # Errors
    /// The errno.
    pub fn unlock(&self, fd: Fd, is_flock: bool) -> Result<(), i32> {
        let file = self.file(fd)?;
        file.inode.locks.release(self.owner(&file, is_flock));
        Ok(())
    }

    fn owner(&self, file: &OpenFile, is_flock: bool) -> Owner {
        if is_flock { Owner::File(file.handle.number.0) } else { Owner::Process(self.0.pid) }
    }

    /// The process ends: its maps go first, then its descriptors (`do_exit`). Calls under way end before.
    pub async fn exit(&self) {
        let _alone = self.0.calls.write().await;
        // What is sent now is not interrupted, because the signal was taken.
        let caller = Caller::new(self.0.pid, Arc::default());
        let maps = std::mem::take(&mut *lock(&self.0.maps));
        for map in maps.into_values() {
            map.close(&caller).await;
        }
        let files = std::mem::take(&mut *lock(&self.0.files));
        for file in files.into_values() {
            // Nobody is there to be told.
            let _untold = self.close_file(&caller, &file).await;
        }
        self.0.kernel.daemon.note_process(self.0.pid, false);
    }

    /// The process is killed: its calls under way are interrupted, and it ends.
    pub async fn kill(&self) {
        self.0.killed.set(true);
        self.exit().await;
    }
}

impl From<s3mount_fs::Attr> for Stat {
    fn from(attr: s3mount_fs::Attr) -> Self {
        let is_dir = attr.kind == FileKind::Directory;
        Self { ino: attr.ino.0, size: attr.size, is_dir, mtime: attr.mtime, mode: attr.mode }
    }
}
