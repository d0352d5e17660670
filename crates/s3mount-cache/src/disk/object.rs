//! The readers' view of one version on the disk, and the threads that do the work.

pub(crate) mod checks;
pub(crate) mod partial;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod version;
pub(crate) mod whole;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use s3mount_object::ObjectId;

use crate::disk::check;
use crate::disk::clock::SinceBoot;
use crate::disk::dir::Dir;
use crate::disk::io::health::Condition;
use crate::disk::io::pool::Pool;
use crate::disk::layout::Hash;
use crate::disk::metrics::Dropped;
use crate::disk::object::checks::{Checks, Why};
use crate::disk::object::partial::PartialObjects;
use crate::disk::object::queue::Queue;
use crate::disk::object::version::{Look, Offer, Version};
use crate::disk::object::whole::Named;

#[cfg(any(test, feature = "by-hand"))]
pub(crate) mod by_hand;
mod checking;
mod offering;
mod reading;

/// Dead entries are removed from the table of objects when it has grown to twice the living ones, and to at least this
/// many.
const MIN_TABLE: usize = 1024;

/// Threads that read one directory. An NVMe brings 7 GB/s, 7,000 reads of 1 MiB a second of 1 to 2 ms each.
const READERS: usize = 16;

/// Threads that write one directory. Most of them wait for the disk, and the others compute checksums or wait
/// for a processor meanwhile. Two leave a disk of 2 GB/s idle now and then where readers use all processors.
const WRITERS: usize = 4;

/// How often to check for operations that hang.
const TICK: Duration = Duration::from_millis(500);

/// A reader waits no longer than this for the disk. Then it asks the store.
const WAITS: Duration = Duration::from_secs(5);

/// The least time between two calls of syncfs(2). A call syncs the writes of all processes to the file system.
const SYNC_AFTER: Duration = Duration::from_secs(30);

/// How many ticks pass between two rounds of housekeeping.
const HOUSEKEEPING_TICKS: u64 = 4;

/// How long the end of the cache waits for pending writes.
const ENDS_AFTER: Duration = Duration::from_secs(5);

/// One cache directory and its threads.
#[derive(Debug)]
pub(crate) struct Disk(Arc<SharedDisk>);

#[derive(Debug)]
struct SharedDisk {
    dir: Arc<Dir>,
    parts: Arc<PartialObjects>,
    queue: Queue<Offer>,
    readers: Pool,
    table: Mutex<Table>,
    /// Whole objects that are to be compared with their checksums.
    checks: Checks,
    /// The time of the last sync. The thread that does the housekeeping holds the lock.
    synced: Mutex<SinceBoot>,
    is_closed: Mutex<bool>,
    closed: Condvar,
    /// Whether there are no threads.
    is_by_hand: bool,
}

/// The objects in use, and the versions with bytes that wait to be written.
#[derive(Debug, Default)]
struct Table {
    objects: HashMap<Hash, Known>,
    /// The number of entries at which the dead ones are removed.
    clean_at: usize,
}

/// An entry of the table. Its version may outlive its object: bytes of the version wait to be written.
#[derive(Debug)]
struct Known {
    object: Weak<DiskObject>,
    version: Weak<Version>,
}

impl Table {
    fn version(&self, hash: &Hash) -> Option<Arc<Version>> {
        self.objects.get(hash).and_then(|known| known.version.upgrade())
    }

    /// All versions in the table.
    fn versions(&self) -> impl Iterator<Item = Arc<Version>> {
        self.objects.values().filter_map(|known| known.version.upgrade())
    }
}

