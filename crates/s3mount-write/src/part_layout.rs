//! How a file is cut into parts. Pure.
//!
//! The cuts of a draft are fixed when its upload begins: a part that is uploaded again has the same bounds and
//! the same number, and parts can be uploaded in any order. All parts are as long as the first, until there
//! are [`TIER`] of them; then the length doubles, and so on. Stores that want equal parts get them up to 8 GiB,
//! and 10,000 parts of at first 8 MiB reach 7.8 TiB.
//!
//! Of a file that is too long for parts of which each fits the memory, the bytes at the beginning that are copied
//! inside the store are cut into long parts: these need no memory.

use std::ops::RangeInclusive;

/// S3 takes parts with numbers up to this.
pub(crate) const MOST_PARTS: u32 = 10_000;

/// S3 takes no part below this, except as the last one of an upload.
pub(crate) const LEAST_PART: u64 = 5 << 20;

/// The parts of one length. Ten doublings fit in 10,000 parts.
const TIER: u64 = 1_000;

/// The parts that a file of known length may need. The rest is left for what is appended to it.
const PLANNED_PARTS: u64 = 9_000;

/// The shortest of the long parts that are copied inside the store. S3 copies parts of 256 MiB as fast as longer
/// ones.
const LEAST_LONG: u64 = 256 << 20;

/// The longest of them. S3 takes 5 GiB.
const MOST_LONG: u64 = 4 << 30;

/// There are no more long parts than this: the rest is left for what is written behind them.
const MOST_LONG_PARTS: u64 = 4_000;

/// The lengths of parts are multiples of this, which is also the largest page of any kernel.
pub(crate) const PAGE: u64 = 64 << 10;

/// How one file is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartLayout {
    /// How many long parts the file begins with.
    long_parts: u64,
    /// Their length, in bytes.
    long: u64,
    /// The length of the first parts behind them, in bytes.
    first: u64,
    /// No part but the last is shorter than this.
    least: u64,
    /// No part is longer than this, because all bytes of a part have to be in memory at once.
    most: u64,
}

/// One part of a file: the bytes between two cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartRange {
    /// The number of the part, from 1 on.
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl PartRange {
    /// Its length, in bytes.
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }
}

impl PartLayout {
    /// Parts of `first` bytes, or of more where a file of `size` bytes would need too many. None but the last is
    /// shorter or longer than `lens` allows.
    pub(crate) fn new(first: u64, size: u64, lens: RangeInclusive<u64>) -> Self {
        Self::behind((0, LEAST_LONG), first, size, lens)
    }

    /// As [`new`](Self::new), with long parts for the first `copied` bytes.
    pub(crate) fn copying(copied: u64, first: u64, size: u64, lens: RangeInclusive<u64>) -> Self {
        let mut long = LEAST_LONG;
        while long < MOST_LONG && copied / long > MOST_LONG_PARTS {
            long *= 2;
        }
        Self::behind(((copied / long).min(MOST_LONG_PARTS), long), first, size, lens)
    }

    fn behind((long_parts, long): (u64, u64), first: u64, size: u64, lens: RangeInclusive<u64>) -> Self {
        let (least, most) = lens.into_inner();
        let planned = size.saturating_sub(long_parts * long).div_ceil(PLANNED_PARTS - long_parts);
        let first = first.max(least).max(planned).next_multiple_of(PAGE);
        let most = (most / PAGE * PAGE).max(least.next_multiple_of(PAGE));
        Self { long_parts, long, first: first.min(most), least, most }
    }

    /// No part but the last is shorter than this, in bytes.
    pub(crate) fn least(&self) -> u64 {
        self.least
    }

    /// The length of the first parts, in bytes.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// No part but a long one is longer than this, in bytes.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// The part that has the byte at `offset`; `None` where S3 takes no more parts.
    pub(crate) fn part_at(&self, offset: u64) -> Option<PartRange> {
        let head = self.long_parts * self.long;
        if offset < head {
            let (before, start) = (offset / self.long, offset / self.long * self.long);
            let number = u32::try_from(before + 1).ok()?;
            return Some(PartRange { number, start, end: start + self.long });
        }
        let (mut len, mut start, mut before) = (self.first, head, self.long_parts);
        loop {
            let is_last_tier = len == self.most;
            let parts = (offset - start) / len;
            if parts < TIER || is_last_tier {
                let number = u32::try_from(before + parts + 1).ok().filter(|number| *number <= MOST_PARTS)?;
                let start = start + parts * len;
                return Some(PartRange { number, start, end: start + len });
            }
            (start, before) = (start + TIER * len, before + TIER);
            len = (len * 2).min(self.most);
        }
    }

