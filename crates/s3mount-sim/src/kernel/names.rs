//! Names: walks of paths (`fs/namei.c`, `fuse_dentry_revalidate`, `fuse_lookup`).

use std::sync::Arc;
use std::time::Duration;

use super::common::{is_believed, lock, until};
use super::core::Kernel;
use super::daemon::Caller;
use super::dentries::Dentry;
use super::inode::{Inode, stale};
use s3mount_fs::InodeNo;

/// How a name is looked up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    /// `LOOKUP_REVAL`
    pub(super) is_anew: bool,
    /// `LOOKUP_EXCL`
    pub(super) is_exclusive: bool,
    /// `LOOKUP_RENAME_TARGET`
    pub(super) is_rename_target: bool,
}

/// A name that was looked up.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) dir: Arc<Inode>,
    pub(super) name: String,
    /// Unset if there is nothing of this name.
    pub(super) inode: Option<Arc<Inode>>,
}

impl Inode {
    /// What a folder holds has changed (`fuse_dir_changed`).
    pub(super) fn note_listing_changed(&self) {
        self.distrust(stale::ALL);
    }
}

impl Kernel {
    /// Keeps what a name stands for.
    pub(super) fn keep_name(&self, dir: &Arc<Inode>, name: &str, inode: Option<Arc<Inode>>, ttl: Duration) {
        let mut dentries = lock(&self.dentries);
        dentries.next_number += 1;
        let believed_until = until(ttl);
        let dentry = Dentry { number: dentries.next_number, dir: dir.clone(), inode, believed_until };
        let old = dentries.known.insert((dir.number.0, name.to_owned()), dentry);
        drop(dentries);
        drop(old);
    }

    fn dentry(&self, dir: &Inode, name: &str) -> Option<Dentry> {
        lock(&self.dentries).known.get(&(dir.number.0, name.to_owned())).cloned()
    }

    /// Drops a name, and what lies below it (`fuse_invalidate_entry`). Returns whether the kernel knew it.
    pub(super) fn expire(&self, dir: &Inode, name: &str) -> bool {
        let mut dropped = Vec::new();
        lock(&self.dentries).drop_name(&(dir.number.0, name.to_owned()), &mut dropped);
        !dropped.is_empty()
    }

    fn expire_dentry(&self, name: &str, dentry: &Dentry) {
        let is_it = self.dentry(&dentry.dir, name).is_some_and(|known| known.number == dentry.number);
        if is_it {
            self.expire(&dentry.dir, name);
        }
    }

    /// A name moves, with what is believed of it (`d_move`).
    pub(super) fn move_name(&self, from: (&Inode, &str), to: (&Arc<Inode>, &str)) {
        let mut dentries = lock(&self.dentries);
        let mut dropped = Vec::new();
        dentries.drop_name(&(to.0.number.0, to.1.to_owned()), &mut dropped);
        if let Some(dentry) = dentries.known.remove(&(from.0.number.0, from.1.to_owned())) {
            let moved = Dentry { dir: to.0.clone(), ..dentry };
            dentries.known.insert((to.0.number.0, to.1.to_owned()), moved);
        }
        drop(dentries);
    }

    /// Drops the inode's name if it stands for another inode than `ino`. Returns the inode that it stands for
    /// (`fuse_direntplus_link`).
    pub(super) fn known_as(&self, dir: &Inode, name: &str, ino: InodeNo) -> Option<Arc<Inode>> {
        let inode = self.dentry(dir, name)?.inode;
        if inode.as_ref().is_some_and(|inode| inode.number == ino) {
            return inode;
        }
        self.expire(dir, name);
        None
    }

    /// A name stands for what it stood for, for a new while (`fuse_change_entry_timeout`).
    pub(super) fn believe_name(&self, dir: &Inode, name: &str, ttl: Duration) {
        if let Some(dentry) = lock(&self.dentries).known.get_mut(&(dir.number.0, name.to_owned())) {
            dentry.believed_until = until(ttl);
        }
    }

    /// Whether a name that the kernel knows is still right (`fuse_dentry_revalidate`).
    async fn is_right(&self, caller: &Caller, name: &str, dentry: &Dentry, how: Flags) -> Result<bool, i32> {
        let asks = how.is_anew || how.is_exclusive || how.is_rename_target;
        let Some(inode) = &dentry.inode else { return Ok(false) };
        if !asks && is_believed(dentry.believed_until) {
            if std::mem::take(&mut inode.state().came_by_plus) {
                dentry.dir.state().is_plus_advised = true;
            }
            return Ok(true);
        }
        let version = self.attr_version();
        match self.daemon.lookup(caller, dentry.dir.number, name).await {
            Ok(entry) if entry.attr.ino == inode.number => {
                inode.state().lookups += 1;
                inode.take_attr(entry.attr, version).await;
                let mut dentries = lock(&self.dentries);
                let known = dentries.known.get_mut(&(dentry.dir.number.0, name.to_owned()));
                if let Some(known) = known.filter(|known| known.number == dentry.number) {
                    known.believed_until = until(entry.name_ttl);
                }
                Ok(true)
            }
            Ok(entry) => {
                self.daemon.forget(entry.attr.ino, 1);
                Ok(false)
            }
            Err(errno @ (libc::EINTR | libc::ENOMEM)) => Err(errno),
            Err(_) => Ok(false),
        }
    }

