//! Bytes of a file, as ranges.

use std::collections::BTreeMap;

/// Some bytes of a file: ranges in the order of their offsets, which neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds the bytes `start..end`.
    pub fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut from, mut to) = (start, end);
        while let Some((&before, &until)) =
            self.0.range(..=to).next_back().filter(|(_, until)| **until >= from)
        {
            (from, to) = (from.min(before), to.max(until));
            self.0.remove(&before);
        }
        self.0.insert(from, to);
    }

    /// Removes the bytes `start..end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&before, &until)) =
            self.0.range(..end).next_back().filter(|(_, until)| **until > start)
        {
            self.0.remove(&before);
            if before < start {
                self.0.insert(before, start);
            }
            if until > end {
                self.0.insert(end, until);
            }
        }
    }

    /// Whether all bytes `start..end` are among them.
    pub fn has(&self, start: u64, end: u64) -> bool {
        start >= end || self.0.range(..=start).next_back().is_some_and(|(_, until)| *until >= end)
    }

    /// The ranges, each as its first byte and the byte behind its last.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(start, end)| (*start, *end))
    }
}

impl FromIterator<(u64, u64)> for Ranges {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(ranges: I) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|(start, end)| all.add(start, end));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn ranges_are_what_single_bytes_are() {
        let (mut ranges, mut bytes) = (Ranges::default(), [false; 40]);
        for step in 0_u64..2_000 {
            let (start, len) = (step * 7_919 % 37, step * 104_729 % 11);
            let (end, is_added) = ((start + len).min(40), step * 31 % 5 < 3);
            if is_added {
                ranges.add(start, end);
            } else {
                ranges.remove(start, end);
            }
            bytes[start as usize..end as usize].fill(is_added);
            let all: Vec<_> = ranges.iter().collect();
            assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0), "{all:?}");
            for (at, is_there) in (0_u64..).zip(bytes) {
                assert_eq!(ranges.has(at, at + 1), is_there, "{at} of {all:?}");
            }
            assert_eq!(ranges.has(start, end), bytes[start as usize..end as usize].iter().all(|is| *is));
            assert_eq!(all.iter().copied().collect::<Ranges>(), ranges);
        }
    }
}
