//! Writing open files (`fuse_file_write_iter`), and cutting them.

use std::sync::Arc;

use s3mount_fs::AttrChange;

use super::cache::page_of;
use super::common::{MOST_BYTES, PAGE_BYTES};
use super::daemon::Caller;
use super::daemon::requests::{Setattr, WriteRequest};
use super::inode::Inode;
use super::open_file::OpenFile;
use super::page::Page;

impl OpenFile {
    fn request(&self, offset: u64, data: &[u8]) -> WriteRequest {
        WriteRequest {
            ino: self.inode.number,
            handle: self.handle.number,
            offset,
            data: data.to_vec(),
            flags: self.flags(),
            is_write_back: false,
        }
    }

    /// Writes bytes at an offset, or at the end with `O_APPEND`. Returns where they ended, and how many they are.
    pub(super) async fn write_at(
        self: &Arc<Self>,
        caller: &Caller,
        offset: u64,
        data: &[u8],
    ) -> Result<(u64, usize), i32> {
        if !self.may_write() {
            return Err(libc::EBADF);
        }
        let _alone = self.inode.rwsem.write().await;
        if data.is_empty() {
            return Ok((offset, 0));
        }
        // `generic_write_checks`
        let appends = self.flags() & libc::O_APPEND != 0;
        let offset = if appends { self.inode.size() } else { offset };
        let written = if self.is_direct {
            let written = self.write_directly(caller, offset, data).await;
            // `fuse_direct_write_iter`
            let done = *written.as_ref().unwrap_or(&0);
            self.inode.note_written(offset + done as u64, done);
            written?
        } else if self.is_o_direct() {
            self.write_o_direct(caller, offset, data).await?
        } else {
            self.write_through(caller, offset, data).await?
        };
        Ok((offset + written as u64, written))
    }

    /// Around the page cache. Its pages are dropped before the first WRITE (`fuse_direct_io`).
    async fn write_directly(&self, caller: &Caller, offset: u64, data: &[u8]) -> Result<usize, i32> {
        let (from, to) = (page_of(offset), page_of(offset + data.len() as u64 - 1));
        self.inode.write_back(caller, from, to).await?;
        self.inode.take_write_back_error()?;
        self.inode.drop_pages(from, to).await;
        self.write_pieces(caller, offset, data).await
    }

