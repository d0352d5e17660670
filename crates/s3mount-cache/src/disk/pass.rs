//! A pass over all shards of a cache: adds up what they take, and tidies them up.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::disk::layout::{Layout, SHARDS};
use crate::disk::scan::{self, Held};
use crate::disk::usage::Counts;

/// A use that is so much later than now was noted by a clock that was wrong. Such a version would never be
/// idle.
const FUTURE: Duration = Duration::from_secs(3600);

/// A pass over all shards.
#[derive(Debug)]
pub(crate) struct Pass {
    next: u16,
    sum: u64,
    /// The counts at its beginning.
    before: Counts,
}

impl Pass {
    pub(crate) fn new(before: Counts) -> Self {
        Self { next: 0, sum: 0, before }
    }

    /// Goes through one more shard.
    pub(crate) fn next(&mut self, layout: &Layout, now: Duration) -> io::Result<()> {
        let number = self.next;
        let shard = scan::shard(layout, number, now)?;
        self.next += 1;
        self.sum += shard.disk_bytes;
        for name in shard.leftovers {
            tracing::debug!(name, "delete what was left over in the disk cache");
            // Another process may have deleted it.
            let _ = std::fs::remove_file(layout.shard(number).join(name));
        }
        let is_future = |held: &&Held| held.used > now + FUTURE;
        for held in shard.versions.iter().filter(is_future) {
            for path in [layout.whole(&held.hash), layout.part(&held.hash)] {
                set_times(&path, now)?;
            }
        }
        Ok(())
    }

    /// The counts at its beginning and the sum, once all shards are through.
    pub(crate) fn result(&self) -> Option<(Counts, u64)> {
        (self.next == SHARDS).then_some((self.before, self.sum))
    }
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