impl Disk {
    /// Starts the threads. At most `queue_bytes` wait to be written.
    pub(crate) fn start(dir: Dir, queue_bytes: u64) -> std::io::Result<Self> {
        let readers = Pool::new("cache-read".to_owned(), READERS);
        let shared = Arc::new(SharedDisk::new(dir, Queue::new(queue_bytes), readers));
        let disk = Self(shared.clone());
        shared.dir.room.start()?;
        for number in 0..WRITERS {
            let shared = shared.clone();
            let name = format!("cache-write-{number}");
            Builder::new().name(name).spawn(move || shared.queue.work(Offer::keep))?;
        }
        let checker = shared.clone();
        Builder::new().name("cache-check".to_owned()).spawn(move || checker.keep_checking())?;
        Builder::new().name("cache-watch".to_owned()).spawn(move || shared.watch())?;
        Ok(disk)
    }

    pub(crate) fn dir(&self) -> &Arc<Dir> {
        &self.0.dir
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.0.queue.held_bytes()
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.queue.is_idle()
    }

    /// The version `named`. All callers that name the same version share it.
    pub(crate) fn object(&self, named: Named) -> Arc<DiskObject> {
        self.0.object(named)
    }

    /// Deletes a version.
    pub(crate) fn forget(&self, object: &ObjectId, hash: Hash) {
        let known = lock(&self.0.table).version(&hash);
        let version = known.unwrap_or_else(|| {
            let named = Named { object: object.clone(), size: 0, hash };
            Arc::new(Version::new(self.0.dir.clone(), self.0.parts.clone(), named))
        });
        let held = version.give_up();
        drop(self.0.readers.run(self.0.dir.clock.now(), move || version.delete(&held)));
    }

    /// Writes the offered bytes and their records to the disk. Returns whether that was done within `limit`.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let began = self.0.dir.clock.now();
        let is_written = self.0.queue.wait_idle(limit);
        let shared = self.0.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        let kept = move || {
            shared.keep_house(true);
            sender.send(()).is_ok()
        };
        drop(self.0.readers.run(self.0.dir.clock.now(), kept));
        let left = limit.saturating_sub(self.0.dir.clock.now().since(began));
        receiver.recv_timeout(left).is_ok() && is_written
    }

    /// Waits until every version that was looked for can be trusted, at most for `limit`. Returns whether all can be.
    pub(crate) fn wait_checked(&self, limit: Duration) -> bool {
        self.0.is_by_hand || self.0.checks.wait_doubtful(limit)
    }

    /// Waits until all offered bytes are written. Syncs nothing.
    #[cfg(test)]
    pub(crate) fn wait_written(&self, limit: Duration) -> bool {
        self.0.queue.wait_idle(limit)
    }

    /// Saves the maps of all partial objects. Syncs nothing.
    #[cfg(test)]
    pub(crate) fn save_maps(&self) {
        self.0.parts.tidy(&self.0.dir, true);
    }

    /// Ends everything as a kill does.
    #[cfg(test)]
    pub(crate) fn abandon(&self) {
        let fail = |_| Err(rustix::io::Errno::IO.into());
        self.0.dir.io.faults.set(fail);
        (0..3).for_each(|_| self.0.dir.health.on_error("abandon", &rustix::io::Errno::IO.into()));
    }

    /// Drops waiting writes, the newest first.
    pub(crate) fn shed(&self, bytes: u64) -> u64 {
        let shed = self.0.queue.shed(bytes);
        let freed = shed.iter().map(|(bytes, _)| bytes).sum();
        self.0.dir.metrics.dropped_bytes.at(Dropped::Memory).add(freed);
        freed
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let is_good = self.0.dir.health.condition() == Condition::Healthy;
        if is_good && !self.0.is_by_hand && !self.flush(ENDS_AFTER) {
            tracing::warn!(
                dir = %self.0.dir.layout.root().display(),
                "the disk cache ends before all offered bytes are written"
            );
        }
        self.0.queue.close();
        self.0.readers.close();
        self.0.checks.close();
        *lock(&self.0.is_closed) = true;
        self.0.closed.notify_all();
    }
}

