//! The journals of a folder: those of daemons that live, and those of daemons that are gone.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC, statfs,
};

use super::{FORMAT, Owner, Record, SLOT, check, host};

/// File systems of one machine: a lock that nobody here holds, nobody holds.
const LOCAL: [FsType; 5] =
    [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC];

/// A journal that was found.
#[derive(Debug)]
pub enum FoundJournal {
    /// Its daemon lives, or another process reads it to clean up.
    Live(Owner, Vec<Record>),
    /// It lies on a file system that other machines share, and is that of another machine.
    Foreign(Owner),
    /// Its daemon is gone.
    Dead(Left),
    /// It can't be read.
    Unreadable(PathBuf, io::Error),
}

/// What a daemon has left that is gone. While this lives, nobody else cleans it up.
#[derive(Debug)]
pub struct Left {
    owner: Owner,
    records: Vec<(u64, Record)>,
    file: File,
    path: PathBuf,
}

impl FoundJournal {
    /// All journals in the folder `dir`, the oldest first. There is none in a folder that does not exist.
    ///
    /// # Errors
    /// Those of the disk; `PermissionDenied` for a folder that is not the user's own.
    pub fn all(dir: &Path) -> io::Result<Vec<Self>> {
        Self::all_of(dir, |_| false)
    }

    /// The same. A daemon of this machine that has its lock is gone all the same if `has_ended` says so: one of its threads
    /// may wait in the kernel for ever, and the kernel unlocks nothing before the last one has ended.
    ///
    /// # Errors
    /// As for [`all`](Self::all).
    pub fn all_of(dir: &Path, has_ended: impl Fn(&Owner) -> bool) -> io::Result<Vec<Self>> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        check(dir)?;
        let is_local = statfs(dir).is_ok_and(|found| LOCAL.contains(&found.filesystem_type()));
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "journal"));
        paths.sort();
        let found = paths.into_iter().filter_map(|path| match Self::read(&path, is_local, &has_ended) {
            Ok(found) => found,
            Err(error) => Some(Self::Unreadable(path, error)),
        });
        Ok(found.collect())
    }

    fn read(path: &Path, is_local: bool, has_ended: impl Fn(&Owner) -> bool) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_unlocked = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        let metadata = file.metadata()?;
        if metadata.nlink() == 0 || metadata.len() == 0 {
            // It was deleted just now, or is being made.
            return Ok(None);
        }
        let owner: Owner = slot(&file, 0)?.ok_or(io::ErrorKind::InvalidData)?;
        if owner.format != FORMAT {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "another version of s3mount has written it",
            ));
        }
        let mut records = Vec::new();
        for number in 1..metadata.len().div_ceil(SLOT as u64) {
            // A slot that a power cut has torn says nothing.
            if let Ok(Some(record)) = slot(&file, number) {
                records.push((number, record));
            }
        }
        let is_dead = is_unlocked || (owner.host == host() && has_ended(&owner));
        Ok(Some(if !is_dead {
            Self::Live(owner, records.into_iter().map(|(_, record)| record).collect())
        } else if !is_local && owner.host != host() {
            Self::Foreign(owner)
        } else {
            Self::Dead(Left { owner, records, file, path: path.to_owned() })
        }))
    }
}

impl Left {
    /// Whose it was.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// What is left, by slot.
    pub fn records(&self) -> &[(u64, Record)] {
        &self.records
    }

    /// Takes out what was in a slot: nothing is left of it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn done(&mut self, slot: u64) -> io::Result<()> {
        self.file.write_all_at(&[0; SLOT], slot * SLOT as u64)?;
        self.records.retain(|(number, _)| *number != slot);
        Ok(())
    }

    /// Deletes the file, unless something is left in it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn close(self) -> io::Result<()> {
        if self.records.is_empty() { std::fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// What is in a slot, if there is anything.
fn slot<T: serde::de::DeserializeOwned>(file: &File, number: u64) -> io::Result<Option<T>> {
    let (mut bytes, mut len) = (vec![0; SLOT], 0);
    while len < SLOT {
        match file.read_at(&mut bytes[len..], number * SLOT as u64 + len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(SLOT);
    if end == 0 {
        return Ok(None);
    }
    serde_json::from_slice(&bytes[..end]).map(Some).map_err(Into::into)
}
