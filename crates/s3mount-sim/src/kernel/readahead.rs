//! What is read ahead into the page cache (`mm/readahead.c`, `fuse_readahead`).

use std::sync::Arc;

use super::cache::page_of;
use super::common::{PAGE_BYTES, lock};
use super::daemon::Caller;
use super::open_file::OpenFile;
use super::page::Page;

/// The most pages of one READ (`fuse_conn.max_pages`).
const MOST_PAGES: usize = 256;

impl OpenFile {
    /// Reads a page that is missing, and what is ahead of it.
    pub(super) fn read_ahead_of_miss(self: &Arc<Self>, caller: &Caller, index: u64, wanted: u64) {
        let cached_before = {
            let state = self.inode.state();
            (0..index).rev().take_while(|before| state.pages.contains_key(before)).count() as u64
        };
        let (start, size, ahead) = lock(&self.window).on_miss(index, wanted, cached_before);
        self.fill(caller, start, size, ahead);
    }

    /// Reads the next window, because a page with the mark is read.
    pub(super) fn read_ahead_of_mark(self: &Arc<Self>, caller: &Caller, page: &Page, wanted: u64) {
        if page.state().is_under_write_back {
            return;
        }
        page.state().has_mark = false;
        let next_miss = {
            let state = self.inode.state();
            (page.index + 1..).find(|after| !state.pages.contains_key(after))
        };
        let window = lock(&self.window).on_mark(page.index, wanted, next_miss);
        if let Some((start, size, ahead)) = window {
            self.fill(caller, start, size, ahead);
        }
    }

    /// Reads around a page fault.
    pub(super) fn read_around_fault(self: &Arc<Self>, caller: &Caller, index: u64) {
        let (start, size, ahead) = lock(&self.window).on_fault(index);
        self.fill(caller, start, size, ahead);
    }

    /// Fills pages that the cache lacks, up to the end of the file (`do_page_cache_ra`, `page_cache_ra_unbounded`).
    fn fill(self: &Arc<Self>, caller: &Caller, start: u64, size: u64, ahead: u64) {
        let Some(last) = self.inode.size().checked_sub(1).map(page_of) else { return };
        if start > last {
            return;
        }
        let size = size.min(last - start + 1);
        let mark = size.checked_sub(ahead).map(|before| start + before);
        let mut run = Vec::new();
        for index in start..start + size {
            match self.inode.add_page(index) {
                Some(page) => {
                    page.state().has_mark = Some(index) == mark;
                    run.push(page);
                }
                None => self.send(caller, std::mem::take(&mut run)),
            }
            if run.len() == MOST_PAGES {
                self.send(caller, std::mem::take(&mut run));
            }
        }
        self.send(caller, run);
    }

    /// Reads pages that lie side by side, in the background (`fuse_send_readpages`, `fuse_readpages_end`).
    fn send(self: &Arc<Self>, caller: &Caller, pages: Vec<Arc<Page>>) {
        let Some(first) = pages.first().map(|page| page.start()) else { return };
        let (file, caller, version) = (self.clone(), caller.clone(), self.inode.attr_version_now());
        tokio::spawn(async move {
            let len = pages.len() * PAGE_BYTES;
            let read = file.send_read(&caller, first, len, false).await;
            if let Ok(bytes) = &read
                && bytes.len() < len
            {
                file.inode.note_short_read(first + bytes.len() as u64, version);
            }
            file.inode.distrust_access_time(file.is_read_only_mount);
            for (page, place) in pages.iter().zip((0..).step_by(PAGE_BYTES)) {
                page.end_read(read.as_ref().ok().map(|bytes| bytes.get(place..).unwrap_or_default()));
            }
        });
    }

    /// Reads one page whose lock the caller has, and unlocks it (`fuse_read_folio`).
    pub(super) async fn read_page(self: &Arc<Self>, caller: &Caller, page: &Page) -> Result<(), i32> {
        let version = self.inode.attr_version_now();
        let read = self.send_read(caller, page.start(), PAGE_BYTES, false).await;
        if let Ok(bytes) = &read
            && bytes.len() < PAGE_BYTES
        {
            self.inode.note_short_read(page.start() + bytes.len() as u64, version);
        }
        self.inode.distrust_access_time(self.is_read_only_mount);
        page.end_read(read.as_deref().ok());
        read.map(drop)
    }
}
