//! The memory that a draft gives back when memory is short.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::Draft;
use crate::grid::Cell;
use crate::relief::Giver;
use crate::state::DraftState;

impl Giver for Draft {
    fn changed(&self) -> SystemTime {
        self.modified()
    }

    fn evict(&self, wanted: u64) -> u64 {
        self.lend_line();
        let before = self.held.load(Ordering::Relaxed);
        let mut state = self.state();
        if state.failed.is_some() {
            // It is never published.
            state.lose_all();
        }
        for (cell, is_current) in self.evictable(&state) {
            if before.saturating_sub(self.held.load(Ordering::Relaxed)) >= wanted {
                break;
            }
            state.evict(cell, is_current);
        }
        before.saturating_sub(self.held.load(Ordering::Relaxed))
    }

    fn uploading_bytes(&self) -> u64 {
        let state = self.state();
        // A task whose part is not in memory waits for memory itself.
        let claims = state.cells.claims().filter(|cell| state.is_in_memory(*cell));
        claims.map(|cell| cell.end - cell.start).sum::<u64>() + state.spilling_bytes
    }

    fn hurry(&self, wanted: u64) -> u64 {
        let Some(me) = self.me.upgrade() else { return 0 };
        if me.has_spool() {
            let (cells, bytes) = me.spillable(wanted);
            return if me.spill(cells) { bytes } else { 0 };
        }
        let mut coming = 0;
        for cell in me.full() {
            if coming >= wanted {
                break;
            }
            if Arc::clone(&me).start(cell) {
                coming += cell.end - cell.start;
            }
        }
        coming
    }
}

impl Draft {
    /// The parts that may lose their bytes, and whether the store has them up to date. The last part stays, if
    /// it is not full: what is appended to it needs its bytes.
    fn evictable(&self, state: &DraftState) -> Vec<(Cell, bool)> {
        let size = state.size();
        let Some(grid) = state.grid else {
            // There is no upload. All that is elsewhere is in the version that the draft began with.
            return vec![(Cell { number: 0, start: 0, end: size }, false)];
        };
        // What goes to the spool first can still be patched and read. What an upload to an earlier key has is uploaded
        // anew.
        let is_left = state.has_old_upload() && state.stored(0, size).is_none();
        let may_go = !self.has_spool() && !is_left;
        let mut cells: Vec<_> = state.cells.idle().map(|cell| (cell, may_go && cell.end <= size)).collect();
        let mut at = 0;
        while let Some(cell) = grid.cell(at).filter(|cell| cell.start < size) {
            if !state.cells.is_current(cell) {
                cells.push((cell, false));
            }
            at = cell.end;
        }
        cells
    }

    /// Parts with at least `wanted` bytes together that are in memory and not in the spool, and how many these
    /// are. The part of the last write comes last.
    fn spillable(&self, wanted: u64) -> (Vec<Cell>, u64) {
        let state = self.state();
        let grid = self.grid(&state);
        let last = grid.cell(state.frontier.saturating_sub(1));
        // What is sent where it lies is free soon.
        let is_sent = |cell| state.cells.is_claimed(cell) && state.is_in_memory(cell);
        let (mut cells, mut bytes, mut at) = (Vec::new(), 0, 0);
        while bytes < wanted
            && let Some(cell) = grid.cell(at).filter(|cell| cell.start < state.size())
        {
            at = cell.end;
            let found = state.unspooled_bytes(cell);
            if found > 0 && Some(cell) != last && !is_sent(cell) {
                cells.push(cell);
                bytes += found;
            }
        }
        let last = last.filter(|last| bytes < wanted && !is_sent(*last));
        if let Some((last, found)) = last.map(|last| (last, state.unspooled_bytes(last)))
            && found > 0
        {
            cells.push(last);
            bytes += found;
        }
        (cells, bytes)
    }

    /// The parts that are in memory as a whole and that the store does not have. The part of the last write
    /// comes last.
    fn full(&self) -> Vec<Cell> {
        let state = self.state();
        let grid = self.grid(&state);
        let mut cells = Vec::new();
        let mut at = 0;
        while let Some(cell) = grid.cell(at).filter(|cell| cell.end <= state.size()) {
            if !state.cells.is_current(cell) && !state.cells.is_claimed(cell) && state.is_in_memory(cell) {
                cells.push(cell);
            }
            at = cell.end;
        }
        let last = grid.cell(state.frontier.saturating_sub(1));
        cells.sort_by_key(|cell| Some(*cell) == last);
        cells
    }
}
