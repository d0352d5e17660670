//! Ranges of a file that stay in memory for a moment.

/// The ranges that are brought into memory now. What was brought stays until the rest of its range is there: else
/// each piece could push out the one before.
#[derive(Debug, Default)]
pub(crate) struct Kept(Vec<(u64, u64)>);

impl Kept {
    /// Keeps the bytes `start..end`.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        self.0.push((start, end));
    }

    /// Keeps them no more, if nobody else does.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if let Some(at) = self.0.iter().position(|range| *range == (start, end)) {
            self.0.swap_remove(at);
        }
    }

    /// What of the bytes `start..end` is not kept, in order.
    pub(crate) fn others(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut kept: Vec<_> = self.0.iter().filter(|range| range.0 < end && start < range.1).collect();
        kept.sort();
        let (mut others, mut at) = (Vec::new(), start);
        for (from, to) in kept {
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
    use super::Kept;

    #[test]
    fn what_is_kept_is_left_out() {
        let mut kept = Kept::default();
        assert_eq!(kept.others(0, 9), [(0, 9)]);
        for (start, end) in [(4, 6), (2, 5), (4, 6)] {
            kept.add(start, end);
        }
        assert_eq!(kept.others(0, 9), [(0, 2), (6, 9)]);
        assert_eq!((kept.others(3, 6), kept.others(6, 7)), (vec![], vec![(6, 7)]));
        kept.remove(4, 6);
        assert_eq!(kept.others(0, 9), [(0, 2), (6, 9)], "another one keeps it");
        kept.remove(4, 6);
        assert_eq!(kept.others(0, 9), [(0, 2), (5, 9)]);
        kept.remove(2, 5);
        assert_eq!(kept.others(0, 9), [(0, 9)]);
    }
}
