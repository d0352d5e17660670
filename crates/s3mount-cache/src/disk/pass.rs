//! A pass over all shards of a cache: adds up what they take, and tidies them up.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::disk::layout::{Layout, SHARDS};
use crate::disk::names::UNFINISHED_LISTING;
use crate::disk::scan::{self, Held};
use crate::disk::usage::Counts;

/// A use that is so much later than now was noted by a clock that was wrong. Such a version would never be
/// idle.
const FUTURE: Duration = Duration::from_secs(3600);

/// A kept listing is deleted when it is so old. It is used for `--metadata-ttl`, or by mounts whose names never
/// change: these list the folder once a month then.
const LISTING_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A pass over all shards.
#[derive(Debug)]
pub(crate) struct Pass {
    next: u16,
    sum: u64,
    /// The ticks that it has taken.
    pub(crate) ticks: u32,
    /// The counts at its beginning.
    before: Counts,
}

impl Pass {
    pub(crate) fn new(before: Counts) -> Self {
        Self { next: 0, sum: 0, ticks: 0, before }
    }

    /// Goes through one more shard. Returns how many versions and listings it has looked at.
    pub(crate) fn next(&mut self, layout: &Layout, now: Duration) -> io::Result<usize> {
        let number = self.next;
        let shard = scan::shard(layout, number, now)?;
        self.next += 1;
        self.sum += shard.disk_bytes;
        for name in shard.leftovers {
            tracing::debug!(name, "delete what was left over in the disk cache");
            // Another process may have deleted it.
            let _ = std::fs::remove_file(layout.shard(number).join(name));
        }
        let listings = tidy_listings(&layout.names().join(format!("{number:03x}")), now)?;
        let is_future = |held: &&Held| held.used > now + FUTURE;
        for held in shard.versions.iter().filter(is_future) {
            for path in [layout.whole(&held.hash), layout.part(&held.hash)] {
                set_times(&path, now)?;
            }
        }
        Ok(shard.versions.len() + listings)
    }

    /// The counts at its beginning and the sum, once all shards are through.
    pub(crate) fn result(&self) -> Option<(Counts, u64)> {
        (self.next == SHARDS).then_some((self.before, self.sum))
    }
}

/// Deletes listings that are old, and what a killed process has not finished. Returns how many files there are.
fn tidy_listings(folder: &Path, now: Duration) -> io::Result<usize> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut files = 0;
    for entry in entries {
        let entry = entry?;
        files += 1;
        let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED_LISTING);
        let age = if is_unfinished { scan::UNFINISHED } else { LISTING_AGE };
        // Another process may have deleted it.
        let is_old = |file: std::fs::Metadata| now.saturating_sub(scan::last_write(&file)) > age;
        if entry.metadata().is_ok_and(is_old) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(files)
}

/// Says that the file, if there is one, was used and written at `now`.
fn set_times(path: &Path, now: Duration) -> io::Result<()> {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    match utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
