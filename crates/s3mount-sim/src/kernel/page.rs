//! One page of the page cache (`struct folio`).

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::common::{PAGE_BYTES, lock};

/// A page of a file. Who has found it keeps it, also when the page cache has dropped it meanwhile.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) index: u64,
    state: Mutex<PageState>,
    changed: Notify,
}

/// What a page holds.
#[derive(Debug)]
pub(super) struct PageState {
    pub(super) bytes: Vec<u8>,
    /// Whether the bytes are the file's. Those behind the end are zero.
    pub(super) is_uptodate: bool,
    /// Whether a map has changed it since it was written back.
    pub(super) is_dirty: bool,
    pub(super) is_under_write_back: bool,
    /// Whether the page cache has dropped it (`folio->mapping == NULL`).
    pub(super) is_dropped: bool,
    /// Whether the next window is read ahead when this page is read (`PG_readahead`).
    pub(super) has_mark: bool,
    is_locked: bool,
}

impl Page {
    /// A page without bytes, locked by the caller.
    pub(super) fn new_locked(index: u64) -> Self {
        let state = PageState {
            bytes: vec![0; PAGE_BYTES],
            is_uptodate: false,
            is_dirty: false,
            is_under_write_back: false,
            is_dropped: false,
            has_mark: false,
            is_locked: true,
        };
        Self { index, state: Mutex::new(state), changed: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, PageState> {
        lock(&self.state)
    }

    /// The offset of its first byte.
    pub(super) fn start(&self) -> u64 {
        self.index * PAGE_BYTES as u64
    }

    /// Waits for something about the page.
    async fn wait_until(&self, mut is_so: impl FnMut(&mut PageState) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(&mut self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// `folio_lock`
    pub(super) async fn lock(&self) {
        self.wait_until(|state| !std::mem::replace(&mut state.is_locked, true)).await;
    }

    /// `folio_trylock`
    pub(super) fn try_lock(&self) -> bool {
        !std::mem::replace(&mut self.state().is_locked, true)
    }

    /// `folio_unlock`
    pub(super) fn unlock(&self) {
        self.state().is_locked = false;
        self.changed.notify_waiters();
    }

    /// `folio_wait_writeback`
    pub(super) async fn wait_written_back(&self) {
        self.wait_until(|state| !state.is_under_write_back).await;
    }

    /// `folio_end_writeback`
    pub(super) fn end_write_back(&self) {
        self.state().is_under_write_back = false;
        self.changed.notify_waiters();
    }

    /// The answer to a READ is here (`folio_end_read`): these are the bytes from the page's start on. What is missing is
    /// zero (`fuse_copy_args`, `page_zeroing`).
    pub(super) fn end_read(&self, bytes: Option<&[u8]>) {
        if let Some(bytes) = bytes {
            let mut state = self.state();
            let len = bytes.len().min(PAGE_BYTES);
            state.bytes[..len].copy_from_slice(&bytes[..len]);
            state.bytes[len..].fill(0);
            state.is_uptodate = true;
        }
        self.unlock();
    }
}
