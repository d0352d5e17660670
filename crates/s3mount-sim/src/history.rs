//! What a file, and a name, may show: every change with the moments at which it was asked for and answered.
//!
//! Of changes that overlap in time nobody knows the order, so all orders are right. A change whose call failed may
//! have been done, or may be done later.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::content::{CELL, CellContent, Tag, decode, shown};

/// A moment that has not come.
pub const NEVER: u64 = u64::MAX;

/// What a cell may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Zeros: nobody has written it, or it was cut off.
    Zeros,
    /// The bytes of a call.
    Written(Tag),
    /// Bytes of any call, at their place.
    Any,
}

/// What a call does to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Puts a value in some cells.
    Write(Range<u64>, Value),
    /// Puts this many cells of a call at the end, which is not before the cell `from`.
    Append {
        /// No cell before this one changes.
        from: u64,
        /// How many cells are added.
        cells: u64,
    },
    /// Stores cells of a call to a map: the file gets no longer.
    Store(Range<u64>, Value),
    /// Gives the file this many cells.
    Cut(u64),
}

/// What a program sets of a file, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The permission bits.
    Mode(u32),
    /// When it was changed last, in seconds since 1970.
    Time(u64),
}

impl Attribute {
    fn is_like(self, other: Self) -> bool {
        matches!((self, other), (Self::Mode(_), Self::Mode(_)) | (Self::Time(_), Self::Time(_)))
    }
}

/// The kernel's pages have so many cells.
const PAGE_CELLS: u64 = 4096 / CELL;

#[derive(Clone, Debug)]
struct Change<T> {
    asked: u64,
    answered: u64,
    what: T,
}

impl Edit {
    fn at(&self, cell: u64) -> Option<Value> {
        match self {
            Edit::Write(cells, value) | Edit::Store(cells, value) => cells.contains(&cell).then_some(*value),
            Edit::Cut(cells) => (cell >= *cells).then_some(Value::Zeros),
            Edit::Append { .. } => None,
        }
    }
}

/// A register: the values that it may have between two moments.
fn possible<T, V: Copy>(
    changes: &[Change<T>],
    first: V,
    (from, to): (u64, u64),
    value: impl Fn(&T) -> Option<V>,
) -> Vec<V> {
    let touching: Vec<(u64, u64, V)> = changes
        .iter()
        .filter(|change| change.asked <= to)
        .filter_map(|change| Some((change.asked, change.answered, value(&change.what)?)))
        .collect();
    let is_over = |answered: u64| touching.iter().any(|next| next.0 > answered && next.1 < from);
    let mut values: Vec<V> =
        touching.iter().filter(|change| !is_over(change.1)).map(|change| change.2).collect();
    if !touching.iter().any(|change| change.1 < from) {
        values.push(first);
    }
    values
}

/// One file of the model.
#[derive(Clone, Debug, Default)]
pub struct File {
    edits: Vec<Change<Edit>>,
    /// What programs have set.
    sets: Vec<Change<Attribute>>,
    /// How many cells it had at first.
    first_cells: u64,
    first: Option<Tag>,
    /// The moment at which the call began that was the last to say that all is stored.
    pub stored: u64,
    /// Whether anything has failed that might have changed it, so that nobody knows what it is.
    pub is_unknown: bool,
    /// When what was set may have been lost.
    doubted: Option<u64>,
    /// Whether it was something that nobody knows before all edits.
    is_based: bool,
}

impl File {
    /// A file that a stranger has put.
    pub fn of(tag: Tag, cells: u64) -> Self {
        Self { first_cells: cells, first: Some(tag), ..Self::default() }
    }

    /// A file of which nobody knows what it was at first.
    pub fn of_somebody() -> Self {
        Self { is_based: true, ..Self::default() }
    }

    /// A call asks for a change. Returns its number.
    pub fn ask(&mut self, tick: u64, what: Edit) -> usize {
        self.edits.push(Change { asked: tick, answered: NEVER, what });
        self.edits.len() - 1
    }

    /// A change is done. Without this, it may be done at any time.
    pub fn answer(&mut self, edit: usize, tick: u64) {
        self.edits[edit].answered = tick;
    }

