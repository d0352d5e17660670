//! How many bytes and files the cache may take, and which objects it evicts when it is full.
//!
//! Writers reserve the bytes of the disk before they write. [`Usage`] counts the bytes of all processes,
//! [`UseHistory`] knows which versions are idle, and [`Evictor`] deletes these. When none is idle, the cache admits
//! nothing for a while.
//!
//! Each process has a housekeeper for each directory. One of these, which holds the lock of the directory,
//! also goes through all shards slowly: it corrects the counts, deletes files that killed processes left over, and
//! evicts what exceeds the limit.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::futimens;

use crate::disk::clock::Clock;
use crate::disk::evict::ghosts::Place;
use crate::disk::evict::limit::{Limit, NEW_FILES, Need, SharedLimit, Space};
use crate::disk::evict::owed::Owed;
use crate::disk::evict::pass::Pass;
use crate::disk::evict::usage::{Counts, Usage};
use crate::disk::evict::use_history::{Note, UseHistory};
use crate::disk::evict::victims;
use crate::disk::evict::{Evicted, Evictor};
use crate::disk::io::elected::{Elected, Holder};
use crate::disk::io::identity::Identity;
use crate::disk::layout::{Hash, Layout, SHARDS};
use crate::disk::metrics::DiskMetrics;
use crate::disk::names::listings;
use crate::disk::scan;

/// How often the housekeeper wakes up.
const TICK: Duration = Duration::from_secs(1);

/// A pass looks at this many versions and listings in a tick: 0.4 % of a processor, and five hours for a million
/// versions. Until the inodes are in memory (256 MiB on ext4, which reads 128 KiB for each one that is not) it reads 8
/// MB/s.
const FILES_A_TICK: usize = 60;

/// A pass looks at no more shards than this in a tick: those of a small cache are mostly empty, and all of them take 16
/// ticks.
const SHARDS_A_TICK: u16 = 256;

/// The next pass begins an hour after the last one, or after a multiple of the time that the last one took: only
/// crashes make the counts wrong.
const TICKS_BETWEEN_PASSES: u32 = 3600;
const REST: u32 = 4;

/// When the housekeeper finds nothing to evict, it looks again after this time.
const LOOKS_AGAIN: Duration = Duration::from_secs(10);

/// When kept listings exceed their limit, they are cut to this part of it, seven of eight. So not each new listing
/// starts a search for listings to delete.
const LISTINGS_KEPT: (u64, u64) = (7, 8);

/// A writer evicts at most this often for the same bytes. Evicted space need not be free: other processes may write, or
/// have the files open, or the file system takes a while.
const ROUNDS: usize = 4;

/// How long the end of the cache waits for the housekeeper. One that hangs with its disk is left behind.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The room of one cache directory.
#[derive(Debug)]
pub(crate) struct Room {
    shared: Arc<Shared>,
}

/// What writers, readers and the housekeeper share.
#[derive(Debug)]
pub(crate) struct Shared {
    layout: Layout,
    identity: Identity,
    clock: Clock,
    limit: SharedLimit,
    usage: Usage,
    use_history: UseHistory,
    evictor: Evictor,
    metrics: Arc<DiskMetrics>,
    /// How many bytes were in use at the last tick.
    used: AtomicU64,
    /// Nothing is admitted before this time, in nanoseconds.
    closed_until: AtomicU64,
    keeper: Mutex<Keeper>,
    signal: Mutex<Signal>,
    changed: Condvar,
}

/// What writers and readers tell the housekeeper.
#[derive(Debug, Default)]
struct Signal {
    is_started: bool,
    has_notes: bool,
    is_ending: bool,
    has_ended: bool,
}

/// What only the housekeeper uses.
#[derive(Debug, Default)]
struct Keeper {
    elected: Elected,
    pass: Option<Pass>,
    /// Ticks until the pass goes on, or until the next one begins.
    rest: u32,
    /// No search for objects to evict before this time: the last one found none.
    looks_again: Duration,
    owed: Owed,
}

impl Room {
    /// The room of the cache at `layout`: at most `max_bytes`, or all but 5 % of the file system. The housekeeper does
    /// not run before [`start`](Self::start).
    pub(crate) fn open(
        layout: &Layout,
        max_bytes: Option<u64>,
        clock: Clock,
        metrics: Arc<DiskMetrics>,
    ) -> io::Result<Self> {
        Ok(Self { shared: Arc::new(Shared::open(layout, max_bytes, clock, metrics)?) })
    }

