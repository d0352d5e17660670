//! How much is read ahead (`mm/readahead.c`).

use super::common::PAGE_BYTES;

/// The readahead of an open file (`struct file_ra_state`), in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    start: u64,
    size: u64,
    /// How many pages of the window are left when the next one is read.
    async_size: u64,
    /// The most pages that are read ahead.
    most: u64,
    /// Where the last read has ended, in bytes.
    pub(super) read_up_to: u64,
}

/// `get_init_ra_size`
fn first_size(wanted: u64, most: u64) -> u64 {
    let size = wanted.next_power_of_two();
    if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    }
}

impl Window {
    pub(super) fn new(bytes: u64) -> Self {
        Self { most: bytes / PAGE_BYTES as u64, ..Self::default() }
    }

    /// `get_next_ra_size`
    fn next_size(&self) -> u64 {
        if self.size < self.most / 16 {
            self.size * 4
        } else if self.size <= self.most / 2 {
            self.size * 2
        } else {
            self.most
        }
    }

    /// A page is missing that is read now, and so many from it on (`page_cache_sync_ra`). `cached_before` counts the
    /// pages just before it that the cache has. Returns what is read, and how many of these are ahead.
    pub(super) fn on_miss(&mut self, index: u64, wanted: u64, cached_before: u64) -> (u64, u64, u64) {
        let before = self.read_up_to / PAGE_BYTES as u64;
        let goes_on = index == 0 || wanted > self.most || index.wrapping_sub(before) <= 1;
        if goes_on {
            self.start = index;
            self.size = first_size(wanted, self.most);
            self.async_size = if self.size > wanted { self.size - wanted } else { self.size / 2 };
            return (self.start, self.size, self.async_size);
        }
        if cached_before <= wanted {
            return (index, wanted, 0);
        }
        let history = if cached_before == index { cached_before * 2 } else { cached_before };
        self.start = index;
        self.size = (history + wanted).min(self.most);
        self.async_size = 1;
        (self.start, self.size, self.async_size)
    }

    /// A page with the mark is read (`page_cache_async_ra`). `next_miss` is the first page after it that the cache lacks.
    pub(super) fn on_mark(
        &mut self,
        index: u64,
        wanted: u64,
        next_miss: Option<u64>,
    ) -> Option<(u64, u64, u64)> {
        if index == self.start + self.size - self.async_size {
            self.start += self.size;
            self.size = self.size.max(self.next_size());
        } else {
            let start = next_miss.filter(|start| start - index <= self.most)?;
            self.start = start;
            self.size = start - index + wanted;
            self.size = self.next_size();
        }
        self.async_size = self.size;
        Some((self.start, self.size, self.async_size))
    }

    /// A page fault misses a page (`do_sync_mmap_readahead`).
    pub(super) fn on_fault(&mut self, index: u64) -> (u64, u64, u64) {
        self.start = index.saturating_sub(self.most / 2);
        self.size = self.most;
        self.async_size = self.most / 4;
        (self.start, self.size, self.async_size)
    }
}