impl SharedDisk {
    fn new(dir: Dir, queue: Queue<Offer>, readers: Pool) -> Self {
        Self {
            synced: Mutex::new(dir.clock.now()),
            dir: Arc::new(dir),
            parts: Arc::default(),
            queue,
            readers,
            table: Mutex::default(),
            checks: Checks::default(),
            is_closed: Mutex::new(false),
            closed: Condvar::new(),
            is_by_hand: false,
        }
    }

    /// The version `named`. All callers that name the same version share it.
    fn object(self: &Arc<Self>, named: Named) -> Arc<DiskObject> {
        let mut table = lock(&self.table);
        let known = table.objects.get(&named.hash);
        let object = known.and_then(|known| known.object.upgrade());
        if let Some(found) = object.filter(|found| found.version.named.size == named.size) {
            return found;
        }
        let hash = named.hash;
        let version = table.version(&hash).filter(|version| version.named.size == named.size);
        let version =
            version.unwrap_or_else(|| Arc::new(Version::new(self.dir.clone(), self.parts.clone(), named)));
        let kept = Arc::downgrade(&version);
        let made = Arc::new(DiskObject { disk: self.clone(), version, was_passed: AtomicBool::new(false) });
        if table.objects.len() >= table.clean_at {
            table.objects.retain(|_, known| known.version.strong_count() > 0);
            table.clean_at = (2 * table.objects.len()).max(MIN_TABLE);
        }
        table.objects.insert(hash, Known { object: Arc::downgrade(&made), version: kept });
        made
    }

    /// Looks for operations that hang, and starts the housekeeping now and then in a thread, until the cache ends.
    fn watch(self: &Arc<Self>) {
        for tick in 1u64.. {
            let waited = self.closed.wait_timeout_while(lock(&self.is_closed), TICK, |is_closed| !*is_closed);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            self.look_after(tick);
        }
    }

    /// Does the work of tick number `tick`.
    fn look_after(self: &Arc<Self>, tick: u64) {
        let now = self.dir.clock.now();
        if self.dir.health.tick() {
            let shared = self.clone();
            drop(self.readers.run(now, move || shared.probe()));
        }
        let given_up = self.readers.give_up(now, WAITS);
        if given_up > 0 {
            tracing::debug!(given_up, "reads of the disk cache take too long");
        }
        if tick.is_multiple_of(HOUSEKEEPING_TICKS) && self.synced.try_lock().is_ok() {
            let shared = self.clone();
            drop(self.readers.run(now, move || shared.keep_house(false)));
        }
    }

    /// Writes and reads a small file.
    fn probe(&self) {
        let result = check::probe(&self.dir.io, &self.dir.layout);
        if let Err(error) = &result {
            tracing::debug!(%error, "probe the disk of the cache");
        }
        self.dir.health.on_probe(result.is_ok());
    }

    /// Saves maps, closes files, and syncs. If `urgent`, does all of it at once, not only what is due.
    fn keep_house(self: &Arc<Self>, urgent: bool) {
        let mut synced = lock(&self.synced);
        if !self.dir.health.may_keep_house() {
            return;
        }
        if self.dir.is_in_place() {
            self.dir.health.on_in_place();
        } else {
            match self.dir.put_in_place() {
                Ok(()) => self.dir.health.on_back(),
                Err(error) => self.dir.health.on_gone(&error),
            }
        }
        if !self.dir.health.may_begin() {
            return;
        }
        self.parts.tidy(&self.dir, urgent);
        let versions: Vec<_> = lock(&self.table).versions().collect();
        versions.iter().for_each(|version| version.tidy());
        drop(versions);
        if let Err(error) = self.dir.durable.look(&self.dir.io) {
            tracing::debug!(%error, "read the file `durable` of the disk cache");
        }
        let now = self.dir.clock.now();
        if self.dir.durable.has_news() && (urgent || now.since(*synced) >= SYNC_AFTER) {
            if let Err(error) = self.dir.durable.sync(&self.dir.io) {
                self.dir.health.on_error("sync", &error);
            }
            *synced = now;
        }
    }

