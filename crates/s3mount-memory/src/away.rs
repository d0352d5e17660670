//! Which huge pages of the region are away: out of the allocator, and given back to the kernel.
//!
//! Where the limit may change, the region is as large as the highest limit, and the pages beyond the limit of now are
//! away. The others alone may be resident. So what is away can be handed on to another process.
//!
//! The pages at the highest addresses are away, as far as buffers allow. Then the rest lies together, and a large buffer
//! fits wherever it would in a region of that size. While buffers are up there, lower pages are away in their place, and
//! come back in exchange for those of the buffers. But who waits needs whole pages: of the pages without a buffer, as many
//! stay as the limit leaves free. So buffers that stay, each in a page of its own, keep the other bytes of their pages,
//! and less is away.

use std::collections::BTreeSet;

use crate::buddy::Buddy;
use crate::pages::{BATCH_PAGES, Batch, PAGE_UNITS, Pages};

/// The pages that are away.
#[derive(Debug)]
pub(crate) struct Away {
    /// How many units of each whole page buffers have.
    in_use: Vec<usize>,
    /// How many units of all whole pages buffers have.
    used_units: usize,
    away: BTreeSet<usize>,
    /// How many pages are being given back to the kernel.
    leaving: usize,
    /// How many pages are to be away.
    wanted: usize,
    /// How many whole pages have no buffer, and are neither away nor leaving.
    free: usize,
}

/// Pages that leave, the highest first. No buffer can be cut from them.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) batch: Batch,
    /// The pages that come back in exchange.
    back: Vec<usize>,
    /// Where the search goes on: below this page.
    pub(crate) below: usize,
}

impl Away {
    /// Nothing is away of a region of `units`.
    pub(crate) fn new(units: usize) -> Self {
        let pages = units / PAGE_UNITS;
        let away = BTreeSet::new();
        Self { in_use: vec![0; pages], used_units: 0, away, leaving: 0, wanted: 0, free: pages }
    }

    /// How many pages the region has. The rest of its last page is never away.
    pub(crate) fn pages(&self) -> usize {
        self.in_use.len()
    }

    /// How many pages are away.
    pub(crate) fn len(&self) -> usize {
        self.away.len()
    }

    /// Whether a page is away.
    #[cfg(test)]
    pub(crate) fn has(&self, page: usize) -> bool {
        self.away.contains(&page)
    }

    /// How many more pages are to be away.
    pub(crate) fn missing(&self) -> usize {
        self.wanted.saturating_sub(self.away.len() + self.leaving)
    }

    /// Whether more pages are to be away, or others.
    pub(crate) fn is_unsettled(&self) -> bool {
        let end = self.pages() - self.away.len() - self.leaving;
        self.missing() > 0 || self.away.first().is_some_and(|lowest| *lowest < end)
    }

    /// Notes that a buffer has these units now.
    pub(crate) fn on_cut(&mut self, first: usize, units: usize) {
        for (page, units) in pages_of(first, units) {
            if let Some(in_use) = self.in_use.get_mut(page) {
                self.used_units += units;
                self.free -= usize::from(*in_use == 0);
                *in_use += units;
            }
        }
    }

    /// Notes that these units are free again.
    pub(crate) fn on_free(&mut self, first: usize, units: usize) {
        for (page, units) in pages_of(first, units) {
            if let Some(in_use) = self.in_use.get_mut(page) {
                self.used_units -= units;
                *in_use -= units;
                self.free += usize::from(*in_use == 0);
            }
        }
    }

    /// Sets how many pages are to be away. Those that are too many come back at once, the lowest first.
    pub(crate) fn want(&mut self, wanted: usize, buddy: &mut Buddy) {
        self.wanted = wanted;
        while self.away.len() + self.leaving > wanted
            && let Some(lowest) = self.away.pop_first()
        {
            self.come_back(lowest, buddy);
        }
    }

    fn come_back(&mut self, page: usize, buddy: &mut Buddy) {
        buddy.free(page * PAGE_UNITS, (page + 1) * PAGE_UNITS);
        self.free += 1;
    }

    /// Takes pages that are free out of `buddy`, of those from `first` to below `below`, the highest first, while more
    /// are to be away, or lower ones are. No more than a batch of them may be resident.
    pub(crate) fn take(
        &mut self,
        buddy: &mut Buddy,
        pages: &Pages,
        (first, below): (usize, usize),
    ) -> Leaving {
        let stay = self.pages().saturating_sub(self.wanted) * PAGE_UNITS;
        let needed = stay.saturating_sub(self.used_units).div_ceil(PAGE_UNITS);
        let mut leaving = Leaving { batch: Batch(Vec::new()), back: Vec::new(), below: first };
        let mut resident = 0;
        for page in (first..below.min(self.pages())).rev() {
            let is_more = self.missing() > 0 && self.free > needed;
            let is_instead = !is_more && self.away.first().is_some_and(|lowest| *lowest < page);
            if !is_more && !is_instead {
                break;
            }
            if resident == BATCH_PAGES {
                leaving.below = page + 1;
                break;
            }
            // A page that is away is not free.
            if self.in_use[page] > 0 || !buddy.take(page * PAGE_UNITS, PAGE_UNITS) {
                continue;
            }
            resident += usize::from(pages.is_resident(page));
            leaving.batch.0.push(page);
            self.free -= 1;
            self.leaving += 1;
            if is_instead {
                leaving.back.extend(self.away.pop_first());
            }
        }
        leaving
    }

    /// Notes that the pages of `leaving` are not resident any more.
    pub(crate) fn arrive(&mut self, leaving: Leaving, buddy: &mut Buddy, pages: &mut Pages) {
        self.leaving -= leaving.batch.0.len();
        for page in leaving.batch.0 {
            pages.release(page);
            self.away.insert(page);
        }
        for page in leaving.back {
            self.come_back(page, buddy);
        }
        self.want(self.wanted, buddy);
    }
}

/// The pages of some units, and how many of them lie in each.
fn pages_of(first: usize, units: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = first + units;
    (first / PAGE_UNITS..end.div_ceil(PAGE_UNITS)).map(move |page| {
        let (start, stop) = (first.max(page * PAGE_UNITS), end.min((page + 1) * PAGE_UNITS));
        (page, stop - start)
    })
}
