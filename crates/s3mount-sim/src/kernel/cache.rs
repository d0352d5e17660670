//! The page cache of an inode: finding pages, and dropping them.

use std::sync::Arc;

use super::common::PAGE_BYTES;
use super::inode::Inode;
use super::page::Page;

/// The page of a byte.
pub(super) fn page_of(offset: u64) -> u64 {
    offset / PAGE_BYTES as u64
}

impl Inode {
    pub(super) fn page(&self, index: u64) -> Option<Arc<Page>> {
        self.state().pages.get(&index).cloned()
    }

    /// The pages of a range that the page cache has.
    pub(super) fn pages(&self, from: u64, to: u64) -> Vec<Arc<Page>> {
        self.state().pages.range(from..=to).map(|(_, page)| page.clone()).collect()
    }

    /// Adds a page without bytes, locked by the caller, unless there is one (`filemap_add_folio`).
    pub(super) fn add_page(&self, index: u64) -> Option<Arc<Page>> {
        let mut state = self.state();
        if state.pages.contains_key(&index) {
            return None;
        }
        let page = Arc::new(Page::new_locked(index));
        state.pages.insert(index, page.clone());
        Some(page)
    }

    /// The page, which the caller locks, and makes where there is none (`__filemap_get_folio`, `FGP_LOCK | FGP_CREAT`).
    pub(super) async fn lock_page(&self, index: u64) -> Arc<Page> {
        loop {
            if let Some(page) = self.add_page(index) {
                return page;
            }
            let Some(page) = self.page(index) else { continue };
            page.lock().await;
            if !page.state().is_dropped {
                return page;
            }
            page.unlock();
        }
    }

    /// Takes a locked page out of the cache (`filemap_remove_folio`).
    fn drop_locked(&self, page: &Page) {
        self.state().pages.remove(&page.index);
        let mut state = page.state();
        state.is_dropped = true;
        state.is_dirty = false;
    }

    /// Drops the pages of a range, after those that maps have changed were written back
    /// (`invalidate_inode_pages2_range`).
    pub(super) async fn drop_pages(self: &Inode, from: u64, to: u64) {
        for page in self.pages(from, to) {
            page.lock().await;
            if page.state().is_dropped {
                page.unlock();
                continue;
            }
            page.wait_written_back().await;
            // `fuse_launder_folio`
            if page.state().is_dirty {
                self.launder(&page).await;
            }
            self.drop_locked(&page);
            page.unlock();
        }
    }

    /// The file ends at `size` now (`truncate_pagecache`). What lies behind it in its last page becomes zero.
    pub(super) async fn truncate_pages(&self, size: u64) {
        let first_whole = size.div_ceil(PAGE_BYTES as u64);
        // `truncate_inode_pages_range` first drops what it can lock at once.
        for page in self.pages(first_whole, u64::MAX) {
            if !page.state().is_under_write_back && page.try_lock() {
                if !page.state().is_dropped {
                    self.drop_locked(&page);
                }
                page.unlock();
            }
        }
        let tail = size % PAGE_BYTES as u64;
        if tail > 0
            && let Some(page) = self.page(page_of(size))
        {
            page.lock().await;
            page.wait_written_back().await;
            if !page.state().is_dropped {
                // `truncate_inode_partial_folio`
                page.state().bytes[tail as usize..].fill(0);
            }
            page.unlock();
        }
        for page in self.pages(first_whole, u64::MAX) {
            page.lock().await;
            page.wait_written_back().await;
            if !page.state().is_dropped {
                self.drop_locked(&page);
            }
            page.unlock();
        }
    }

    /// Drops the pages of a range, also those that maps have changed (`truncate_inode_pages_range`).
    pub(super) async fn cut_out_pages(&self, from: u64, to: u64) {
        for page in self.pages(from, to) {
            page.lock().await;
            page.wait_written_back().await;
            if !page.state().is_dropped {
                self.drop_locked(&page);
            }
            page.unlock();
        }
    }
}
