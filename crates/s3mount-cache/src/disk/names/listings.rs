//! The files of kept listings: their size, and which of them are deleted. These functions block.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::layout::{Hash, Layout, SHARDS};
use crate::disk::scan;

/// The start of the name of an unfinished listing.
pub(crate) const UNFINISHED_LISTING: &str = ".new";

/// The age at which a kept listing is deleted. Mounts use it for `--metadata-ttl`; mounts whose names never change then
/// list the folder once a month.
const LISTING_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The file of a listing.
#[derive(Debug)]
pub(crate) struct Listing {
    path: PathBuf,
    /// How many bytes of the disk it takes.
    pub(crate) bytes: u64,
    written: Duration,
    /// Whether it is unfinished: its process still writes it, or was killed. It is not counted.
    is_unfinished: bool,
}

/// The listings that were found, and those that were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tidied {
    /// How many files were found.
    pub(crate) files: usize,
    /// How many bytes of the disk the finished ones took, and how many of these were given back.
    pub(crate) bytes: u64,
    pub(crate) removed: u64,
}

impl Tidied {
    /// Deletes a listing. Another process may have done that.
    fn remove(&mut self, listing: &Listing) {
        if std::fs::remove_file(&listing.path).is_ok() && !listing.is_unfinished {
            self.removed += listing.bytes;
        }
    }
}

/// The folder of the listings of shard `number`.
pub(crate) fn folder(layout: &Layout, number: u16) -> PathBuf {
    layout.names().join(format!("{number:03x}"))
}

/// The listings in a folder that may be missing.
fn all(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<Listing>>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        entries => Some(entries?),
    };
    Ok(entries.into_iter().flatten().filter_map(|entry| entry.and_then(|entry| listing(&entry)).transpose()))
}

/// The entry as a listing. A file whose name is not a listing's is ignored.
fn listing(entry: &DirEntry) -> io::Result<Option<Listing>> {
    let name = entry.file_name().into_string().unwrap_or_default();
    let is_unfinished = name.starts_with(UNFINISHED_LISTING);
    if !is_unfinished && Hash::parse(&name).is_none() {
        return Ok(None);
    }
    let metadata = match entry.metadata() {
        // Another process may have deleted it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    Ok(Some(Listing {
        path: entry.path(),
        bytes: scan::taken_bytes(&metadata),
        written: scan::last_write(&metadata),
        is_unfinished,
    }))
}

/// Deletes old listings of shard `number`, and those that a killed process left unfinished.
pub(crate) fn tidy(layout: &Layout, number: u16, now: Duration) -> io::Result<Tidied> {
    let mut tidied = Tidied::default();
    for listing in all(&folder(layout, number))? {
        let listing = listing?;
        tidied.files += 1;
        tidied.bytes += if listing.is_unfinished { 0 } else { listing.bytes };
        let age = if listing.is_unfinished { scan::UNFINISHED } else { LISTING_AGE };
        if now.saturating_sub(listing.written) > age {
            tidied.remove(&listing);
        }
    }
    Ok(tidied)
}

/// Deletes the listings that were written longest ago, until all of them take no more than `most` bytes.
///
/// There may be millions, so their bytes are added up by the minute. Of the minute that fits only in part, the listings
/// that are found first stay.
pub(crate) fn cut(layout: &Layout, most: u64) -> io::Result<Tidied> {
    let mut tidied = Tidied::default();
    let minute = |listing: &Listing| listing.written.as_secs() / 60;
    let mut by_minute: BTreeMap<u64, u64> = BTreeMap::new();
    each(layout, |listing| {
        tidied.files += 1;
        tidied.bytes += listing.bytes;
        *by_minute.entry(minute(&listing)).or_default() += listing.bytes;
    })?;
    let (mut room, mut last) = (most, None);
    for (minute, bytes) in by_minute.iter().rev() {
        let Some(left) = room.checked_sub(*bytes) else {
            last = Some(*minute);
            break;
        };
        room = left;
    }
    let Some(last) = last else { return Ok(tidied) };
    each(layout, |listing| {
        if minute(&listing) > last {
            return;
        }
        match room.checked_sub(listing.bytes) {
            Some(left) if minute(&listing) == last => room = left,
            _ => tidied.remove(&listing),
        }
    })?;
    Ok(tidied)
}

/// Calls `then` with each finished listing in a folder.
pub(crate) fn each_in(folder: &Path, mut then: impl FnMut(Listing)) -> io::Result<()> {
    for listing in all(folder)? {
        Some(listing?).filter(|listing| !listing.is_unfinished).into_iter().for_each(&mut then);
    }
    Ok(())
}

/// Calls `then` with each finished listing.
fn each(layout: &Layout, mut then: impl FnMut(Listing)) -> io::Result<()> {
    (0..SHARDS).try_for_each(|number| each_in(&folder(layout, number), &mut then))
}
