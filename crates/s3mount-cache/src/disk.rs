//! The disk cache: objects kept in a directory, for the next epoch, the next mount and other mounts.
//!
//! A version that was read whole is one file of the same bytes, so that the kernel can read it without the daemon. Its
//! path follows from the version's name ([`layout`]), so there is no index: a hit is one open(2), and starting costs
//! the same however much is cached. The [`record`] of a file carries a checksum of each block. The cache compares every
//! read that it serves with them.
//!
//! Readers never wait for the cache: bytes from the store are [offered](DiskObject::offer) to it. Its threads write
//! them, or drop them when they can't keep up. A fault of the disk is a miss, never an error.

mod blocks;
mod check;
mod clear;
mod clock;
mod config;
mod dir;
mod error;
mod evict;
mod io;
mod layout;
mod metrics;
mod names;
mod object;
mod place;
mod scan;
mod verify;
mod walk;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use s3mount_metrics::Registry;
use s3mount_object::{ETag, ObjectId};

pub use check::DiskNote;
pub use clear::Cleared;
use clock::Clock;
pub use config::DiskConfig;
use dir::Dir;
pub use error::DiskError;
use io::Io;
#[cfg(any(test, feature = "by-hand"))]
pub use io::faults::Op;
#[cfg(any(test, feature = "by-hand"))]
pub use io::power::Synced;
use layout::Hash;
pub use metrics::DiskMetrics;
use metrics::STATES;
pub use names::{NameStore, NamesFile, NamesWriter};
use object::Disk;
#[cfg(any(test, feature = "by-hand"))]
pub use object::by_hand::Hand;
use object::whole::Named;
pub use object::{DiskObject, Run};
use place::{Place, PreparedDirs};
pub use verify::Verdict;
pub use walk::{CacheDir, Cached, Described, Evicted, Listings, Stats, WalkError};

/// Objects kept in one directory or several. Cheap to clone. All methods may be called in any thread.
#[derive(Clone)]
pub struct DiskCache(Arc<Disks>);

struct Disks {
    disks: Vec<Disk>,
    /// The place of each directory, by which versions are spread over the directories.
    places: Vec<Place>,
    /// Notes for the user about directories that are not used.
    left_out: Vec<DiskNote>,
    source: String,
    queue_bytes: u64,
    metrics: Arc<DiskMetrics>,
    /// Whether listings are kept, too.
    has_names: bool,
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskCache").field("disks", &self.0.disks.len()).finish_non_exhaustive()
    }
}

impl DiskCache {
    /// Opens the cache directories, makes those that are missing, and starts the cache's threads. Leaves out
    /// directories that can't be used; [`notes`](Self::notes) says why.
    ///
    /// # Errors
    /// When no directory can be used. The message says why the first one can't, and what to do.
    pub fn open(config: &DiskConfig) -> Result<Self, DiskError> {
        let first = config.dirs.first().ok_or(DiskError::NoDirectory)?;
        let clock = Clock::machine().map_err(|error| DiskError::io("read the boot id for", first, error))?;
        Self::open_at(config, &clock)
    }

    fn open_at(config: &DiskConfig, clock: &Clock) -> Result<Self, DiskError> {
        Self::open_with(config, clock, true, |path, dir, queue_bytes| {
            let disk = Disk::start(dir, queue_bytes);
            disk.map_err(|error| DiskError::io("start the threads for", path, error))
        })
    }