    async fn write_pieces(&self, caller: &Caller, offset: u64, data: &[u8]) -> Result<usize, i32> {
        let mut written = 0;
        for piece in data.chunks(MOST_BYTES) {
            let request = self.request(offset + written as u64, piece);
            match self.inode.daemon.write(caller, request).await {
                Ok(done) => written += done,
                Err(errno) if written == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(written)
    }

    /// A write by `O_DIRECT` to a file that is open through the page cache (`generic_file_direct_write`).
    async fn write_o_direct(&self, caller: &Caller, offset: u64, data: &[u8]) -> Result<usize, i32> {
        let (from, to) = (page_of(offset), page_of(offset + data.len() as u64 - 1));
        self.inode.write_back(caller, from, to).await?;
        self.inode.drop_pages(from, to).await;
        let written = self.write_pieces(caller, offset, data).await;
        let done = *written.as_ref().unwrap_or(&0);
        // `fuse_direct_IO`
        self.inode.note_written(offset + done as u64, done);
        self.inode.drop_pages(from, to).await;
        written
    }

    /// Through the page cache, each WRITE before the next (`fuse_perform_write`).
    async fn write_through(&self, caller: &Caller, offset: u64, data: &[u8]) -> Result<usize, i32> {
        {
            let mut state = self.inode.state();
            if state.size < offset + data.len() as u64 {
                state.is_size_unstable = true;
            }
        }
        let (mut written, mut error) = (0, None);
        while written < data.len() && error.is_none() {
            let at = offset + written as u64;
            let (pages, len, is_locked) = self.copy_into_pages(at, &data[written..]).await;
            for page in &pages {
                page.wait_written_back().await;
            }
            // `fuse_send_write_pages`
            let request = self.request(at, &data[written..written + len]);
            match self.inode.daemon.write(caller, request).await {
                Ok(_) => written += len,
                Err(errno) => {
                    error = Some(errno);
                    pages.iter().for_each(|page| page.state().is_uptodate = false);
                }
            }
            if is_locked && let Some(last) = pages.last() {
                last.unlock();
            }
        }
        self.inode.note_written(offset + written as u64, written);
        self.inode.state().is_size_unstable = false;
        match error {
            Some(errno) if written == 0 => Err(errno),
            _ => Ok(written),
        }
    }

    /// Copies bytes into pages of the cache, up to the first that does not have its own bytes (`fuse_fill_write_pages`).
    /// That one stays locked until the WRITE was answered. Returns the pages, how many bytes they took, and whether the
    /// last is locked.
    async fn copy_into_pages(&self, offset: u64, data: &[u8]) -> (Vec<Arc<Page>>, usize, bool) {
        let (mut pages, mut len) = (Vec::new(), 0);
        while len < data.len().min(MOST_BYTES) && pages.len() < MOST_BYTES / PAGE_BYTES {
            let at = offset + len as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let page = self.inode.lock_page(page_of(at)).await;
            let piece = &data[len..data.len().min(MOST_BYTES).min(len + PAGE_BYTES - within)];
            let has_bytes = {
                let mut state = page.state();
                state.bytes[within..within + piece.len()].copy_from_slice(piece);
                state.is_uptodate |= piece.len() == PAGE_BYTES;
                state.is_uptodate
            };
            len += piece.len();
            let is_full = within + piece.len() == PAGE_BYTES;
            if has_bytes {
                page.unlock();
            }
            pages.push(page);
            if !has_bytes {
                return (pages, len, true);
            }
            if !is_full {
                break;
            }
        }
        (pages, len, false)
    }

    /// `fuse_file_fallocate` with mode 0.
    pub(super) async fn allocate(&self, caller: &Caller, end: u64) -> Result<(), i32> {
        if !self.may_write() {
            return Err(libc::EBADF);
        }
        let _alone = self.inode.rwsem.write().await;
        {
            let mut state = self.inode.state();
            state.is_size_unstable |= state.size < end;
        }
        let done = self.inode.daemon.fallocate(caller, (self.inode.number, self.handle.number), end).await;
        if done.is_ok() {
            self.inode.note_written(end, 1);
        }
        self.inode.state().is_size_unstable = false;
        self.inode.distrust(super::inode::stale::MODIFIED_AND_SIZE);
        done
    }

    /// `vfs_copy_file_range`, `__fuse_copy_file_range`. The caller reads and writes after `EOPNOTSUPP`.
    pub(super) async fn copy_to(
        self: &Arc<Self>,
        caller: &Caller,
        from: u64,
        (out, to): (&Arc<OpenFile>, u64),
        len: u64,
    ) -> Result<u64, i32> {
        if !self.may_read() || !out.may_write() || out.flags() & libc::O_APPEND != 0 {
            return Err(libc::EBADF);
        }
        // `generic_copy_file_checks`
        let len = len.min(self.inode.size().saturating_sub(from));
        if len == 0 {
            return Ok(0);
        }
        {
            let _alone = self.inode.rwsem.write().await;
            self.inode.write_back(caller, page_of(from), u64::MAX).await?;
        }
        let _alone = out.inode.rwsem.write().await;
        out.inode.write_back(caller, page_of(to), u64::MAX).await?;
        {
            let mut state = out.inode.state();
            state.is_size_unstable |= to + len > state.size;
        }
        let target = (out.inode.number, out.handle.number, to);
        let copied = self.inode.daemon.copy_file_range(caller, (self.handle.number, from), target, len).await;
        if let Ok(copied) = copied {
            if copied > 0 {
                out.inode.cut_out_pages(page_of(to), page_of(to + copied - 1)).await;
            }
            out.inode.note_written(to + copied, usize::try_from(copied).unwrap_or(usize::MAX));
        }
        out.inode.state().is_size_unstable = false;
        copied
    }
}

impl Inode {
    /// Sets mode or time by path (`fuse_do_setattr`).
    pub(super) async fn set_attr(&self, caller: &Caller, change: AttrChange) -> Result<(), i32> {
        let _alone = self.rwsem.write().await;
        let set = Setattr { size: None, change, handle: None };
        let attr = self.daemon.setattr(caller, self.number, set).await?;
        let old = {
            let mut state = self.state();
            self.believe(&mut state, attr);
            std::mem::replace(&mut state.size, attr.size)
        };
        if !self.is_dir && old != attr.size {
            self.truncate_pages(attr.size).await;
            self.drop_pages(0, u64::MAX).await;
        }
        Ok(())
    }

    /// Sets the size, through an open file or by path (`fuse_do_setattr`).
    pub(super) async fn set_size(
        &self,
        caller: &Caller,
        file: Option<&OpenFile>,
        size: u64,
    ) -> Result<(), i32> {
        let _alone = self.rwsem.write().await;
        let nothing_sent = self.writing_back.write().await;
        self.state().is_size_unstable = true;
        let set = Setattr {
            size: Some(size),
            change: AttrChange::default(),
            handle: file.map(|file| file.handle.number),
        };
        let answer = self.daemon.setattr(caller, self.number, set).await;
        if let Ok(attr) = answer {
            let old = {
                let mut state = self.state();
                self.believe(&mut state, attr);
                std::mem::replace(&mut state.size, attr.size)
            };
            // Pages that are dropped may have to be written back first.
            drop(nothing_sent);
            if old != attr.size {
                self.truncate_pages(attr.size).await;
                self.drop_pages(0, u64::MAX).await;
            }
        }
        self.state().is_size_unstable = false;
        answer.map(drop)
    }
}
