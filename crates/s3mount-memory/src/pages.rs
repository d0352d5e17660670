//! Which huge pages of the region may be resident, and which of them are no longer needed.
//!
//! The allocator splits large free blocks last, so pages that were only needed at a peak stay unused from
//! then on. A page goes back to the kernel when it has been unused for a while. Pages that are used again and
//! again stay, because the kernel would have to fill them with zeros each time.

use std::ops::Range;

use crate::UNIT_BYTES;
use crate::buddy::Buddy;
use crate::region::HUGE_PAGE_BYTES;

pub(crate) const PAGE_UNITS: usize = HUGE_PAGE_BYTES / UNIT_BYTES;

/// How many pages are given back at once: 16 MiB. Meanwhile no buffer can be cut from them. The kernel takes
/// at most 0.1 ms for a page.
pub(crate) const BATCH_PAGES: usize = 8;

/// When each huge page of a region was used last.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The tick of each page's last use, if the page may be resident.
    used_at: Vec<Option<u32>>,
    now: u32,
}

/// Pages that were taken out of the allocator, the highest first.
#[derive(Debug)]
pub(crate) struct Batch(pub(crate) Vec<usize>);

impl Pages {
    /// The pages of a region of `bytes`. None of them is resident.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { used_at: vec![None; bytes.div_ceil(HUGE_PAGE_BYTES)], now: 0 }
    }

    pub(crate) fn tick(&mut self) {
        self.now = self.now.saturating_add(1);
    }

    /// Notes that a buffer of these units comes or goes.
    pub(crate) fn use_units(&mut self, first: usize, units: usize) {
        self.used_at[first / PAGE_UNITS..(first + units).div_ceil(PAGE_UNITS)].fill(Some(self.now));
    }

    /// Whether a page may be resident.
    pub(crate) fn is_resident(&self, page: usize) -> bool {
        self.used_at[page].is_some()
    }

    /// Notes that a page is not resident any more.
    pub(crate) fn release(&mut self, page: usize) {
        self.used_at[page] = None;
    }

    /// Takes pages out of `buddy` that are free, may be resident, and were not used for `unused_ticks`.
    pub(crate) fn take_unused(&self, buddy: &mut Buddy, unused_ticks: u32) -> Batch {
        let unused = self
            .used_at
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, used_at)| used_at.is_some_and(|used_at| self.now - used_at >= unused_ticks));
        let taken = unused.filter(|(page, _)| buddy.take(page * PAGE_UNITS, PAGE_UNITS));
        Batch(taken.map(|(page, _)| page).take(BATCH_PAGES).collect())
    }

    /// Notes that the pages of `batch` are not resident any more, and makes them free again.
    pub(crate) fn give_back(&mut self, buddy: &mut Buddy, batch: Batch) {
        for page in batch.0 {
            self.release(page);
            buddy.free(page * PAGE_UNITS, (page + 1) * PAGE_UNITS);
        }
    }
}

impl Batch {
    pub(crate) fn bytes(&self) -> u64 {
        (self.0.len() * HUGE_PAGE_BYTES) as u64
    }

    /// The ranges of adjacent pages, as byte offset and length in the region.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let adjacent = self.0.chunk_by(|above, below| below + 1 == *above);
        adjacent.filter_map(|pages| {
            let pages: Range<usize> = *pages.last()?..pages.first()? + 1;
            Some((pages.start * HUGE_PAGE_BYTES, pages.len() * HUGE_PAGE_BYTES))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_PAGES, HUGE_PAGE_BYTES, PAGE_UNITS, Pages};
    use crate::buddy::Buddy;

    #[test]
    fn what_is_used_again_and_again_stays() {
        let mut buddy = Buddy::new(16 * PAGE_UNITS, 9);
        let mut pages = Pages::new(16 * HUGE_PAGE_BYTES);
        let first = buddy.alloc(PAGE_UNITS * 16).expect("all is free");
        pages.use_units(first, PAGE_UNITS * 16);
        buddy.free(first, PAGE_UNITS * 16);
        for _ in 0..10 {
            let first = buddy.alloc(PAGE_UNITS + 1).expect("all is free");
            pages.use_units(first, PAGE_UNITS + 1);
            buddy.free(first, first + PAGE_UNITS + 1);
            pages.tick();
        }
        assert_eq!(pages.take_unused(&mut buddy, 11).bytes(), 0);
        let batch = pages.take_unused(&mut buddy, 10);
        assert_eq!(
            batch.ranges().collect::<Vec<_>>(),
            [(8 * HUGE_PAGE_BYTES, BATCH_PAGES * HUGE_PAGE_BYTES)]
        );
        assert!(buddy.alloc(9 * PAGE_UNITS).is_none(), "nobody gets them meanwhile");
        pages.give_back(&mut buddy, batch);
        let rest = pages.take_unused(&mut buddy, 10);
        assert_eq!(rest.ranges().collect::<Vec<_>>(), [(2 * HUGE_PAGE_BYTES, 6 * HUGE_PAGE_BYTES)]);
        pages.give_back(&mut buddy, rest);
        assert_eq!(pages.take_unused(&mut buddy, 10).bytes(), 0);
        assert_eq!(buddy.alloc(16 * PAGE_UNITS), Some(0), "it has grown together again");
    }
}
