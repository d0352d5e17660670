//! Names that are made, removed and renamed, and sizes that are set by path. Each call is repeated once after `ESTALE`,
//! with every name looked up anew (`retry_estale`).

use std::sync::Arc;

use s3mount_fs::AttrChange;

use super::core::Kernel;
use super::daemon::Caller;
use super::inode::Inode;
use super::names::Flags;

/// Errors after which the kernel does not know whether the name is still there.
fn is_doubtful(errno: i32) -> bool {
    matches!(errno, libc::EINTR | libc::ENOENT)
}

impl Kernel {
    /// `do_unlinkat`, `do_rmdir`
    pub(super) async fn remove(&self, caller: &Caller, path: &str, is_dir: bool) -> Result<(), i32> {
        match self.remove_once(caller, path, is_dir, false).await {
            Err(libc::ESTALE) => self.remove_once(caller, path, is_dir, true).await,
            result => result,
        }
    }

    async fn remove_once(&self, caller: &Caller, path: &str, is_dir: bool, is_anew: bool) -> Result<(), i32> {
        let (dir, name) = self.walk_parent(caller, path, is_anew).await?;
        let _folder = dir.rwsem.write().await;
        let how = Flags { is_anew, ..Flags::default() };
        let named = self.look_up_locked(caller, &dir, name, how).await?;
        let victim = named.inode.ok_or(libc::ENOENT)?;
        if self.config.is_read_only {
            return Err(libc::EROFS);
        }
        match (victim.is_dir, is_dir) {
            (true, false) => return Err(libc::EISDIR),
            (false, true) => return Err(libc::ENOTDIR),
            _ => {}
        }
        // `vfs_unlink`, `vfs_rmdir`
        let _victim = victim.rwsem.write().await;
        let removed = self.daemon.remove(caller, (dir.number, name), is_dir).await;
        match removed {
            Ok(()) => {
                dir.note_listing_changed();
                victim.note_renamed(true);
                victim.state().is_dead = is_dir;
                self.expire(&dir, name);
            }
            Err(errno) if is_doubtful(errno) => {
                self.expire(&dir, name);
            }
            Err(_) => {}
        }
        removed
    }

    /// `do_renameat2`
    pub(super) async fn rename(
        &self,
        caller: &Caller,
        from: &str,
        to: &str,
        keeps_target: bool,
    ) -> Result<(), i32> {
        match self.rename_once(caller, from, to, keeps_target, false).await {
            Err(libc::ESTALE) => self.rename_once(caller, from, to, keeps_target, true).await,
            result => result,
        }
    }

