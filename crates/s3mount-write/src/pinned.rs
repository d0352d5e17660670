//! Ranges of a file that are pinned: they stay in memory for a moment.

/// The ranges that are brought into memory now. What was brought stays until the rest of its range is there: else
/// each piece could push out the one before.
#[derive(Debug, Default)]
pub(crate) struct PinnedRanges(Vec<(u64, u64)>);

impl PinnedRanges {
    /// Pins the bytes `start..end`.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        self.0.push((start, end));
    }

    /// Unpins them, if nobody else has pinned them.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if let Some(at) = self.0.iter().position(|range| *range == (start, end)) {
            self.0.swap_remove(at);
        }
    }

    /// What of the bytes `start..end` is not pinned, in order.
    pub(crate) fn others(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut pinned: Vec<_> = self.0.iter().filter(|range| range.0 < end && start < range.1).collect();
        pinned.sort();
        let (mut others, mut at) = (Vec::new(), start);
        for (from, to) in pinned {
            if at < *from {
                others.push((at, *from));
            }
            at = at.max(*to);
        }
        if at < end {
            others.push((at, end));
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::PinnedRanges;

    #[test]
    fn what_is_pinned_is_left_out() {
        let mut pinned = PinnedRanges::default();
        assert_eq!(pinned.others(0, 9), [(0, 9)]);
        for (start, end) in [(4, 6), (2, 5), (4, 6)] {
            pinned.add(start, end);
        }
        assert_eq!(pinned.others(0, 9), [(0, 2), (6, 9)]);
        assert_eq!((pinned.others(3, 6), pinned.others(6, 7)), (vec![], vec![(6, 7)]));
        pinned.remove(4, 6);
        assert_eq!(pinned.others(0, 9), [(0, 2), (6, 9)], "another one pins it");
        pinned.remove(4, 6);
        assert_eq!(pinned.others(0, 9), [(0, 2), (5, 9)]);
        pinned.remove(2, 5);
        assert_eq!(pinned.others(0, 9), [(0, 9)]);
    }
}
