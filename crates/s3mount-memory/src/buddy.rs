//! Which units of the region are free: a binary buddy allocator over unit numbers.
//!
//! Blocks are powers of two of units, aligned to their size. A request that is no power of two takes the next
//! larger block and gives its tail back at once, so rounding wastes at most one unit. The lowest free address
//! is taken first. So buffers in use stay together, and large blocks survive; most page allocators do the
//! same, and no measurement was made here. Each order has a bitmap of its free blocks, so nothing is
//! allocated after construction.

/// The free units of a region. It only computes, and never touches the memory.
#[derive(Debug)]
pub(crate) struct Buddy {
    units: usize,
    orders: Vec<Order>,
}

#[derive(Debug)]
struct Order {
    /// Bit `i` is set when the block of this order that starts at unit `i << order` is free.
    free: Vec<u64>,
    count: usize,
    /// No word before this one has a free block, so that a full low half of a large region is not searched each time.
    first: usize,
}

impl Buddy {
    /// An allocator whose `units` units are all free. No block is larger than `1 << max_order` units.
    pub(crate) fn new(units: usize, max_order: u32) -> Self {
        let orders = (0..=max_order)
            .map(|order| Order { free: vec![0; (units >> order).div_ceil(64).max(1)], count: 0, first: 0 })
            .collect();
        let mut buddy = Self { units, orders };
        buddy.free(0, units);
        buddy
    }

    /// The largest number of adjacent units that may be asked for.
    #[cfg(test)]
    pub(crate) fn max_units(&self) -> usize {
        1 << (self.orders.len() - 1)
    }

    /// Takes `units` adjacent units and returns the first of them, if there are such units.
    pub(crate) fn alloc(&mut self, units: usize) -> Option<usize> {
        debug_assert!(units > 0);
        let order = units.next_power_of_two().trailing_zeros() as usize;
        let (found, start) = self.take_lowest(order)?;
        self.free(start + units, start + (1 << found));
        Some(start)
    }

    /// Gives the units `start..end` back.
    pub(crate) fn free(&mut self, mut start: usize, end: usize) {
        debug_assert!(end <= self.units);
        while start < end {
            let aligned = if start == 0 { usize::BITS - 1 } else { start.trailing_zeros() };
            let fits = (end - start).ilog2();
            let order = aligned.min(fits).min(self.orders.len() as u32 - 1);
            self.free_block(start, order as usize);
            start += 1 << order;
        }
    }

    /// Takes the block of `units` units, a power of two, that starts at `start`, a multiple of `units`.
    /// Returns `false` when not all of the block is free.
    pub(crate) fn take(&mut self, start: usize, units: usize) -> bool {
        debug_assert!(units.is_power_of_two() && start.is_multiple_of(units));
        let order = units.trailing_zeros() as usize;
        for larger in order..self.orders.len() {
            let block = start >> larger << larger;
            if self.clear(block, larger) {
                self.free(block, start);
                self.free(start + units, block + (1 << larger));
                return true;
            }
        }
        false
    }

    /// The free blocks of at least `units` units, as `(first unit, units)`, the smallest order first.
    #[cfg(test)]
    pub(crate) fn free_blocks(&self, units: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let smallest = units.next_power_of_two().trailing_zeros() as usize;
        self.orders.iter().enumerate().skip(smallest).flat_map(|(order, blocks)| {
            blocks.free.iter().enumerate().flat_map(move |(word, bits)| {
                (0..64)
                    .filter(move |bit| bits >> bit & 1 == 1)
                    .map(move |bit| ((word * 64 + bit) << order, 1 << order))
            })
        })
    }

    /// Takes a free block that is large enough: of those of the smallest order the one at the lowest address,
    /// so that large blocks are split last.
    fn take_lowest(&mut self, order: usize) -> Option<(usize, usize)> {
        let found = (order..self.orders.len()).find(|order| self.orders[*order].count > 0)?;
        let blocks = &mut self.orders[found];
        let later = blocks.free[blocks.first..].iter().position(|bits| *bits != 0);
        let word = blocks.first + later.expect("the count says that one is free");
        blocks.first = word;
        let bit = blocks.free[word].trailing_zeros() as usize;
        blocks.free[word] &= !(1 << bit);
        blocks.count -= 1;
        Some((found, (word * 64 + bit) << found))
    }

    fn free_block(&mut self, mut start: usize, mut order: usize) {
        while order + 1 < self.orders.len() {
            let buddy = start ^ (1 << order);
            if buddy + (1 << order) > self.units || !self.clear(buddy, order) {
                break;
            }
            start = start.min(buddy);
            order += 1;
        }
        let index = start >> order;
        let blocks = &mut self.orders[order];
        debug_assert_eq!(blocks.free[index / 64] >> (index % 64) & 1, 0, "unit {start} freed twice");
        blocks.free[index / 64] |= 1 << (index % 64);
        blocks.count += 1;
        blocks.first = blocks.first.min(index / 64);
    }

    /// Marks the block at `start` as not free. Returns `false` when it was not free before.
    fn clear(&mut self, start: usize, order: usize) -> bool {
        let index = start >> order;
        let blocks = &mut self.orders[order];
        let Some(word) = blocks.free.get_mut(index / 64) else {
            return false;
        };
        let was_free = *word >> (index % 64) & 1 == 1;
        if was_free {
            *word &= !(1 << (index % 64));
            blocks.count -= 1;
        }
        was_free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Buddy;

    fn free_units(buddy: &Buddy) -> usize {
        buddy.free_blocks(1).map(|(_, units)| units).sum()
    }

    #[test]
    fn an_odd_size_costs_no_more_than_itself() {
        let mut buddy = Buddy::new(64, 6);
        assert_eq!(buddy.alloc(5), Some(0));
        assert_eq!(free_units(&buddy), 59);
        buddy.free(0, 5);
        assert_eq!(buddy.alloc(64), Some(0), "everything has grown together again");
    }

    proptest! {
        /// Whatever is taken and given back: no unit has two owners, none is lost, and all blocks grow
        /// together again.
        #[test]
        fn never_hands_out_a_unit_twice(
            units in 1usize..300,
            max_order in 0u32..8,
            steps in proptest::collection::vec((0..3, 1usize..40, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut buddy = Buddy::new(units, max_order);
            let mut owned = vec![false; units];
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (action, size, pick) in steps {
                if action == 0 {
                    // A block at a chosen start.
                    let size = 1 << size.ilog2();
                    let start = pick.index(units) / size * size;
                    let is_free = start + size <= units && !owned[start..start + size].contains(&true);
                    prop_assert_eq!(buddy.take(start, size), is_free && size <= buddy.max_units());
                    if is_free && size <= buddy.max_units() {
                        owned[start..start + size].fill(true);
                        held.push((start, size));
                    }
                } else if action == 1 {
                    let size = size.min(buddy.max_units());
                    if let Some(start) = buddy.alloc(size) {
                        for unit in &mut owned[start..start + size] {
                            prop_assert!(!*unit);
                            *unit = true;
                        }
                        held.push((start, size));
                    }
                } else if !held.is_empty() {
                    let (start, size) = held.swap_remove(pick.index(held.len()));
                    owned[start..start + size].fill(false);
                    buddy.free(start, start + size);
                }
                prop_assert_eq!(free_units(&buddy), owned.iter().filter(|unit| !**unit).count());
            }
            for (start, size) in held {
                buddy.free(start, start + size);
            }
            let whole = Buddy::new(units, max_order);
            prop_assert!(buddy.free_blocks(1).eq(whole.free_blocks(1)));
        }
    }
}