    /// Opens the cache directories without threads: the returned hands do the work, one for each directory. `now`
    /// returns the nanoseconds since boot number `boot`. The cache keeps no listings.
    ///
    /// # Errors
    /// When a directory can't be used.
    #[cfg(any(test, feature = "by-hand"))]
    pub fn open_by_hand(
        config: &DiskConfig,
        boot: u8,
        now: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<(Self, Vec<object::by_hand::Hand>), DiskError> {
        let (clock, mut hands) = (Clock::by_hand(boot, now), Vec::new());
        let cache = Self::open_with(config, &clock, false, |_, dir, queue_bytes| {
            let (disk, hand) = object::by_hand::open(dir, queue_bytes);
            hands.push(hand);
            Ok(disk)
        })?;
        Ok((cache, hands))
    }

    fn open_with(
        config: &DiskConfig,
        clock: &Clock,
        has_names: bool,
        mut start: impl FnMut(&Path, Dir, u64) -> Result<Disk, DiskError>,
    ) -> Result<Self, DiskError> {
        let metrics = Arc::new(DiskMetrics::default());
        let PreparedDirs { prepared, twice, mut failed } =
            place::prepare(&Io::with_clock(clock), &config.dirs);
        let all: Vec<Place> = prepared.iter().map(|prepared| prepared.place).collect();
        let (mut disks, mut places) = (Vec::new(), Vec::new());
        for (prepared, place) in prepared.into_iter().zip(&all) {
            let path = prepared.layout.root().to_owned();
            let max_bytes = config.max_bytes.map(|bytes| place.share(&all, bytes));
            let disk = Dir::open(prepared, max_bytes, config, clock.clone(), metrics.clone())
                .and_then(|dir| start(&path, dir, config.queue_bytes / all.len() as u64));
            match disk {
                Ok(disk) => {
                    disks.push(disk);
                    places.push(*place);
                }
                Err(error) => failed.push(error),
            }
        }
        if disks.is_empty() {
            return Err(failed.into_iter().next().unwrap_or(DiskError::NoDirectory));
        }
        let failed = failed.iter().map(|error| DiskNote::LeftOut { why: error.to_string() });
        let left_out = twice.into_iter().chain(failed).collect();
        let (source, queue_bytes) = (config.source.clone(), config.queue_bytes);
        Ok(Self(Arc::new(Disks { disks, places, left_out, source, queue_bytes, metrics, has_names })))
    }

    /// Notes for the user about the cache directories.
    pub fn notes(&self) -> impl Iterator<Item = &DiskNote> {
        self.0.disks.iter().filter_map(|disk| disk.dir().note.as_ref()).chain(&self.0.left_out)
    }

    /// The version `object` of `size` bytes. Does no I/O. All callers that name the same version share it.
    pub fn object(&self, object: &ObjectId, size: u64) -> Arc<DiskObject> {
        let hash = Hash::of(&self.0.source, object);
        self.disk(&hash).object(Named { object: object.clone(), size, hash })
    }

    /// The listings of the store. All of them are kept in one directory.
    pub fn names(&self) -> Option<NameStore> {
        let disk = || self.disk(&Hash::of(&self.0.source, &ObjectId::new("", ETag::new(""))));
        let store = || NameStore::new(disk().dir().clone(), self.0.source.clone());
        self.0.has_names.then(store)
    }

    /// How many bytes of the pool may wait to be written.
    pub fn queue_bytes(&self) -> u64 {
        self.0.queue_bytes
    }

    /// Whether no bytes wait to be written, except to a directory that hangs or fails.
    pub fn is_idle(&self) -> bool {
        self.0.disks.iter().all(|disk| disk.is_idle() || !disk.dir().health.works())
    }

    fn disk(&self, hash: &Hash) -> &Disk {
        &self.0.disks[Place::choose(&self.0.places, hash)]
    }

    /// Drops waiting writes, the newest first, until `bytes` are dropped. Returns how many bytes of the pool were given
    /// back.
    pub fn shed(&self, bytes: u64) -> u64 {
        self.0.disks.iter().fold(0, |freed, disk| freed + disk.shed(bytes.saturating_sub(freed)))
    }

    /// How many bytes of the pool wait to be written, or are being written.
    pub fn held_bytes(&self) -> u64 {
        self.0.disks.iter().map(|disk| disk.held_bytes()).sum()
    }

    /// Waits until offered bytes are written and synced, and untrusted files are compared with their checksums, at most
    /// for `limit` each. Returns whether both were done. Blocks the thread.
    pub fn flush(&self, limit: Duration) -> bool {
        // One directory that hangs must not keep the others from being flushed.
        let is_left = |disk: &&Disk| !(disk.flush(limit) && disk.wait_checked(limit));
        self.0.disks.iter().filter(is_left).count() == 0
    }

    /// Adds the cache's metrics to those of the mount.
    pub fn register(&self, registry: &Registry) {
        let (metrics, cache) = (self.0.metrics.clone(), Arc::downgrade(&self.0));
        registry.add(self.0.metrics.clone(), move || {
            let cache = cache.upgrade().map(Self);
            metrics.queued_bytes.set(cache.as_ref().map_or(0, Self::held_bytes));
            let disks = || cache.iter().flat_map(|cache| &cache.0.disks);
            metrics.used_bytes.set(disks().map(|disk| disk.dir().room.used_bytes()).sum());
            for state in STATES {
                let has_it = |disk: &&Disk| disk.dir().health.state() == state;
                metrics.directories.at(state).set(disks().filter(has_it).count() as u64);
            }
        });
    }

    /// Deletes a version, whole or in parts, because its bytes turned out to be wrong. Does not wait for the deletion.
    pub fn forget(&self, object: &ObjectId) {
        let hash = Hash::of(&self.0.source, object);
        self.disk(&hash).forget(object, hash);
    }
}

#[cfg(test)]
mod checked_tests;

#[cfg(test)]
mod clear_tests;

#[cfg(test)]
mod compared_tests;

#[cfg(test)]
mod hold_tests;

#[cfg(test)]
mod several_tests;

#[cfg(test)]
mod simulator_tests;

#[cfg(test)]
#[path = "disk/disk_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "disk/fault_tests.rs"]
mod fault_tests;

#[cfg(test)]
#[path = "disk/power_tests.rs"]
mod power_tests;
