//! Mounts over the store, each with a kernel, as the product joins them.
//!
//! - `outbox`: closed files that wait, and what is left of them.
//! - `taking_over`: a daemon that takes over the mount of one that has died; [`left`]: what it begins with.

mod left;
mod outbox;
mod taking_over;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use s3mount_bucket::{Rates, WritableBucket};
use s3mount_fs::{Filesystem, FsConfig, Handover, MetadataTtl, Rights, Writes, family_of};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::NewObject;
use s3mount_outbox::{Limits, Outbox, SimulatedDisk};
use s3mount_prefetch::{PrefetchConfig, Prefetcher, Tiers};
use s3mount_write::{
    FoundJournal, Journal, MemoryDisk, Owner, Phase, Record, Recovered, Recovery, SpoolConfig, StoreAddress,
    WriteConfig, Writer,
};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::time::sleep;

use self::left::Left;
use crate::disk::{CacheFolder, SimDisk};
use crate::draw::Draw;
use crate::kernel::{Kernel, KernelConfig};
use crate::store::client::MountClient;
use crate::store::{BEGIN, Change, SimStore};
use crate::watched::Watched;

/// The deadline of a call to the store.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The length of the parts of uploads: the least that S3 takes, so that long files have several.
pub const PART_BYTES: u64 = 5 << 20;

/// How a mount is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPlan {
    /// The memory of all.
    pub memory_bytes: u64,
    /// The least that it may become while programs run. The same if it stays as it is.
    pub memory_floor_bytes: u64,
    /// Whether the store tells of changes.
    pub is_told: bool,
    /// How long names are believed; `None`: the store is asked each time.
    pub metadata_ttl: Option<Duration>,
    /// Whether fsync publishes long files, too.
    pub publishes_on_fsync: bool,
    /// How long a `close` after appending may leave the file unpublished.
    pub append_delay: Duration,
    /// Whether folders have objects of their own (promise 30).
    pub folder_markers: bool,
    /// The most objects of a folder that is renamed.
    pub folder_rename_limit: usize,
    /// Whether modes and times are kept (promise 40).
    pub keeps_attributes: bool,
    /// Whether what is being written lies in a spool, too.
    pub has_spool: bool,
    /// Whether closed files wait in an outbox.
    pub is_behind: bool,
    /// Whether the machine dies with a daemon that is killed.
    pub loses_power: bool,
    /// What it asks of the store in a second at most.
    pub rates: Rates,
    /// The length of the parts of uploads. The store takes no shorter ones.
    pub part_bytes: u64,
}

/// A new journal in this folder.
fn journal(journals: &Path) -> Journal {
    let owner = Owner::this(StoreAddress::default(), UNIX_EPOCH + BEGIN);
    Journal::open(journals, &owner).expect("room for a journal")
}

/// A folder that has one mount after another: where a daemon is killed, the next takes its place.
#[derive(Debug)]
pub struct Place {
    store: Arc<SimStore>,
    number: usize,
    plan: MountPlan,
    draw: Arc<Draw>,
    /// Where the journals are, if daemons are killed.
    journals: Option<TempDir>,
    /// The disk cache of the machine, if there is one.
    cache: Option<Arc<CacheFolder>>,
    mount: Mutex<Arc<SimMount>>,
    /// How many daemons have been here, and whether the last one lives.
    life: Watched<(u64, bool)>,
    /// The disk of the outbox, if closed files wait there.
    outbox: Option<Mutex<Arc<SimulatedDisk>>>,
    /// What the daemons before have left, if one takes over from the other.
    left: Option<Mutex<Left>>,
}

/// How the daemons of a place may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// They live as long as the run.
    Never,
    /// They are killed, and others mount anew.
    Killed,
    /// They are killed, and others take over.
    TakenOver,
}

/// How many mounts may take one another's place. Each has a number of its own at the store.
pub(crate) const LIVES: usize = 1_000;

/// How long the store takes at most until it tells of a change.
pub(crate) const LATEST: Duration = Duration::from_secs(5);

/// How long requests may still be done after their client is gone.
const LATE: Duration = Duration::from_secs(200);

/// How long they may be where nothing fails.
const SOON: Duration = Duration::from_secs(5);