    /// A change will never be done.
    pub fn withdraw(&mut self, edit: usize) {
        self.edits[edit].asked = NEVER;
    }

    /// What a change was is known better by now.
    pub fn turn(&mut self, edit: usize, what: Edit) {
        self.edits[edit].what = what;
    }

    /// A program asks to set something. Returns its number.
    pub fn ask_set(&mut self, tick: u64, what: Attribute) -> usize {
        self.sets.push(Change { asked: tick, answered: NEVER, what });
        self.sets.len() - 1
    }

    /// It is set; `None`: it will never be. Without this, it may be set at any time.
    pub fn answer_set(&mut self, set: usize, tick: Option<u64>) {
        match tick {
            Some(tick) => self.sets[set].answered = tick,
            None => self.sets[set].asked = NEVER,
        }
    }

    /// What was set so far may be lost.
    pub fn doubt_sets(&mut self, at: u64) {
        self.doubted = Some(at);
    }

    /// Whether something may have been set between two moments.
    pub fn may_be_set(&self, from: u64, to: u64) -> bool {
        self.sets.iter().any(|set| set.asked <= to && set.answered >= from)
    }

    /// Whether the file may have an attribute between two moments. `None`: something else than programs set. Whoever
    /// changes the bytes changes the time, too.
    pub fn may_have(&self, like: Attribute, attribute: Option<Attribute>, from: u64, to: u64) -> bool {
        let of_kind = |set: &Attribute| set.is_like(like).then_some(Some(*set));
        let values = possible(&self.sets, None, (from, to), of_kind);
        let first = self.sets.iter().filter(|set| set.what.is_like(like)).map(|set| set.asked).min();
        let is_touched =
            || matches!(like, Attribute::Time(_)) && self.may_change(first.unwrap_or_default(), to);
        let is_again = |at: u64| {
            self.sets.iter().any(|set| set.what.is_like(like) && set.asked > at && set.answered < from)
        };
        let is_doubted = self.doubted.is_some_and(|at| !is_again(at));
        values.contains(&None) || values.contains(&attribute) || self.is_unknown || is_doubted || is_touched()
    }

    /// Whether all that ever happened to it is that somebody appended.
    pub fn only_grows(&self) -> bool {
        self.edits.iter().all(|edit| matches!(edit.what, Edit::Append { .. }) || edit.asked == NEVER)
    }

    /// Whether a program has made it.
    pub fn is_new(&self) -> bool {
        self.first.is_none()
    }

    /// Whether a change was done by a moment.
    pub fn was_edited(&self, by: u64) -> bool {
        let is_something = |edit: &Edit| match edit {
            Edit::Write(cells, _) | Edit::Store(cells, _) => !cells.is_empty(),
            Edit::Append { cells, .. } => *cells > 0,
            Edit::Cut(_) => true,
        };
        self.edits.iter().any(|edit| edit.answered < by && is_something(&edit.what))
    }

    /// Whether something may have changed between two moments.
    pub fn may_change(&self, from: u64, to: u64) -> bool {
        self.edits.iter().any(|edit| edit.asked <= to && edit.answered >= from)
    }

    /// The fewest and the most cells that it may have between two moments, if that is known.
    pub fn cells(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        if self.is_unknown || self.is_based {
            return None;
        }
        let edits: Vec<&Change<Edit>> = self.edits.iter().filter(|edit| edit.asked <= to).collect();
        let is_apart = |cut: &Change<Edit>| {
            let overlaps = |other: &&&Change<Edit>| {
                !std::ptr::eq(**other, cut) && other.asked <= cut.answered && cut.asked <= other.answered
            };
            edits.iter().find(overlaps).is_none()
        };
        let (mut cells, mut known) = (self.first_cells, true);
        let (mut least, mut most) = (None, None);
        let mut sorted = edits.clone();
        sorted.sort_by_key(|edit| (edit.answered, edit.asked));
        for edit in sorted {
            if edit.answered >= from && least.is_none() {
                if !known {
                    return None;
                }
                (least, most) = (Some(cells), Some(cells));
            }
            match &edit.what {
                Edit::Write(range, _) if range.end > cells => cells = range.end,
                Edit::Write(..) | Edit::Store(..) => {}
                Edit::Append { cells: more, .. } => cells += more,
                Edit::Cut(to) => {
                    known = is_apart(edit);
                    cells = *to;
                }
            }
            if let (Some(least), Some(most)) = (&mut least, &mut most) {
                (*least, *most) = (cells.min(*least), cells.max(*most));
                if !known {
                    return None;
                }
            }
        }
        known.then(|| (least.unwrap_or(cells), most.unwrap_or(cells)))
    }

