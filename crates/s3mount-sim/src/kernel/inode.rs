//! The kernel's inodes (`struct fuse_inode`): sizes, attributes, and how long these are believed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use s3mount_fs::{Attr, FileKind, InodeNo};
use tokio::sync::RwLock;
use tokio::time::Instant;

use super::common::{is_believed, lock, until};
use super::daemon::{Caller, Daemon};
use super::handle::Handle;
use super::io_mode::IoMode;
use super::locks::FileLocks;
use super::page::Page;

/// Attributes that are not believed any more (`fuse_inode.inval_mask`).
pub(super) mod stale {
    pub(crate) const ACCESS_TIME: u8 = 1;
    pub(crate) const MODIFIED: u8 = 2;
    pub(crate) const SIZE: u8 = 4;
    pub(crate) const CHANGED: u8 = 8;
    /// `FUSE_STATX_MODSIZE`
    pub(crate) const MODIFIED_AND_SIZE: u8 = MODIFIED | SIZE | CHANGED;
    /// Mode, owner and group
    pub(crate) const RIGHTS: u8 = 16;
    pub(crate) const ALL: u8 = ACCESS_TIME | MODIFIED_AND_SIZE | RIGHTS;
}

/// An inode that the kernel knows.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: InodeNo,
    pub(super) is_dir: bool,
    /// `i_rwsem`
    pub(super) rwsem: RwLock<()>,
    /// Held by WRITEs of pages that go back; a change of the size has it alone (`fuse_set_nowrite`).
    pub(super) writing_back: RwLock<()>,
    pub(super) locks: FileLocks,
    pub(super) io: IoMode,
    state: Mutex<InodeState>,
    pub(super) daemon: Arc<Daemon>,
    attr_version: Arc<AtomicU64>,
}

/// What may change of an inode.
#[derive(Debug)]
pub(super) struct InodeState {
    pub(super) attr: Attr,
    /// `i_size`
    pub(super) size: u64,
    /// Until when the attributes are believed (`fuse_inode.i_time`).
    pub(super) believed_until: Option<Instant>,
    /// Which of them are not believed all the same.
    pub(super) stale: u8,
    /// What this inode has of `Kernel::attr_version`.
    pub(super) attr_version: u64,
    /// `FUSE_I_SIZE_UNSTABLE`: the size is being changed.
    pub(super) is_size_unstable: bool,
    /// The page cache (`i_mapping`).
    pub(super) pages: BTreeMap<u64, Arc<Page>>,
    /// Files through which maps may be written back (`fuse_inode.write_files`). The last one comes first.
    pub(super) write_files: Vec<Weak<Handle>>,
    /// The first error of writing back since somebody was told (`mapping_set_error`).
    pub(super) write_back_error: Option<i32>,
    /// `FUSE_I_ADVISE_RDPLUS`, `FUSE_I_INIT_RDPLUS`
    pub(super) is_plus_advised: bool,
    /// `S_DEAD`: a folder that was removed, or replaced.
    pub(super) is_dead: bool,
    pub(super) came_by_plus: bool,
    /// How often the filesystem has given it to the kernel (`fuse_inode.nlookup`).
    pub(super) lookups: u64,
}

impl Drop for Inode {
    /// The last name and the last file are gone (`fuse_evict_inode`).
    fn drop(&mut self) {
        let lookups = self.state().lookups;
        if lookups > 0 {
            self.daemon.forget(self.number, lookups);
        }
    }
}