    /// Starts the housekeeper.
    pub(crate) fn start(&self) -> io::Result<()> {
        let keeper = self.shared.clone();
        std::thread::Builder::new().name("cache-room".to_owned()).spawn(move || keeper.keep_house())?;
        self.shared.signal.lock().unwrap_or_else(PoisonError::into_inner).is_started = true;
        Ok(())
    }

    /// Whether uses wait for the housekeeper.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn has_notes(&self) -> bool {
        self.shared.signal.lock().unwrap_or_else(PoisonError::into_inner).has_notes
    }

    /// Does what the housekeeper does at a tick.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn step(&self) {
        self.shared.signal.lock().unwrap_or_else(PoisonError::into_inner).has_notes = false;
        self.shared.tick_now(false);
    }

    /// Releases the directory's lock, as the end of the process does.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn resign(&self) {
        self.shared.keeper.lock().unwrap_or_else(PoisonError::into_inner).elected = Elected::default();
    }

    /// Reserves `bytes` if there is room for them. May delete objects, so only writers call it.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        self.shared.reserve(bytes, self.shared.clock.file_time()).unwrap_or_else(|error| {
            tracing::debug!(%error, "make room in the disk cache");
            false
        })
    }

    /// Evicts idle objects, because the file system had no room for `bytes` although there seemed to be some: it has
    /// quotas, or others have written meanwhile. Returns whether it made any room.
    pub(crate) fn make_way(&self, bytes: u64) -> bool {
        self.shared.make_way(bytes, self.shared.clock.file_time()).unwrap_or_else(|error| {
            tracing::debug!(%error, "make room on the disk of the cache");
            false
        })
    }

    /// Begins anew in a directory that has replaced the former one.
    pub(crate) fn open_again(&self) -> io::Result<()> {
        self.shared.limit.join_again(&self.shared.layout)?;
        self.shared.usage.open_again()?;
        self.shared.use_history.open_again()?;
        self.shared.usage.begin(&self.shared.layout)?;
        self.shared.closed_until.store(0, Ordering::Relaxed);
        self.shared.identity.renew();
        Ok(())
    }

    /// Whether the directory is the one that was checked.
    pub(crate) fn is_checked(&self) -> bool {
        self.shared.identity.is_there()
    }

    /// Gives back `bytes` that were reserved and not written.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.settle(bytes, 0);
    }

    /// Notes that `taken` reserved bytes became `actual` bytes on the disk.
    pub(crate) fn settle(&self, taken: u64, actual: u64) {
        let settle = |counts: &mut Counts| match actual.checked_sub(taken) {
            Some(0) => {}
            Some(more) => counts.add(more),
            None => counts.remove(taken - actual),
        };
        if let Err(error) = self.shared.usage.change(|counts| counts.as_mut().map(settle)) {
            tracing::debug!(%error, "count the bytes of the disk cache");
        }
    }

    /// How many bytes of the disk kept listings may take.
    pub(crate) fn most_listing_bytes(&self) -> io::Result<u64> {
        Ok(self.shared.limit.own.listings(self.shared.space()?))
    }

    /// Notes that a listing of `bytes` replaced one of `before` bytes. Either may be 0.
    pub(crate) fn on_listing(&self, before: u64, bytes: u64) {
        let replace = |counts: &mut Counts| counts.replace_listing(before, bytes);
        if let Err(error) = self.shared.usage.change(|counts| counts.as_mut().map(replace)) {
            tracing::debug!(%error, "count the bytes of a kept listing");
        }
    }

    /// How many bytes of the disk are in use by all processes. It is some ticks old.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Notes that a version is opened. `file` is its file, if any of it was here.
    pub(crate) fn on_use(&self, hash: &Hash, file: Option<&File>, was_here: bool) {
        self.shared.on_use(hash, file.filter(|_| was_here), self.shared.clock.file_time());
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut signal = self.shared.signal.lock().unwrap_or_else(PoisonError::into_inner);
        signal.is_ending = true;
        self.shared.changed.notify_all();
        let ended = self
            .shared
            .changed
            .wait_timeout_while(signal, END_LIMIT, |signal| signal.is_started && !signal.has_ended);
        drop(ended);
    }
}