    /// What one cell may hold between two moments.
    fn cell(&self, cell: u64, from: u64, to: u64) -> Vec<Value> {
        let first = match self.first.filter(|_| cell < self.first_cells) {
            _ if self.is_based => Value::Any,
            first => first.map_or(Value::Zeros, Value::Written),
        };
        let mut values = possible(&self.edits, first, (from, to), |edit| edit.at(cell));
        // Who cuts the file at the same time may move its end.
        let is_cut = |append: &Change<Edit>| {
            let meets = |cut: &Change<Edit>| cut.asked <= append.answered && append.asked <= cut.answered;
            self.edits.iter().any(|edit| matches!(edit.what, Edit::Cut(_)) && meets(edit))
        };
        let is_appended = |edit: &Change<Edit>| match &edit.what {
            Edit::Append { from, .. } => edit.asked <= to && (*from <= cell || is_cut(edit)),
            Edit::Write(..) | Edit::Store(..) | Edit::Cut(_) => false,
        };
        if self.edits.iter().any(is_appended) || self.is_torn(cell, to) {
            values.push(Value::Any);
        }
        values
    }

    /// Whether somebody has stored to the page of a cell, through a map, while somebody else wrote to it: then one of
    /// both may be lost with it, because the kernel writes whole pages back (promise 39).
    fn is_torn(&self, cell: u64, to: u64) -> bool {
        let page = cell / PAGE_CELLS * PAGE_CELLS..(cell / PAGE_CELLS + 1) * PAGE_CELLS;
        let is_here = |cells: &Range<u64>| cells.start < page.end && page.start < cells.end;
        let mut stores = self
            .edits
            .iter()
            .filter(|edit| edit.asked <= to && matches!(&edit.what, Edit::Store(cells, _) if is_here(cells)));
        let writes = |edit: &Change<Edit>| match &edit.what {
            Edit::Write(cells, _) => is_here(cells),
            Edit::Append { from, .. } => *from < page.end,
            Edit::Store(..) | Edit::Cut(_) => false,
        };
        stores.any(|store| {
            let meets = |edit: &Change<Edit>| edit.asked <= store.answered && store.asked <= edit.answered;
            self.edits.iter().any(|edit| writes(edit) && meets(edit))
        })
    }

    /// The tag of all of some cells at a moment, where there is only one.
    pub fn only(&self, cells: Range<u64>, from: u64, to: u64) -> Option<Vec<(Range<u64>, Value)>> {
        let mut runs: Vec<(Range<u64>, Value)> = Vec::new();
        for cell in cells {
            let mut values = self.cell(cell, from, to);
            values.dedup();
            let [value] = values[..] else { return None };
            match runs.last_mut() {
                Some((range, before)) if *before == value => range.end = cell + 1,
                _ => runs.push((cell..cell + 1, value)),
            }
        }
        Some(runs)
    }