impl Inode {
    pub(super) fn new(attr: Attr, daemon: Arc<Daemon>, attr_version: Arc<AtomicU64>) -> Arc<Self> {
        let state = InodeState {
            attr,
            size: attr.size,
            believed_until: None,
            stale: stale::ALL,
            attr_version: 0,
            is_size_unstable: false,
            pages: BTreeMap::new(),
            write_files: Vec::new(),
            write_back_error: None,
            is_plus_advised: false,
            is_dead: false,
            came_by_plus: false,
            lookups: 0,
        };
        Arc::new(Self {
            number: attr.ino,
            is_dir: attr.kind == FileKind::Directory,
            rwsem: RwLock::default(),
            writing_back: RwLock::default(),
            locks: FileLocks::default(),
            io: IoMode::default(),
            state: Mutex::new(state),
            daemon,
            attr_version,
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, InodeState> {
        lock(&self.state)
    }

    /// `i_size_read`
    pub(super) fn size(&self) -> u64 {
        self.state().size
    }

    /// `fuse_invalidate_attr_mask`
    pub(super) fn distrust(&self, mask: u8) {
        self.state().stale |= mask;
    }

    /// A READ was answered (`fuse_invalidate_atime`).
    pub(super) fn distrust_access_time(&self, is_read_only: bool) {
        if !is_read_only {
            self.distrust(stale::ACCESS_TIME);
        }
    }

    fn next_attr_version(&self) -> u64 {
        self.attr_version.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `fuse_get_attr_version`
    pub(super) fn attr_version_now(&self) -> u64 {
        self.attr_version.load(Ordering::Relaxed)
    }

    /// Takes attributes that the filesystem has told. The request was sent when the version was `version`
    /// (`fuse_change_attributes_i`).
    pub(super) async fn take_attr(&self, attr: Attr, version: u64) {
        let old = {
            let mut state = self.state();
            if (version != 0 && state.attr_version > version) || state.is_size_unstable {
                return;
            }
            self.believe(&mut state, attr);
            std::mem::replace(&mut state.size, attr.size)
        };
        if !self.is_dir && old != attr.size {
            self.truncate_pages(attr.size).await;
            self.drop_pages(0, u64::MAX).await;
        }
    }

    /// `fuse_change_attributes_common`
    pub(super) fn believe(&self, state: &mut InodeState, attr: Attr) {
        state.stale = 0;
        state.attr_version = self.next_attr_version();
        state.believed_until = until(attr.ttl);
        state.attr = attr;
    }

    /// A WRITE up to `end` was answered (`fuse_write_update_attr`).
    pub(super) fn note_written(&self, end: u64, written: usize) {
        let mut state = self.state();
        state.attr_version = self.next_attr_version();
        if written > 0 && end > state.size {
            state.size = end;
        }
        state.stale |= stale::MODIFIED_AND_SIZE;
    }

    /// A READ was answered with fewer bytes than it asked for: the file ends there (`fuse_read_update_size`).
    pub(super) fn note_short_read(&self, end: u64, version: u64) {
        let mut state = self.state();
        if version >= state.attr_version && end < state.size && !state.is_size_unstable {
            state.attr_version = self.next_attr_version();
            state.size = end;
        }
    }

    /// The file was emptied by its OPEN (`fuse_truncate_update_attr`).
    pub(super) fn note_emptied(&self) {
        let mut state = self.state();
        state.attr_version = self.next_attr_version();
        state.size = 0;
        state.stale |= stale::MODIFIED_AND_SIZE;
    }

    /// A name of the inode was removed (`fuse_entry_unlinked`, `fuse_update_ctime`).
    pub(super) fn note_renamed(&self, is_gone: bool) {
        let mut state = self.state();
        if is_gone {
            state.attr_version = self.next_attr_version();
        }
        state.stale |= stale::CHANGED;
    }

    /// Asks for attributes, if those of `mask` are not believed (`fuse_update_get_attr`). Returns those that `stat` shows.
    pub(super) async fn update_attr(&self, caller: &Caller, mask: u8) -> Result<Attr, i32> {
        {
            let state = self.state();
            if state.stale & mask == 0 && is_believed(state.believed_until) {
                return Ok(Attr { size: state.size, ..state.attr });
            }
        }
        self.fetch_attr(caller).await
    }

    /// Asks for attributes, if the mode and the owner are not believed: the kernel decides by them who may do what
    /// (`fuse_permission`, `default_permissions`).
    pub(super) async fn check_rights(&self, caller: &Caller) -> Result<(), i32> {
        self.update_attr(caller, stale::RIGHTS).await.map(drop)
    }

    /// `fuse_do_getattr`
    async fn fetch_attr(&self, caller: &Caller) -> Result<Attr, i32> {
        let version = self.attr_version_now();
        let attr = self.daemon.getattr(caller, self.number).await?;
        self.take_attr(attr, version).await;
        Ok(attr)
    }
}
