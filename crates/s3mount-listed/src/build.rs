//! Sorts the rows of a list into an index, in bounded memory.
//!
//! Rows that come in order go straight into an index. With the first one that does not, that index ends, and rows are
//! collected, sorted and written as further indexes, each by itself in order ([`sorter`]). In the end all are merged into
//! one ([`merge`]); if there is only one, it is it. The files of an inventory are read by several threads.

mod merge;
mod run;
mod sorter;

use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub(crate) use run::{Run, UNFINISHED};

use crate::error::ListedError;
use crate::lists::table::Table;
use sorter::Sorter;

/// What building may take, and how it goes.
#[derive(Debug)]
pub(crate) struct Means<'a> {
    /// The folder for the index, and for files while it is built.
    pub(crate) scratch: &'a Path,
    /// Memory for rows that wait to be sorted, in bytes.
    pub(crate) memory_bytes: usize,
    /// Files that are read at a time.
    pub(crate) threads: NonZero<usize>,
    /// Counts the rows.
    pub(crate) rows: &'a AtomicU64,
}

/// Builds the index of all rows of `tables`. `about` says of which list it is.
///
/// # Errors
/// For the first row that is wrong; if a key is there twice, as two versions; those of files.
pub(crate) fn build(tables: &[Table], about: &str, means: &Means<'_>) -> Result<Run, ListedError> {
    let workers = means.threads.get().min(tables.len()).max(1);
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let built = Mutex::new(Ok(Vec::new()));
    let work = || {
        let mut sorter = Sorter::new(means.scratch, about, means.memory_bytes / workers);
        while let Some(table) = tables.get(next.fetch_add(1, Ordering::Relaxed)) {
            table.read(means.scratch, &mut |key, version| {
                if is_over.load(Ordering::Relaxed) {
                    return Err(ListedError::Damaged("another file of the list is wrong"));
                }
                means.rows.fetch_add(1, Ordering::Relaxed);
                sorter.push(key, version)
            })?;
        }
        sorter.finish()
    };
    let note = |result: Result<Vec<Run>, ListedError>| {
        let mut built = built.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match (&mut *built, result) {
            (Ok(runs), Ok(more)) => runs.extend(more),
            // The first one that failed has stopped the others.
            (built @ Ok(_), Err(error)) => {
                is_over.store(true, Ordering::Relaxed);
                *built = Err(error);
            }
            (Err(_), _) => {}
        }
    };
    std::thread::scope(|scope| {
        let (work, note) = (&work, &note);
        let others = (1..workers).map(|number| {
            let named = std::thread::Builder::new().name(format!("list-{number}"));
            named.spawn_scoped(scope, move || note(work()))
        });
        // Where no more threads can be had, there are fewer.
        let others: Vec<_> = others.map_while(Result::ok).collect();
        note(work());
        drop(others);
    });
    let runs = built.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
    merge::merge(runs, about, means.scratch)
}

#[cfg(test)]
mod tests;
