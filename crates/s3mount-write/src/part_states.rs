//! The parts of a draft's upload that the store has. Pure.

use std::collections::BTreeMap;

use crate::part_layout::PartRange;

/// A part that the store has. `P` is what the store said of it.
#[derive(Clone, Debug)]
struct StoredPart<P> {
    range: PartRange,
    /// Whether its bytes are the file's present bytes.
    is_current: bool,
    written: P,
}

/// A part that a task uploads now. **Invariant:** there is one such task for a number, because of two the store keeps
/// the one that arrives last.
#[derive(Clone, Debug)]
struct Claim {
    range: PartRange,
    /// Whether the file has changed there since the task took the bytes.
    is_stale: bool,
}

/// The parts of an upload, by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct PartStates<P> {
    parts: BTreeMap<u32, StoredPart<P>>,
    claims: BTreeMap<u32, Claim>,
}

impl<P> Default for PartStates<P> {
    fn default() -> Self {
        Self { parts: BTreeMap::new(), claims: BTreeMap::new() }
    }
}

impl<P: Clone> PartStates<P> {
    /// Whether the store has the bytes that the file has there now.
    pub(crate) fn is_current(&self, range: PartRange) -> bool {
        self.parts.get(&range.number).is_some_and(|part| part.is_current)
    }

    /// Whether a task uploads the part.
    pub(crate) fn is_claimed(&self, range: PartRange) -> bool {
        self.claims.contains_key(&range.number)
    }

    /// The part that has the byte at `offset`, if it is up to date or a task has it. `number` is that of the
    /// part that is cut there; the part may be one that was copied together with parts before it.
    pub(crate) fn covering(&self, number: u32, offset: u64) -> Option<PartRange> {
        let has = |range: &PartRange| (range.start..range.end).contains(&offset);
        let (_, part) = self.parts.range(..=number).next_back().unzip();
        let (_, claim) = self.claims.range(..=number).next_back().unzip();
        let current = part.filter(|part| part.is_current).map(|part| part.range).filter(has);
        current.or_else(|| claim.map(|claim| claim.range).filter(has))
    }

    /// The parts that are being uploaded.
    pub(crate) fn claims(&self) -> impl Iterator<Item = PartRange> {
        self.claims.values().map(|claim| claim.range)
    }

    /// How many parts are being uploaded.
    pub(crate) fn claimed(&self) -> usize {
        self.claims.len()
    }

    /// Gives the part to a task, unless it needs none or has one.
    pub(crate) fn claim(&mut self, range: PartRange) -> bool {
        let is_free = !self.is_current(range) && !self.is_claimed(range);
        if is_free {
            self.claims.insert(range.number, Claim { range, is_stale: true });
        }
        is_free
    }

    /// Notes that the task has taken the present bytes of its part.
    pub(crate) fn take(&mut self, number: u32) {
        if let Some(claim) = self.claims.get_mut(&number) {
            claim.is_stale = false;
        }
    }

    /// Notes that the task is done, with the store's answer. `size` is the present length of the file. Drops other
    /// parts of the same bytes: several parts may have been copied as one.
    pub(crate) fn finish(&mut self, number: u32, written: Option<P>, size: u64) {
        let Some(Claim { range, is_stale }) = self.claims.remove(&number) else { return };
        match written {
            Some(written) if range.start < size => {
                self.parts.retain(|_, part| part.range.end <= range.start || range.end <= part.range.start);
                self.parts.insert(number, StoredPart { range, is_current: !is_stale, written });
            }
            _ => {}
        }
    }

    /// Notes that the bytes `start..end` of the file have changed.
    pub(crate) fn touch(&mut self, start: u64, end: u64) {
        let overlaps = |range: PartRange| range.start < end && start < range.end;
        self.parts.values_mut().filter(|part| overlaps(part.range)).for_each(|part| part.is_current = false);
        self.claims
            .values_mut()
            .filter(|claim| overlaps(claim.range))
            .for_each(|claim| claim.is_stale = true);
    }

    /// Notes that the file was cut to `size` bytes.
    pub(crate) fn cut(&mut self, size: u64) {
        self.parts.retain(|_, part| part.range.start < size);
        self.touch(size, u64::MAX);
    }

    /// The parts that are up to date and that no task has, in the order of their offsets.
    pub(crate) fn idle(&self) -> impl Iterator<Item = PartRange> {
        let idle = self.parts.values().filter(|part| part.is_current && !self.is_claimed(part.range));
        idle.map(|part| part.range)
    }

    /// All parts, in the order of their offsets.
    pub(crate) fn written(&self) -> impl Iterator<Item = (PartRange, &P)> {
        self.parts.values().map(|part| (part.range, &part.written))
    }

    /// Replaces the store's answer about a part. `None`: the store does not have the part.
    pub(crate) fn correct(&mut self, number: u32, written: Option<P>) {
        match (self.parts.get_mut(&number), written) {
            (Some(part), Some(written)) => part.written = written,
            (Some(part), None) => part.is_current = false,
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PartStates;
    use crate::part_layout::PartRange;

    const RANGE: PartRange = PartRange { number: 2, start: 10, end: 20 };

    #[test]
    fn a_part_that_changes_under_way_is_uploaded_again() {
        let mut states = PartStates::default();
        assert!(states.claim(RANGE) && !states.claim(RANGE), "one task at a time");
        states.touch(10, 11);
        states.take(2);
        states.finish(2, Some("a"), 20);
        assert!(states.is_current(RANGE), "it has changed before the task took it");
        assert!(!states.claim(RANGE));
        states.touch(19, 30);
        assert!(states.claim(RANGE));
        states.take(2);
        states.touch(0, 11);
        states.finish(2, Some("b"), 20);
        assert!(!states.is_current(RANGE) && states.claim(RANGE));
        states.finish(2, None, 20);
        assert!(!states.is_claimed(RANGE) && states.claim(RANGE), "a task that failed leaves it free");
    }

    #[test]
    fn a_part_takes_the_place_of_those_that_it_covers() {
        let mut states = PartStates::default();
        let mut upload = |range: PartRange| {
            states.touch(range.start, range.end);
            assert!(states.claim(range));
            states.take(range.number);
            states.finish(range.number, Some(()), 40);
            states.written().map(|(range, ())| range.number).collect::<Vec<_>>()
        };
        for (number, start) in [(1, 0), (2, 10), (3, 20), (4, 30)] {
            upload(PartRange { number, start, end: start + 10 });
        }
        assert_eq!(upload(PartRange { number: 2, start: 10, end: 30 }), [1, 2, 4]);
        assert_eq!(
            upload(PartRange { number: 3, start: 20, end: 30 }),
            [1, 3, 4],
            "half of it is to be uploaded anew"
        );
    }

    #[test]
    fn what_lies_behind_the_end_is_forgotten() {
        let mut states = PartStates::default();
        for range in [RANGE, PartRange { number: 3, start: 20, end: 30 }] {
            states.claim(range);
            states.take(range.number);
            states.finish(range.number, Some(()), 25);
        }
        assert_eq!(states.idle().count(), 2);
        states.touch(25, 26);
        assert_eq!(states.idle().collect::<Vec<_>>(), [RANGE], "the last part grows");
        states.cut(20);
        assert_eq!(states.written().count(), 1);
        states.claim(PartRange { number: 3, start: 20, end: 30 });
        states.finish(3, Some(()), 20);
        assert_eq!(states.written().count(), 1, "it was cut off under way");
    }
}
