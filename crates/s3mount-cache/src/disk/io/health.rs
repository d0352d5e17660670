//! Which operations are sent to a disk, depending on its behaviour.
//!
//! | condition | allowed operations | changes |
//! |---|---|---|
//! | healthy | all | to failing after some errors in a row, or an operation that hangs. A file that can't be read is
//! one error |
//! | failing | few operations at a time | to off if it still fails after a while, to healthy if it does not |
//! | off | only a probe from time to time | to failing when a probe succeeds |
//!
//! A disk that is full or can't be written is still read, but not written for a while. When a file is missing, nothing
//! is written until the housekeeper has checked the directory. While the directory is gone, the only operations are
//! attempts to recreate it. A disk that is [slow](crate::disk::io::slow) is neither read nor filled for a while; the
//! housekeeping goes on. [`Policy`] is pure.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::disk::clock::{Clock, SinceBoot};
use crate::disk::error::DiskError;
use crate::disk::io::slow::Slowness;
use crate::disk::layout::Hash;
use crate::disk::metrics::DiskState;

/// After this many errors without a success between them, the disk is failing.
const ERRORS: u32 = 3;

/// The operations that a failing disk gets at a time. Each that hangs may hold a thread.
const FEW: usize = 2;

/// An operation that takes longer hangs. A read of 8 MiB on a disk of 125 MB/s, with fifteen others, takes one
/// second.
const HANGS_AFTER: Duration = Duration::from_secs(3);

/// How long a disk is failing before it is off, or healthy.
const ON_TRIAL: Duration = Duration::from_secs(30);

/// The time between two probes of a disk that is off, and the time for which a full disk is not written.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);

/// How a disk behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    Healthy,
    Failing,
    Off,
}

/// What an error tells about the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing: the process has no file descriptors or memory left, or the object is longer than a file can be.
    Nothing,
    /// The disk can't be written now.
    Unwritable,
    /// A file is missing, or the whole directory is.
    Missing,
    /// The disk fails.
    Broken,
}

/// What `error` tells about the disk.
pub(crate) fn meaning(error: &io::Error) -> Meaning {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::FBIG) => Meaning::Nothing,
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::ACCESS | Errno::PERM) => Meaning::Unwritable,
        Some(Errno::NOENT) => Meaning::Missing,
        _ => Meaning::Broken,
    }
}

/// Whether the file system, or the user's share of it, has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Whether a file would be too long for the file system.
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::FBIG)
}

/// Whether bytes of a file can't be read, or the file system finds its metadata of the file damaged. Without the page
/// cache, a sector that can't be read is `ENODATA`, and one whose checksum is wrong `EILSEQ`.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::BADMSG | Errno::UCLEAN))
}

/// Why a disk can't be written.
fn why_unwritable(error: &io::Error) -> DiskState {
    if is_full(error) { DiskState::Full } else { DiskState::Unwritable }
}

/// Decides which operations are sent to the disk.
#[derive(Debug)]
struct Policy {
    condition: Condition,
    /// When the condition changed.
    since: SinceBoot,
    /// Errors since the last success. All errors of one unreadable file count once.
    errors: u32,
    /// The unreadable files among them.
    damaged: Vec<Hash>,
    last_error: Option<SinceBoot>,
    /// When a write failed, and why, unless a write has succeeded since.
    unwritable: Option<(SinceBoot, DiskState)>,
    /// Whether a file was missing, and the directory has not been checked since.
    is_missed: bool,
    /// Whether the directory is gone, or was replaced by one that can't be used.
    is_gone: bool,
    probed: SinceBoot,
}

impl Policy {
    fn new() -> Self {
        let (since, probed) = (SinceBoot::default(), SinceBoot::default());
        Self {
            condition: Condition::Healthy,
            since,
            errors: 0,
            damaged: Vec::new(),
            last_error: None,
            unwritable: None,
            is_missed: false,
            is_gone: false,
            probed,
        }
    }