impl Shared {
    fn open(
        layout: &Layout,
        max_bytes: Option<u64>,
        clock: Clock,
        metrics: Arc<DiskMetrics>,
    ) -> io::Result<Self> {
        // From here on no process clears the directory.
        let (limit, others) = SharedLimit::open(layout, Limit::new(max_bytes))?;
        let usage = Usage::open(&layout.usage())?;
        usage.begin(layout)?;
        if let Some(others) = others {
            tracing::warn!(
                dir = ?layout.root(),
                "mounts use this disk cache with different limits: {} here, {others} elsewhere; this mount fills \
                 it up to its own. Give them the same --max-cache-size, and the same folders",
                limit.own
            );
        }
        let process = if clock.marks_files() { 0 } else { std::process::id() };
        let seed = u64::from(clock.file_time().subsec_nanos()) << 32 | u64::from(process);
        Ok(Self {
            layout: layout.clone(),
            identity: Identity::new(layout),
            clock,
            limit,
            usage,
            use_history: UseHistory::open(layout)?,
            evictor: Evictor::new(layout.clone(), seed),
            metrics,
            used: AtomicU64::new(0),
            closed_until: AtomicU64::new(0),
            keeper: Mutex::default(),
            signal: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn reserve(&self, bytes: u64, now: Duration) -> io::Result<bool> {
        if self.limit.own.excess(0, bytes, Space::ENDLESS) != Need::NONE || !self.identity.is_there() {
            return Ok(false);
        }
        let mut oldest_kept = None;
        for _ in 0..ROUNDS {
            let taken = self.usage.change(|counts| self.take(counts, bytes))??;
            let Taken::Over(excess) = taken else { return Ok(taken == Taken::Yes) };
            let closed_until = Duration::from_nanos(self.closed_until.load(Ordering::Relaxed));
            if victims::is_closed(closed_until, now) {
                return Ok(false);
            }
            let oldest_kept = *oldest_kept.get_or_insert_with(|| self.use_history.ageing().oldest_kept(now));
            if !self.evict(excess, oldest_kept, now)?.is_enough(excess) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn make_way(&self, bytes: u64, now: Duration) -> io::Result<bool> {
        if victims::is_closed(Duration::from_nanos(self.closed_until.load(Ordering::Relaxed)), now) {
            return Ok(false);
        }
        let oldest_kept = self.use_history.ageing().oldest_kept(now);
        let evicted = self.evict(Need { bytes, files: NEW_FILES }, oldest_kept, now)?;
        Ok(evicted.files > 0)
    }

    /// The space of the file system. A simulation has its own disk, independent of the machine's.
    fn space(&self) -> io::Result<Space> {
        if self.clock.marks_files() { Ok(Space::ENDLESS) } else { Space::of(&self.layout) }
    }

    fn take(&self, counts: &mut Option<Counts>, bytes: u64) -> io::Result<Taken> {
        // While the counts are unknown, a pass is under way.
        let Some(counts) = counts else { return Ok(Taken::No) };
        let excess = self.limit.own.excess(counts.used, bytes, self.space()?);
        if excess != Need::NONE {
            return Ok(Taken::Over(excess));
        }
        counts.add(bytes);
        Ok(Taken::Yes)
    }

    /// Evicts `need`, or as much of it as it finds.
    fn evict(&self, need: Need, oldest_kept: Duration, now: Duration) -> io::Result<Evicted> {
        let evicted = self.evictor.evict(need, oldest_kept, now)?;
        self.usage.change(|counts| {
            if let Some(counts) = counts {
                counts.remove(evicted.bytes);
            }
        })?;
        if evicted.versions > 0 {
            self.metrics.evicted.add(evicted.versions);
            self.metrics.evicted_bytes.add(evicted.bytes);
            tracing::debug!(
                versions = evicted.versions,
                bytes = evicted.bytes,
                "evicted from the disk cache"
            );
        }
        if let Some(wait) = evicted.wait {
            self.closed_until.store((now + wait).as_nanos() as u64, Ordering::Relaxed);
        }
        Ok(evicted)
    }

    fn on_use(&self, hash: &Hash, file: Option<&File>, now: Duration) {
        let before = file.and_then(|file| file.metadata().ok()).map(|metadata| scan::last_use(&metadata));
        if self.use_history.note(Note { place: Place::of(hash), at: now, before }) {
            self.signal.lock().unwrap_or_else(PoisonError::into_inner).has_notes = true;
            self.changed.notify_all();
        }
        if let (Some(file), Some(before)) = (file, before)
            && self.use_history.ageing().is_time_stale(before, now)
            && let Err(error) = futimens(file, &scan::used_at(now))
        {
            tracing::debug!(%error, "note a use of a file of the disk cache");
        }
    }

    fn keep_house(&self) {
        loop {
            let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
            if !signal.is_ending && !signal.has_notes {
                let waited = self.changed.wait_timeout(signal, TICK);
                signal = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            signal.has_notes = false;
            let is_ending = signal.is_ending;
            drop(signal);
            self.tick_now(is_ending);
            if is_ending {
                break;
            }
        }
        self.signal.lock().unwrap_or_else(PoisonError::into_inner).has_ended = true;
        self.changed.notify_all();
    }

    fn tick_now(&self, is_ending: bool) {
        if let Err(error) = self.tick(self.clock.file_time(), is_ending) {
            tracing::debug!(%error, "do the housekeeping of the disk cache");
        }
    }

    /// Exchanges the use history with other processes, and does the work of the elected housekeeper. At the end only
    /// the exchange.
    fn tick(&self, now: Duration, is_ending: bool) -> io::Result<()> {
        if !self.identity.is_there() {
            return Ok(());
        }
        if self.use_history.exchange()? {
            self.closed_until.store(0, Ordering::Relaxed);
        }
        let counts = self.usage.read()?;
        let used = counts.map_or(0, |counts| counts.used);
        self.used.store(used, Ordering::Relaxed);
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ending {
            return Ok(());
        }
        match keeper.elected.hold(&self.layout)? {
            Holder::Still => {}
            Holder::New => keeper.pass = None,
            Holder::Other => return Ok(()),
        }
        let (space, limit) = (self.space()?, self.limit.read()?);
        let most = limit.listings(space);
        let used = match counts {
            Some(counts) if counts.listings > most => self.cut_listings(most)?,
            _ => used,
        };
        let surplus = limit.surplus(used, keeper.owed.expected(space, now));
        // If all that is left is being filled, the next look finds the same.
        if surplus != Need::NONE && !victims::is_closed(keeper.looks_again, now) {
            let evicted = self.evict(surplus, Duration::MAX, now)?;
            keeper.owed.add(&evicted, space, self.space()?, now);
            keeper.looks_again = evicted.wait.map_or(Duration::ZERO, |_| now + LOOKS_AGAIN);
        }
        if counts.is_none() {
            return self.count_all(now);
        }
        if keeper.rest > 0 {
            keeper.rest -= 1;
            return Ok(());
        }
        keeper.rest = self.go_on(&mut keeper.pass, now)?;
        Ok(())
    }

    /// Deletes kept listings, because they take more than `most` bytes. Returns how many bytes are in use afterwards.
    fn cut_listings(&self, most: u64) -> io::Result<u64> {
        let cut = listings::cut(&self.layout, most / LISTINGS_KEPT.1 * LISTINGS_KEPT.0)?;
        tracing::debug!(bytes = cut.removed, "deleted kept listings from the disk cache");
        self.usage.change(|counts| {
            counts.as_mut().map_or(0, |counts| {
                // The count may have been wrong.
                counts.listings = cut.bytes;
                counts.replace_listing(cut.removed, 0);
                counts.used
            })
        })
    }

    /// Advances the pass by some shards, and corrects the counts at its end. Returns the ticks until the pass
    /// continues, or the next one begins.
    fn go_on(&self, pass: &mut Option<Pass>, now: Duration) -> io::Result<u32> {
        let current = match pass {
            Some(current) => current,
            None => match self.usage.read()? {
                Some(counts) => pass.insert(Pass::new(counts)),
                None => return Ok(0),
            },
        };
        let mut files = 0;
        for _ in 0..SHARDS_A_TICK {
            files += current.next(&self.layout, now)?;
            if files >= FILES_A_TICK || current.is_over() {
                break;
            }
        }
        let mut rest = u32::try_from(files / FILES_A_TICK).unwrap_or(u32::MAX);
        current.ticks = current.ticks.saturating_add(rest.saturating_add(1));
        if current.is_over() {
            rest = TICKS_BETWEEN_PASSES.max(current.ticks.saturating_mul(REST));
            self.usage.change(|counts| current.correct(counts))?;
            *pass = None;
        }
        Ok(rest)
    }

    /// Counts everything at once: the counts are lost, and the cache admits nothing until they are known.
    fn count_all(&self, now: Duration) -> io::Result<()> {
        tracing::info!(dir = ?self.layout.root(), "count the bytes of the disk cache");
        let mut pass = Pass::new(Counts::default());
        for _ in 0..SHARDS {
            pass.next(&self.layout, now)?;
            if self.signal.lock().unwrap_or_else(PoisonError::into_inner).is_ending {
                return Ok(());
            }
        }
        self.usage.change(|counts| {
            if counts.is_none() {
                pass.correct(counts);
            }
        })
    }
}

/// Whether the bytes were reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Yes,
    No,
    /// No: this must be evicted first.
    Over(Need),
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
