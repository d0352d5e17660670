//! Evicts versions that were not used for long. There is no list of cached versions: a search goes through some shards,
//! in an order that looks random, and keeps surplus finds for the next time.
//!
//! A version that a process has open or mapped is in use, however long ago it was opened, and its bytes would stay on
//! the disk. So it is not evicted. Versions are only unlinked: a process that opens one just then can go on reading it.

pub(crate) mod ageing;
pub(crate) mod ghosts;
pub(crate) mod limit;
pub(crate) mod owed;
pub(crate) mod pass;
pub(crate) mod room;
pub(crate) mod usage;
pub(crate) mod use_history;
pub(crate) mod victims;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::disk::io::opened;
use crate::disk::layout::{Hash, Layout, SHARDS};
use crate::disk::scan;
use limit::Need;
use victims::{Candidate, MIN_SHARDS, MIN_VERSIONS, MIN_WAIT};

/// After this many versions that turned out to be open, the search for replacements ends.
const MOST_OPEN: u64 = 1024;

/// The result of an eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) versions: u64,
    /// How long nothing can be evicted, if the search found too little.
    pub(crate) wait: Option<Duration>,
}

impl Evicted {
    /// Whether the eviction gave back all of `need`.
    pub(crate) fn is_enough(&self, need: Need) -> bool {
        self.bytes >= need.bytes && self.files >= need.files
    }
}

/// Evicts from one cache directory.
#[derive(Debug)]
pub(crate) struct Evictor {
    layout: Layout,
    /// Versions that the last look found and that are not yet evicted, the oldest use last.
    spare: Mutex<Vec<Candidate<Hash>>>,
    random: AtomicU64,
}

impl Evictor {
    /// `seed` chooses the order of the shards.
    pub(crate) fn new(layout: Layout, seed: u64) -> Self {
        Self { layout, spare: Mutex::default(), random: AtomicU64::new(seed) }
    }

    /// Evicts versions that were used last before `oldest_kept`, until `need` is given back or no more are found.
    pub(crate) fn evict(&self, need: Need, oldest_kept: Duration, now: Duration) -> io::Result<Evicted> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut evicted = Evicted::default();
        // How many versions turned out to be open, and the progress at the last look.
        let (mut open, mut looked_at) = (0, None);
        while !evicted.is_enough(need) {
            let Some(candidate) = spare.pop() else {
                let progress = (evicted.files, open);
                if looked_at == Some(progress) {
                    // Every evictable version is being filled or open, so the next look would find the same.
                    evicted.wait = Some(MIN_WAIT);
                    break;
                }
                looked_at = Some(progress);
                let seen = self.look(now)?;
                let wait = victims::wait(&seen, oldest_kept);
                *spare = victims::evictable(seen, oldest_kept);
                if spare.is_empty() {
                    evicted.wait = Some(wait);
                    break;
                }
                continue;
            };
            // The version may have been used since the look.
            if self.last_use(&candidate.version)?.is_some_and(|used| used < oldest_kept) {
                if self.is_open(&candidate.version, now)? {
                    // The next look finds others, unless every version may be evicted.
                    open = MOST_OPEN.min(open + u64::from(oldest_kept <= now));
                    continue;
                }
                let removed = scan::remove(&self.layout, &candidate.version)?;
                evicted.bytes += removed.bytes;
                evicted.files += removed.files;
                evicted.versions += u64::from(removed.files > 0);
            }
        }
        Ok(evicted)
    }

    /// Looks through shards until it has found enough, or has looked through all.
    fn look(&self, now: Duration) -> io::Result<Vec<Candidate<Hash>>> {
        // The step is odd, so each of the 4,096 shards comes once.
        let random = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let random = (random ^ (random >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let (first, step) = ((random >> 48) as u16, (random >> 20) as u16 | 1);
        let (mut seen, mut shards) = (Vec::new(), 0);
        for number in 0..SHARDS {
            let shard = first.wrapping_add(number.wrapping_mul(step)) % SHARDS;
            let found = scan::shard(&self.layout, shard, now)?;
            shards += usize::from(!found.versions.is_empty());
            seen.extend(
                found.versions.into_iter().map(|held| Candidate { version: held.hash, used: held.used }),
            );
            if shards >= MIN_SHARDS && seen.len() >= MIN_VERSIONS {
                break;
            }
        }
        Ok(seen)
    }

    /// How many looks there were so far, in a test that knows the seed.
    #[cfg(test)]
    pub(crate) fn looks_since(&self, random: u64) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let gone = |looks: &u64| random.wrapping_add(STEP.wrapping_mul(*looks)) == self.random();
        (0..1000).find(gone).expect("few looks")
    }

    #[cfg(test)]
    pub(crate) fn random(&self) -> u64 {
        self.random.load(Ordering::Relaxed)
    }

    /// Whether a process has the version open. If so, marks it as used, so that the next search finds other versions.
    fn is_open(&self, hash: &Hash, now: Duration) -> io::Result<bool> {
        for path in [self.layout.whole(hash), self.layout.part(hash)] {
            if opened::is_open_elsewhere(&path)? {
                scan::set_last_use(&path, now)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn last_use(&self, hash: &Hash) -> io::Result<Option<Duration>> {
        let mut last = None;
        for path in [self.layout.whole(hash), self.layout.part(hash)] {
            match std::fs::symlink_metadata(path) {
                Ok(metadata) => last = last.max(Some(scan::last_use(&metadata))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(last)
    }
}