    fn change(&mut self, to: Condition, now: SinceBoot) {
        (self.condition, self.since, self.errors) = (to, now, 0);
        self.damaged.clear();
    }

    fn may_begin(&self, in_flight: usize) -> bool {
        !self.is_gone && self.may_keep_house(in_flight)
    }

    fn may_keep_house(&self, in_flight: usize) -> bool {
        match self.condition {
            Condition::Healthy => true,
            Condition::Failing => in_flight < FEW,
            Condition::Off => false,
        }
    }

    fn may_write(&self, now: SinceBoot) -> bool {
        !self.is_missed && self.unwritable.is_none_or(|(since, _)| now.since(since) >= PAUSE)
    }

    fn state(&self) -> DiskState {
        match (self.condition, self.unwritable) {
            (Condition::Off, _) => DiskState::Off,
            _ if self.is_gone => DiskState::Gone,
            (Condition::Failing, _) => DiskState::Failing,
            (Condition::Healthy, Some((_, why))) => why,
            (Condition::Healthy, None) => DiskState::Healthy,
        }
    }

    fn on_success(&mut self) {
        self.errors = 0;
        self.damaged.clear();
    }

    /// Notes that bytes of a file can't be read. Returns whether the file seems to be at fault, not the disk.
    fn on_damage(&mut self, file: &Hash, now: SinceBoot) -> bool {
        if !self.damaged.contains(file) {
            self.on_error(now);
            // A condition that has just changed begins anew.
            if self.errors > 0 && self.damaged.len() < ERRORS as usize {
                self.damaged.push(*file);
            }
        }
        self.condition == Condition::Healthy
    }

    fn on_error(&mut self, now: SinceBoot) {
        self.errors += 1;
        self.last_error = Some(now);
        if self.condition == Condition::Healthy && self.errors >= ERRORS {
            self.change(Condition::Failing, now);
        }
    }

    fn on_hang(&mut self, now: SinceBoot) {
        self.last_error = Some(now);
        if self.condition == Condition::Healthy {
            self.change(Condition::Failing, now);
        }
    }

    fn tick(&mut self, now: SinceBoot) {
        if self.condition == Condition::Failing && now.since(self.since) >= ON_TRIAL {
            let fails = self.last_error.is_some_and(|error| now.since(error) < ON_TRIAL / 2);
            let next = if fails { Condition::Off } else { Condition::Healthy };
            self.change(next, now);
            self.probed = now;
        }
    }

    fn wants_probe(&mut self, now: SinceBoot) -> bool {
        let wants = self.condition == Condition::Off && now.since(self.probed) >= PAUSE;
        if wants {
            self.probed = now;
        }
        wants
    }

    fn on_probe(&mut self, is_good: bool, now: SinceBoot) {
        if is_good && self.condition == Condition::Off {
            self.change(Condition::Failing, now);
        }
    }
}

/// The health of one disk, and its operations in flight.
#[derive(Debug)]
pub(crate) struct Health {
    path: PathBuf,
    clock: Clock,
    pub(crate) slow: Slowness,
    state: Mutex<HealthState>,
}

#[derive(Debug)]
struct HealthState {
    policy: Policy,
    /// The start of each operation that has not ended, by number.
    in_flight: BTreeMap<u64, SinceBoot>,
    next: u64,
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    health: &'a Health,
    number: u64,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.health.lock().in_flight.remove(&self.number);
    }
}