    /// Compares bytes that begin at the cell `first` with what the file may have held between two moments.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, bytes: &[u8], first: u64, from: u64, to: u64) -> Result<(), String> {
        if self.is_unknown {
            return Ok(());
        }
        let runs = decode(bytes, first);
        // Where no change begins or ends, all cells may hold the same.
        let mut bounds: BTreeSet<u64> = self
            .edits
            .iter()
            .flat_map(|edit| match &edit.what {
                Edit::Write(cells, _) | Edit::Store(cells, _) => [cells.start, cells.end],
                Edit::Cut(cells) | Edit::Append { from: cells, .. } => [*cells, *cells],
            })
            .collect();
        bounds.insert(self.first_cells);
        for edit in &self.edits {
            if let Edit::Store(cells, _) = &edit.what {
                let pages =
                    (cells.start / PAGE_CELLS..=cells.end.div_ceil(PAGE_CELLS)).map(|page| page * PAGE_CELLS);
                bounds.extend(pages);
            }
        }
        for (range, found) in &runs {
            let inside: Vec<u64> =
                bounds.range(range.start + 1..range.end.max(range.start + 1)).copied().collect();
            for cell in std::iter::once(range.start).chain(inside) {
                let values = self.cell(cell, from, to);
                let fits = |value: &Value| match (value, found) {
                    (Value::Zeros, CellContent::Zeros)
                    | (Value::Any, CellContent::Written(_) | CellContent::Zeros) => true,
                    (Value::Written(tag), CellContent::Written(other)) => tag == other,
                    _ => false,
                };
                if !values.iter().any(fits) {
                    return Err(format!("cell {cell} of {} may be {values:?}", shown(&runs)));
                }
            }
        }
        Ok(())
    }

    /// Compares all bytes of an object with the file.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_whole(&self, bytes: &[u8], from: u64, to: u64) -> Result<(), String> {
        let cells = bytes.len() as u64 / CELL;
        if let Some((least, most)) = self.cells(from, to)
            && !(least..=most).contains(&cells)
        {
            return Err(format!(
                "{cells} cells, where {least} to {most} are right: {}",
                shown(&decode(bytes, 0))
            ));
        }
        self.check(bytes, 0, from, to)
    }
}

/// What a name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Nothing.
    Nothing,
    /// A file of the model.
    File(usize),
    /// Nobody knows.
    Unknown,
}

/// One name of the model.
#[derive(Clone, Debug, Default)]
pub struct Name {
    changes: Vec<Change<Target>>,
    first: Option<usize>,
}

impl Name {
    /// The name of a file that is there from the beginning.
    pub fn of(file: usize) -> Self {
        Self { first: Some(file), ..Self::default() }
    }

    /// A call asks for a change. Returns its number.
    pub fn ask(&mut self, tick: u64, target: Target) -> usize {
        self.changes.push(Change { asked: tick, answered: NEVER, what: target });
        self.changes.len() - 1
    }

    /// A change is done.
    pub fn answer(&mut self, change: usize, tick: u64) {
        self.changes[change].answered = tick;
    }

    /// A change will never be done.
    pub fn withdraw(&mut self, change: usize) {
        self.changes[change].asked = NEVER;
    }

    /// A change is set aside, as if nobody had asked for it. Returns what it was.
    pub fn take(&mut self, change: usize) -> Target {
        self.withdraw(change);
        self.changes[change].what
    }

    /// The name with a change that was set aside, which is done.
    #[must_use]
    pub fn redone(mut self, change: usize, asked: u64, answered: u64) -> Self {
        (self.changes[change].asked, self.changes[change].answered) = (asked, answered);
        self
    }

    /// What a change leads to is something else than was asked for.
    pub fn turn(&mut self, change: usize, target: Target) {
        self.changes[change].what = target;
    }

    /// The name stands for something between two moments, whatever others do to it meanwhile.
    pub fn change(&mut self, asked: u64, answered: u64, target: Target) {
        let change = self.ask(asked, target);
        self.answer(change, answered);
    }

    /// What a change leads to that was asked for.
    pub fn asks_for(&self, change: usize) -> Target {
        self.changes[change].what
    }

    /// Whether the name may have changed between two moments.
    pub fn may_change(&self, from: u64, to: u64) -> bool {
        self.may_change_times(1, from, to)
    }

    /// Whether the name may have changed so many times between two moments.
    pub fn may_change_times(&self, times: usize, from: u64, to: u64) -> bool {
        let changes = self.changes.iter().filter(|change| change.asked <= to && change.answered >= from);
        changes.count() >= times
    }

    /// What the name may stand for between two moments.
    pub fn targets(&self, from: u64, to: u64) -> Vec<Target> {
        let first = self.first.map_or(Target::Nothing, Target::File);
        let mut targets = possible(&self.changes, first, (from, to), |target| Some(*target));
        targets.sort();
        targets.dedup();
        targets
    }
}
