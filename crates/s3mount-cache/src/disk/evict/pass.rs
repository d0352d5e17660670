//! A pass over all shards of a cache: adds up their bytes, and deletes what is left over.

use std::io;
use std::time::Duration;

use rustix::fs::Timestamps;

use crate::disk::evict::usage::Counts;
use crate::disk::layout::{Layout, SHARDS};
use crate::disk::names::listings;
use crate::disk::scan::{self, Held};

/// A recorded use that is this far in the future comes from a clock that was wrong. Such a version would never be idle.
const FUTURE: Duration = Duration::from_secs(3600);

/// A pass over all shards.
#[derive(Debug)]
pub(crate) struct Pass {
    next: u16,
    sum: u64,
    /// How many bytes of the sum listings take, and how many of these the pass has given back.
    listings: u64,
    removed: u64,
    /// The ticks that the pass has taken.
    pub(crate) ticks: u32,
    /// The counts at its beginning.
    before: Counts,
}

impl Pass {
    pub(crate) fn new(before: Counts) -> Self {
        Self { next: 0, sum: 0, listings: 0, removed: 0, ticks: 0, before }
    }

    /// Goes through one more shard. Returns how many versions and listings it has looked at.
    pub(crate) fn next(&mut self, layout: &Layout, now: Duration) -> io::Result<usize> {
        let number = self.next;
        let shard = scan::shard(layout, number, now)?;
        self.next += 1;
        self.sum += shard.disk_bytes;
        for name in shard.leftovers {
            tracing::debug!(name, "delete a leftover file of the disk cache");
            // Another process may have deleted it.
            let _ = std::fs::remove_file(layout.shard(number).join(name));
        }
        let listings = listings::tidy(layout, number, now)?;
        self.sum += listings.bytes;
        self.listings += listings.bytes;
        self.removed += listings.removed;
        let is_future = |held: &&Held| held.used > now + FUTURE;
        for held in shard.versions.iter().filter(is_future) {
            for path in [layout.whole(&held.hash), layout.part(&held.hash)] {
                scan::set_times(&path, &times_at(now))?;
            }
        }
        Ok(shard.versions.len() + listings.files)
    }

    /// Whether the pass has gone through all shards.
    pub(crate) fn is_over(&self) -> bool {
        self.next == SHARDS
    }

    /// Corrects the counts, or makes them anew if they are lost, after the last shard.
    pub(crate) fn correct(&self, counts: &mut Option<Counts>) {
        match counts {
            Some(counts) => counts.correct(self.before, self.sum, self.listings),
            None => *counts = Some(Counts { used: self.sum, listings: self.listings, ..Counts::default() }),
        }
        counts.iter_mut().for_each(|counts| counts.replace_listing(self.removed, 0));
    }
}

/// Times of a file that was used and written at `now`.
fn times_at(now: Duration) -> Timestamps {
    let Timestamps { last_access, .. } = scan::used_at(now);
    Timestamps { last_access, last_modification: last_access }
}
