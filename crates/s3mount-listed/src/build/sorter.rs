//! Sorts rows into runs.

use std::path::Path;

use super::run::{Run, RunWriter};
use crate::error::ListedError;

/// Rows that wait to be sorted, each as the lengths of its key and its version, and these.
#[derive(Debug, Default)]
struct Rows {
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

impl Rows {
    fn push(&mut self, key: &[u8], version: &[u8]) {
        // They take less than 4 GiB, and keys and versions are shorter than 64 KiB.
        self.starts.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&(version.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(version);
    }

    fn taken_bytes(&self) -> usize {
        self.bytes.len() + self.starts.len() * size_of::<u32>()
    }
}

fn row(bytes: &[u8], start: u32) -> (&[u8], &[u8]) {
    let row = &bytes[start as usize..];
    let len = |at: usize| usize::from(u16::from_le_bytes([row[at], row[at + 1]]));
    let (key, version) = row[4..4 + len(0) + len(2)].split_at(len(0));
    (key, version)
}

/// Sorts rows into runs.
#[derive(Debug)]
pub(super) struct Sorter<'a> {
    scratch: &'a Path,
    about: &'a str,
    memory_bytes: usize,
    runs: Vec<Run>,
    /// The run of all rows, as long as they come in order.
    in_order: Option<RunWriter>,
    rows: Rows,
    has_begun: bool,
}

impl<'a> Sorter<'a> {
    pub(super) fn new(scratch: &'a Path, about: &'a str, memory_bytes: usize) -> Self {
        let memory_bytes = memory_bytes.min(1 << 30);
        let rows = Rows::default();
        Self { scratch, about, memory_bytes, runs: Vec::new(), in_order: None, rows, has_begun: false }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, key: &[u8], version: &[u8]) -> Result<(), ListedError> {
        if !self.has_begun {
            self.has_begun = true;
            self.in_order = Some(RunWriter::new(self.scratch, self.about)?);
        }
        match self.in_order.take_if(|run| !run.is_behind(key)) {
            Some(run) => self.runs.push(run.finish()?),
            None => {
                if let Some(run) = &mut self.in_order {
                    return run.push(key, version);
                }
            }
        }
        if self.rows.bytes.capacity() == 0 {
            // A growing vector would have its bytes twice for a while. What is not used takes no memory.
            self.rows.bytes.reserve_exact(self.memory_bytes);
        }
        self.rows.push(key, version);
        if self.rows.taken_bytes() > self.memory_bytes { self.spill() } else { Ok(()) }
    }

    /// Writes the rows that wait as a run.
    fn spill(&mut self) -> Result<(), ListedError> {
        let Rows { bytes, starts } = &mut self.rows;
        starts.sort_unstable_by(|a, b| row(bytes, *a).0.cmp(row(bytes, *b).0));
        let mut run = RunWriter::new(self.scratch, self.about)?;
        for start in starts.iter() {
            let (key, version) = row(bytes, *start);
            run.push(key, version)?;
        }
        self.runs.push(run.finish()?);
        bytes.clear();
        starts.clear();
        Ok(())
    }

    /// All runs, none of them empty.
    pub(super) fn finish(mut self) -> Result<Vec<Run>, ListedError> {
        if !self.rows.starts.is_empty() {
            self.spill()?;
        }
        if let Some(run) = self.in_order.take() {
            self.runs.push(run.finish()?);
        }
        Ok(self.runs)
    }
}
