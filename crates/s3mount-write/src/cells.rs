//! The parts of a draft's upload that the store has. Pure.

use std::collections::BTreeMap;

use crate::grid::Cell;

/// A part that the store has. `P` is what the store said of it.
#[derive(Clone, Debug)]
struct StoredPart<P> {
    cell: Cell,
    /// Whether its bytes are the file's present bytes.
    is_current: bool,
    written: P,
}

/// A part that a task uploads now. **Invariant:** there is one such task for a number, because of two the store keeps
/// the one that arrives last.
#[derive(Clone, Debug)]
struct Claim {
    cell: Cell,
    /// Whether the file has changed there since the task took the bytes.
    is_stale: bool,
}

/// The parts of an upload, by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Cells<P> {
    parts: BTreeMap<u32, StoredPart<P>>,
    claims: BTreeMap<u32, Claim>,
}

impl<P> Default for Cells<P> {
    fn default() -> Self {
        Self { parts: BTreeMap::new(), claims: BTreeMap::new() }
    }
}

impl<P: Clone> Cells<P> {
    /// Whether the store has the bytes that the file has there now.
    pub(crate) fn is_current(&self, cell: Cell) -> bool {
        self.parts.get(&cell.number).is_some_and(|part| part.is_current)
    }

    /// Whether a task uploads the part.
    pub(crate) fn is_claimed(&self, cell: Cell) -> bool {
        self.claims.contains_key(&cell.number)
    }

    /// The part that has the byte at `offset`, if it is up to date or a task has it. `number` is that of the
    /// part that is cut there; the part may be one that was copied together with parts before it.
    pub(crate) fn covering(&self, number: u32, offset: u64) -> Option<Cell> {
        let has = |cell: &Cell| (cell.start..cell.end).contains(&offset);
        let (_, part) = self.parts.range(..=number).next_back().unzip();
        let (_, claim) = self.claims.range(..=number).next_back().unzip();
        let current = part.filter(|part| part.is_current).map(|part| part.cell).filter(has);
        current.or_else(|| claim.map(|claim| claim.cell).filter(has))
    }

    /// The parts that are being uploaded.
    pub(crate) fn claims(&self) -> impl Iterator<Item = Cell> {
        self.claims.values().map(|claim| claim.cell)
    }

    /// How many parts are being uploaded.
    pub(crate) fn claimed(&self) -> usize {
        self.claims.len()
    }

    /// Gives the part to a task, unless it needs none or has one.
    pub(crate) fn claim(&mut self, cell: Cell) -> bool {
        let is_free = !self.is_current(cell) && !self.is_claimed(cell);
        if is_free {
            self.claims.insert(cell.number, Claim { cell, is_stale: true });
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
        let Some(Claim { cell, is_stale }) = self.claims.remove(&number) else { return };
        match written {
            Some(written) if cell.start < size => {
                self.parts.retain(|_, part| part.cell.end <= cell.start || cell.end <= part.cell.start);
                self.parts.insert(number, StoredPart { cell, is_current: !is_stale, written });
            }
            _ => {}
        }
    }

    /// Notes that the bytes `start..end` of the file have changed.
    pub(crate) fn touch(&mut self, start: u64, end: u64) {
        let overlaps = |cell: Cell| cell.start < end && start < cell.end;
        self.parts.values_mut().filter(|part| overlaps(part.cell)).for_each(|part| part.is_current = false);
        self.claims.values_mut().filter(|claim| overlaps(claim.cell)).for_each(|claim| claim.is_stale = true);
    }

    /// Notes that the file was cut to `size` bytes.
    pub(crate) fn cut(&mut self, size: u64) {
        self.parts.retain(|_, part| part.cell.start < size);
        self.touch(size, u64::MAX);
    }

    /// The parts that are up to date and that no task has, in the order of their offsets.
    pub(crate) fn idle(&self) -> impl Iterator<Item = Cell> {
        let idle = self.parts.values().filter(|part| part.is_current && !self.is_claimed(part.cell));
        idle.map(|part| part.cell)
    }

    /// All parts, in the order of their offsets.
    pub(crate) fn written(&self) -> impl Iterator<Item = (Cell, &P)> {
        self.parts.values().map(|part| (part.cell, &part.written))
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
    use super::Cells;
    use crate::grid::Cell;

    const CELL: Cell = Cell { number: 2, start: 10, end: 20 };

    #[test]
    fn a_part_that_changes_under_way_is_uploaded_again() {
        let mut cells = Cells::default();
        assert!(cells.claim(CELL) && !cells.claim(CELL), "one task at a time");
        cells.touch(10, 11);
        cells.take(2);
        cells.finish(2, Some("a"), 20);
        assert!(cells.is_current(CELL), "it has changed before the task took it");
        assert!(!cells.claim(CELL));
        cells.touch(19, 30);
        assert!(cells.claim(CELL));
        cells.take(2);
        cells.touch(0, 11);
        cells.finish(2, Some("b"), 20);
        assert!(!cells.is_current(CELL) && cells.claim(CELL));
        cells.finish(2, None, 20);
        assert!(!cells.is_claimed(CELL) && cells.claim(CELL), "a task that failed leaves it free");
    }

    #[test]
    fn a_part_takes_the_place_of_those_that_it_covers() {
        let mut cells = Cells::default();
        let mut upload = |cell: Cell| {
            cells.touch(cell.start, cell.end);
            assert!(cells.claim(cell));
            cells.take(cell.number);
            cells.finish(cell.number, Some(()), 40);
            cells.written().map(|(cell, ())| cell.number).collect::<Vec<_>>()
        };
        for (number, start) in [(1, 0), (2, 10), (3, 20), (4, 30)] {
            upload(Cell { number, start, end: start + 10 });
        }
        assert_eq!(upload(Cell { number: 2, start: 10, end: 30 }), [1, 2, 4]);
        assert_eq!(
            upload(Cell { number: 3, start: 20, end: 30 }),
            [1, 3, 4],
            "half of it is to be uploaded anew"
        );
    }

    #[test]
    fn what_lies_behind_the_end_is_forgotten() {
        let mut cells = Cells::default();
        for cell in [CELL, Cell { number: 3, start: 20, end: 30 }] {
            cells.claim(cell);
            cells.take(cell.number);
            cells.finish(cell.number, Some(()), 25);
        }
        assert_eq!(cells.idle().count(), 2);
        cells.touch(25, 26);
        assert_eq!(cells.idle().collect::<Vec<_>>(), [CELL], "the last part grows");
        cells.cut(20);
        assert_eq!(cells.written().count(), 1);
        cells.claim(Cell { number: 3, start: 20, end: 30 });
        cells.finish(3, Some(()), 20);
        assert_eq!(cells.written().count(), 1, "it was cut off under way");
    }
}
