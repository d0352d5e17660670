//! Listings of folders (`fs/fuse/readdir.c`).

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{Attr, DirOffset, FileHandle};
use tokio::time::sleep;

use super::common::PAGE_BYTES;
use super::core::Kernel;
use super::daemon::Caller;
use super::inode::{Inode, stale};

/// Bytes that glibc asks `getdents64` for.
const LISTING_BYTES: usize = 32 << 10;

/// How a program lists a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The bytes that it asks `getdents64` for. There has to be room for a name.
    pub bytes: usize,
    /// How long it waits between these calls.
    pub pause: Duration,
}

impl Default for Listing {
    fn default() -> Self {
        Self { bytes: LISTING_BYTES, pause: Duration::ZERO }
    }
}

/// Bytes of a name in the answer to READDIR (`FUSE_DIRENT_SIZE`).
fn dirent_bytes(name: &str) -> usize {
    (24 + name.len()).next_multiple_of(8)
}

/// Bytes of a name in the answer to READDIRPLUS (`FUSE_DIRENTPLUS_SIZE`).
fn direntplus_bytes(name: &str) -> usize {
    128 + dirent_bytes(name)
}

/// Bytes of a name for the program (`struct linux_dirent64`).
fn shown_bytes(name: &str) -> usize {
    (20 + name.len()).next_multiple_of(8)
}

/// A folder that a program lists.
struct OpenDir {
    inode: Arc<Inode>,
    handle: FileHandle,
}

impl Drop for OpenDir {
    fn drop(&mut self) {
        self.inode.daemon.releasedir(self.inode.number, self.handle);
    }
}

impl Kernel {
    /// All names of a folder without the dots, as `opendir`, `readdir` and `closedir` give them.
    pub(super) async fn list(&self, caller: &Caller, path: &str, how: Listing) -> Result<Vec<String>, i32> {
        let opened = match self.open_dir(caller, path, false).await {
            Err(libc::ESTALE) => self.open_dir(caller, path, true).await?,
            result => result?,
        };
        let (mut names, mut offset) = (Vec::new(), DirOffset::START);
        while let Some(next) = self.get_names(caller, &opened, offset, (how.bytes, &mut names)).await? {
            offset = next;
            if !how.pause.is_zero() {
                sleep(how.pause).await;
            }
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    async fn open_dir(&self, caller: &Caller, path: &str, is_anew: bool) -> Result<OpenDir, i32> {
        let inode = self.walk(caller, path, is_anew).await?;
        if !inode.is_dir {
            return Err(libc::ENOTDIR);
        }
        // `may_open`
        inode.check_rights(caller).await?;
        let handle = self.daemon.opendir(caller, inode.number).await?;
        let opened = OpenDir { inode, handle };
        // The `opendir` of glibc looks whether it is a folder.
        opened.inode.update_attr(caller, stale::ALL).await?;
        Ok(opened)
    }

    /// One `getdents64`. Returns where the next goes on, or nothing at the end (`fuse_readdir_uncached`).
    async fn get_names(
        &self,
        caller: &Caller,
        dir: &OpenDir,
        offset: DirOffset,
        (bytes, names): (usize, &mut Vec<String>),
    ) -> Result<Option<DirOffset>, i32> {
        let _shared = dir.inode.rwsem.read().await;
        // `iterate_dir`
        if dir.inode.state().is_dead {
            return Err(libc::ENOENT);
        }
        // `fuse_use_readdirplus`
        let was_advised = std::mem::take(&mut dir.inode.state().is_plus_advised);
        let of = (dir.inode.number, dir.handle);
        let mut shown = Shown { room: bytes, next: None, names };
        // At least a page, whatever the program asks for.
        let asked = bytes.max(PAGE_BYTES);
        if was_advised || offset == DirOffset::START {
            let version = self.attr_version();
            let mut room = asked;
            let fits = move |name: &str| take(&mut room, direntplus_bytes(name));
            let entries = self.daemon.readdirplus(caller, of, offset, fits).await?;
            for (name, entry) in entries {
                shown.add(&name.name, name.next);
                if let Some(entry) = entry {
                    // `fuse_direntplus_link`: the adapter tells one time for name and attributes.
                    let attr = Attr { ttl: entry.name_ttl, ..entry.attr };
                    self.link(&dir.inode, &name.name, attr, version).await;
                }
            }
        } else {
            let mut room = asked;
            let fits = move |name: &str| take(&mut room, dirent_bytes(name));
            for name in self.daemon.readdir(caller, of, offset, fits).await? {
                shown.add(&name.name, name.next);
            }
        }
        let next = shown.next;
        dir.inode.distrust(stale::ACCESS_TIME);
        Ok(next)
    }

    async fn link(&self, dir: &Arc<Inode>, name: &str, attr: Attr, version: u64) {
        let ttl = attr.ttl;
        let inode = match self.known_as(dir, name, attr.ino) {
            Some(inode) => {
                inode.state().lookups += 1;
                inode.take_attr(attr, version).await;
                self.believe_name(dir, name, ttl);
                inode
            }
            None => {
                let inode = self.inode_of(attr, version).await;
                self.keep_name(dir, name, Some(inode.clone()), ttl);
                inode
            }
        };
        inode.state().came_by_plus = true;
    }
}

/// Takes room, if there is enough.
fn take(room: &mut usize, bytes: usize) -> bool {
    let left = room.checked_sub(bytes);
    *room = left.unwrap_or(0);
    left.is_some()
}

/// What the program is shown of an answer.
struct Shown<'a> {
    room: usize,
    /// Where the next call goes on.
    next: Option<DirOffset>,
    names: &'a mut Vec<String>,
}

impl Shown<'_> {
    fn add(&mut self, name: &str, next: DirOffset) {
        if take(&mut self.room, shown_bytes(name)) {
            self.names.push(name.to_owned());
            self.next = Some(next);
        }
    }
}