impl Health {
    pub(crate) fn new(path: PathBuf, clock: Clock) -> Self {
        let state = HealthState { policy: Policy::new(), in_flight: BTreeMap::new(), next: 0 };
        let slow = Slowness::new(path.clone(), clock.clone());
        Self { path, clock, slow, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and logs a change of the disk's condition.
    fn update<T>(&self, change: impl FnOnce(&mut HealthState, SinceBoot) -> T) -> T {
        let now = self.clock.now();
        let (before, result, after) = {
            let mut state = self.lock();
            let before = state.policy.condition;
            (before, change(&mut state, now), state.policy.condition)
        };
        if before != after {
            let (dir, what) = (
                self.path.display(),
                match after {
                    Condition::Healthy => "works again",
                    Condition::Failing => "fails or hangs; it is used less",
                    Condition::Off => "still fails or hangs; it is not used until a probe succeeds",
                },
            );
            tracing::warn!(%dir, "the disk of the cache {what}");
        }
        result
    }

    pub(crate) fn condition(&self) -> Condition {
        self.lock().policy.condition
    }

    /// Whether any operation may begin now.
    pub(crate) fn may_begin(&self) -> bool {
        let state = self.lock();
        state.policy.may_begin(state.in_flight.len())
    }

    /// Whether the housekeeper may check now that the directory still exists.
    pub(crate) fn may_keep_house(&self) -> bool {
        let state = self.lock();
        state.policy.may_keep_house(state.in_flight.len())
    }

    /// The disk's state, for the metrics.
    pub(crate) fn state(&self) -> DiskState {
        match self.lock().policy.state() {
            DiskState::Healthy | DiskState::Full | DiskState::Unwritable if !self.slow.may_ask() => {
                DiskState::Slow
            }
            state => state,
        }
    }

    /// Notes that the directory is gone, and can't be recreated for now.
    pub(crate) fn on_gone(&self, error: &DiskError) {
        if !std::mem::replace(&mut self.lock().policy.is_gone, true) {
            let dir = self.path.display();
            tracing::warn!(%dir, "the directory of the disk cache is gone, and is not used until it is there again: {error}");
        }
    }

    /// Notes that the directory is there.
    pub(crate) fn on_in_place(&self) {
        self.lock().policy.is_missed = false;
    }

    /// Notes that the directory is there again.
    pub(crate) fn on_back(&self) {
        let was_gone = {
            let mut state = self.lock();
            (state.policy.unwritable, state.policy.is_missed) = (None, false);
            std::mem::take(&mut state.policy.is_gone)
        };
        let dir = self.path.display();
        if was_gone {
            tracing::info!(%dir, "the directory of the disk cache is there again");
        } else {
            tracing::warn!(%dir, "the directory of the disk cache was deleted or replaced; it is filled anew");
        }
    }

    /// Whether the disk is healthy, and may be written now.
    pub(crate) fn works(&self) -> bool {
        self.condition() == Condition::Healthy && self.may_write()
    }

    /// Whether anything may be read now.
    pub(crate) fn may_read(&self) -> bool {
        self.may_begin() && self.slow.may_ask()
    }

    /// Whether anything may be written now.
    pub(crate) fn may_write(&self) -> bool {
        self.may_read() && self.lock().policy.may_write(self.clock.now())
    }

    /// Begins an operation, if the disk's condition allows one now.
    pub(crate) fn begin(&self) -> Option<Operation<'_>> {
        let now = self.clock.now();
        let mut state = self.lock();
        if !state.policy.may_begin(state.in_flight.len()) {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.in_flight.insert(number, now);
        Some(Operation { health: self, number })
    }

    pub(crate) fn on_success(&self) {
        self.lock().policy.on_success();
    }

    /// Notes that a write succeeded.
    pub(crate) fn on_written(&self) {
        let was_unwritable = {
            let mut state = self.lock();
            state.policy.on_success();
            state.policy.unwritable.take().is_some()
        };
        if was_unwritable {
            tracing::warn!(dir = %self.path.display(), "the disk of the cache can be written again");
        }
    }

    /// Notes that an operation failed.
    pub(crate) fn on_error(&self, operation: &'static str, error: &io::Error) {
        match meaning(error) {
            Meaning::Nothing => {
                tracing::debug!(%error, dir = %self.path.display(), "{operation} a file of the disk cache");
            }
            Meaning::Unwritable => {
                let (now, why) = (self.clock.now(), why_unwritable(error));
                let is_new = self.lock().policy.unwritable.replace((now, why)).is_none();
                if is_new {
                    let dir = self.path.display();
                    tracing::warn!(%error, %dir, "{operation} a file of the disk cache; nothing is added to it for now");
                }
            }
            Meaning::Missing => {
                self.lock().policy.is_missed = true;
                tracing::debug!(%error, dir = %self.path.display(), "{operation} a file of the disk cache");
            }
            Meaning::Broken => {
                tracing::debug!(%error, dir = %self.path.display(), "{operation} a file of the disk cache");
                self.update(|state, now| state.policy.on_error(now));
            }
        }
    }

    /// Notes that a file could not be read. Returns whether to delete its bytes: a sector is damaged, but the disk
    /// works.
    pub(crate) fn on_read_error(&self, file: &Hash, operation: &'static str, error: &io::Error) -> bool {
        if !is_damage(error) {
            self.on_error(operation, error);
            return false;
        }
        tracing::debug!(%error, dir = %self.path.display(), "{operation} a file of the disk cache");
        self.update(|state, now| state.policy.on_damage(file, now))
    }

    /// Looks for operations that hang. Call it about every second. Returns whether to probe the disk.
    pub(crate) fn tick(&self) -> bool {
        self.update(|state, now| {
            if state.in_flight.values().any(|began| now.since(*began) > HANGS_AFTER) {
                state.policy.on_hang(now);
            }
            state.policy.tick(now);
            state.policy.wants_probe(now)
        })
    }

    /// Notes the result of a probe.
    pub(crate) fn on_probe(&self, is_good: bool) {
        self.update(|state, now| state.policy.on_probe(is_good, now));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::io::Errno;
    use s3mount_object::{ETag, ObjectId};

    use super::{Condition, Health};
    use crate::disk::clock::Clock;
    use crate::disk::error::DiskError;
    use crate::disk::layout::Hash;
    use crate::disk::metrics::DiskState;

    struct Disk {
        now: Arc<AtomicU64>,
        health: Health,
    }

    impl Disk {
        fn new() -> Self {
            let now = Arc::new(AtomicU64::new(0));
            let clock = Clock::manual(1, now.clone());
            Self { now, health: Health::new(PathBuf::from("/cache"), clock) }
        }

        fn error(&self, errno: Errno) {
            self.health.on_error("read", &io::Error::from(errno));
        }

        /// Advances the clock by `seconds`. Returns how many probes were asked for.
        fn wait(&self, seconds: u64) -> usize {
            let tick = |_| {
                self.now.fetch_add(1_000_000_000, Ordering::Relaxed);
                self.health.tick()
            };
            (0..seconds).map(tick).filter(|wants| *wants).count()
        }
    }

    #[test]
    fn a_disk_that_fails_for_a_moment_recovers() {
        let disk = Disk::new();
        for errno in [Errno::IO, Errno::IO] {
            disk.error(errno);
        }
        disk.health.on_success();
        disk.error(Errno::IO);
        assert_eq!(disk.health.condition(), Condition::Healthy, "never three in a row");
        disk.error(Errno::IO);
        disk.error(Errno::IO);
        assert_eq!(disk.health.condition(), Condition::Failing);
        let (first, second) = (disk.health.begin(), disk.health.begin());
        assert!(first.is_some() && second.is_some() && disk.health.begin().is_none());
        drop(first);
        assert!(disk.health.may_begin());
        drop(second);
        assert_eq!((disk.wait(31), disk.health.condition()), (0, Condition::Healthy));
    }

    #[test]
    fn a_file_that_can_not_be_read_is_one_error() {
        let disk = Disk::new();
        let hash = |key: &str| Hash::of("test", &ObjectId::new(key, ETag::new("e")));
        let fails =
            |key: &str, errno: Errno| disk.health.on_read_error(&hash(key), "read", &io::Error::from(errno));
        for errno in [Errno::IO, Errno::NODATA, Errno::ILSEQ, Errno::BADMSG, Errno::UCLEAN] {
            assert!(fails("a", errno), "it is given up");
        }
        assert!(!fails("a", Errno::MFILE), "that says nothing of the file");
        assert!(fails("b", Errno::IO));
        assert_eq!(disk.health.condition(), Condition::Healthy);
        disk.health.on_success();
        assert!(fails("c", Errno::IO) && fails("d", Errno::IO));
        assert!(!fails("e", Errno::IO), "three files in a row: it is the disk");
        assert_eq!(disk.health.condition(), Condition::Failing);
        assert!(!fails("f", Errno::IO) && !fails("e", Errno::IO));
    }

    #[test]
    fn a_disk_that_hangs_is_off_until_a_probe_succeeds() {
        let disk = Disk::new();
        let hung = disk.health.begin().expect("it is healthy");
        disk.wait(3);
        assert_eq!(disk.health.condition(), Condition::Healthy);
        disk.wait(1);
        assert_eq!(disk.health.condition(), Condition::Failing);
        disk.wait(30);
        assert_eq!((disk.health.condition(), disk.health.may_begin()), (Condition::Off, false));
        assert_eq!(disk.wait(90), 3, "a probe every 30 seconds");
        disk.health.on_probe(false);
        assert_eq!(disk.health.condition(), Condition::Off);
        drop(hung);
        disk.health.on_probe(true);
        assert_eq!(disk.health.condition(), Condition::Failing);
        disk.wait(30);
        assert_eq!(disk.health.condition(), Condition::Healthy);
    }

    #[test]
    fn a_full_disk_is_read_but_not_written() {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS] {
            let disk = Disk::new();
            (0..10).for_each(|_| disk.error(errno));
            assert_eq!(disk.health.condition(), Condition::Healthy);
            assert!(disk.health.may_begin() && !disk.health.may_write(), "{errno:?}");
            let is_full = errno == Errno::NOSPC || errno == Errno::DQUOT;
            let state = if is_full { DiskState::Full } else { DiskState::Unwritable };
            assert_eq!(disk.health.state(), state);
            disk.wait(30);
            assert!(disk.health.may_write(), "it is tried again");
            disk.health.on_written();
            assert!(disk.health.may_write());
            assert_eq!(disk.health.state(), DiskState::Healthy);
        }
    }

    #[test]
    fn a_directory_that_is_gone_is_not_asked_until_it_is_back() {
        let disk = Disk::new();
        disk.error(Errno::NOENT);
        for _ in 0..2 {
            disk.health.on_gone(&DiskError::NoParent(PathBuf::from("/cache")));
            assert_eq!(disk.health.state(), DiskState::Gone);
            assert!(
                !disk.health.may_begin() && disk.health.begin().is_none() && disk.health.may_keep_house()
            );
        }
        disk.health.on_back();
        assert!(disk.health.may_begin() && disk.health.may_write(), "at once");
        assert_eq!(disk.health.state(), DiskState::Healthy);
    }

    #[test]
    fn a_missing_file_stops_writing_until_the_directory_is_found() {
        let disk = Disk::new();
        disk.error(Errno::NOENT);
        assert!(disk.health.may_begin() && !disk.health.may_write());
        disk.wait(100);
        assert!(!disk.health.may_write());
        disk.health.on_in_place();
        assert!(disk.health.may_write(), "at once");
        assert_eq!(disk.health.state(), DiskState::Healthy, "though nothing was written");
    }

    #[test]
    fn a_lack_of_file_descriptors_and_an_object_that_is_too_large_say_nothing_of_the_disk() {
        let disk = Disk::new();
        (0..10).for_each(|_| [Errno::MFILE, Errno::FBIG].into_iter().for_each(|errno| disk.error(errno)));
        assert!(disk.health.condition() == Condition::Healthy && disk.health.may_write());
    }
}