    /// A name in the cache that is right (`lookup_fast`).
    pub(super) async fn find(
        &self,
        caller: &Caller,
        dir: &Arc<Inode>,
        name: &str,
        how: Flags,
    ) -> Result<Option<Named>, i32> {
        let Some(dentry) = self.dentry(dir, name) else { return Ok(None) };
        if self.is_right(caller, name, &dentry, how).await? {
            let inode = dentry.inode.clone();
            return Ok(Some(Named { dir: dir.clone(), name: name.to_owned(), inode }));
        }
        self.expire_dentry(name, &dentry);
        Ok(None)
    }

    /// A name, from the cache or from the filesystem. The caller has the folder's lock (`__lookup_slow`,
    /// `lookup_one_qstr_excl`).
    pub(super) async fn look_up_locked(
        &self,
        caller: &Caller,
        dir: &Arc<Inode>,
        name: &str,
        how: Flags,
    ) -> Result<Named, i32> {
        let key = (dir.number.0, name.to_owned());
        loop {
            if let Some(named) = self.find(caller, dir, name, how).await? {
                return Ok(named);
            }
            // `IS_DEADDIR`
            if dir.state().is_dead {
                return Err(libc::ENOENT);
            }
            let was_found = lock(&self.dentries).was_found.clone();
            let was_found = was_found.notified();
            let is_first = lock(&self.dentries).under_way.insert(key.clone());
            if !is_first {
                was_found.await;
                continue;
            }
            let found = self.ask_for_name(caller, dir, name).await;
            let mut dentries = lock(&self.dentries);
            dentries.under_way.remove(&key);
            dentries.was_found.notify_waiters();
            drop(dentries);
            return Ok(Named { dir: dir.clone(), name: name.to_owned(), inode: found? });
        }
    }

    /// `fuse_lookup`
    async fn ask_for_name(
        &self,
        caller: &Caller,
        dir: &Arc<Inode>,
        name: &str,
    ) -> Result<Option<Arc<Inode>>, i32> {
        let version = self.attr_version();
        match self.daemon.lookup(caller, dir.number, name).await {
            Ok(entry) => {
                let inode = self.inode_of(entry.attr, version).await;
                self.keep_name(dir, name, Some(inode.clone()), entry.name_ttl);
                dir.state().is_plus_advised = true;
                Ok(Some(inode))
            }
            // The dentry of a name that is absent is never believed.
            Err(libc::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// A name, from the cache or from the filesystem (`walk_component`).
    async fn look_up(&self, caller: &Caller, dir: &Arc<Inode>, name: &str, how: Flags) -> Result<Named, i32> {
        if let Some(named) = self.find(caller, dir, name, how).await? {
            return Ok(named);
        }
        let _shared = dir.rwsem.read().await;
        self.look_up_locked(caller, dir, name, how).await
    }

    /// The folder of a path, and the path's last name there (`link_path_walk`).
    pub(super) async fn walk_parent<'a>(
        &self,
        caller: &Caller,
        path: &'a str,
        is_anew: bool,
    ) -> Result<(Arc<Inode>, &'a str), i32> {
        let (folders, last) = path.rsplit_once('/').unwrap_or(("", path));
        let mut dir = self.root.clone();
        // `may_lookup`
        dir.check_rights(caller).await?;
        for name in folders.split('/').filter(|name| !name.is_empty()) {
            let how = Flags { is_anew, ..Flags::default() };
            let inode = self.look_up(caller, &dir, name, how).await?.inode;
            dir = inode.ok_or(libc::ENOENT)?;
            if !dir.is_dir {
                return Err(libc::ENOTDIR);
            }
            dir.check_rights(caller).await?;
        }
        Ok((dir, last))
    }

    /// The inode of a path (`user_path_at`). An empty path is the root.
    pub(super) async fn walk(&self, caller: &Caller, path: &str, is_anew: bool) -> Result<Arc<Inode>, i32> {
        let (dir, name) = self.walk_parent(caller, path, is_anew).await?;
        if name.is_empty() {
            return Ok(dir);
        }
        let how = Flags { is_anew, ..Flags::default() };
        self.look_up(caller, &dir, name, how).await?.inode.ok_or(libc::ENOENT)
    }
}
