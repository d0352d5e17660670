//! Finds the index of a list, or builds it.

use std::fs::File;
use std::num::NonZero;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::build::{Means, build};
use crate::error::ListedError;
use crate::file::index::{Index, is_index};
use crate::lists::place::List;
use crate::lists::table::Tables;
use crate::shelf::{self, Shelf};

/// What an index says of itself, before its list. A later version that would build another one says something else.
const ABOUT: &str = "s3mount names 1";

/// A list, and how its index is built if there is none.
#[derive(Debug)]
pub struct Names {
    /// The list. A file that is an index is used as it is.
    pub list: List,
    /// Where indexes are kept.
    pub shelf: Shelf,
    /// Memory for rows that wait to be sorted, in bytes.
    pub memory_bytes: usize,
    /// Files of a list that are read at a time.
    pub threads: NonZero<usize>,
    /// Counts the rows while the index is built.
    pub rows: Arc<AtomicU64>,
}

/// The index of a list.
#[derive(Clone, Debug)]
pub struct Named {
    /// The index.
    pub index: Arc<Index>,
    /// Its file.
    pub path: PathBuf,
    /// Whether the file lies on a shelf, so that it may be removed: it is built anew.
    pub is_kept: bool,
    /// The bucket that the list names as its own, if the index was built now, and the list names one.
    pub source_bucket: Option<String>,
}

impl Named {
    /// The index `id` in a file that an earlier process has used, wherever it lies now; indexes of lists lie in `shelf`.
    ///
    /// # Errors
    /// `Damaged`, also if another index was copied over it, or those of reading the file.
    pub fn reopen(file: File, id: u64, shelf: &Path) -> Result<Self, ListedError> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
        let is_there = || Some((path.metadata().ok()?.ino(), file.metadata().ok()?.ino()));
        let is_kept = path.parent() == Some(shelf) && is_there().is_some_and(|(there, open)| there == open);
        let index = Arc::new(Index::open(file)?);
        if index.id() != id {
            return Err(ListedError::Damaged("another index was copied over it"));
        }
        Ok(Self { index, path, is_kept, source_bucket: None })
    }

    /// Opens the index at `path`.
    ///
    /// # Errors
    /// `Damaged`, or those of the file.
    fn open(path: &Path, is_kept: bool) -> Result<Self, ListedError> {
        let index = Arc::new(shelf::open(path)?);
        Ok(Self { index, path: path.to_owned(), is_kept, source_bucket: None })
    }
}

impl Names {
    /// The index, if it is there and need not be built. Its block where the keys with `prefix` begin is looked at, too: who
    /// asks for them first finds no damage there.
    ///
    /// # Errors
    /// Those of looking at the list, and for a list that is itself an index, and damaged.
    pub fn find(&self, prefix: &str) -> Result<Option<Named>, ListedError> {
        if let List::File(path) = &self.list
            && is_index(path)?
        {
            let opened = Named::open(path, false);
            return match opened.and_then(|named| named.index.has_below(prefix).map(|_| named)) {
                Err(ListedError::Damaged(why)) => Err(ListedError::wrong(
                    path.display().to_string(),
                    format!("it is an index, and damaged: {why}; make it again"),
                )),
                opened => opened.map(Some),
            };
        }
        let Some((index, path)) = self.shelf.find(&self.about()?)? else { return Ok(None) };
        match index.has_below(prefix) {
            Ok(_) => Ok(Some(kept(index, path, None))),
            Err(ListedError::Damaged(why)) => {
                shelf::tell_damaged(&path, why);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Builds the index, and keeps it.
    ///
    /// # Errors
    /// For what is wrong with the list, with its place; those of files and of the store.
    pub fn build(&self) -> Result<Named, ListedError> {
        let about = self.about()?;
        self.shelf.clear();
        let (run, source_bucket) = self.run(&about)?;
        let (index, path) = self.shelf.keep(run, &about)?;
        Ok(kept(index, path, source_bucket))
    }

    /// Builds the index into the new file `path`, for lists that many mounts use. Returns how many names it has, and its
    /// length in bytes.
    ///
    /// # Errors
    /// As of [`build`](Self::build).
    pub fn export(&self, path: &Path) -> Result<(u64, u64), ListedError> {
        self.shelf.clear_unfinished();
        let (run, _) = self.run(&self.about()?)?;
        let keys = run.keys;
        let failed = || ListedError::of("write", path);
        run.file.as_file().sync_data().map_err(failed())?;
        let file = run.file.persist_noclobber(path).map_err(|error| failed()(error.error))?;
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.set_permissions(readable).map_err(failed())?;
        Ok((keys, file.metadata().map_err(failed())?.len()))
    }

    fn about(&self) -> Result<String, ListedError> {
        Ok(format!("{ABOUT}\n{}", self.list.identity()?))
    }

    fn run(&self, about: &str) -> Result<(crate::build::Run, Option<String>), ListedError> {
        self.shelf.make()?;
        let scratch = self.shelf.dir();
        let Tables { tables, source_bucket } = Tables::of(&self.list, scratch)?;
        let (memory_bytes, threads, rows) = (self.memory_bytes, self.threads, &*self.rows);
        let run = build(&tables, about, &Means { scratch, memory_bytes, threads, rows })?;
        if self.about()? != about {
            return Err(ListedError::wrong(self.list.shown(), "it has changed while it was read; try again"));
        }
        Ok((run, source_bucket))
    }
}

fn kept(index: Index, path: PathBuf, source_bucket: Option<String>) -> Named {
    Named { index: Arc::new(index), path, is_kept: true, source_bucket }
}
