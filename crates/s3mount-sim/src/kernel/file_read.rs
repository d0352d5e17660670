//! Reading open files (`fuse_file_read_iter`).

use std::sync::Arc;

use super::cache::page_of;
use super::common::{MOST_BYTES, PAGE_BYTES, lock};
use super::daemon::Caller;
use super::inode::stale;
use super::io_mode::read_backing;
use super::open_file::OpenFile;
use super::page::Page;

impl OpenFile {
    /// Reads up to `len` bytes at an offset.
    pub(super) async fn read_at(
        self: &Arc<Self>,
        caller: &Caller,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, i32> {
        if !self.may_read() {
            return Err(libc::EBADF);
        }
        if len == 0 {
            return Ok(Vec::new());
        }
        if self.is_direct {
            return self.read_directly(caller, offset, len).await;
        }
        if let Some(backing) = &self.backing {
            // Programs end with the machine, if that loses its power.
            if self.inode.daemon.is_dead() {
                return Err(libc::ENOTCONN);
            }
            self.inode.distrust_access_time(self.is_read_only_mount);
            return read_backing(backing, offset, len);
        }
        // `fuse_cache_read_iter`
        if offset + len as u64 > self.inode.size() {
            self.inode.update_attr(caller, stale::SIZE).await?;
        }
        if self.is_o_direct() {
            self.read_o_direct(caller, offset, len).await
        } else {
            self.read_pages(caller, offset, len).await
        }
    }

    /// Around the page cache, piece by piece (`fuse_direct_io`).
    async fn read_directly(&self, caller: &Caller, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        self.inode.write_back(caller, page_of(offset), page_of(offset + len as u64 - 1)).await?;
        let mut bytes = Vec::new();
        let mut result = Ok(());
        while bytes.len() < len {
            let wanted = (len - bytes.len()).min(MOST_BYTES);
            match self.send_read(caller, offset + bytes.len() as u64, wanted, true).await {
                Ok(piece) => {
                    let is_short = piece.len() < wanted;
                    bytes.extend(piece);
                    if is_short {
                        break;
                    }
                }
                Err(errno) => {
                    result = Err(errno);
                    break;
                }
            }
        }
        self.inode.distrust_access_time(self.is_read_only_mount);
        if bytes.is_empty() { result.map(|()| bytes) } else { Ok(bytes) }
    }

    /// A read by `O_DIRECT` of a file that is open through the page cache (`generic_file_read_iter`, `fuse_direct_IO`).
    async fn read_o_direct(&self, caller: &Caller, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        let size = self.inode.size();
        if offset >= size {
            return Ok(Vec::new());
        }
        let most = (size - offset).next_multiple_of(PAGE_BYTES as u64);
        self.inode.write_back(caller, page_of(offset), page_of(offset + len as u64 - 1)).await?;
        let len = len.min(usize::try_from(most).unwrap_or(usize::MAX));
        let pieces = (0..len).step_by(MOST_BYTES).map(|at| (offset + at as u64, (len - at).min(MOST_BYTES)));
        let reads = pieces.map(|(at, wanted)| async move {
            self.send_read(caller, at, wanted, true).await.map(|bytes| (bytes.len() < wanted, bytes))
        });
        let mut bytes = Vec::new();
        for read in futures::future::join_all(reads).await {
            let (is_short, piece) = read?;
            bytes.extend(piece);
            if is_short {
                break;
            }
        }
        self.inode.distrust_access_time(self.is_read_only_mount);
        Ok(bytes)
    }

    /// Through the page cache (`filemap_read`).
    async fn read_pages(self: &Arc<Self>, caller: &Caller, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        let end = offset + len as u64;
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            if at >= self.inode.size() {
                break;
            }
            let pages = match self.pages_to_read(caller, at, end).await {
                Ok(pages) => pages,
                Err(errno) if bytes.is_empty() => return Err(errno),
                Err(_) => break,
            };
            // The task may be set aside here, between finding the pages and reading the size.
            if self.inode.daemon.happens(20) {
                self.inode.daemon.pause().await;
            }
            let end = end.min(self.inode.size());
            for page in pages {
                let at = offset + bytes.len() as u64;
                if at >= end {
                    break;
                }
                let within = (at - page.start()) as usize;
                let upto = PAGE_BYTES.min((end - page.start()) as usize);
                bytes.extend_from_slice(&page.state().bytes[within..upto]);
            }
            lock(&self.window).read_up_to = offset + bytes.len() as u64;
            if offset + bytes.len() as u64 >= end {
                break;
            }
        }
        Ok(bytes)
    }

    /// Pages from an offset on that have their bytes, one at least (`filemap_get_pages`).
    async fn pages_to_read(
        self: &Arc<Self>,
        caller: &Caller,
        offset: u64,
        end: u64,
    ) -> Result<Vec<Arc<Page>>, i32> {
        let (first, after) = (page_of(offset), end.div_ceil(PAGE_BYTES as u64));
        loop {
            if self.inode.page(first).is_none() {
                self.read_ahead_of_miss(caller, first, after - first);
            }
            let found = self.found_pages(first, after);
            let Some(last) = found.last().cloned() else {
                // `filemap_create_folio`
                if let Some(page) = self.inode.add_page(first) {
                    self.read_page(caller, &page).await?;
                }
                continue;
            };
            if last.state().has_mark {
                self.read_ahead_of_mark(caller, &last, after - last.index);
            }
            if last.state().is_uptodate {
                return Ok(found);
            }
            if found.len() > 1 {
                return Ok(found[..found.len() - 1].to_vec());
            }
            self.update_page(caller, &last).await?;
        }
    }

    /// Pages side by side that have their bytes. The last one may have none yet (`filemap_get_read_batch`).
    fn found_pages(&self, first: u64, after: u64) -> Vec<Arc<Page>> {
        let mut found = Vec::new();
        for (page, index) in self.inode.pages(first, after.saturating_sub(1)).into_iter().zip(first..) {
            if page.index != index {
                break;
            }
            let ends = { !page.state().is_uptodate || page.state().has_mark };
            found.push(page);
            if ends {
                break;
            }
        }
        found
    }

    /// Waits for the bytes of a page, and reads it alone where a READ for several has failed (`filemap_update_page`).
    pub(super) async fn update_page(self: &Arc<Self>, caller: &Caller, page: &Arc<Page>) -> Result<(), i32> {
        page.lock().await;
        let is_done = { page.state().is_dropped || page.state().is_uptodate };
        if is_done {
            page.unlock();
            return Ok(());
        }
        // `filemap_read_folio`
        self.read_page(caller, page).await
    }
}
