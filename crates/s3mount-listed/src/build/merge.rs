//! Merges runs into one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::path::Path;

use super::run::{Run, RunReader, RunWriter};
use crate::error::ListedError;

/// The most runs that are merged at once: each has a file open, and a buffer.
const AT_ONCE: usize = 128;

/// The next key of a run.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    key: Vec<u8>,
    run: usize,
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The smallest key is the greatest head, because the heap has that at its top.
impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key).then(other.run.cmp(&self.run))
    }
}

/// Merges runs, none of which is empty.
pub(super) fn merge(mut runs: Vec<Run>, about: &str, scratch: &Path) -> Result<Run, ListedError> {
    if runs.len() == 1 {
        return Ok(runs.remove(0));
    }
    while runs.len() > AT_ONCE {
        let first = runs.drain(..AT_ONCE).collect();
        runs.push(merge_some(first, about, scratch)?);
    }
    merge_some(runs, about, scratch)
}

fn merge_some(runs: Vec<Run>, about: &str, scratch: &Path) -> Result<Run, ListedError> {
    let mut merged = RunWriter::new(scratch, about)?;
    let mut readers = Vec::with_capacity(runs.len());
    for run in runs {
        readers.push(RunReader::new(run, about)?);
    }
    let heads = readers.iter().enumerate().map(|(run, reader)| Head { key: reader.key().to_vec(), run });
    let mut heads: BinaryHeap<_> = heads.collect();
    while let Some(mut head) = heads.peek_mut() {
        let reader = &mut readers[head.run];
        merged.push(&head.key, reader.version())?;
        if reader.advance()? {
            head.key.clear();
            head.key.extend_from_slice(reader.key());
        } else {
            PeekMut::pop(head);
        }
    }
    merged.finish()
}
