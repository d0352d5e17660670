//! Maps of files (`fuse_file_mmap`, `filemap_fault`, `fuse_page_mkwrite`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::cache::page_of;
use super::common::{PAGE_BYTES, lock};
use super::daemon::Caller;
use super::io_mode::read_backing;
use super::open_file::OpenFile;
use super::page::Page;

/// A map of a whole file, however long it becomes.
#[derive(Debug)]
pub(super) struct Map {
    file: Arc<OpenFile>,
    is_shared: bool,
    /// Pages of a private map that the program has changed.
    own: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Map {
    /// `mmap`, for reading, and for writing where the file is open so or the map is private.
    pub(super) async fn new(file: &Arc<OpenFile>, is_shared: bool) -> Result<Self, i32> {
        if !file.may_read() {
            return Err(libc::EACCES);
        }
        file.count_map()?;
        if file.is_direct && file.backing.is_none() {
            file.inode.drop_pages(0, u64::MAX).await;
        }
        if is_shared && file.may_write() {
            file.inode.link_write_file(&file.handle);
        }
        Ok(Self { file: file.clone(), is_shared, own: Mutex::default() })
    }

    /// The map of a child.
    pub(super) fn fork(&self) -> Self {
        let own = Mutex::new(lock(&self.own).clone());
        Self { file: self.file.clone(), is_shared: self.is_shared, own }
    }

    /// Reads bytes. A page behind the end is `EFAULT`: SIGBUS for a program.
    pub(super) async fn read(&self, caller: &Caller, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        if let Some(backing) = self.file.backing.as_ref().filter(|_| lock(&self.own).is_empty()) {
            // `fuse_passthrough_mmap`
            let bytes = read_backing(backing, offset, len)?;
            return if bytes.len() < len { Err(libc::EFAULT) } else { Ok(bytes) };
        }
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let piece = within..PAGE_BYTES.min(within + len - bytes.len());
            let own = lock(&self.own).get(&page_of(at)).map(|own| own[piece.clone()].to_vec());
            if let Some(own) = own {
                bytes.extend(own);
                continue;
            }
            let page = self.fault(caller, page_of(at)).await?;
            bytes.extend_from_slice(&page.state().bytes[piece]);
            page.unlock();
        }
        Ok(bytes)
    }

    /// Writes bytes.
    pub(super) async fn write(&self, caller: &Caller, offset: u64, data: &[u8]) -> Result<(), i32> {
        if self.is_shared && !self.file.may_write() {
            return Err(libc::EACCES);
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let len = (PAGE_BYTES - within).min(data.len() - done);
            let piece = &data[done..done + len];
            let has_own = lock(&self.own).contains_key(&page_of(at));
            if !has_own {
                let page = self.fault(caller, page_of(at)).await?;
                if self.is_shared {
                    // `fuse_page_mkwrite`
                    page.wait_written_back().await;
                    let mut state = page.state();
                    state.is_dirty = true;
                    state.bytes[within..within + len].copy_from_slice(piece);
                } else {
                    lock(&self.own).insert(page_of(at), page.state().bytes.clone());
                }
                page.unlock();
            }
            if let Some(own) = lock(&self.own).get_mut(&page_of(at)) {
                own[within..within + len].copy_from_slice(piece);
            }
            done += len;
        }
        Ok(())
    }

    /// A page with its bytes, whose lock the caller gets (`filemap_fault`).
    async fn fault(&self, caller: &Caller, index: u64) -> Result<Arc<Page>, i32> {
        let inode = &self.file.inode;
        loop {
            if index * PAGE_BYTES as u64 >= inode.size() {
                return Err(libc::EFAULT);
            }
            match inode.page(index) {
                None => self.file.read_around_fault(caller, index),
                Some(page) if page.state().has_mark => self.file.read_ahead_of_mark(caller, &page, 1),
                Some(_) => {}
            }
            let page = inode.lock_page(index).await;
            if index * PAGE_BYTES as u64 >= inode.size() {
                page.unlock();
                return Err(libc::EFAULT);
            }
            if page.state().is_uptodate {
                return Ok(page);
            }
            // `page_not_uptodate`
            self.file.read_page(caller, &page).await.map_err(|_| libc::EFAULT)?;
        }
    }

    /// `msync` with `MS_SYNC`
    pub(super) async fn sync(&self, caller: &Caller) -> Result<(), i32> {
        if self.is_shared { self.file.sync(caller).await } else { Ok(()) }
    }

    /// `munmap` (`fuse_vma_close`). What fails is told to who flushes the file.
    pub(super) async fn close(&self, caller: &Caller) {
        // A private map of a file that is open directly is an ordinary one (`generic_file_mmap`).
        if self.is_shared || !self.file.is_direct {
            let _told_later = self.file.inode.write_back(caller, 0, u64::MAX).await;
        }
    }
}