impl Place {
    /// A folder with its first mount. Where daemons end, they keep journals. The mounts use this `cache`.
    ///
    /// # Panics
    /// When the machine has no memory, or no room for journals.
    pub async fn new(
        store: &Arc<SimStore>,
        number: usize,
        plan: &MountPlan,
        draw: Arc<Draw>,
        ends: Ends,
        cache: Option<Arc<CacheFolder>>,
    ) -> Self {
        let journals = (ends == Ends::Killed).then(|| TempDir::new().expect("a folder"));
        let (begin, left) = match ends {
            Ends::TakenOver => {
                let (handover, left) = Left::begin(&draw, plan.has_spool);
                (Begin::Kept(handover), Some(left))
            }
            Ends::Never | Ends::Killed => (Begin::Alone, None),
        };
        let path = left.as_ref().map(Left::journals).or(journals.as_ref().map(TempDir::path));
        let outbox = plan.is_behind.then(Arc::<SimulatedDisk>::default);
        let disks = Disks { journals: path, cache: cache.as_ref(), outbox: outbox.as_ref() };
        let first = SimMount::new((store, number), plan, draw.clone(), disks, begin).await;
        Self {
            store: store.clone(),
            number,
            plan: plan.clone(),
            draw,
            journals,
            cache,
            outbox: outbox.map(Mutex::new),
            mount: Mutex::new(Arc::new(first)),
            life: Watched::new((0, true)),
            left: left.map(Mutex::new),
        }
    }

