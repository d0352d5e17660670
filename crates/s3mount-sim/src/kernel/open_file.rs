//! Open file descriptions (`struct file`, `struct fuse_file`): opening and closing them.

use std::fs::File;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use super::common::lock;
use super::core::Kernel;
use super::daemon::Caller;
use super::daemon::requests::OpenAnswer;
use super::handle::Handle;
use super::inode::Inode;
use super::io_mode::Counted;
use super::names::{Flags, Named};
use super::window::Window;

/// What an `open` makes. Descriptors, maps and READs that are under way share it; RELEASE follows the last of them.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) inode: Arc<Inode>,
    pub(super) handle: Arc<Handle>,
    /// `f_flags`
    flags: AtomicI32,
    /// `FOPEN_DIRECT_IO`
    pub(super) is_direct: bool,
    /// What is read comes from this file (`fuse_file.passthrough`).
    pub(super) backing: Option<Arc<File>>,
    /// How the inode counts it (`fuse_file.iomode`).
    counted: Mutex<Counted>,
    /// `f_pos`, and the lock of those who read or write there.
    pub(super) position: tokio::sync::Mutex<u64>,
    pub(super) window: Mutex<Window>,
    pub(super) is_read_only_mount: bool,
}

impl Drop for OpenFile {
    /// Locks of the description go with it (`locks_remove_flock`), and what the inode has counted.
    fn drop(&mut self) {
        self.inode.locks.release_of_file(self.handle.number.0);
        self.inode.io.release(std::mem::take(&mut lock(&self.counted)));
    }
}

