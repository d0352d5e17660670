//! The folder where indexes are kept for later mounts.
//!
//! An index is made under another name, and renamed when it is complete and on the disk. Whoever uses one holds a shared
//! lock on it. Two who build the same index do it side by side, and the last rename stays.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use crate::build::{Run, UNFINISHED};
use crate::error::ListedError;
use crate::file::index::Index;

/// Indexes that nobody uses stay as long as so few of them were used later.
const MOST_UNUSED: usize = 3;

/// A file that is being written is locked, or younger than this.
const UNLOCKED: Duration = Duration::from_secs(3600);

/// How the names of indexes end.
const SUFFIX: &str = ".names";

/// A folder with indexes.
#[derive(Clone, Debug)]
pub struct Shelf {
    dir: PathBuf,
    now: SystemTime,
}

impl Shelf {
    /// The indexes in the folder `dir`, which need not be there. It is `now`.
    pub fn new(dir: &Path, now: SystemTime) -> Self {
        Self { dir: dir.to_owned(), now }
    }

    /// Makes the folder if it is missing.
    ///
    /// # Errors
    /// If it can't be made.
    pub(crate) fn make(&self) -> Result<(), ListedError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(ListedError::of("make the folder", &self.dir))
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, about: &str) -> PathBuf {
        let digits =
            Sha256::digest(about).iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
        self.dir.join(digits + SUFFIX)
    }

    /// The index of the list that `about` names, if there is one, and its path. One that is damaged counts as none.
    ///
    /// # Errors
    /// Those of reading the file.
    pub(crate) fn find(&self, about: &str) -> Result<Option<(Index, PathBuf)>, ListedError> {
        let path = self.path(about);
        match open(&path) {
            Ok(index) if index.about() == about => {
                // A later time says that it is of use. Only its owner may set it.
                let _ = index.file().set_modified(self.now);
                Ok(Some((index, path)))
            }
            Ok(_) => Ok(None),
            Err(ListedError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(ListedError::Damaged(why)) => {
                tell_damaged(&path, why);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps an index, in place of another one of the same list.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn keep(&self, run: Run, about: &str) -> Result<(Index, PathBuf), ListedError> {
        let path = self.path(about);
        let failed = || ListedError::of("write the index in", &self.dir);
        run.file.as_file().sync_data().map_err(failed())?;
        let renamed = run.file.persist(&path).map_err(|error| failed()(error.error))?;
        // It was locked for the time of its making.
        let _ = renamed.unlock();
        drop(renamed);
        Ok((open(&path)?, path))
    }

    /// Removes what nobody uses: indexes but the last few, and what killed processes have left.
    pub(crate) fn clear(&self) {
        let mut unused = Vec::new();
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            if name.ends_with(SUFFIX) && !is_locked(&path) {
                unused.push((modified.unwrap_or(self.now), path));
            }
        }
        self.clear_unfinished();
        unused.sort();
        let most = unused.len().saturating_sub(MOST_UNUSED);
        unused.iter().take(most).for_each(|(_, path)| remove(path));
    }

    /// Removes what builds that were killed have left, once it is an hour old.
    pub(crate) fn clear_unfinished(&self) {
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(self.now);
            let is_old = self.now.duration_since(modified).is_ok_and(|age| age > UNLOCKED);
            let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
            if is_unfinished && is_old && !is_locked(&entry.path()) {
                remove(&entry.path());
            }
        }
    }
}

/// Says that an index is damaged, which is built anew then.
pub(crate) fn tell_damaged(path: &Path, why: &str) {
    tracing::warn!(path = %path.display(), why, "an index of names is damaged, and is built anew");
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(path = %path.display(), %error, "remove an index of names");
    }
}

/// Whether somebody uses the file. One that can't be locked counts as used.
fn is_locked(path: &Path) -> bool {
    !File::open(path).is_ok_and(|file| matches!(file.try_lock(), Ok(())))
}

/// Opens the index at `path`, which stays as long as it is open.
///
/// # Errors
/// `Damaged`, or those of the file.
pub(crate) fn open(path: &Path) -> Result<Index, ListedError> {
    let file = File::open(path).map_err(ListedError::of("open", path))?;
    match file.try_lock_shared() {
        Ok(()) => {}
        // Somebody looks whether it is of use.
        Err(TryLockError::WouldBlock) => drop(file.lock_shared()),
        // An index on a file system without locks is only read.
        Err(TryLockError::Error(error)) => tracing::debug!(%error, "lock an index of names"),
    }
    Index::open(file)
}

#[cfg(test)]
mod tests;