    /// The longest file that S3 takes in these parts, in bytes.
    pub(crate) fn most_bytes(&self) -> u64 {
        let (mut len, mut bytes) = (self.first, self.long_parts * self.long);
        let mut left = u64::from(MOST_PARTS) - self.long_parts;
        while left > 0 {
            let parts = if len == self.most { left } else { left.min(TIER) };
            (bytes, left) = (bytes + parts * len, left - parts);
            len = (len * 2).min(self.most);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LEAST_PART, MOST_PARTS, PAGE, PartLayout};

    const MIB: u64 = 1 << 20;

    #[test]
    fn parts_grow_so_that_five_tib_fit() {
        let layout = PartLayout::new(8 * MIB, 0, LEAST_PART..=8 << 30);
        let lens = [0, (8 << 30) - 1, 8_000 * MIB, 100 << 30, 5 << 40].map(|offset| {
            let part = layout.part_at(offset).expect("S3 takes it");
            (part.number, part.len() / MIB)
        });
        assert_eq!(lens, [(1, 8), (1_012, 16), (1_001, 16), (3_726, 64), (9_282, 4096)]);
        assert!(PartLayout::new(5 * MIB, 0, LEAST_PART..=8 << 30).most_bytes() > 4_990 << 30);
        assert!(layout.most_bytes() > 5 << 40);
        // What SEMANTICS says of some limits of the memory, of which a part may take an eighth.
        let most =
            |memory: u64, first| PartLayout::new(first * MIB, 0, LEAST_PART..=memory / 8).most_bytes() >> 30;
        assert_eq!([most(64 * MIB, 8), most(4 << 30, 8)], [78, 2_492]);
        assert!(most(8 << 30, 64) > 5 << 10);
    }

    #[test]
    fn a_known_size_has_equal_parts() {
        let layout = PartLayout::new(8 * MIB, 5 << 40, LEAST_PART..=8 << 30);
        let part = layout.part_at((5 << 40) - 1).expect("S3 takes it");
        assert!(part.number < MOST_PARTS && layout.first() >= 582 * MIB, "{part:?}");
        assert_eq!(PartLayout::new(8 * MIB, 70 << 30, LEAST_PART..=8 << 30).first(), 8 * MIB, "up to 70 GiB");
    }

    #[test]
    fn copies_fit_whatever_the_memory() {
        let (most, whole) = (32 * MIB, 5 << 40);
        assert!(PartLayout::new(8 * MIB, whole, LEAST_PART..=most).most_bytes() < 313 << 30);
        let layout = PartLayout::copying(whole, 8 * MIB, whole, LEAST_PART..=most);
        let part = layout.part_at(whole - 1).expect("S3 takes it");
        assert_eq!((part.number, part.len()), (2_560, 2 << 30));
        let behind = layout.part_at(whole).expect("S3 takes more");
        assert_eq!((behind.number, behind.start, behind.end - behind.start), (2_561, whole, 8 * MIB));
        assert!(layout.most_bytes() > whole + (190 << 30), "{}", layout.most_bytes());
    }

    proptest! {
        #[test]
        fn cells_follow_one_another(
            least in prop_oneof![Just(PAGE), Just(LEAST_PART)],
            first in 1_u64..64 << 20,
            most in 1_u64..1 << 30,
            size in 0_u64..1 << 42,
            copied in 0_u64..1 << 42,
        ) {
            let layout = PartLayout::copying(copied.min(size), first, size, least..=most);
            let mut offset = 0;
            let mut count = 0;
            while let Some(part) = layout.part_at(offset) {
                count += 1;
                prop_assert_eq!((part.number, part.start), (count, offset));
                prop_assert_eq!(layout.part_at(part.end - 1), Some(part));
                prop_assert!(part.len() >= least && part.len() % PAGE == 0);
                offset = part.end;
            }
            prop_assert_eq!((count, offset), (MOST_PARTS, layout.most_bytes()));
        }
    }
}