    /// The mount that is there now, or was until just now.
    pub fn mount(&self) -> Arc<SimMount> {
        self.mount.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether `close` of a file that was only appended to returns before the file is stored (promise 44).
    pub fn delays_appends(&self) -> bool {
        !self.plan.append_delay.is_zero()
    }

    /// Whether `close` returns before the file is stored.
    pub fn is_behind(&self) -> bool {
        self.plan.is_behind
    }

    /// How many daemons were killed here, and whether there is one now.
    pub fn life(&self) -> (u64, bool) {
        self.life.get()
    }

    /// Waits until a daemon is there. Returns how many were killed before it.
    pub async fn is_alive(&self) -> u64 {
        self.life.wait_for(|(_, is_alive)| is_alive).await.0
    }

    /// Kills the daemon: what it has sent may still be done, and nothing else. Returns once no request of its is under
    /// way any more.
    pub async fn kill(&self) {
        self.life.set((self.life().0, false));
        let mount = self.mount();
        mount.client.die();
        mount.kernel.kill();
        self.leave_outbox();
        if let Some(disk) = &mount.disk {
            disk.kill();
        }
        let is_calm = self.store.has_no_faults() && !self.plan.loses_power;
        if self.outbox.is_some() && is_calm && self.draw.happens(300) {
            // Another one begins to upload what is left, and is killed as well.
            sleep(SOON).await;
            let number = self.number + LIVES * (self.life().0 as usize + 1) + LIVES / 8;
            let next = self.mount_anew(number).await;
            sleep(Duration::from_millis(self.draw.below(200))).await;
            next.client.die();
            next.kernel.kill();
            self.leave_outbox();
        }
        sleep(LATE).await;
    }

    /// Another daemon takes the place of one that was killed.
    ///
    /// # Panics
    /// When the machine has no memory, or no room for journals.
    pub async fn revive(&self) {
        let (lives, _) = self.life();
        let number = self.number + LIVES * (lives as usize + 1);
        let next = self.mount_anew(number).await;
        *self.mount.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        self.life.set((lives + 1, true));
    }

    fn disks<'a>(&'a self, outbox: Option<&'a Arc<SimulatedDisk>>) -> Disks<'a> {
        let journals = self.journals.as_ref().map(TempDir::path);
        Disks { journals, cache: self.cache.as_ref(), outbox }
    }

    /// Whether modes and times are kept.
    pub fn keeps_attributes(&self) -> bool {
        self.plan.keeps_attributes
    }

    /// Notes that its mount hears of a change.
    pub(crate) fn note_heard(&self, change: &Change) {
        self.store.note_heard(self.number, change);
    }

    /// Whether the store tells of changes.
    pub fn is_told(&self) -> bool {
        self.plan.is_told
    }

    /// How long a mount may show what was so before.
    pub fn longest_belief(&self) -> Duration {
        let longest = if self.plan.is_told { LATEST } else { self.plan.metadata_ttl.unwrap_or_default() };
        longest + Duration::from_secs(2)
    }

    /// How old what a listing shows may be when it begins (promise 18).
    pub fn listing_age(&self) -> Duration {
        self.plan.metadata_ttl.unwrap_or_default().min(Duration::from_secs(1))
    }

    /// Whether new folders have objects (promise 30).
    pub fn marks_folders(&self) -> bool {
        self.plan.folder_markers
    }

    /// The most objects of a folder that is renamed.
    pub fn folder_rename_limit(&self) -> usize {
        self.plan.folder_rename_limit
    }

    /// What daemons that were killed have left at the store is cleaned up, as the next one does it.
    ///
    /// # Errors
    /// What could not be cleaned up.
    ///
    /// # Panics
    /// When the journals can't be read.
    pub async fn recover(&self) -> Result<(), String> {
        let Some(journals) = &self.journals else { return Ok(()) };
        let client = MountClient::new(self.store.clone(), self.number + LIVES / 2);
        let recovery = Recovery::new(WritableBucket::seeded(client, 64, self.draw.next()), TIMEOUT, false);
        let mut left = Vec::new();
        // All of them are in this process, so the locks don't say which one is dead. None is alive now.
        for found in FoundJournal::all(journals.path()).expect("a folder of journals") {
            if let FoundJournal::Live(_, records) = found {
                left.extend(records);
            }
        }
        self.put_in_order(&recovery, left).await
    }

    async fn put_in_order(&self, recovery: &Recovery, left: Vec<Record>) -> Result<(), String> {
        let mut wrong = Vec::new();
        for record in left {
            match recovery.recover(&record).await {
                Ok(Recovered::Unsure(listed)) => {
                    for left in listed {
                        wrong.extend(recovery.abort(&left.upload).await.err().map(|error| error.to_string()));
                    }
                }
                Ok(_) => {}
                Err(error) => wrong.push(error.to_string()),
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
    }
}

/// One mount.
#[derive(Debug)]
pub struct SimMount {
    /// The mount's way to the store.
    pub client: Arc<MountClient>,
    /// Its filesystem.
    pub fs: Arc<Filesystem>,
    /// The kernel on top.
    pub kernel: Arc<Kernel>,
    /// The writer.
    pub writer: Writer,
    /// The memory.
    pub pool: BufferPool,
    /// The disk cache.
    pub disk: Option<SimDisk>,
}

/// The disks of a mount.
#[derive(Clone, Copy)]
struct Disks<'a> {
    journals: Option<&'a Path>,
    cache: Option<&'a Arc<CacheFolder>>,
    outbox: Option<&'a Arc<SimulatedDisk>>,
}

/// How a daemon begins.
enum Begin {
    /// It mounts, and nobody takes over from it.
    Alone,
    /// It mounts, and takes notes for the next one.
    Kept(Handover),
    /// It takes over what another has left in this kernel.
    TakenOver(Handover, s3mount_fs::Left, Arc<Kernel>, Vec<(String, String, Phase)>),
}

impl SimMount {
    /// Mounts the bucket, as the mount of this number, which keeps its journal in the folder `journals`, and what it
    /// has read in `cache`; or goes on with a mount.
    ///
    /// # Panics
    /// When the machine has no memory, or no room for the journal.
    async fn new(
        (store, number): (&Arc<SimStore>, usize),
        plan: &MountPlan,
        draw: Arc<Draw>,
        Disks { journals, cache, outbox }: Disks<'_>,
        begin: Begin,
    ) -> Self {
        let runtime = Handle::current();
        let client = MountClient::new(store.clone(), number);
        let bucket = WritableBucket::seeded(client.clone(), 64, draw.next()).with_rates(plan.rates);
        let pool = BufferPool::new(MemoryBudget::between(plan.memory_floor_bytes, plan.memory_bytes))
            .expect("memory");
        let prefetch = PrefetchConfig {
            read_timeout: TIMEOUT,
            small_object_bytes: 64 << 10,
            max_requests: 32,
            ..PrefetchConfig::default()
        };
        // The disk has a row of numbers of its own.
        let disk = cache.map(|cache| cache.open(Arc::new(Draw::new(draw.next()))));
        let tiers = Tiers { disk: disk.as_ref().map(|disk| disk.cache.clone()), ..Tiers::default() };
        let prefetcher = Prefetcher::with_tiers(bucket.reader(), pool.clone(), tiers, prefetch, &runtime);
        let write = WriteConfig {
            part_bytes: plan.part_bytes,
            least_part_bytes: plan.part_bytes,
            memory_bytes: plan.memory_floor_bytes / 2,
            body_bytes: plan.memory_floor_bytes / 2,
            max_requests: 8,
            timeout: TIMEOUT,
            started_at: store.now(),
            journal: journals.map_or_else(Journal::default, journal),
            spool: plan
                .has_spool
                .then(|| SpoolConfig { disk: Arc::new(MemoryDisk), limit_bytes: plan.memory_bytes }),
            ..WriteConfig::default()
        };
        let readers = prefetcher.clone();
        let writer = Writer::with(bucket.clone(), pool.clone(), write, &runtime, move || {
            readers.reclaim();
        });
        let limits = Limits { bytes: 64 << 20, entries: 64, segment_bytes: 1 << 20 };
        let outbox = outbox.map(|disk| Outbox::open(disk.clone(), limits).expect("a disk without faults"));
        let writes = Writes {
            writer: writer.clone(),
            rights: Rights {
                may_delete: true,
                may_overwrite: true,
                folder_rename_limit: plan.folder_rename_limit,
            },
            object: NewObject::default(),
            append_delay: plan.append_delay,
            outbox: outbox.as_ref().map(|(outbox, left)| (outbox.clone(), family_of(left, draw.next()))),
            publishes_on_fsync: plan.publishes_on_fsync,
        };
        let config = FsConfig {
            mounted_at: UNIX_EPOCH + BEGIN,
            started_at: store.now(),
            metadata_ttl: plan.metadata_ttl.map_or(MetadataTtl::Minimal, MetadataTtl::For),
            negative_metadata_ttl: plan
                .metadata_ttl
                .filter(|_| plan.is_told)
                .unwrap_or(Duration::from_secs(1)),
            allows_writes: true,
            is_told: plan.is_told,
            timeout: TIMEOUT,
            ..FsConfig::default()
        };
        let fs = Filesystem::new(bucket.clone(), prefetcher, config, &runtime).with_writes(writes);
        let fs = if plan.keeps_attributes { fs.with_attributes(bucket) } else { fs };
        let fs = if plan.folder_markers { fs.with_folder_markers() } else { fs };
        writer.register(fs.registry());
        let has_passthrough = disk.as_ref().is_some_and(SimDisk::passes_files);
        let config = KernelConfig { has_passthrough, ..KernelConfig::new(draw) };
        let (fs, kernel) = match begin {
            Begin::Alone => {
                let fs = Arc::new(fs);
                (fs.clone(), Kernel::new(fs, config))
            }
            Begin::Kept(handover) => {
                let fs = Arc::new(fs.with_handover(Arc::new(handover)));
                (fs.clone(), Kernel::new(fs, config))
            }
            Begin::TakenOver(handover, left, kernel, begun) => {
                let fs = Arc::new(fs.with_handover(Arc::new(handover)));
                fs.expect_renames(begun);
                let opened = left.opened().collect();
                let unsaved = fs.restore(left);
                kernel.take_over(fs.clone(), opened);
                kernel.drop_unsaved(unsaved);
                (fs, kernel)
            }
        };
        fs.take_left(outbox.map(|(_, left)| left).unwrap_or_default()).await;
        Self { client, fs, kernel, writer, pool, disk }
    }

    /// Whether the mount holds nothing any more, but for what the kernel does not know of.
    ///
    /// # Errors
    /// What it holds.
    pub fn is_at_rest(&self) -> Result<(), String> {
        // This brings the metrics up to date.
        drop(self.fs.registry().snapshot());
        let (fs, writer) = (self.fs.metrics(), self.writer.metrics());
        let budget = self.pool.budget();
        let [files, folders] = self.kernel.leaks();
        let held = [
            ("open files", fs.open_files.get().saturating_sub(files)),
            ("open folders", fs.open_folders.get().saturating_sub(folders)),
            ("requests of drafts", writer.in_flight.get()),
            // A file that the kernel does not know of may be a draft without a name.
            ("bytes of drafts", if files > 0 { 0 } else { writer.memory.get() }),
            ("waits for memory", self.pool.waiting()),
            ("bytes beyond the memory limit", budget.used_bytes().saturating_sub(budget.limit_bytes())),
            ("bytes for the disk", self.disk.as_ref().map_or(0, |disk| disk.cache.held_bytes())),
        ];
        let held: Vec<String> = held
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        if held.is_empty() { Ok(()) } else { Err(held.join(", ")) }
    }
}