impl OpenFile {
    pub(super) fn flags(&self) -> i32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(super) fn set_flags(&self, flags: i32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub(super) fn may_read(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub(super) fn may_write(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Reads and writes are aligned by the program, and go around the page cache.
    pub(super) fn is_o_direct(&self) -> bool {
        self.flags() & libc::O_DIRECT != 0
    }

    /// The file is mapped (`fuse_file_mmap`): one that is open directly uses the page cache from now on.
    pub(super) fn count_map(&self) -> Result<(), i32> {
        let mut counted = lock(&self.counted);
        if *counted == Counted::Not {
            *counted = self.inode.io.map()?;
        }
        Ok(())
    }

    /// A READ of the filesystem.
    pub(super) async fn send_read(
        &self,
        caller: &Caller,
        offset: u64,
        len: usize,
        has_owner: bool,
    ) -> Result<Vec<u8>, i32> {
        let of = (self.inode.number, self.handle.number);
        let is_direct = has_owner || self.is_o_direct();
        let bytes = self.inode.daemon.read(caller, of, (offset, len), is_direct).await?;
        // The device takes no longer answer (`fuse_copy_out_args`).
        if bytes.len() > len { Err(libc::EIO) } else { Ok(bytes) }
    }

    /// A descriptor is closed (`fuse_flush`). Its process may have another descriptor of the file.
    pub(super) async fn flush(&self, caller: &Caller, has_another: bool) -> Result<(), i32> {
        self.inode.write_back(caller, 0, u64::MAX).await?;
        self.inode.take_write_back_error()?;
        self.inode.daemon.flush(caller, (self.inode.number, self.handle.number), has_another).await
    }

    /// `fuse_fsync`
    pub(super) async fn sync(&self, caller: &Caller) -> Result<(), i32> {
        let _alone = self.inode.rwsem.write().await;
        self.inode.write_back(caller, 0, u64::MAX).await?;
        self.inode.take_write_back_error()?;
        self.inode.daemon.fsync(caller, (self.inode.number, self.handle.number)).await
    }
}

impl Kernel {
    /// `do_filp_open`: one repetition, with every name looked up anew, after `ESTALE`.
    pub(super) async fn open(&self, caller: &Caller, path: &str, flags: i32) -> Result<Arc<OpenFile>, i32> {
        match self.open_once(caller, path, flags, false).await {
            Err(libc::ESTALE) => self.open_once(caller, path, flags, true).await,
            result => result,
        }
    }

    /// `path_openat`, `open_last_lookups`, `lookup_open`, `do_open`
    async fn open_once(
        &self,
        caller: &Caller,
        path: &str,
        flags: i32,
        is_anew: bool,
    ) -> Result<Arc<OpenFile>, i32> {
        let creates = flags & libc::O_CREAT != 0;
        let is_exclusive = creates && flags & libc::O_EXCL != 0;
        let (dir, name) = self.walk_parent(caller, path, is_anew).await?;
        let how = Flags { is_anew, is_exclusive, ..Flags::default() };
        let known = if is_exclusive { None } else { self.find(caller, &dir, name, how).await? };
        let inode = match known.and_then(|named| named.inode) {
            Some(inode) => inode,
            None => {
                // `lookup_open`: with the folder's lock, alone if a name may be made.
                let alone = if creates { Some(dir.rwsem.write().await) } else { None };
                let shared = if creates { None } else { Some(dir.rwsem.read().await) };
                let named = self.look_up_locked(caller, &dir, name, how).await?;
                let opened = match named.inode {
                    Some(inode) => Ok(inode),
                    None if creates => Err(self.create_open(caller, &named, flags).await?),
                    None => return Err(libc::ENOENT),
                };
                drop((alone, shared));
                match opened {
                    Ok(inode) => inode,
                    Err(created) => return Ok(created),
                }
            }
        };
        if is_exclusive {
            return Err(libc::EEXIST);
        }
        if inode.is_dir && (creates || flags & libc::O_ACCMODE != libc::O_RDONLY) {
            return Err(libc::EISDIR);
        }
        self.open_inode(caller, inode, flags).await
    }

    /// `fuse_create_open`. The caller has the folder's lock.
    async fn create_open(&self, caller: &Caller, named: &Named, flags: i32) -> Result<Arc<OpenFile>, i32> {
        if self.config.is_read_only {
            return Err(libc::EROFS);
        }
        let (dir, name) = (&named.dir, &named.name);
        let created = self.daemon.create(caller, dir.number, name, flags, 0o644).await;
        let (entry, answer) = match created {
            Ok(created) => created,
            Err(errno) => {
                if errno == libc::EEXIST {
                    self.expire(dir, name);
                }
                return Err(errno);
            }
        };
        let inode = self.inode_of(entry.attr, 0).await;
        self.keep_name(dir, name, Some(inode.clone()), entry.name_ttl);
        dir.note_listing_changed();
        let keeps_cache = answer.keeps_cache;
        let file = self.file_of(inode.clone(), answer, flags & !libc::O_CREAT & !libc::O_EXCL)?;
        if flags & libc::O_TRUNC != 0 {
            inode.truncate_pages(0).await;
        } else if !keeps_cache {
            inode.drop_pages(0, u64::MAX).await;
        }
        // `may_open`
        inode.check_rights(caller).await?;
        Ok(file)
    }

    /// `fuse_open`, and `handle_truncate` of the VFS.
    async fn open_inode(&self, caller: &Caller, inode: Arc<Inode>, flags: i32) -> Result<Arc<OpenFile>, i32> {
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if self.config.is_read_only && (writes || flags & libc::O_TRUNC != 0) {
            return Err(libc::EROFS);
        }
        // `may_open`
        inode.check_rights(caller).await?;
        let flags = flags & !libc::O_CREAT & !libc::O_EXCL;
        let answer = self.daemon.open(caller, inode.number, flags).await?;
        let keeps_cache = answer.keeps_cache;
        let file = self.file_of(inode.clone(), answer, flags)?;
        if flags & libc::O_TRUNC != 0 {
            inode.note_emptied();
            inode.truncate_pages(0).await;
            // `fuse_do_setattr` with `ATTR_OPEN`
            let _alone = inode.rwsem.write().await;
            inode.state().size = 0;
            inode.truncate_pages(0).await;
        } else if !keeps_cache {
            inode.drop_pages(0, u64::MAX).await;
        }
        Ok(file)
    }

    fn file_of(&self, inode: Arc<Inode>, answer: OpenAnswer, flags: i32) -> Result<Arc<OpenFile>, i32> {
        let handle = Handle { ino: inode.number, number: answer.handle, daemon: self.daemon.clone() };
        let counted = inode.io.open(answer.is_direct, answer.backing.as_ref())?;
        Ok(Arc::new(OpenFile {
            inode,
            handle: Arc::new(handle),
            flags: AtomicI32::new(flags & !libc::O_TRUNC),
            is_direct: answer.is_direct,
            backing: answer.backing,
            counted: Mutex::new(counted),
            position: tokio::sync::Mutex::new(0),
            window: Mutex::new(Window::new(self.config.readahead_bytes)),
            is_read_only_mount: self.config.is_read_only,
        }))
    }
}