    async fn rename_once(
        &self,
        caller: &Caller,
        from: &str,
        to: &str,
        keeps_target: bool,
        is_anew: bool,
    ) -> Result<(), i32> {
        let (old_dir, old_name) = self.walk_parent(caller, from, is_anew).await?;
        let (new_dir, new_name) = self.walk_parent(caller, to, is_anew).await?;
        // `lock_rename`
        let folders = sorted([Some(&old_dir), Some(&new_dir)]);
        let mut locked = Vec::new();
        for folder in &folders {
            locked.push(folder.rwsem.write().await);
        }
        let how = Flags { is_anew, ..Flags::default() };
        let old = self.look_up_locked(caller, &old_dir, old_name, how).await?;
        let source = old.inode.ok_or(libc::ENOENT)?;
        let how = Flags { is_anew, is_exclusive: keeps_target, is_rename_target: true };
        let new = self.look_up_locked(caller, &new_dir, new_name, how).await?;
        let target = new.inode;
        if self.config.is_read_only {
            return Err(libc::EROFS);
        }
        if let Some(target) = &target {
            if keeps_target {
                return Err(libc::EEXIST);
            }
            // `vfs_rename`
            if Arc::ptr_eq(target, &source) {
                return Ok(());
            }
            match (source.is_dir, target.is_dir) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => return Err(libc::EISDIR),
                _ => {}
            }
        }
        // A folder that is moved to another is locked, and so is one that is replaced.
        let is_locked = |file: &&Arc<Inode>, is_source: bool| {
            !file.is_dir || !is_source || !Arc::ptr_eq(&old_dir, &new_dir)
        };
        let files = sorted([
            Some(&source).filter(|file| is_locked(file, true)),
            target.as_ref().filter(|file| is_locked(file, false)),
        ]);
        let mut locked_files = Vec::new();
        for file in &files {
            locked_files.push(file.rwsem.write().await);
        }
        let places = ((old_dir.number, old_name), (new_dir.number, new_name));
        let renamed = self.daemon.rename(caller, places.0, places.1, keeps_target).await;
        // `fuse_rename_common`
        match renamed {
            Ok(()) => {
                source.note_renamed(false);
                folders.iter().for_each(|folder| folder.note_listing_changed());
                if let Some(target) = &target {
                    target.note_renamed(true);
                    target.state().is_dead = target.is_dir;
                }
                self.move_name((&old_dir, old_name), (&new_dir, new_name));
            }
            Err(errno) if is_doubtful(errno) => {
                self.expire(&old_dir, old_name);
                if target.is_some() {
                    self.expire(&new_dir, new_name);
                }
            }
            Err(_) => {}
        }
        renamed
    }

    /// `do_mkdirat`
    pub(super) async fn mkdir(&self, caller: &Caller, path: &str) -> Result<(), i32> {
        match self.mkdir_once(caller, path, false).await {
            Err(libc::ESTALE) => self.mkdir_once(caller, path, true).await,
            result => result,
        }
    }

    async fn mkdir_once(&self, caller: &Caller, path: &str, is_anew: bool) -> Result<(), i32> {
        let (dir, name) = self.walk_parent(caller, path, is_anew).await?;
        let _folder = dir.rwsem.write().await;
        let how = Flags { is_anew, is_exclusive: true, ..Flags::default() };
        if self.look_up_locked(caller, &dir, name, how).await?.inode.is_some() {
            return Err(libc::EEXIST);
        }
        if self.config.is_read_only {
            return Err(libc::EROFS);
        }
        // `create_new_entry`
        match self.daemon.mkdir(caller, dir.number, name).await {
            Ok(entry) => {
                let inode = self.inode_of(entry.attr, 0).await;
                self.keep_name(&dir, name, Some(inode), entry.name_ttl);
                dir.note_listing_changed();
                Ok(())
            }
            Err(errno) => {
                if errno == libc::EEXIST {
                    self.expire(&dir, name);
                }
                Err(errno)
            }
        }
    }

    /// `do_sys_truncate`
    pub(super) async fn truncate(&self, caller: &Caller, path: &str, size: u64) -> Result<(), i32> {
        match self.truncate_once(caller, path, size, false).await {
            Err(libc::ESTALE) => self.truncate_once(caller, path, size, true).await,
            result => result,
        }
    }

    /// `do_fchmodat`, `do_utimes_path`
    pub(super) async fn set_attr(&self, caller: &Caller, path: &str, change: AttrChange) -> Result<(), i32> {
        match self.walk(caller, path, false).await?.set_attr(caller, change).await {
            Err(libc::ESTALE) => self.walk(caller, path, true).await?.set_attr(caller, change).await,
            result => result,
        }
    }

    async fn truncate_once(&self, caller: &Caller, path: &str, size: u64, is_anew: bool) -> Result<(), i32> {
        let inode = self.walk(caller, path, is_anew).await?;
        if inode.is_dir {
            return Err(libc::EISDIR);
        }
        if self.config.is_read_only {
            return Err(libc::EROFS);
        }
        // `vfs_truncate`
        inode.check_rights(caller).await?;
        inode.set_size(caller, None, size).await
    }
}

/// Inodes in the order in which they are locked, each once.
fn sorted(inodes: [Option<&Arc<Inode>>; 2]) -> Vec<Arc<Inode>> {
    let mut inodes: Vec<_> = inodes.into_iter().flatten().cloned().collect();
    inodes.sort_by_key(|inode| inode.number);
    inodes.dedup_by_key(|inode| inode.number);
    inodes
}
