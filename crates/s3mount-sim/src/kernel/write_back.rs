//! Pages that maps have changed, on their way back to the filesystem (`fuse_writepages`).

use std::sync::Arc;

use super::common::{MOST_BYTES, PAGE_BYTES};
use super::daemon::Caller;
use super::daemon::requests::WriteRequest;
use super::handle::Handle;
use super::inode::{Inode, stale};
use super::page::Page;

impl Inode {
    /// The first error of writing back since it was last asked for (`filemap_check_errors`).
    pub(super) fn take_write_back_error(&self) -> Result<(), i32> {
        self.state().write_back_error.take().map_or(Ok(()), Err)
    }

    /// A map of this file may be written to (`fuse_link_write_file`).
    pub(super) fn link_write_file(&self, file: &Arc<Handle>) {
        let mut state = self.state();
        let is_there = state.write_files.iter().any(|known| known.as_ptr() == Arc::as_ptr(file));
        if !is_there {
            state.write_files.insert(0, Arc::downgrade(file));
        }
    }

    /// `fuse_write_file_get`
    fn write_file(&self) -> Option<Arc<Handle>> {
        let mut state = self.state();
        state.write_files.retain(|file| file.strong_count() > 0);
        state.write_files.iter().find_map(std::sync::Weak::upgrade)
    }

    /// Writes the pages of a range back that maps have changed, and waits for that (`filemap_write_and_wait_range`).
    pub(super) async fn write_back(&self, _caller: &Caller, from: u64, to: u64) -> Result<(), i32> {
        let mut dirty = Vec::new();
        for page in self.pages(from, to) {
            if !page.state().is_dirty {
                continue;
            }
            page.lock().await;
            page.wait_written_back().await;
            {
                let mut state = page.state();
                if state.is_dirty && !state.is_dropped {
                    state.is_dirty = false;
                    state.is_under_write_back = true;
                    drop(state);
                    dirty.push(page.clone());
                }
            }
            page.unlock();
        }
        let sent = self.send_back(dirty).await;
        // `filemap_fdatawait_range`: also what somebody else is writing back.
        for page in self.pages(from, to) {
            page.wait_written_back().await;
        }
        sent
    }

    /// Writes one page back that is about to be dropped. The caller has its lock (`fuse_launder_folio`).
    pub(super) async fn launder(&self, page: &Arc<Page>) {
        {
            let mut state = page.state();
            state.is_dirty = false;
            state.is_under_write_back = true;
        }
        // The error is told to who flushes the file.
        let _told_later = self.send_back(vec![page.clone()]).await;
    }

    /// Sends pages, those side by side in one WRITE, and waits for the answers.
    async fn send_back(&self, pages: Vec<Arc<Page>>) -> Result<(), i32> {
        if pages.is_empty() {
            return Ok(());
        }
        let file = self.write_file();
        let mut runs: Vec<Vec<Arc<Page>>> = Vec::new();
        for page in pages {
            match runs.last_mut() {
                Some(run)
                    if run.len() < MOST_BYTES / PAGE_BYTES
                        && run.last().is_some_and(|last| last.index + 1 == page.index) =>
                {
                    run.push(page);
                }
                _ => runs.push(vec![page]),
            }
        }
        let sent = runs.iter().map(|run| self.send_run(file.as_ref(), run));
        let results = futures::future::join_all(sent).await;
        results.into_iter().collect()
    }

    /// `fuse_send_writepage`, `fuse_writepage_end`
    async fn send_run(&self, file: Option<&Arc<Handle>>, run: &[Arc<Page>]) -> Result<(), i32> {
        let Some(offset) = run.first().map(|page| page.start()) else { return Ok(()) };
        let _sending = self.writing_back.read().await;
        let mut data: Vec<u8> = run.iter().flat_map(|page| page.state().bytes.clone()).collect();
        // What lies behind the end is cut off.
        let len = self.size().saturating_sub(offset).min(data.len() as u64);
        data.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        let result = match file {
            _ if data.is_empty() => Ok(()),
            None => Err(libc::EIO),
            Some(file) => {
                let request = WriteRequest {
                    ino: self.number,
                    handle: file.number,
                    offset,
                    data,
                    flags: 0,
                    is_write_back: true,
                };
                self.daemon.write(&Caller::kernel(), request).await.map(drop)
            }
        };
        if let Err(errno) = result {
            self.state().write_back_error.get_or_insert(errno);
        }
        self.distrust(stale::MODIFIED);
        run.iter().for_each(|page| page.end_write_back());
        // Who asked for it is told by `take_write_back_error`.
        Ok(())
    }
}