    /// Queues the whole object to be compared with its checksums if it can't be trusted.
    fn check_later(&self, version: &Arc<Version>) {
        if version.wants_check() {
            self.checks.push(&version.named, Why::Doubtful, self.dir.clock.now());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run of bytes that are all on the disk, or all missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whether the bytes are on the disk.
    pub is_here: bool,
    /// Where the run ends, in bytes from the object's beginning; exclusive. A run ends after 8 GiB at the latest,
    /// though the bytes after it may be like it.
    pub end: u64,
}

/// One version of an object, and what the disk holds of it.
pub struct DiskObject {
    disk: Arc<SharedDisk>,
    version: Arc<Version>,
    /// Whether its file was passed to the kernel.
    was_passed: AtomicBool,
}

impl Drop for DiskObject {
    fn drop(&mut self) {
        if self.was_passed.load(Ordering::Relaxed) {
            self.disk.checks.push(&self.version.named, Why::Passed, self.disk.dir.clock.now());
        }
    }
}

impl fmt::Debug for DiskObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskObject").field("object", &self.version.named.object).finish_non_exhaustive()
    }
}

impl DiskObject {
    /// Finds out what the disk holds of the version. That takes one open(2); later calls answer from memory. A disk
    /// that hangs or is slow counts as empty. Counts as a use of the version.
    pub async fn look(&self) {
        self.look_as(Look::Use).await;
    }

    /// Like [`look`](Self::look), for a read that is only predicted. Does not count as a use.
    pub async fn look_for_guess(&self) {
        self.look_as(Look::Guess).await;
    }

    async fn look_as(&self, purpose: Look) {
        if !self.is_known(purpose) {
            drop(self.disk.readers.run(self.disk.dir.clock.now(), self.looking(purpose)).await);
        }
    }

    /// [Looks](Self::look), and calls `then` with the [file of the whole object](Self::whole_file): in this thread if
    /// the file is known, else in a thread of the cache, which `then` must not block.
    pub fn with_whole_file(self: &Arc<Self>, then: impl FnOnce(Option<Arc<File>>) + Send + 'static) {
        if self.is_known(Look::Use) {
            return then(self.pass());
        }
        let object = self.clone();
        let then = move |_| then(object.pass());
        self.disk.readers.run_then(self.disk.dir.clock.now(), self.looking(Look::Use), then);
    }

    /// The file for the kernel. The cache checks it later.
    fn pass(&self) -> Option<Arc<File>> {
        let file = self.whole_file();
        self.was_passed.fetch_or(file.is_some(), Ordering::Relaxed);
        file
    }

    /// Whether another look would find nothing new.
    fn is_known(&self, purpose: Look) -> bool {
        let is_use_due = purpose == Look::Use && self.version.is_use_due();
        (self.version.is_known() && !is_use_due) || !self.disk.dir.health.may_read()
    }

    /// The work that looks.
    fn looking(&self, purpose: Look) -> impl FnOnce() + Send + 'static {
        let (disk, version) = (self.disk.clone(), self.version.clone());
        move || {
            version.look(purpose);
            disk.check_later(&version);
        }
    }

    /// Whether the disk held some, but not all, blocks of the version before this process used it: earlier reads left
    /// them there.
    pub fn was_in_parts(&self) -> bool {
        self.version.was_in_parts()
    }

    /// The file of the whole object, which the kernel may read by itself. `None` if the object is not whole, if
    /// [`look`](Self::look) was not called lately, if the disk is slow, or if its bytes may not have survived a power
    /// cut and were not compared with their checksums since.
    pub fn whole_file(&self) -> Option<Arc<File>> {
        let health = &self.disk.dir.health;
        if health.condition() != Condition::Healthy || health.slow.rests() {
            return None;
        }
        self.version.whole_file()
    }
}
